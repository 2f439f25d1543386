"""Every row's own examples give a finding in whole words: no gap of a template is ever shown."""

from __future__ import annotations

import re

import msgspec
import pytest

from conftest import read_text
from loadpath.diagnosis.rule import without_gaps
from loadpath.knowledge.tables import FindingRow, findings

GAPS = re.compile(r"(?<!\{)\{[a-z_]+\}(?!\})")


@pytest.mark.parametrize("row", findings().values(), ids=lambda row: row.id)
def test_no_gap_is_shown(row: FindingRow) -> None:
    for example in (text for match in row.match for text in (match.example, *match.also)):
        report = read_text(example)
        for f in report.findings:
            said = [f.title, f.cause, *(t for r in f.remedies for t in (r.action, r.command, r.effect))]
            gaps = [gap for gap in GAPS.findall(msgspec.json.encode(findings()[f.id]).decode()) if "{{" not in gap]
            for text in said:
                assert not any(gap in text for gap in gaps), f"{f.id} says {text!r} for {example!r}"


def test_a_title_without_its_figures_still_reads_well() -> None:
    assert without_gaps("The extension is not loaded ({what})") == "The extension is not loaded"
    assert without_gaps("A CUDA call inside NCCL failed: {e}") == "A CUDA call inside NCCL failed"
