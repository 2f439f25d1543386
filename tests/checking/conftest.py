"""The stub libraries, built once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from driver_stubs import built
from machines import Tree, play


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libnvidia-ml.so.1 and libcuda.so.1; skips where they cannot be built."""
    return built(tmp_path_factory.mktemp("stubs"))


@pytest.fixture
def machine(tmp_path: Path, stubs: Path) -> Callable[..., Tree]:
    """A healthy machine whose driver plays a scenario: `machine("cuInit 803", gpus=2)`."""

    def made(scenario: str = "", gpus: int = 1, timeout_s: float = 15.0) -> Tree:
        tree = Tree.healthy(tmp_path / "machine", gpus)
        return play(tree, stubs, f"count {gpus}\n{scenario}", timeout_s)

    return made
