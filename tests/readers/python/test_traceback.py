"""Python tracebacks: chained, interleaved, grouped, cut, or one line alone."""

from __future__ import annotations

from loadpath.core.facts.errors import PythonException
from loadpath.core.text import NO_ORIGIN, Capture, Line, Origin
from loadpath.readers.python.traceback import read


def exceptions(text: str, ranks: list[int | None] | None = None) -> list[PythonException]:
    lines = []
    for i, raw in enumerate(text.split("\n")):
        origin = Origin(rank=ranks[i]) if ranks and ranks[i] is not None else NO_ORIGIN
        lines.append(Line(i + 1, raw.strip(), raw, origin))
    return list(read(Capture("log", "t", tuple(lines))))


CHAIN = """Traceback (most recent call last):
  File "/srv/a.py", line 7, in load
    weights[name]
KeyError: 'w'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/b.py", line 9, in main
    raise RuntimeError("no")
RuntimeError: no weights
for this model"""


def test_the_first_cause_of_a_chain_is_number_zero() -> None:
    first, second = exceptions(CHAIN)
    assert (first.exception, first.chain, second.chain) == ("KeyError", 0, 1)
    assert first.frames == (("/srv/a.py", 7, "load"),)


def test_a_message_of_several_lines_is_kept_whole() -> None:
    assert exceptions(CHAIN)[1].message == "no weights\nfor this model"
    assert str(exceptions(CHAIN)[1].span) == "t:11-12"


def test_ranks_that_print_at_once_are_told_apart() -> None:
    text = "\n".join([
        "Traceback (most recent call last):", "Traceback (most recent call last):",
        '  File "/srv/a.py", line 1, in f', '  File "/srv/a.py", line 2, in g',
        "ValueError: of rank 1", "ValueError: of rank 0",
    ])  # fmt: skip
    one, zero = exceptions(text, [0, 1, 1, 0, 1, 0])
    assert (one.message, one.frames) == ("of rank 1", (("/srv/a.py", 1, "f"),))
    assert (zero.message, zero.frames) == ("of rank 0", (("/srv/a.py", 2, "g"),))


def test_a_traceback_without_its_head() -> None:
    (found,) = exceptions('  File "/srv/a.py", line 1, in f\n    x()\nOSError: [Errno 28] No space left on device')
    assert found.frames == (("/srv/a.py", 1, "f"),)


def test_a_line_alone_and_a_pydantic_report() -> None:
    found = exceptions(
        "pydantic_core.ValidationError: 1 validation error for C\n  Value error, heads do not fit [type=value_error, x]"
    )
    assert [(e.exception, e.message) for e in found][1] == ("ValueError", "heads do not fit")


def test_the_members_of_a_group_are_found() -> None:
    text = """  + Exception Group Traceback (most recent call last):
  |   File "/srv/a.py", line 3, in run
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/srv/b.py", line 4, in work
    | ValueError: inner"""
    assert [e.message for e in exceptions(text) if e.exception == "ValueError"] == ["inner"]


def test_words_of_a_log_are_no_exception() -> None:
    assert exceptions("Error handling is on\nerrors: 0\nINFO: ValueError may be raised later") == []
