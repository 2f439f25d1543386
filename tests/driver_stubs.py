"""The stub driver libraries: NVML and libcuda in C, told by a scenario file what to be."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "stubs"
LIBRARIES = (("nvml.c", "libnvidia-ml.so.1"), ("cuda.c", "libcuda.so.1"))


def built(folder: Path) -> Path:
    """`folder` with libnvidia-ml.so.1 and libcuda.so.1; skips where there is no C compiler or no nvidia-ml-py."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: the stubs of NVML and libcuda cannot be built")
    if find_spec("pynvml") is None:
        pytest.skip("nvidia-ml-py is not installed here")
    for source, library in LIBRARIES:
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / library), str(SOURCES / source)]
        subprocess.run(command, check=True)
    return folder


def environment(stubs: Path, folder: Path, scenario: str) -> dict[str, str]:
    """Variables under which a process finds the stubs, told to play `scenario` (lines of `key value`)."""
    told = folder / "scenario"
    told.write_text(f"{scenario}\n")
    return {**os.environ, "LD_LIBRARY_PATH": str(stubs), "LOADPATH_STUB": str(told)}
