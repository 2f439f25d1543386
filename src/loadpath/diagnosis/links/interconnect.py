"""Between the GPUs: peer access, collectives that time out, NCCL's picture of the machine, and what a link costs."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.collective import ChannelVia, CollectiveBandwidth, LinkBandwidth, Throughput, TopologyFile
from loadpath.core.facts.errors import ProcessEnded, Symptom
from loadpath.core.facts.gpu import Topology
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import show_seconds
from loadpath.core.vocabulary import FindingStep
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag
from loadpath.knowledge.tables import findings

FIRST_COLLECTIVES = 2
PCIE_PATHS = ("PHB", "NODE", "SYS", "PXB", "PIX")


# ---- no peer access ------------------------------------------------------------------------


def peer_access(case: Case) -> Iterator[Finding]:
    """CUDA error 217, told apart by who asked: a custom all-reduce kernel, NCCL's IPC transport, or the program."""
    shown = case.symptoms("peer-access-unsupported")
    if not shown:
        return
    notes = {findings()[s.finding].match[s.match].note for s in shown}
    custom, nccl = "custom all-reduce" in notes, "NCCL's P2P/IPC transport" in notes
    paths = _pcie_paths(case)
    cause = ["These cards have no peer access to each other (CUDA error 217)."]
    if custom:
        cause.append("The custom all-reduce kernel maps its peers' memory directly and cannot do without it.")
        cause.append("The cards are most likely linked by PCIe only; NCCL would take another path by itself.")
    elif nccl:
        cause.append(
            "NCCL chose the P2P/IPC transport all the same: each worker sees its devices in a way that makes the "
            "pair look capable, and opening the peer's memory then fails."
        )
    else:
        cause.append("Something opened a peer's memory (CUDA IPC, a custom all-reduce, a direct copy) without asking.")
    if paths:
        cause.append(f"The topology agrees: {paths}, PCIe through the host and no NVLink.")
    step: FindingStep | None = "graph-capture" if custom else None
    yield finding(
        "peer-access-unsupported", shown, case=case, cause=" ".join(cause), step=step,
        remedies=_peer_remedies(case, custom), next_checks=(
            Check("What the driver says of each pair: anything but OK means no peer access", "nvidia-smi topo -p2p r"),
            Check("Whether the setting reached every worker (Ray actors and containers do not inherit your shell)",
                  "tr '\\0' '\\n' </proc/PID/environ | grep NCCL"),
        ),
    )  # fmt: skip


def _peer_remedies(case: Case, custom: bool) -> list[Remedy]:
    all_reduce = Remedy(
        "Switch the custom all-reduce off, or update to a release that checks peer access first",
        flag(case.engine, "disable-custom-all-reduce", True) or "--disable-custom-all-reduce",
        "NCCL takes over the all-reduce, through host memory: works on any pair, slower than peer access",
        suffices=True if custom else None,
    )
    p2p = Remedy(
        "Tell NCCL not to use peer access, in every worker (Ray actors, every container)",
        "NCCL_P2P_DISABLE=1",
        "NCCL moves data through shared host memory (SHM)",
        suffices=None if custom else True,
    )
    see_all = Remedy(
        "Or let every worker see all devices of the node, so that NCCL can check the pair itself",
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1   # under Ray",
    )
    return [all_reduce, p2p] if custom else [p2p, all_reduce, see_all]


def _pcie_paths(case: Case) -> str:
    """The PCIe paths between GPUs that a topology shows, `"NODE and SYS"`; "" where there is an NVLink or no table."""
    topology = next((t for t in case.all(Topology) if t.what == "path"), None)
    if topology is None:
        return ""
    paths = {
        word for pair, word in topology.links.items() if len({*pair.split()} & {*topology.gpus}) == 2 and word != "X"
    }
    return " and ".join(sorted(paths)) if paths and paths <= {*PCIE_PATHS} else ""


# ---- a collective that timed out -----------------------------------------------------------


