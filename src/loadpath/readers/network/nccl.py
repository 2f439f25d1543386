"""NCCL's own log lines and the tables of nccl-tests, wherever they stand.

node0:65704:65704 [0] NCCL INFO NCCL version 2.27.7+cuda13.0
node0:65704:65748 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/direct pointer/read
# Avg bus bandwidth    : 28.2632
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.collective import (
    ChannelVia,
    CollectiveBandwidth,
    CommunicatorMade,
    LinkBandwidth,
    NcclStarted,
    Throughput,
    TopologyFile,
)
from loadpath.core.text import Capture, Line


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {
        "version": re.compile(r"NCCL version (\d+(?:\.\d+)+)"),
        "network": re.compile(r"Using network (\S+)"),
        "comm": re.compile(r"comm 0x\w+ rank (\d+) nranks (\d+)(?:.*?busId (\w+))?(.*)"),
        "via": re.compile(r"Channel \d+(?:/\d+)? : (\d+)\[\w+\](?: \[\w+\])? -> (\d+)\[\w+\](?: \[\w+\])? via (\S+)"),
        "topology": re.compile(r"NCCL_TOPO_FILE set by environment to (\S+)|Loading topology file (\S+)"),
        "link": re.compile(r"\+ (\w+)\[([\d.]+)\] - (GPU/[\w-]+)"),
        "busbw": re.compile(r"# Avg bus bandwidth\s*: ([\d.]+)"),
        "throughput": re.compile(
            r"^\W*((?:\w+[ -])?(?:TP|tensor[ -]parallel\w*)[ =:]*(?:on|off|\d+|true|false|enabled|disabled)?\w*)\s*[:=]\s*"
            r"([\d,]+(?:\.\d+)?) ?(?:T/s|t/s|tok/s|tokens?/s(?:ec)?)\b", re.I),
    }  # fmt: skip


def read(capture: Capture) -> Iterator[Fact]:
    gpu: str | None = None
    for line in capture.lines:
        if line.prose:
            continue
        text = line.text
        if "NCCL" in text or "# Avg" in text:
            for fact in _line(capture, line, gpu):
                # In NCCL's tree a GPU stands under its PCI bridge, and its NVLinks under the GPU.
                if isinstance(fact, LinkBandwidth) and fact.kind == "PCI":
                    gpu = fact.target
                yield fact
        elif "/s" in text and (hit := _patterns()["throughput"].search(text)):
            rate = float(hit[2].replace(",", ""))
            yield Throughput(
                **at(capture, line), label=hit[1].strip(), tokens_per_second=rate, tensor_parallel=_on(hit[1])
            )


def _line(capture: Capture, line: Line, gpu: str | None) -> Iterator[Fact]:
    text, patterns = line.text, _patterns()
    where = at(capture, line)
    if hit := patterns["version"].search(text):
        yield NcclStarted(**where, version=hit[1])
    if hit := patterns["network"].search(text):
        yield NcclStarted(**where, network=hit[1])
    if hit := patterns["comm"].search(text):
        rank, nranks = int(hit[1]), int(hit[2])
        yield CommunicatorMade(**where, rank=rank, nranks=nranks, bus_id=hit[3], complete="COMPLETE" in text)
    if hit := patterns["via"].search(text):
        yield ChannelVia(**where, source=int(hit[1]), target=int(hit[2]), via=hit[3])
    if hit := patterns["topology"].search(text):
        yield TopologyFile(**where, path=hit[1] or hit[2])
    if hit := patterns["link"].search(text):
        yield LinkBandwidth(**where, kind=hit[1], gbps=float(hit[2]), source=gpu, target=hit[3])
    if hit := patterns["busbw"].search(text):
        yield CollectiveBandwidth(**where, gbps=float(hit[1]))


def _on(label: str) -> bool | None:
    """Whether a label such as `TP off` or `tensor parallel: 2` says that tensor parallelism was on."""
    word = re.split(r"[\s=:]+", label.strip().lower())[-1]
    if word in ("off", "false", "disabled", "1", "0", "tp1"):
        return False
    if word in ("on", "true", "enabled") or (word.lstrip("tp").isdigit() and int(word.lstrip("tp")) > 1):
        return True
    return None
