"""The pages under docs/ and the README's sample are what the tables and the command say now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

GENERATE = Path(__file__).parent.parent / "docs" / "generate.py"


def test_generated_pages_are_fresh() -> None:
    spec = importlib.util.spec_from_file_location("generate_docs", GENERATE)
    assert spec is not None and spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.stale() == [], "run: make docs"
