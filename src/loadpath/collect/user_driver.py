"""Layer 4, the driver's user-space half: which libcuda and libnvidia-ml the loader takes, and what lies beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.collect.loader import candidates
from loadpath.collect.probe import Machine, Probe, Sample

_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_VERSION = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
_IN_FILE = re.compile(
    rb"NVIDIA UNIX \S+ +(?:Dynamic Library|Module) +(\d{3}\.\d+(?:\.\d+)?)"
    rb"|nvidia_id: NVIDIA[^\0]{0,80}? (\d{3}\.\d+(?:\.\d+)?) "
)
_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
              "NVIDIA_DISABLE_REQUIRE", "CUDA_HOME", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING",
              "VLLM_ENABLE_CUDA_COMPATIBILITY")  # fmt: skip
_COMPAT = ("/usr/local/cuda/compat", "/usr/local/cuda-12/compat", "/usr/local/cuda-13/compat")
SEARCHED = 64 << 20  # bytes of a library that are searched for its version, where its name has none


def gather(machine: Machine) -> Iterator[Sample]:
    lines: list[str] = []
    for soname in _LIBRARIES:
        found = candidates(machine, soname)
        if not found:
            lines.append(f"library: {soname} none")
        for position, (via, path) in enumerate(found):
            lines.append(_described(machine, soname, via, path, taken=position == 0))
    for folder in _COMPAT:
        for name in machine.listdir(folder):
            if name.startswith("libcuda.so.") and _VERSION.search(name):
                lines.append(f"compat: {folder}/{name}")
    lines += [f"environment: {name}={machine.environ[name]}" for name in _VARIABLES if name in machine.environ]
    yield machine.told(lines, name="user-driver", kind="user-driver",
                       command="ldconfig -p | grep -E 'libcuda|libnvidia-ml'; echo $LD_LIBRARY_PATH")  # fmt: skip


def _described(machine: Machine, soname: str, via: str, path: str, *, taken: bool) -> str:
    real = real_path(machine, path)
    size = getattr(machine.stat(path), "st_size", None)
    version = _VERSION.search(real)
    text = version[1] if version else _version_inside(machine, path)
    parts = [soname, f"path={path}", f"real={real}", f"version={text or '?'}", f"size={size if size is not None else '?'}",
             f"via={via}"]  # fmt: skip
    if taken:
        parts.append("taken")
    return f"library: {' '.join(parts)}"


def real_path(machine: Machine, path: str) -> str:
    """Where a path leads in the end, as the machine names it."""
    try:
        real = machine.path(path).resolve()
    except (OSError, RuntimeError):
        return path
    root = machine.root.resolve()
    return str(real) if machine.live or not real.is_relative_to(root) else f"/{real.relative_to(root)}"


def _version_inside(machine: Machine, path: str) -> str | None:
    """The driver version that a library carries in itself (a copy under another name has no version in its path)."""
    found = _IN_FILE.search(machine.read(path, SEARCHED) or b"")
    return (found[1] or found[2]).decode() if found else None


PROBES = (Probe("user-driver", "user-driver", "user-driver", gather),)
