"""Big sources: what matters is kept under its right number, whatever the chunks; memory and floods are bounded."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.intake import scan
from loadpath.intake.sieve import EDGE_LINES, FIRST, LAST, Sieve, Sign, as_utf8

SIGNS = [Sign("error: ", 2, 3), Sign("Traceback", 1, 5), Sign("everywhere", 0, 0)]
QUIET = b'INFO:     10.0.0.7:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def sift(data: bytes, chunk: int = 1 << 16, signs: list[Sign] = SIGNS) -> Sieve:
    sieve = Sieve("big.log", signs)
    for at in range(0, len(data), chunk):
        sieve.feed(data[at : at + chunk])
    return sieve


def numbered(count: int, marks: dict[int, bytes]) -> bytes:
    return b"".join(marks.get(n, QUIET + b" %d" % n) + b"\n" for n in range(1, count + 1))


def test_a_line_in_the_middle_is_kept_with_its_neighbours_under_its_number() -> None:
    data = numbered(60000, {30000: b"RuntimeError: boom"})
    kept = dict(sift(data).sifted().lines)
    assert kept[30000] == "RuntimeError: boom"
    assert [n for n in range(29990, 30010) if kept.get(n)] == [29998, 29999, 30000, 30001, 30002, 30003]
    assert all(line.endswith(f" {n}") for n, line in kept.items() if line and n != 30000)
    assert kept[EDGE_LINES + 1] == "", "an empty line stands in the gap, so that blocks end there"


def test_head_and_tail_are_always_kept() -> None:
    kept = dict(sift(numbered(60000, {})).sifted().lines)
    assert {1, EDGE_LINES, 60000 - EDGE_LINES + 1, 60000} <= kept.keys()
    assert kept[60000].endswith(" 60000")


def test_what_was_not_kept_is_said() -> None:
    notes = sift(numbered(60000, {})).sifted().skipped
    assert "60,000 lines" in notes[0].what and notes[0].why


@pytest.mark.parametrize("chunk", [777, 1 << 16, 10 << 20])
def test_chunks_do_not_matter(chunk: int) -> None:
    chance = random.Random(chunk)
    marks = {chance.randrange(1, 50000): b"ValueError: number %d" % i for i in range(40)}
    data = numbered(50000, marks)
    kept = dict(sift(data, chunk).sifted().lines)
    assert {n: line.decode() for n, line in marks.items()}.items() <= kept.items()


def test_a_sign_that_stands_in_every_line_costs_no_memory_and_hides_nothing() -> None:
    marks = {45000: b"everywhere SomeError: the one that matters"}
    data = b"".join(marks.get(n, b"everywhere %d" % n) + b"\n" for n in range(1, 90001))
    sifted = sift(data).sifted()
    assert dict(sifted.lines)[45000].endswith("matters")
    assert len(sifted.lines) < 2 * EDGE_LINES + FIRST + LAST + 50


def test_of_a_frequent_sign_the_first_and_the_last_are_kept() -> None:
    marks = {n: b"OSError: %d" % n for n in range(5000, 95000, 300)}
    kept = dict(sift(numbered(100000, marks)).sifted().lines)
    found = sorted(n for n in marks if n in kept)
    assert found[:FIRST] == sorted(marks)[:FIRST] and found[-LAST:] == sorted(marks)[-LAST:]
    assert len(found) < len(marks)


def test_a_long_context_crosses_blocks() -> None:
    signs = [Sign("start of it", 0, 9000)]
    data = numbered(60000, {14000: b"start of it"})
    kept = dict(sift(data, 100000, signs).sifted().lines)
    assert all(kept.get(n) for n in range(14000, 23001))
    assert not kept.get(23002)


def test_megabytes_without_a_line_end_do_not_pile_up() -> None:
    data = b"a\n" + b"x" * (9 << 20) + b"RuntimeError: boom" + b"y" * (9 << 20) + b"\nlast"
    sifted = sift(data).sifted()
    assert (3, "last") in sifted.lines
    assert any(n == 2 and "RuntimeError: boom" in line for n, line in sifted.lines)
    assert sum(len(line) for _, line in sifted.lines) < 1 << 20


def test_utf16_is_turned_into_utf8_before() -> None:
    data = numbered(30000, {20000: b"RuntimeError: boom"}).decode().encode("utf-16")
    pieces = [data[i : i + 10001] for i in range(0, len(data), 10001)]
    sieve = Sieve("w.log", SIGNS)
    for piece in as_utf8(pieces):
        sieve.feed(piece)
    assert dict(sieve.sifted().lines)[20000] == "RuntimeError: boom"


def test_what_was_kept_can_be_asked_for_while_more_comes() -> None:
    sieve = sift(numbered(30000, {}))
    before = dict(sieve.sifted().lines)
    sieve.feed(b"KeyError: late\n")
    after = dict(sieve.sifted().lines)
    assert max(before) == 30000 and after[30001] == "KeyError: late"


@given(st.binary(max_size=3000), st.integers(1, 500))
@settings(max_examples=150, deadline=None)
def test_small_input_comes_back_whole(data: bytes, chunk: int) -> None:
    lines = sift(data, chunk).sifted().lines
    expected = data.decode("utf-8", "replace") if data else ""
    physical = [line.decode("utf-8", "replace") for line in data.split(b"\n")]
    assert [line for _, line in lines] == (physical[:-1] if physical[-1] == "" else physical)[-EDGE_LINES:], expected


def test_the_stand_in_finds_what_hyperscan_finds() -> None:
    literals = ["error", "out of memory", "é"]
    text = "Error: OUT OF MEMORY … no error é".encode()
    slow = scan.OneByOne(literals)
    fast = scan.matcher(literals)
    assert sorted(slow.find(text)) == sorted(fast.find(text))
    for matcher in (slow, fast):
        matcher.drop([0])
        assert {sign for _, sign in matcher.find(text)} == {1, 2}
