"""Bytes → lines: decoding, terminal codes, progress bars, numbers; whatever the bytes are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.core.text import Line
from loadpath.intake.clean import LONGEST, clean


def texts(data: bytes | str) -> list[str]:
    return [line.text for line in clean(data.encode() if isinstance(data, str) else data)]


def one(text: str) -> Line:
    (line,) = clean(text.encode())
    return line


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)  # fmt: skip
def test_text_is_read_in_the_encodings_that_shells_write(encoding: str) -> None:
    text = "Starting to load model…\r\nRuntimeError: CUDA error: out of memory\r\n"
    assert texts(text.encode(encoding)) == ["Starting to load model…", "RuntimeError: CUDA error: out of memory"]


def test_nuls_and_bytes_that_are_no_utf8_do_not_hide_a_line() -> None:
    assert texts(b"\0\0\0RuntimeError: no\xff device\0\nnext") == ["RuntimeError: no\ufffd device", "next"]


def test_colours_are_gone_also_where_the_escape_byte_was_lost_or_spelled_out() -> None:
    for escape in ("\x1b", "^[", "\\x1b", "\\u001b", "#033"):
        line = one(f"{escape}[1;36m(EngineCore_DP0 pid=94){escape}[0;0m ERROR 12-24 08:50:35 [core.py:866] failed")
        assert (line.text, line.origin.process) == ("failed", "EngineCore_DP0")
    assert one("[1;36m(VllmWorker rank=3 pid=7)[0;0m INFO 12-24 08:50:35 [a.py:1] up").text == "up"
    assert one("\x1b]0;root@host: ~\x07Killed").text == "Killed"


def test_a_bar_that_overwrote_itself_leaves_its_last_state() -> None:
    bar = "\r".join(
        f"Loading safetensors checkpoint shards: {i * 25}% Completed | {i}/4 [00:0{i}<00:0{4 - i}, 1.0it/s]"
        for i in range(5)
    )
    lines = clean(f"before\n{bar}\nafter\n".encode())
    assert [(line.number, line.text[:52]) for line in lines] == [
        (1, "before"), (2, "Loading safetensors checkpoint shards: 100% Complete"), (3, "after"),
    ]  # fmt: skip


def test_a_record_behind_a_bar_is_a_line_of_its_own_with_the_same_number() -> None:
    first, second = clean(
        b"Loading shards: 98%|#### | 66/67 [00:33<00:00, 1.99it/s] "
        b"(VllmWorker rank=3 pid=9) INFO 08-16 02:01:42 [loader.py:1] Loading weights took 33.1 seconds"
    )
    assert first.number == second.number == 1
    assert (second.text, second.origin.rank) == ("Loading weights took 33.1 seconds", 3)
    assert texts("Loading checkpoint shards:  75%|### | 3/4 [00:08<00:02,  2.83s/it]Killed")[-1] == "Killed"


def test_every_update_that_is_no_bar_is_kept() -> None:
    assert texts("Waiting for engine\rERROR 08-16 02:01:42 [core.py:1] boom\n") == ["Waiting for engine", "boom"]


def test_a_prefix_that_a_bar_was_parted_from_comes_back_to_it() -> None:
    (line,) = clean(b"(Worker_TP1 pid=17) \nLoading shards: 27% Completed | 23/85 [09:54<29:59, 29.02s/it]\n")
    assert (line.number, line.origin.rank) == (2, 1)


def test_entities_quotes_and_bullets_of_web_pages_are_undone() -> None:
    assert one("&gt; ERROR 04-09 05:40:54 [core.py:390] a &amp;lt; b &#39;c&#39;").text == "a < b 'c'"
    assert one("- ImportError: libcudart.so.12: cannot open shared object file").text.startswith("ImportError")
    assert one("- a list item").text == "- a list item"
    assert one(">>> import torch").text == ">>> import torch"


def test_an_indentation_that_all_lines_share_goes_the_rest_stays() -> None:
    assert texts('    Traceback (most recent call last):\n      File "a.py", line 1\n        f()\n') == [
        "Traceback (most recent call last):", '  File "a.py", line 1', "    f()",
    ]  # fmt: skip


def test_a_line_of_megabytes_keeps_its_beginning_and_end() -> None:
    line = one("INFO 04-09 05:40:54 [a.py:1] start " + "x" * 3_000_000 + " end")
    assert line.text.startswith("start") and line.text.endswith("end") and len(line.text) <= LONGEST + 10


def test_raw_is_the_line_as_pasted_for_evidence() -> None:
    assert one("\x1b[36m(Worker pid=1)\x1b[0m ERROR 04-09 05:40:54 [a.py:1] x").raw == (
        "(Worker pid=1) ERROR 04-09 05:40:54 [a.py:1] x"
    )


@given(st.binary(max_size=2000))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_lines_with_rising_numbers(data: bytes) -> None:
    numbers = [line.number for line in clean(data)]
    assert numbers == sorted(numbers)
    assert all(line.end >= line.number for line in clean(data))


PIECES = st.sampled_from([
    "\x1b[31m", "\r", "\r\n", "\n", "> ", "&gt;", "```\n", "(Worker_TP1 pid=7) ", "INFO 12-24 08:50:35 [a.py:1] ", "[rank0]: ",
    '{"log":"', '","stream":"stderr","time":"2026-11-30T01:28:27Z"}', "2026-11-30T01:28:27.1Z stderr P ", "vllm-1  | ", "[ 12.345678] ",
    "Nov 30 03:24:00 h kernel: ", "NVRM: Xid (PCI:0000:01:00): 79", "Traceback (most recent call last):", '  File "x", line 1',
    "RuntimeError: CUDA out of memory", "100%|##| 4/4 [00:01<00:00, 3it/s]", "|  0  NVIDIA H100  |", "I have a problem",
    "\0", "\ufeff", "é", "12: ",
])  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join))
@settings(max_examples=400, deadline=None)
def test_any_mixture_of_what_logs_hold_keeps_its_line_numbers(text: str) -> None:
    lines = clean(text.encode())
    physical = text.encode().decode("utf-8-sig").split("\n")
    for line in lines:
        assert 1 <= line.number <= line.end <= len(physical)


@given(st.lists(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=30), max_size=30))
def test_every_plain_line_keeps_its_number_and_its_words(words: list[str]) -> None:
    lines = clean("\n".join(f"{word} =={i}" for i, word in enumerate(words)).encode())
    assert [(line.number, line.text) for line in lines] == [
        (i + 1, f"{w} =={i}") for i, w in enumerate(words)
    ] or not words
