"""What the rules about GPUs share: which reading of which GPU counts, whose its memory is, and how figures are said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.gpu import (
    DriverVersions,
    GpuListed,
    GpuProcess,
    GpuState,
    MigInstance,
    OfGpu,
    ProcessList,
    SmiSnapshot,
)
from loadpath.core.units import MIB
from loadpath.knowledge.gpus import Gpu, by_name, by_pci_id

SMALL = 128 * MIB
"""What a driver without any CUDA context may hold (its own few MiB, a virtual console, persistence)."""
_SERVERS = (
    "vllm", "sglang", "ollama", "llama-server", "llama_server", "tritonserver", "trtllm", "text-generation", "lmdeploy", "enginecore",
    "tabbyapi", "koboldcpp", "aphrodite", "mii", "infinity", "tei", "text-embeddings",
)  # fmt: skip


class Seen(msgspec.Struct, frozen=True):
    """One GPU in the reading that counts, with the processes and MIG instances that the same output shows."""

    state: GpuState
    processes: tuple[GpuProcess, ...]
    listed: ProcessList
    instances: tuple[MigInstance, ...]
    foreign: bool
    """The driver's side is not this system's (WSL, Windows): process memory cannot be seen."""

    @property
    def compute(self) -> tuple[GpuProcess, ...]:
        """Processes that compute: all but pure graphics."""
        return tuple(
            p for p in self.processes if p.kind not in ("G", "C+G", "M") and "mps-server" not in (p.name or "")
        )


def gpus_now(case: Case) -> list[Seen]:
    """Every GPU as the last full nvidia-smi output of the case shows it (of several, the last with most GPUs)."""
    groups: dict[tuple[str, int], list[GpuState]] = {}
    for state in case.all(GpuState):
        groups.setdefault(_capture_key(case, state), []).append(state)
    telling = {
        key: own
        for key, own in groups.items()
        if any(
            s.used_bytes is not None or s.utilisation is not None or s.failed_cells or s.memory != "own" for s in own
        )
    }
    if not telling:
        return []
    most = max(len(own) for own in telling.values())
    key, states = [(k, own) for k, own in telling.items() if len(own) * 2 > most][-1]
    return _seen(case, key, states)


def _capture_key(case: Case, fact: Fact) -> tuple[str, int]:
    capture = case.capture_of(fact)
    return (fact.span.source, capture.first_line if capture else 0)


def _seen(case: Case, key: tuple[str, int], states: list[GpuState]) -> list[Seen]:
    snapshot = next((s for s in case.all(SmiSnapshot) if _capture_key(case, s) == key), None)
    processes = [p for p in case.all(GpuProcess) if _capture_key(case, p) == key]
    listed: ProcessList = snapshot.processes if snapshot else "absent"
    if listed == "absent" and not processes:
        processes = case.all(GpuProcess)
        listed = "rows" if processes else "absent"
    instances = [m for m in case.all(MigInstance) if _capture_key(case, m) == key]
    versions = next((v for v in case.all(DriverVersions) if _capture_key(case, v) == key), None)
    foreign = versions is not None and None not in (versions.tool, versions.driver) and versions.tool != versions.driver
    return [
        Seen(
            state=state,
            processes=tuple(p for p in processes if _is_on(p, state, len(states))),
            listed=listed,
            instances=tuple(m for m in instances if m.index == state.index),
            foreign=foreign or state.driver_model == "WDDM",
        )
        for state in states
    ]


def _is_on(process: GpuProcess, state: GpuState, count: int) -> bool:
    if process.index is not None and state.index is not None:
        return process.index == state.index
    if process.bus_id and state.bus_id:
        return same_bus(process.bus_id, state.bus_id)
    if process.uuid and state.uuid:
        return process.uuid == state.uuid
    return count == 1


def same_bus(a: str | None, b: str | None) -> bool:
    """`00000000:17:00.0`, `0000:17:00.0` and `17:00.0` are one address."""
    return a is not None and b is not None and _short_bus(a) == _short_bus(b)


def _short_bus(bus: str) -> str:
    parts = bus.lower().split(":")
    return ":".join([p for p in parts[:-2] if p.strip("0")] + parts[-2:])


def board(fact: OfGpu, memory_bytes: int | None = None) -> Gpu | None:
    """The board of a GPU fact: by PCI device id where it has one, else by its (cut) name and memory."""
    if isinstance(fact, GpuState):
        memory_bytes = memory_bytes or fact.total_bytes
        if fact.device_id and (found := by_pci_id(fact.device_id)):
            return found
    return by_name(fact.name, None if memory_bytes is None else memory_bytes // MIB) if fact.name else None


def power_cap(case: Case, index: int) -> tuple[float, bool] | None:
    """The power limit of a GPU in watts, and whether it was printed (else the board's nominal); None if unknown."""
    states = [s for s in case.all(GpuState) if s.index == index or (s.index is None and index == 0)]
    if printed := next((s.power_cap_w for s in reversed(states) if s.power_cap_w), None):
        return printed, True
    named: list[OfGpu] = [*states, *(g for g in case.all(GpuListed) if g.index == index)]
    found = next((b for fact in named if (b := board(fact))), None)
    return (float(found.tdp_w), False) if found else None


def label(fact: OfGpu) -> str:
    """`GPU 3`, by index where known, else by bus id."""
    if fact.index is not None:
        return f"GPU {fact.index}"
    return f"GPU {fact.bus_id}" if fact.bus_id else "The GPU"


def labels(facts: Sequence[OfGpu]) -> str:
    """`GPU 0`, `GPUs 0 and 3`, `GPUs 0-7`, `8 GPUs` where there are no indices."""
    if len(facts) == 1:
        return label(facts[0])
    numbers = sorted({f.index for f in facts if f.index is not None})
    if len(numbers) != len({id(f) for f in facts}):
        return f"{len(facts)} GPUs"
    return f"GPUs {ranges(numbers)}"


def ranges(numbers: Iterable[int]) -> str:
    """`0-7`, `0 and 3`, `0-2, 5 and 7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [part for r in runs for part in ([f"{r[0]}-{r[-1]}"] if len(r) > 2 else map(str, r))]
    return say(parts)


def say(nouns: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return nouns[0] if len(nouns) == 1 else f"{', '.join(nouns[:-1])} and {nouns[-1]}"


def mebibytes(value: int | None) -> str:
    """`87,920` as nvidia-smi counts."""
    return "?" if value is None else f"{value / MIB:,.0f}"


def spread(values: Sequence[float | None], digits: int = 0) -> str:
    """`412-428`, or one figure where they are alike; `?` without any."""
    known = [value for value in values if value is not None]
    if not known:
        return "?"
    low, high = f"{min(known):,.{digits}f}", f"{max(known):,.{digits}f}"
    return low if low == high else f"{low}-{high}"


def memory_words(states: Sequence[GpuState]) -> str:
    """`87,920 of 97,887 MiB`, a range of the used figures over several GPUs."""
    used = spread([s.used_bytes / MIB for s in states if s.used_bytes is not None])
    total = spread([t / MIB for s in states if (t := total_of(s)) is not None])
    return f"{used} MiB" if total == "?" else f"{used} of {total} MiB"


def total_of(state: GpuState) -> int | None:
    """The GPU's memory; where a query asked for its parts only, their sum."""
    if state.total_bytes is None and None not in (state.used_bytes, state.free_bytes):
        return (state.used_bytes or 0) + (state.free_bytes or 0) + (state.reserved_bytes or 0)
    return state.total_bytes


def power_words(states: Sequence[GpuState]) -> str:
    """`78 of 600 W`; "" where no power was printed."""
    draws = [s.power_w for s in states if s.power_w is not None]
    caps = [s.power_cap_w for s in states if s.power_cap_w is not None]
    if not draws:
        return ""
    return f"{spread(draws)} of {spread(caps)} W" if caps else f"{spread(draws)} W"


def percent(values: Sequence[float | None]) -> str:
    return f"{spread([None if v is None else v * 100 for v in values])} %"


def owners(processes: Sequence[GpuProcess], most: int = 4) -> str:
    """`VLLM::EngineCore (pid 41822) holds 87,910 MiB`, the largest first."""
    ordered = sorted(processes, key=lambda p: -(p.used_bytes or 0))
    said = [f"{name_of(p)} (pid {p.pid}) holds {size_of(p)}" for p in ordered[:most]]
    more = len(ordered) - most
    return say(said) + (f", and {more} more" if more > 0 else "")


def size_of(process: GpuProcess) -> str:
    if process.used_bytes is not None:
        return f"{mebibytes(process.used_bytes)} MiB"
    return "an amount that the table cuts off (100,000 MiB or more)" if process.cut else "an amount that is not shown"


def name_of(process: GpuProcess) -> str:
    """The program without its path: `gpu_burn`, `VLLM::Worker_TP0`."""
    name = (process.name or "a process without a name").strip()
    if name.strip("[]").lower() in ("not found", "unknown error", "insufficient permissions"):
        return "a process that cannot be named from here"
    return name.replace("\\", "/").rstrip("/").rpartition("/")[2] or name


def is_server(process: GpuProcess) -> bool:
    """Does the name say that this is an inference server (python3 alone does not)?"""
    return any(word in (process.name or "").lower() for word in _SERVERS)


def median(values: Iterable[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    middle = len(known) // 2
    if not known:
        return None
    return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
