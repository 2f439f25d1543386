"""Environment dumps: torch's and vLLM's collect_env, `ds_report`, SGLang's `check_env`, `pip list`.

    PyTorch version: 2.8.0+cu128
    Is CUDA available: True
    GPU models and configuration:
    GPU 0: NVIDIA L40S

The values themselves are found by `readers.versions`, which looks at every capture; this reader claims the stretch, so
that no engine takes the dump for its log, and reads what only a dump has: the tables of packages and of variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.stack import EnvironmentVariable
from loadpath.core.text import Capture, Line
from loadpath.readers.python.versions import package

_MOST_GAP = 2  # lines in a row that a dump may hold and this reader does not know
_BEGIN_AMONG, _BEGIN_KNOWN = 12, 4  # so many of the first lines have to be a dump's

_KEYS = (
    "PyTorch(?: version)?|Is debug build|(?:CUDA|ROCM|XPU) used to build PyTorch|OS|(?:GCC|Clang|CMake|Libc) version"
    "|Python(?: version| platform)?|Is (?:CUDA|XPU|XNNPACK) available|CUDA (?:runtime version|available|Driver Version)"
    "|CUDA_MODULE_LOADING set to|GPU models and configuration|GPU \\d+(?:,\\d+)*(?: Compute Capability)?|CUDA_HOME|NVCC"
    "|Nvidia driver version|cuDNN version|(?:HIP|MIOpen) runtime version|Intel GPU [\\w ]+|CPU|Legend|NIC Legend"
    "|Versions of relevant libraries|ROCM Version|Neuron SDK Version|vLLM Version|vLLM Build Flags|CUDA Archs"
    "|GPU Topology|Hypervisor vendor|ulimit soft|NVIDIA Topology"
)
_CPU_KEYS = (
    "Architecture|CPU [^:]+|Byte Order|Address sizes|On-line CPU[^:]*|Vendor ID|BIOS [^:]+|Model(?: name)?|Thread[^:]+"
    "|Core[^:]+|Socket[^:]*|Stepping|Frequency boost|BogoMIPS|Flags|L[123][^:]*|NUMA [^:]+|Vulnerability [^:]+"
    "|Virtualization[^:]*|Caches[^:]*|CPU"
)


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {
        "key": re.compile(rf"^(?:{_KEYS}|{_CPU_KEYS})\s*:|^(?:System|PyTorch|CPU|vLLM|CUDA / GPU) Info\s*$"),
        "head": re.compile(r"^(?:Collecting environment information|Python Environment\s*$|Environment Variables\s*$)"),
        "rule": re.compile(r"^(?:[=-]{5,}|[\w/ .()]+ \.{3,} |\[(?:pip3?|conda)\] |GPU\d+\s|NIC\d+[\s:])"),
        "library": re.compile(r"^(?P<name>[A-Za-z_][\w.-]*)(?:: | {1,60})(?P<v>\d+(?:\.\w+)+(?:\+[\w.]+)?)\s*$"),
        "pip": re.compile(r"^\[(?:pip3?|conda)\]\s+(?P<name>[\w.-]+)(?:==|\s+)(?P<v>\d\S*)"),
        "variable": re.compile(r"^(?P<name>[A-Z][A-Z0-9_]{3,})=(?P<value>.*)$"),
        "pip list": re.compile(r"^Package\s+Version"),
    }


def extent(lines: Sequence[Line], i: int) -> int:
    """The end of a dump that begins at `lines[i]`: the last line in a row that is one of a dump's."""
    if not _begins(lines, i):
        return i
    end, unknown = i + 1, 0
    for j in range(i + 1, len(lines)):
        text = lines[j].text.strip()
        if _of_dump(text):
            end, unknown = j + 1, 0
        elif text:
            unknown += 1
            if unknown > _MOST_GAP:
                break
    return end


def _begins(lines: Sequence[Line], i: int) -> bool:
    text = lines[i].text.strip()
    known = sum(_of_dump(line.text.strip()) for line in lines[i : i + _BEGIN_AMONG])
    if _patterns()["pip list"].match(text):
        return known >= _BEGIN_KNOWN - 1
    starts = any(_patterns()[name].match(text) for name in ("key", "head", "rule"))
    return starts and known >= _BEGIN_KNOWN


def _of_dump(text: str) -> bool:
    patterns = _patterns()
    return any(patterns[name].match(text) for name in patterns)


def read(capture: Capture) -> Iterator[Fact]:
    patterns = _patterns()
    named = {"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES"}  # `readers.versions` has these
    for line in capture.lines:
        text = line.text.strip()
        if hit := patterns["pip"].match(text) or patterns["library"].match(text):
            if "==" not in text:
                yield from package(at(capture, line), hit["name"], hit["v"])
        elif (hit := patterns["variable"].match(text)) and hit["name"] not in named:
            yield EnvironmentVariable(**at(capture, line), name=hit["name"], value=hit["value"])
