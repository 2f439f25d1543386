"""A log that breaks off while NCCL is being initialised.

(Worker pid=812) INFO 08-09 20:55:03 [pynccl.py:113] vLLM is using nccl==2.27.3
node1:812:812 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.4<0>
node1:812:812 NCCL CALL ncclGetUniqueId(0x…)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import at
from loadpath.core.facts.collective import NcclStartUnfinished
from loadpath.core.text import Capture

_STAGES = (
    ("communicator", re.compile(
        r"Init START|NCCL INFO (?:Channel \d|Trees? |Ring |Connected all|Setting affinity|comm 0x|NVLS |P2P Chunksize)"
    )),
    ("unique-id", re.compile(r"ncclGetUniqueId|ncclCommInitRank")),
    ("bootstrap", re.compile(
        r"NCCL INFO (?:Bootstrap|NET/|Using network|ENV/Plugin|NCCL_\w+ set by|cudaDriverVersion|TUNER|PROFILER|GIN/)"
    )),
    ("loaded", re.compile(r"is using nccl==[\d.]+|NCCL version [\d.]+")),
)  # fmt: skip
_OVER = re.compile(r"Init COMPLETE|NCCL WARN|[Ee]rror\b|Destroy|Abort COMPLETE")
_INTERFACE = re.compile(
    r"Bootstrap: Using (?P<name>[\w.-]+):|NCCL_SOCKET_IFNAME set (?:by environment )?to (?P<set>\S+)"
)
LOOK_BACK = 40


def read(capture: Capture) -> Iterator[NcclStartUnfinished]:
    lines = [line for line in capture.lines if line.text.strip()]
    if not lines or _stage(lines[-1].text) is None:
        return
    tail = lines[-LOOK_BACK:]
    if any(_OVER.search(line.text) for line in tail):
        return
    named = [m["name"] or m["set"] for line in tail if (m := _INTERFACE.search(line.text))]
    stages = [stage for line in tail if (stage := _stage(line.text)) is not None]
    deepest = next(stage for stage, _ in _STAGES if stage in stages)
    if capture.kind == "log" and deepest != "unique-id":
        return  # a few of NCCL's lines, quoted by themselves, are no log that breaks off
    yield NcclStartUnfinished(**at(capture, lines[-1]), stage=deepest, interface=named[-1] if named else None)


def _stage(text: str) -> str | None:
    return next((stage for stage, pattern in _STAGES if pattern.search(text)), None)
