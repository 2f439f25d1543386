"""The stub libraries, built once a session."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from machines import Tree, play

STUBS = Path(__file__).parents[1] / "stubs"


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libnvidia-ml.so.1 and libcuda.so.1; skips where there is no C compiler or no nvidia-ml-py."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: the stubs of NVML and libcuda cannot be built")
    if find_spec("pynvml") is None:
        pytest.skip("nvidia-ml-py is not installed here")
    folder = tmp_path_factory.mktemp("stubs")
    for source, library in (("nvml.c", "libnvidia-ml.so.1"), ("cuda.c", "libcuda.so.1")):
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / library), str(STUBS / source)], check=True
        )
    return folder


@pytest.fixture
def machine(tmp_path: Path, stubs: Path) -> Callable[..., Tree]:
    """A healthy machine whose driver plays a scenario: `machine("cuInit 803", gpus=2)`."""

    def made(scenario: str = "", gpus: int = 1, timeout_s: float = 15.0) -> Tree:
        tree = Tree.healthy(tmp_path / "machine", gpus)
        return play(tree, stubs, f"count {gpus}\n{scenario}", timeout_s)

    return made
