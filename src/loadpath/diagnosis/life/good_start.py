"""A start that came up: what its KV pool holds by its own figures, and what the next restart will cost."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.engine import (
    CompileTook,
    Concurrency,
    GraphsCaptured,
    KvPool,
    MemoryBreakdown,
    ServerReady,
    StepMark,
    WeightsLoaded,
)
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import GIB, show_bytes, show_count, show_seconds
from loadpath.core.vocabulary import STEPS, Step
from loadpath.diagnosis.ladder import ladder
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag
from loadpath.planning.kv import bytes_per_token, concurrency_class, share_of

NOTEWORTHY = 60.0  # seconds: a shorter start needs no account
FAST_READ = 2.0  # GiB/s that local NVMe gives without effort; below it the storage is worth a look


def room(case: Case) -> Iterator[Finding]:
    """The KV pool of a healthy start: its share redone from the log's figures, bytes a token, and full-length requests."""
    if case.earlier and not case.has(KvPool):
        return
    at_once = min(case.all(Concurrency), key=lambda c: c.ratio)
    if concurrency_class(at_once.ratio) != "fine":
        return
    pool, breakdown = case.last(KvPool), case.last(MemoryBreakdown)
    share = share_of(breakdown, case.last(WeightsLoaded), case.version) if breakdown else None
    share = share or (breakdown.kv_bytes if breakdown else None) or (pool.bytes if pool else None)
    each = bytes_per_token(share, pool, case.version)
    cause = (
        f"{at_once.ratio:g} requests of {show_count(at_once.context_tokens)} tokens fit at once: room enough to batch."
    )
    if share and share > 0:
        cause += f" The KV share by the log's own figures is {show_bytes(share)}"
        cause += f", {show_bytes(each)} a token." if each else "."
    facts = [f for f in (breakdown, pool, at_once) if f is not None]
    yield finding("kv-cache-room", facts, case=case, cause=cause, values={"ratio": f"{at_once.ratio:g}"},
                  figures={"kv_bytes": share, "bytes_per_token": round(each) if each else None})  # fmt: skip


def restart(case: Case) -> Iterator[Finding]:
    """Where the start's time went, which every restart pays again, and what shortens the longest steps."""
    took: dict[Step, float] = {
        s.step: s.seconds for s in ladder(case)
        if s.seconds and STEPS.index(s.step) <= STEPS.index("http-server")
    }  # fmt: skip
    total = sum(took.values())
    if len(took) < 3 or total < NOTEWORTHY:
        return
    longest = sorted(took.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{step} {show_seconds(seconds)} ({seconds / total:.0%})" for step, seconds in longest)
    rate, speed = _read_rate(case)
    cause = f"The steps of the start took {show_seconds(total)} together: {parts}. A restart pays it again.{rate}"
    remedies = [r for step, _ in longest for r in _shorten(case, step, speed)]
    yield finding(
        "restart-cost", [m for m in case.all(StepMark) if m.event == "ended"][:3], case=case, cause=cause,
        values={"total": show_seconds(total)}, remedies=remedies[:5], figures={"start_seconds": round(total, 1)},
    )  # fmt: skip


def _read_rate(case: Case) -> tuple[str, float | None]:
    """How fast one rank's weights were read, in words and in GiB/s."""
    loaded = case.last(WeightsLoaded)
    seconds = (loaded.read_seconds or loaded.seconds) if loaded else None
    read = next((w.read_seconds for w in reversed(case.all(WeightsLoaded)) if w.read_seconds), seconds)
    if loaded is None or not loaded.bytes or not read:
        return "", None
    speed = loaded.bytes / GIB / read
    return f" The weights came at {speed:.1f} GiB/s.", speed


def _shorten(case: Case, step: Step, speed: float | None) -> Iterator[Remedy]:
    if step == "weight-load" and (speed is None or speed < FAST_READ):
        yield Remedy("Keep the checkpoint on local NVMe, or in the page cache between restarts",
                     "cat CHECKPOINT/*.safetensors > /dev/null   # before the start", "reads at several GiB/s")  # fmt: skip
    elif step == "memory-profiling" and any(not c.cached for c in case.all(CompileTook)):
        yield Remedy("Keep the compile cache on a volume that outlives the container",
                     "-v /persistent/cache:/root/.cache", "a warm start skips most of torch.compile")  # fmt: skip
    elif step == "graph-capture" and (graphs := case.last(GraphsCaptured)) is not None and not graphs.skipped:
        now = f" (now {graphs.count})" if graphs.count else ""
        sizes = "[1, 2, 4, 8, 16, 32]" if case.engine == "vllm" else 32
        yield Remedy(f"Capture CUDA graphs only for the batch sizes that you serve{now}",
                     flag(case.engine, "graph-sizes", sizes), "capture time falls with their number")  # fmt: skip
        yield Remedy("For short-lived servers, none at all", flag(case.engine, "eager", True),
                     "no capture; slower decoding, most of all for small batches")  # fmt: skip
    elif step == "process-start":
        yield Remedy("Imports are paid once per process: keep the Python environment on a local disk")


RULES = (
    Rule(room, (ServerReady, Concurrency), ("kv-cache-room",), uses=(KvPool, MemoryBreakdown, WeightsLoaded)),
    Rule(restart, (ServerReady, StepMark), ("restart-cost",), uses=(WeightsLoaded, CompileTook, GraphsCaptured)),
)
