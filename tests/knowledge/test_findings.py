"""Every row of the findings tables holds what it promises."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from loadpath.core.vocabulary import STEPS
from loadpath.knowledge import tables
from loadpath.knowledge.tables import FindingRow, Match, findings

ROWS = list(findings().values())
MATCHES = [(row, match) for row in ROWS for match in row.match]


def label(value: object) -> str:
    return value.id if isinstance(value, FindingRow) else ""


def test_ids_are_unique() -> None:
    files = sorted((Path(tables.__file__).parent / "findings").glob("*.toml"))
    counts = Counter(row.id for file in files for row in tables.read_findings(file))
    assert [name for name, n in counts.items() if n > 1] == []


@pytest.mark.parametrize(("row", "match"), MATCHES, ids=label)
def test_pattern_matches_its_examples(row: FindingRow, match: Match) -> None:
    for example in (match.example, *match.also):
        assert re.search(match.regex, example, re.MULTILINE), f"{row.id}: {match.regex!r} does not match {example!r}"
        assert match.literals, f"{row.id}: no literal can be derived from {match.regex!r}; give `literals`"
        assert any(literal in example.lower() for literal in match.literals), f"{row.id}: literals not in {example!r}"


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_row_is_whole(row: FindingRow) -> None:
    assert row.step.removeprefix("auto:") in (*STEPS, "unseen", "auto")
    assert row.severity == "info" or row.remedies or row.next_checks or row.judged_by, "neither remedy nor check"
    assert len(row.title) <= 140, "a title is one short sentence"


def test_what_a_row_folds_exists() -> None:
    ids = {row.id for row in ROWS}
    gone = [(row.id, name) for row in ROWS for name in row.folds if not any(fnmatchcase(i, name) for i in ids)]
    assert not gone, f"folds of findings that no row is called: {gone}"
