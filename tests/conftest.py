"""Shared test data: where the project's shared folder lies, and a shortcut from text to report."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadpath.core.report import Report
from loadpath.reading.service import read_bytes

os.environ["LOADPATH_STRICT"] = "1"  # a reader or rule that breaks fails its test
SHARED = Path(os.environ.get("LOADPATH_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def shared_file(*parts: str) -> Path:
    """A file of the shared folder; skips the test where the folder is not there."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not here: this test reads the project's shared samples")
    return path


def read_text(text: str, name: str = "paste") -> Report:
    return read_bytes([(name, text.encode())])
