"""Whose the GPU memory is: the server's process against its own log, contexts on GPUs that are not used, a full GPU beside a free one."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.engine import GraphsCaptured, KvPool, MemoryBreakdown, ServerReady, WeightsLoaded
from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.facts.gpu import GpuProcess, GpuState
from loadpath.core.facts.memory import BrokenOff
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import MIB, show_bytes
from loadpath.diagnosis.gpu.words import (
    Seen,
    gpus_now,
    is_server,
    labels,
    mebibytes,
    memory_words,
    name_of,
    ranges,
    say,
    size_of,
)
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import by_kind

_FULL, _EMPTY = 0.85, 0.05


def judge_ledger(case: Case) -> Iterator[Finding]:
    """The memory of the server's process beside the parts that its log names."""
    parts = _parts(case)
    if not parts:
        return
    taken = _server_memory(case)
    if taken is None:
        return
    shown, held, what = taken
    known = sum(size for _, size in parts)
    rest = held - known
    if known <= 0 or rest < -0.02 * held:
        return  # the log is of another run or another GPU
    said = " + ".join(f"{name} {show_bytes(size)}" for name, size in parts)
    share = f"{show_bytes(abs(rest))} ({abs(rest) / held:.0%})"
    cause = f"{what} holds {mebibytes(held)} MiB ({show_bytes(held)}). The log names {said} = {show_bytes(known)}. "
    cause += (
        f"The rest, {share}, is what no engine logs: the CUDA context and loaded kernels (0.3-0.6 GiB), buffers that the "
        "allocator keeps from the profiling pass, CUDA graphs and NCCL where they are not among the parts. "
        "It belongs together: no second owner is needed."
    )
    title = (
        f"{mebibytes(held)} MiB on {labels([shown])} fit the server's own log: "
        f"{show_bytes(known)} named, {show_bytes(max(rest, 0))} context and buffers"
    )
    yield finding(
        "gpu-memory-explained",
        [shown],
        case=case,
        title=title[:139],
        cause=cause,
        figures={"held_bytes": held, "named_bytes": known},
    )


def _parts(case: Case) -> list[tuple[str, int]]:
    """What the log says is held for good on one GPU, of the last start (activation peaks come and go)."""
    parts: list[tuple[str, int]] = []
    weights, breakdown = case.last(WeightsLoaded), case.last(MemoryBreakdown)
    pool, graphs = case.last(KvPool), case.last(GraphsCaptured)
    weight_bytes = (weights and weights.bytes) or (breakdown and breakdown.weights_bytes)
    if not weight_bytes:
        return []
    parts.append(("weights", weight_bytes))
    if breakdown and breakdown.non_torch_bytes:
        parts.append(("non-torch", breakdown.non_torch_bytes))
    kv = (pool and pool.device == "GPU" and pool.bytes) or (breakdown and breakdown.kv_bytes)
    if kv and kv > 0:
        parts.append(("KV cache", kv))
    if graphs and graphs.bytes and graphs.bytes > 0:
        parts.append(("CUDA graphs", graphs.bytes))
    return parts if len(parts) > 1 else []


def _server_memory(case: Case) -> tuple[GpuState, int, str] | None:
    """The GPU, the bytes and the words of the one server process (or of the whole GPU, where no process is shown)."""
    seen = [s for s in gpus_now(case) if (s.state.used_bytes or 0) > 1024 * MIB]
    if not seen:
        return None
    servers = [(s, p) for s in seen for p in s.compute if p.used_bytes and (is_server(p) or len(s.compute) == 1)]
    if servers:
        s, process = max(servers, key=lambda pair: pair[1].used_bytes or 0)
        return s.state, process.used_bytes or 0, f"{name_of(process)} (pid {process.pid})"
    if all(not s.processes for s in seen):
        return seen[0].state, seen[0].state.used_bytes or 0, f"{labels([seen[0].state])} as a whole"
    return None


