"""Which version each side of the driver is: the loaded module, the user-space libraries, the packages.

NVRM version: NVIDIA UNIX x86_64 Kernel Module  520.56.06  Thu Oct  6 21:38:55 UTC 2022
NVRM: API mismatch: the client has the version 535.171.04, but
NVML library version: 570.124
Upgrade: libnvidia-compute-460:amd64 (460.56-0ubuntu0.20.04.1, 460.73.01-0ubuntu0.20.04.1)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.kernel import DkmsModule, DriverPart, PackagesUpgraded
from loadpath.core.text import Capture

NUMBER = r"\d{3}\.\d{2,3}(?:\.\d{1,3})?"
PACKAGE = r"(?:lib)?(?:nvidia|cuda-drivers|xserver-xorg-video-nvidia|kmod-nvidia|libcuda1|libnvidia)[a-z0-9+.-]*?"


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile({
        "module": rf"NVIDIA UNIX (?P<open>Open )?(?:[\w-]+ )?Kernel Module(?: for \S+)?\s+(?P<version>{NUMBER})",
        "client": rf"(?:the client|NVRM:)(?: '?[^']*'? \(pid \d+\))? has the version (?P<version>{NUMBER})",
        "kernel": rf"kernel module has the version (?P<version>{NUMBER})",
        "dso-kernel": rf"kernel (?:reported version is:|version) (?P<version>{NUMBER})\b",
        "dso": rf"(?:DSO version|libcuda reported version is:) (?P<version>{NUMBER})",
        "nvml": r"NVML library version: *(?P<version>\d{3}\.\d+(?:\.\d+)?)",
        "file": rf"\b(?:libnvidia-ml|libcuda|libnvidia-ptxjitcompiler)\.so\.(?P<version>{NUMBER})\b",
        "upgrade": rf"\b(?P<name>{PACKAGE})(?::\w+)? \((?P<old>{NUMBER})[^,()]*, (?P<version>{NUMBER})[^()]*\)",
        "dpkg": rf"\bupgrade (?P<name>{PACKAGE})(?::\w+)? (?P<old>{NUMBER})\S* (?P<version>{NUMBER})",
        "installed": rf"^(?:ii|iU|iF|hi) +(?P<name>{PACKAGE})(?::\w+)? +(?:\d+:)?(?P<version>{NUMBER})",
        "rpm": rf"^(?P<name>(?:nvidia-driver|kmod-nvidia|nvidia-kmod|akmod-nvidia|xorg-x11-drv-nvidia)[a-z-]*)-"
        rf"(?:\d+:)?(?P<version>{NUMBER})-",
        "dkms": rf"\bnvidia(?:-(?:open|srv|current))?/(?P<version>{NUMBER}), (?P<kernel>[^,\s]+)(?:, \w+)?: "
        r"(?P<state>[^\n]+)",
        "upgrader": r"^Commandline: (?P<command>.+)|(?P<unattended>unattended-upgrade)s?\b",
        "dkms-added": rf"\bnvidia/(?P<version>{NUMBER}): (?P<state>added|built)",
    }[name])  # fmt: skip


def read(capture: Capture) -> Iterator[Fact]:
    for line in capture.lines:
        if line.prose:
            continue
        common = at(capture, line)
        text = line.text
        if found := _pattern("upgrader").search(text):
            by = "unattended-upgrades" if "unattended" in text else found["command"].strip()
            yield PackagesUpgraded(**common, by=by)
        if found := _pattern("module").search(text):
            flavour: Literal["open", "proprietary"] = "open" if found["open"] else "proprietary"
            yield DriverPart(**common, side="module", version=found["version"], flavour=flavour)
        if found := _pattern("kernel").search(text) or _pattern("dso-kernel").search(text):
            yield DriverPart(**common, side="module", version=found["version"])
        for name in ("client", "nvml", "file", "dso"):
            if (found := _pattern(name).search(text)) and not (name == "client" and "kernel module has" in found[0]):
                yield DriverPart(**common, side="library", version=found["version"])
        for name in ("upgrade", "dpkg"):
            for found in _pattern(name).finditer(text):
                yield DriverPart(
                    **common, side="package", version=found["version"], previous=found["old"], name=found["name"]
                )
        for name in ("installed", "rpm"):
            if found := _pattern(name).search(text):
                yield DriverPart(**common, side="package", version=found["version"], name=found["name"])
        if found := _pattern("dkms").search(text) or _pattern("dkms-added").search(text):
            kernel = found.groupdict().get("kernel")
            yield DkmsModule(**common, version=found["version"], kernel=kernel, state=found["state"].strip())
