"""A saved machine with a Python environment in it: packages, torch, libraries, as files below a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from loadpath.collect.probe import Machine
from tiny_elf import fat_binary, library

PREFIX = "/opt/venv"
SITE = f"{PREFIX}/lib/python3.12/site-packages"
C10_ERROR = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


class FakePython:
    """Builds the environment piece by piece below `root`; `machine()` looks at it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: str, data: bytes | str = b"") -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data if isinstance(data, bytes) else data.encode())

    def package(self, name: str, version: str, files: Mapping[str, bytes] = {}, requires: Sequence[str] = ()) -> None:
        """A package with its metadata and its files (paths below site-packages)."""
        info = f"{SITE}/{name.replace('-', '_')}-{version}.dist-info"
        wants = "".join(f"Requires-Dist: {text}\n" for text in requires)
        self.put(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wants}\nWords.\n")
        self.put(f"{info}/RECORD", "".join(f"{path},sha256=x,1\n" for path in files))
        for path, data in files.items():
            self.put(f"{SITE}/{path}", data)

    def torch(
        self, version: str = "2.9.0", cuda: str = "12.8", archs: Sequence[str] = ("sm_80", "sm_90"), parts: int = 3
    ) -> None:
        """torch with its libraries; `archs` is the code of libtorch_cuda.so."""
        tag = f"+cu{cuda.replace('.', '')}" if cuda else "+cpu"
        told = f"__version__ = '{version}{tag}'\ncuda: Optional[str] = {cuda or None!r}\nhip: Optional[str] = None\n"
        major = cuda.partition(".")[0]
        libraries = {
            "torch/lib/libc10.so": library(soname="libc10.so", defines=[C10_ERROR]),
            "torch/lib/libtorch_cpu.so": library(
                soname="libtorch_cpu.so", defines=["_ZN2at4addEv"], needed=["libc10.so"], rpath="$ORIGIN"
            ),
            "torch/lib/libtorch_python.so": library(
                soname="libtorch_python.so", needed=["libtorch_cpu.so"], rpath="$ORIGIN"
            ),
        }
        if cuda:
            rpath = "$ORIGIN:$ORIGIN/../../nvidia/cuda_runtime/lib"
            libraries["torch/lib/libtorch_cuda.so"] = library(
                soname="libtorch_cuda.so",
                needed=[f"libcudart.so.{major}"],
                rpath=rpath,
                gpu_code=fat_binary(*archs, parts=parts),
            )
            libraries["torch/lib/libtorch_global_deps.so"] = library(needed=["libtorch_cuda.so"], rpath="$ORIGIN")
            self.package(
                "nvidia-cuda-runtime", f"{cuda}.90",
                {f"nvidia/cuda_runtime/lib/libcudart.so.{major}": library(soname=f"libcudart.so.{major}")},
            )  # fmt: skip
        self.package("torch", f"{version}{tag}", libraries)
        self.put(f"{SITE}/torch/version.py", told)

    def machine(self, **environ: str) -> Machine:
        return Machine(self.root, environ={"VIRTUAL_ENV": PREFIX, **environ})
