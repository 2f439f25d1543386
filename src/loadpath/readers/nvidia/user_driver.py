"""The driver's libraries as loadpath's own probe found them, in the loader's order, and the variables that steer it.

library: libcuda.so.1 path=/opt/x/libcuda.so.1 real=/opt/x/libcuda.so.535.54.03 version=535.54.03 size=29453200 via=default taken
environment: LD_LIBRARY_PATH=/opt/cuda/compat
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.kernel import DriverPart
from loadpath.core.facts.machine import DriverLibrary
from loadpath.core.facts.stack import EnvironmentVariable
from loadpath.core.text import Capture, Line
from loadpath.readers.keyed import pair

_FILE = re.compile(
    r"^(?P<soname>\S+) path=(?P<path>.+?) real=(?P<real>.+?) version=(?P<version>\S+) size=(?P<size>\S+) via=(?P<via>\S+)"
    r"(?P<taken> taken)?$"
)


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    for line in capture.lines:
        key, value = pair(line)
        if key == "environment":
            name, _, text = value.partition("=")
            yield EnvironmentVariable(**at(capture, line), name=name, value=text)
        elif key == "library" and value.endswith(" none"):
            yield DriverLibrary(**at(capture, line), soname=value.removesuffix(" none"))
        elif key == "library" and (found := _FILE.match(value)):
            version = None if found["version"] == "?" else found["version"]
            size = int(found["size"]) if found["size"].isdigit() else None
            yield DriverLibrary(
                **at(capture, line), soname=found["soname"], path=found["path"], real=found["real"], version=version,
                size_bytes=size, via=found["via"], taken=found["taken"] is not None,
            )  # fmt: skip
            if found["taken"] and version and found["soname"].startswith("libnvidia-ml"):
                yield DriverPart(**at(capture, line), side="library", version=version)