def collective_timeout(case: Case) -> Iterator[Finding]:
    """The ranks that print the watchdog's time-out waited; who did not come is the question."""
    shown = case.symptoms("collective-timeout")
    if not shown:
        return
    waited = sorted({rank for s in shown if (rank := _rank(s)) is not None})
    first = next((s.groups for s in shown if "op" in s.groups), {})
    who = _ranks(waited)
    cause = [f"{who} waited for a collective that another rank did not join."]
    if first:
        ran = show_seconds(int(first["ran"]) / 1000)
        number = f" number {first['seq']}" if "seq" in first else ""
        cause = [f"{who} waited {ran} in {first['op']}{number} for a rank that did not join it."]
    if behind := _behind(shown):
        cause.append(behind)
    ended = [p for p in case.all(ProcessEnded) if p.exit_code in (-6, 134)]
    if ended:
        cause.append("Exit code -6 is the abort by the watchdog: a consequence, not the cause.")
    hangs = _hangs_itself(first)
    cause.append(hangs or "The cause is in the rank that is missing: it died, hung, or ran other collectives.")
    yield finding(
        "collective-timeout", [*shown, *ended], case=case, cause=" ".join(cause),
        title=f"A collective timed out: {who.lower() if waited else 'the ranks'} waited for another rank",
        remedies=(
            Remedy("Look at the other ranks first: the one whose log stops earliest, or that printed the first error, "
                   "is the one that left", "grep -nE 'Traceback|Error|died|Killed' rank*.log | sort -t: -k1,1 -u"),
            Remedy("If it happens again, record who is where: stacks of all ranks, and the flight recorder",
                   "py-spy dump --pid PID · TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1",
                   "names the rank and the collective that it did not reach"),
            *([_WITHOUT_PEER_ACCESS] if hangs else []),
            Remedy("Restart the whole group: one rank cannot come back alone"),
        ),
        next_checks=(
            Check("A device fault or the OOM killer on the missing rank's node at that time",
                  "dmesg -T | grep -iE 'xid|nvrm|killed process' | tail"),
            Check("Whether the group's links work at all", "NCCL_DEBUG=INFO all_reduce_perf -b 8 -e 1G -f 2 -g N"),
        ),
    )  # fmt: skip


_WITHOUT_PEER_ACCESS = Remedy(
    "Test whether peer access between the GPUs is what hangs (IOMMU, ACS, virtual machine)",
    "NCCL_P2P_DISABLE=1",
    "where the first collective then completes, the peer-to-peer path is at fault",
)


def _hangs_itself(first: dict[str, str]) -> str:
    """In the very first collectives of a group none may be missing: the path itself can hang."""
    if not first.get("seq") or int(first["seq"]) > FIRST_COLLECTIVES:
        return ""
    return (
        "It is one of the first collectives, so either that rank never came (it died or hung), or the path between the "
        "GPUs hangs: peer access (P2P) through an IOMMU or ACS, or a wrong network interface."
    )


def _rank(symptom: Symptom) -> int | None:
    if symptom.origin.rank is not None:
        return symptom.origin.rank
    return int(symptom.groups["rank"]) if "rank" in symptom.groups else None


def _ranks(ranks: list[int]) -> str:
    if not ranks:
        return "A rank"
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
    return f"Ranks {shown}"


def _behind(shown: list[Symptom]) -> str:
    """Which of the printing ranks is behind the others, by the last collective that it had put into the queue."""
    queued = {r: int(s.groups["enqueued"]) for s in shown if "enqueued" in s.groups and (r := _rank(s)) is not None}
    if len(queued) < 2 or len(set(queued.values())) == 1:
        return ""
    rank = min(queued, key=lambda r: queued[r])
    ahead = max(queued.values())
    return f"Rank {rank} is behind: its last queued collective is number {queued[rank]}, others had {ahead}."


# ---- NCCL's picture of the machine ---------------------------------------------------------