def judge_contexts(case: Case) -> Iterator[Finding]:
    """Processes that work on one GPU and hold a small context on another."""
    on: dict[int, list[tuple[int, GpuProcess]]] = {}
    for s in gpus_now(case):
        for p in s.compute:
            if s.state.index is not None and p.used_bytes and "mps-server" not in (p.name or ""):
                on.setdefault(p.pid, []).append((s.state.index, p))
    extra: dict[int, list[GpuProcess]] = {}
    for places in on.values():
        main = max(places, key=lambda place: place[1].used_bytes or 0)
        for index, p in places:
            if index != main[0] and (p.used_bytes or 0) < 0.2 * (main[1].used_bytes or 0):
                extra.setdefault(index, []).append(p)
    for index, processes in extra.items():
        if len(extra) > 3 and len(processes) < 2:
            continue
        total = sum(p.used_bytes or 0 for p in processes)
        homes = sorted({max(on[p.pid], key=lambda place: place[1].used_bytes or 0)[0] for p in processes})
        values = {
            "index": index, "count": len(processes), "each": mebibytes((total) // len(processes)), "total": mebibytes(total),
            "homes": ranges(homes), "home": homes[0], "pid": processes[0].pid,
        }  # fmt: skip
        row_id = "gpu-extra-contexts" if len(processes) > 1 else "gpu-extra-context"
        yield finding(row_id, processes, case=case, values=values)


def judge_shared(case: Case) -> Iterator[Finding]:
    """Several computing processes on one GPU: through MPS, or taking turns without any memory limit."""
    seen = gpus_now(case)
    mps = [s for s in seen if any(p.kind in ("M", "M+C") or "mps-server" in (p.name or "") for p in s.processes)]
    if mps:
        clients = sum(p.kind == "M+C" for s in mps for p in s.processes)
        yield finding(
            "gpu-mps",
            [p for s in mps for p in s.processes],
            case=case,
            values={"clients": clients, "gpus": labels([s.state for s in mps])},
        )
    shared = [s for s in seen if len({p.pid for p in s.compute}) > 1 and s not in mps and s.state.mig != "Enabled"]
    homes = {
        p.pid: max((q.used_bytes or 0) for s in seen for q in s.compute if q.pid == p.pid)
        for s in seen
        for p in s.compute
    }
    shared = [s for s in shared if sum((p.used_bytes or 0) == homes[p.pid] for p in s.compute) > 1]
    if shared:
        first = shared[0]
        sizes = " + ".join("more than 99,999" if p.cut else mebibytes(p.used_bytes) for p in first.compute[:6])
        values = {
            "gpus": labels([s.state for s in shared]),
            "count": len(first.compute),
            "sizes": sizes,
            "memory": memory_words([first.state]),
        }
        yield finding("gpu-shared", [p for s in shared for p in s.compute], case=case, values=values)


def judge_full_beside_free(case: Case) -> Iterator[Finding]:
    """A server that did not come up, one GPU full and another free in the same paste: it was put on the full one."""
    if (
        case.has(ServerReady)
        or case.has(OutOfMemory)
        or case.has(BrokenOff)
        or not any(by_kind(c.kind) for c in case.captures)
    ):
        return
    seen = [
        s
        for s in gpus_now(case)
        if s.state.used_bytes is not None and s.state.total_bytes and s.state.index is not None
    ]
    full = [s for s in seen if _share(s) >= _FULL and not _is_own(case, s)]
    free = [s for s in seen if _share(s) <= _EMPTY]
    if not full or not free:
        return
    failed = any(
        " ERROR " in f" {line.text} " or line.origin.level == "ERROR" for c in case.captures for line in c.lines
    )
    target = ",".join(str(s.state.index) for s in free)
    values = {
        "full": labels([s.state for s in full]), "full_memory": memory_words([s.state for s in full]),
        "free": labels([s.state for s in free]), "free_memory": memory_words([s.state for s in free]), "target": target,
        "is": "is" if len(full) == 1 else "are", "free_is": "is" if len(free) == 1 else "are",
    }  # fmt: skip
    facts = [s.state for s in (*full, *free)]
    made = Remedy(
        f"Start the server on the free GPU: {values['free']} has {_left(free[0])} MiB to give",
        f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={target}",
        "Set it in the environment before the process starts (shell, `docker run -e`, unit file): set inside Python it comes too late "
        "for the engine's worker process. The server then calls this GPU cuda:0.",
    )
    rest = Remedy(
        f"Or free {values['full']}: find its owner and stop it",
        f"nvidia-smi --query-compute-apps=gpu_bus_id,pid,process_name,used_memory --format=csv -i {full[0].state.index}",
    )
    yield finding(
        "gpu-full-beside-free", facts, case=case, values=values, severity="error" if failed else "warning", remedies=(made, rest),
        step="weight-load" if failed else None,
    )  # fmt: skip


def owners_beside(case: Case) -> str:
    """Whom nvidia-smi in the same input shows with memory, this log's own processes left out:
    "ollama (pid 5123) holds 18,862 MiB on GPU 0"; "" where it shows nobody."""
    own = {line.origin.pid for c in case.captures for line in c.lines if line.origin.pid}
    found = [
        f"{name_of(p)} (pid {p.pid}) holds {size_of(p)} on {labels([s.state])}"
        for s in gpus_now(case)
        for p in sorted(s.compute, key=lambda p: -(p.used_bytes or 0))
        if p.pid not in own and (p.cut or (p.used_bytes or 0) >= 256 * MIB)
    ]
    return say(found[:3]) if found else ""


def free_beside(case: Case) -> str:
    """The free GPUs that nvidia-smi in the same input shows, as CUDA_VISIBLE_DEVICES takes them; "" for none."""
    seen = [s for s in gpus_now(case) if s.state.total_bytes and s.state.used_bytes is not None]
    return ",".join(str(s.state.index) for s in seen if s.state.index is not None and _share(s) <= _EMPTY)


def _share(seen: Seen) -> float:
    return (seen.state.used_bytes or 0) / (seen.state.total_bytes or 1)


def _left(seen: Seen) -> str:
    return mebibytes((seen.state.total_bytes or 0) - (seen.state.used_bytes or 0))


def _is_own(case: Case, seen: Seen) -> bool:
    """Is the memory that of a process whose log this is?"""
    pids = {line.origin.pid for c in case.captures for line in c.lines if line.origin.pid}
    return any(p.pid in pids for p in seen.processes)


RULES = (
    Rule(
        judge_ledger,
        (GpuState, WeightsLoaded),
        ("gpu-memory-explained",),
        uses=(KvPool, MemoryBreakdown, GraphsCaptured, GpuProcess),
    ),
    Rule(judge_contexts, (GpuState, GpuProcess), ("gpu-extra-contexts", "gpu-extra-context")),
    Rule(judge_shared, (GpuState, GpuProcess), ("gpu-mps", "gpu-shared")),
    Rule(judge_full_beside_free, (GpuState,), ("gpu-full-beside-free",)),
)
