"""One paste → captures: blocks, runs, engines; every line that is no prose in exactly one of them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from loadpath.core.text import Line
from loadpath.intake.clean import clean
from loadpath.intake.cut import LogShape, Shape, cut


def table(lines: Sequence[Line], i: int) -> int:
    if "smi" not in lines[i].text:
        return i
    while i < len(lines) and lines[i].text:
        i += 1
    return i


BLOCKS = [Shape("table", ("smi",), table)]
LOGS = [
    LogShape("red-log", ("red ",), lambda line: "red start" in line.text),
    LogShape("blue-log", ("blue ",), lambda line: "blue start" in line.text),
]


def captures(text: str) -> list[tuple[str, int, list[int]]]:
    return [(c.kind, c.run, [line.number for line in c.lines]) for c in cut("x", clean(text.encode()), BLOCKS, LOGS)]


def test_a_block_interrupts_a_log_whose_run_goes_on() -> None:
    assert captures("red start\nred 1\nsmi\nrow\n\nred 2\n") == [("red-log", 1, [1, 2, 5, 6]), ("table", 1, [3, 4])]


def test_each_start_begins_a_run_and_what_precedes_the_first_belongs_to_it() -> None:
    assert captures("nohup: ignoring input\nred start\nred 1\nred start\nred 2\n") == [
        ("red-log", 1, [1, 2, 3]), ("red-log", 2, [4, 5]),
    ]  # fmt: skip


def test_two_engines_in_one_paste_are_two_logs() -> None:
    assert captures("red start\nred 1\nx\nblue start\nblue 1\ny\n") == [
        ("red-log", 1, [1, 2, 3]), ("blue-log", 1, [4, 5, 6]),
    ]  # fmt: skip


def test_one_line_that_names_another_engine_changes_nothing() -> None:
    assert captures("red start\nred 1\npath of blue thing\nred 2\nx\n") == [("red-log", 1, [1, 2, 3, 4, 5])]


def test_prose_is_in_no_capture() -> None:
    assert captures("How can I fix that?\nred start\n") == [("red-log", 1, [2])]


def test_lines_that_nothing_knows_are_a_log() -> None:
    assert captures("a\nb\n") == [("log", 1, [1, 2])]


WORDS = st.sampled_from(["red start", "red 1", "blue start", "blue 2", "smi", "", "x", "How can I fix that?"])


@given(st.lists(WORDS, max_size=25))
def test_every_line_is_in_exactly_one_capture(words: list[str]) -> None:
    lines = clean("\n".join(words).encode())
    held = sorted(line.number for c in cut("x", lines, BLOCKS, LOGS) for line in c.lines)
    assert held == [line.number for line in lines if not line.prose]
