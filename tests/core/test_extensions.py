"""Readers and rules of other packages are found by their entry points."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

MODULE = """
from loadpath.core.facts.base import Fact, at
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule
from loadpath.readers.registry import ReaderEntry


class Overheated(Fact, frozen=True, kw_only=True):
    celsius: int


ENTRY = ReaderEntry("rack", "rack_plugin", ("RACK TEMP",), "anywhere", package="")


def read(capture):
    for line in capture.lines:
        if line.text.startswith("RACK TEMP"):
            yield Overheated(**at(capture, line), celsius=int(line.text.split()[-1]))


def judge(case):
    for fact in case.all(Overheated):
        yield Finding("rack-overheated", "error", "established", "unseen", "hardware-kernel", f"{fact.celsius} C", "hot")


RULES = (Rule(judge, (Overheated,), ("rack-overheated",)),)
"""


def test_another_package_adds_a_reader_and_a_rule(tmp_path: Path) -> None:
    (tmp_path / "rack_plugin.py").write_text(textwrap.dedent(MODULE))
    info = tmp_path / "rack_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rack-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[loadpath.readers]\nrack = rack_plugin:ENTRY\n[loadpath.rules]\nrack = rack_plugin:RULES\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "loadpath", "read", "-"], input="RACK TEMP 91\n", capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "91 C" in done.stdout
