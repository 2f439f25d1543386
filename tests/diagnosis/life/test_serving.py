"""Slow while serving: told from the engine's periodic lines, with their figures."""

from __future__ import annotations

from conftest import read_text

LINE = (
    "INFO 03-17 15:38:{s:02d} [loggers.py:259] Engine 000: Avg prompt throughput: {p} tokens/s, Avg generation throughput: "
    "{g} tokens/s, Running: {r} reqs, Waiting: {w} reqs, GPU KV cache usage: {k}%, Prefix cache hit rate: 0.0%"
)


def lines(*rows: tuple[float, float, int, int, float]) -> str:
    return "\n".join(LINE.format(s=10 * i, p=p, g=g, r=r, w=w, k=k) for i, (p, g, r, w, k) in enumerate(rows))


def test_prompts_that_starve_generation() -> None:
    root = read_text(lines((21000.0, 15.0, 9, 80, 20.0), (21010.0, 40.0, 21, 70, 45.0))).root
    assert root is not None and root.id == "prefill-starves-decode"
    assert "80 to 70 requests wait" in root.cause and "20% to 45%" in root.cause


def test_a_full_cache_asks_for_fewer_requests_than_ran() -> None:
    root = read_text(lines((200.0, 500.0, 20, 45, 99.3), (210.0, 480.0, 20, 47, 98.9))).root
    assert root is not None and root.id == "kv-cache-full" and root.remedies[0].command == "--max-num-seqs 15"


def test_ordinary_load_is_no_finding() -> None:
    assert read_text(lines((800.0, 400.0, 20, 0, 40.0), (820.0, 410.0, 20, 0, 42.0))).root is None


def test_preemptions_are_counted() -> None:
    text = (
        "WARNING scheduler.py:1242] Sequence group 17 is preempted by PreemptionMode.RECOMPUTE mode because there is not "
        "enough KV cache space. total_num_cumulative_preemption=51"
    )
    root = read_text(text).root
    assert root is not None and root.figures["preemptions"] == 51 and "51 times" in root.cause


def test_ollama_ps_with_a_part_on_the_cpu() -> None:
    root = read_text(
        "NAME  ID  SIZE  PROCESSOR  UNTIL\nllama3:70b  bcfb190ca3a7  42 GB  48%/52% CPU/GPU  4 minutes from now"
    ).root
    assert root is not None and "48 %" in root.title and root.boundary == "performance"
