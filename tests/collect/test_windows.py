"""Long logs: the beginning, the first error and the end are kept, and what is not is said and counted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.collect.windows import keep

LINES = [b"step %d went well enough\n" % i for i in range(40_000)]
LINES[20_000] = b"ERROR the first thing that went wrong\n"
LINES[30_000] = b"ERROR a later one\n"
LOG = b"".join(LINES)


def chunks(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def test_a_short_log_is_kept_whole() -> None:
    assert keep([b"one\n", b"two\n"], 1000).data == b"one\ntwo\n"


def test_beginning_first_error_and_end_of_a_long_log_are_kept() -> None:
    kept = keep(chunks(LOG, 65_536), 100_000)
    lines = kept.data.splitlines(keepends=True)
    assert lines[0] == LINES[0]
    assert lines[-1] == LINES[-1]
    assert LINES[20_000] in lines
    assert LINES[19_990] in lines, "what led to the error is kept with it"
    assert LINES[30_000] not in lines
    assert sum(b"left out here" in line for line in lines) == 2


@settings(max_examples=40, deadline=None)
@given(st.integers(500, 200_000), st.integers(3_000, 300_000))
def test_kept_and_left_out_add_up(size: int, room: int) -> None:
    kept = keep(chunks(LOG, size), room)
    told = sum(len(line) for line in kept.data.splitlines(keepends=True) if b"left out here" not in line)
    assert told + kept.left_out_bytes == kept.total_bytes == len(LOG)
    assert len(kept.data) <= room + 300
    assert all(line in LINES or b"left out here" in line for line in kept.data.splitlines(keepends=True))
