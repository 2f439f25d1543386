"""The NVIDIA kernel module as loadpath's own probe found it.

running-kernel: 6.8.0-45-generic
loaded: nvidia version=580.95.05 references=3 used-by=nvidia_uvm
module-file: kernel=6.8.0-45-generic updates/dkms/nvidia.ko.zst
secure-boot: off
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, cast

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.kernel import DkmsModule
from loadpath.core.facts.machine import KernelModules
from loadpath.core.text import Capture, Line
from loadpath.readers.keyed import keyed, pair

SecureBoot = Literal["on", "off", "none", "unknown"]


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    if not capture.lines:
        return
    told = keyed(capture)
    words = [line.split() for line in told.get("loaded", ())]
    files = [line.split() for line in told.get("module-file", ())]
    dkms = {name.removeprefix("nvidia/"): _kernels(built) for name, built in _pairs(told.get("dkms", ()))}
    boot = (told.get("secure-boot", ("unknown",))[0].split() or ["unknown"])[0]
    enforced = told.get("signatures-enforced")
    yield KernelModules(
        **at(capture, _telling(capture)),
        running=told.get("running-kernel", (None,))[0],
        loaded=None if "loaded-unknown" in told else {w[0]: w[1].removeprefix("version=") for w in words if len(w) > 1},
        files={w[0].removeprefix("kernel="): "" if w[1:2] == ["none"] else " ".join(w[1:]) for w in files},
        dkms=dkms,
        headers_missing="headers" in told,
        secure_boot=cast(SecureBoot, boot if boot in ("on", "off", "none") else "unknown"),
        lockdown=told.get("lockdown", (None,))[0],
        signatures_enforced=enforced[0] == "yes" if enforced else None,
        settings=(*told.get("modprobe", ()), *told.get("kernel-command-line", ())),
    )
    for line in capture.lines:
        key, value = pair(line)
        if key == "dkms":
            name, _, built = value.partition(" ")
            for kernel in _kernels(built):
                yield DkmsModule(
                    **at(capture, line), version=name.removeprefix("nvidia/"), kernel=kernel, state="installed"
                )


def _telling(capture: Capture) -> Line:
    """The line to show: that the module is loaded, else which file there is for the running kernel."""
    for begin in ("loaded: nvidia ", "loaded: nouveau", "module-file:", "running-kernel:"):
        for line in capture.lines:
            if line.raw.startswith(begin):
                return line
    return capture.lines[0]


def _pairs(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, rest = line.partition(" ")
        yield name, rest


def _kernels(built: str) -> tuple[str, ...]:
    names = built.removeprefix("built-for=")
    return tuple(name for name in names.split(",") if name and name != "none")
