"""The house: who may import whom, and that the registries leave nothing out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import loadpath
from loadpath.diagnosis.registry import MODULES, rules
from loadpath.engines.registry import ENGINES
from loadpath.knowledge.tables import findings
from loadpath.readers.registry import READERS

SRC = Path(loadpath.__file__).parent
# A higher number is a lower floor: a folder imports only from its own and from those below it.
FLOORS = {"cli": 1, "checking": 2, "forecast": 2, "launching": 2, "traffic": 2, "reading": 3, "rendering": 3,
          "diagnosis": 4, "engines": 5, "readers": 6, "planning": 6, "checkpoints": 6, "intake": 7, "knowledge": 7,
          "collect": 7, "core": 8}  # fmt: skip
MODULE_FILES = sorted(p for p in SRC.rglob("*.py") if p.parent != SRC)


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """(module, imported name) of every import of ours in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("loadpath."):
            for alias in node.names:
                yield node.module, alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("loadpath."):
                    yield alias.name, ""


@pytest.mark.parametrize("path", MODULE_FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_go_down_and_take_no_private_names(path: Path) -> None:
    own = path.relative_to(SRC).parts[0]
    for module, name in imports(path):
        other = module.split(".")[1]
        if other in FLOORS:
            beside = FLOORS[other] == FLOORS[own] and other != own
            assert FLOORS[other] >= FLOORS[own] and not beside, f"{own} may not import {module}"
            assert other == own or not name.startswith("_"), f"{module}.{name} is private to {other}"


def test_no_engine_knows_another() -> None:
    for path in (SRC / "engines").glob("*/*.py"):
        for module, _ in imports(path):
            parts = module.split(".")
            if parts[1] == "engines" and len(parts) > 2 and (SRC / "engines" / parts[2]).is_dir():
                assert parts[2] == path.parent.name or (path.parent.name, parts[2]) == ("ollama", "llama_cpp"), path


def dotted(path: Path, folder: str) -> str:
    """`gpu.state` of `diagnosis/gpu/state.py`."""
    return ".".join(path.relative_to(SRC / folder).with_suffix("").parts)


def test_every_reader_engine_and_rule_module_is_registered() -> None:
    have = {entry.module for entry in READERS}
    for path in (SRC / "readers").rglob("*.py"):
        name = dotted(path, "readers")
        if path.stem not in ("__init__", "registry") and hasattr(import_module(f"loadpath.readers.{name}"), "read"):
            assert name in have, f"readers/{name} is not in readers/registry.py"
    for path in (SRC / "engines").iterdir():
        if (path / "__init__.py").exists():
            assert any(entry.module == path.name for entry in ENGINES), f"engines/{path.name} is not registered"
    for path in (SRC / "diagnosis").rglob("*.py"):
        if "\nRULES" in path.read_text("utf-8"):
            assert dotted(path, "diagnosis") in MODULES, f"{path} is not in diagnosis/registry.py"


def test_every_rule_has_its_rows_and_every_judged_row_its_rule() -> None:
    made = {name for rule in rules() for name in rule.makes}
    assert made <= set(findings()), f"without a row: {made - set(findings())}"
    for row in findings().values():
        if row.judged_by:
            assert row.judged_by in MODULES, f"{row.id}: no module of rules is called {row.judged_by}"
            assert row.id in made, f"{row.id}: judged by {row.judged_by}, which does not list it in `makes`"
