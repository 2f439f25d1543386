"""Generation that crawls."""

from __future__ import annotations

from conftest import read_text

LINE = (
    "INFO 03-18 09:04:{second} metrics.py:481] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {rate} "
    "tokens/s, Running: {running} reqs, Swapped: 0 reqs, Pending: {waiting} reqs, GPU KV cache usage: 0.6%, CPU KV cache "
    "usage: 0.0%.\n"
)


def log(rate: float, running: int = 2, waiting: int = 0, lines: int = 4) -> str:
    return "".join(LINE.format(second=10 + i, rate=rate, running=running, waiting=waiting) for i in range(lines))


def test_a_fraction_of_a_token_a_second_is_told() -> None:
    report = read_text(log(0.4))
    root = report.root
    assert root is not None and root.id == "decode-very-slow"
    assert root.certainty == "possible" and "0.2 tokens/s" in root.title


def test_ordinary_decode_and_short_spells_are_not() -> None:
    assert read_text(log(60.0)).root_cause is None
    assert read_text(log(0.4, lines=2)).root_cause is None
