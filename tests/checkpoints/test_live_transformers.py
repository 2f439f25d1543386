"""The written counts, made anew by an installed `transformers` (extra for developers: torch, transformers, pillow, timm)."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from transformers_reference import build, cases

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("transformers") is None, reason="needs torch and transformers"
)
WRITTEN = json.loads((Path(__file__).parent / "data" / "transformers.json").read_text("utf-8"))


@pytest.mark.parametrize("name", cases())
def test_written_counts_are_those_of_the_library(name: str) -> None:
    _, parameters = build(cases()[name])
    assert parameters == WRITTEN[name]["parameters"]