def topology_file(case: Case) -> Iterator[Finding]:
    """A forced topology file: only worth a remark unless it makes NCCL believe in unequal directions of one link."""
    files = case.all(TopologyFile)
    if not files:
        return
    path = files[0].path
    cause = [f"NCCL_TOPO_FILE is set, so NCCL believes {path} instead of looking at the machine itself."]
    uneven = _uneven(case.all(LinkBandwidth))
    if uneven:
        slow, fast = uneven
        cause.append(
            f"That file gives the {slow.kind} link between two GPUs {slow.gbps:g} GB/s in one direction and "
            f"{fast.gbps:g} GB/s in the other, which no such link has: NCCL plans for the slower one."
        )
    measured = case.last(CollectiveBandwidth)
    if measured is not None:
        cause.append(f"The test measured {measured.gbps:g} GB/s of bus bandwidth on average, without errors.")
    yield finding(
        "topology-file-forced", [files[0], *uneven, *([measured] if measured else [])], case=case,
        severity="warning" if uneven else "info", certainty="likely" if uneven else "established",
        cause=" ".join(cause),
        remedies=(
            Remedy("Unset the file and measure again", "unset NCCL_TOPO_FILE; all_reduce_perf -b 8M -e 8G -f 2 -g 2",
                   "NCCL detects the links itself"),
        ),
        next_checks=(Check("The links' real speed", "nvidia-smi nvlink -s; nvidia-smi topo -m"),),
    )  # fmt: skip


def _uneven(links: list[LinkBandwidth]) -> tuple[LinkBandwidth, LinkBandwidth] | tuple[()]:
    """The slow and the fast direction of one NVLink whose two directions differ by more than half."""
    by_ends = {(link.source, link.target): link for link in links if link.kind == "NVL" and link.source}
    for (source, target), link in by_ends.items():
        back = by_ends.get((target, source or ""))
        if back is not None and link.gbps * 2 < back.gbps:
            return link, back
    return ()


def bandwidth(case: Case) -> Iterator[Finding]:
    """What nccl-tests measured, with the transports that carried it."""
    measured = case.last(CollectiveBandwidth)
    if measured is None:
        return
    ways = sorted({c.via for c in case.all(ChannelVia)})
    cause = f"Average bus bandwidth {measured.gbps:g} GB/s" + (f", over {', '.join(ways)}." if ways else ".")
    yield finding("nccl-bandwidth", [measured], case=case, values={"busbw": f"{measured.gbps:g}"}, cause=cause)


# ---- tensor parallelism that costs more than it gains --------------------------------------


def slower_with_tensor_parallel(case: Case) -> Iterator[Finding]:
    """Two measurements of one model, with and without tensor parallelism, the first the slower."""
    on = [t for t in case.all(Throughput) if t.tensor_parallel is True]
    off = [t for t in case.all(Throughput) if t.tensor_parallel is False]
    if not on or not off or on[0].tokens_per_second >= off[0].tokens_per_second:
        return
    fast, slow = off[0].tokens_per_second, on[0].tokens_per_second
    values = {"on": f"{slow:,.0f}", "off": f"{fast:,.0f}"}
    yield finding(
        "tensor-parallel-slower", [off[0], on[0]], case=case, values=values,
        cause=f"Without tensor parallelism {fast:,.0f} tokens/s, with it {slow:,.0f} ({slow / fast:.0%}): every layer "
        "ends in an all-reduce, and the link between the cards (PCIe without peer access, or few lanes) bounds it, most of all "
        "for long prompts.",
        remedies=(
            Remedy("Split by layers instead (pipeline parallel) for work with long prompts",
                   flag(case.engine, "pipeline-parallel", 2) or "--pipeline-parallel-size 2",
                   "one transfer per stage and step in place of two all-reduces a layer"),
            Remedy("Give the cards a faster path: full-width lanes on one root complex, an NVLink bridge, or peer access (P2P)"),
        ),
        next_checks=(
            Check("Width and generation of each card's link under load, and the path between the cards",
                  "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv; nvidia-smi topo -m"),
            Check("What the pair really moves", "all_reduce_perf -b 8 -e 256M -f 2 -g 2"),
        ),
    )  # fmt: skip


RULES = (
    Rule(peer_access, (Symptom,), ("peer-access-unsupported",), uses=(Topology,)),
    Rule(collective_timeout, (Symptom,), ("collective-timeout",), uses=(ProcessEnded,)),
    Rule(topology_file, (TopologyFile,), ("topology-file-forced",), uses=(LinkBandwidth, CollectiveBandwidth)),
    Rule(bandwidth, (CollectiveBandwidth,), ("nccl-bandwidth",), uses=(ChannelVia,)),
    Rule(slower_with_tensor_parallel, (Throughput,), ("tensor-parallel-slower",)),
)
