"""A part of ours that breaks is named, and what it gave before stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadpath.core.guard import guarded
from loadpath.core.report import Skipped


def breaking() -> Iterator[int]:
    yield 1
    raise KeyError("gone")


def test_a_broken_part_is_named_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOADPATH_STRICT")
    broken: list[Skipped] = []
    assert guarded("xid.judge", breaking, broken) in ([], [1])
    assert broken[0].what == "xid.judge" and "KeyError" in broken[0].why


def test_in_tests_it_is_raised() -> None:
    with pytest.raises(KeyError):
        guarded("xid.judge", breaking, [])
