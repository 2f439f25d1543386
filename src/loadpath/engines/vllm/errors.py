"""Where a start or the engine died: failed steps and ended processes.

The texts themselves are rows of `knowledge/findings`; the figures of memory errors are read by `readers.kv_errors`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.errors import ProcessEnded
from loadpath.core.vocabulary import Step
from loadpath.engines.vllm.pattern import Pattern, Seen


def _refused(step: Step, context: bool = False) -> Callable[[Seen], Iterator[Fact]]:
    """The engine refused to go on in `step`; the figures are read by `readers.kv_errors`, wherever they stand.
    `context`: the text itself shows that the device answered."""

    def make(seen: Seen) -> Iterator[Fact]:
        if not seen.run.once("refused", step):
            return
        if context:
            yield seen.mark("device-enumeration", "ended")
        yield from _died(seen, step)

    return make


def _died(seen: Seen, step: Step) -> Iterator[Fact]:
    seen.run.dead = True
    yield seen.mark(step, "failed")


def _failed(seen: Seen) -> Iterator[Fact]:
    """A parent or a process says that the start (or the engine) is over; the cause is told elsewhere."""
    if seen.run.stopping:
        return
    if not seen.run.dead:
        seen.run.dead = True
        if seen.run.placed:
            yield seen.mark(seen.run.present, "failed")
    groups = seen.match.groupdict()
    if groups.get("code"):
        code = int(groups["code"])
        yield ProcessEnded(**seen.common, name=groups.get("name"), exit_code=code, signal=signal_name(code))


def _ended(seen: Seen) -> Iterator[Fact]:
    groups = seen.match.groupdict()
    code = int(groups["code"]) if groups.get("code") else None
    pid = int(groups["pid"]) if groups.get("pid") else None
    yield ProcessEnded(
        **seen.common, name=groups.get("name"), pid=pid, exit_code=code, signal=signal_name(code) if code else None
    )
    yield from _failed(seen)


def signal_name(code: int) -> str | None:
    """`SIGKILL` for -9 and 137."""
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


PATTERNS = (
    Pattern(
        "max seq len (", r"max seq len \([\d,]+\)(?:,? \(| is larger than the maximum number)", _refused("kv-pool")
    ),
    Pattern("o available memory for the cache blocks", r"[Nn]o available memory for the cache", _refused("kv-pool")),
    Pattern("Cannot auto-fit max_model_len", r"Cannot auto-fit max_model_len", _refused("kv-pool")),
    Pattern("is less than desired GPU", r"Free memory on device", _refused("context-creation", context=True)),
    Pattern("Error in memory profiling", r"Error in memory profiling", _refused("memory-profiling")),
    Pattern("Failed to load model - not enough", r"Failed to load model - not enough GPU", _refused("weight-load")),
    Pattern("failed to start", r"(?:WorkerProc|EngineCore|Engine process) failed to start", _failed),
    Pattern("WorkerProc hit an exception", r"WorkerProc hit an exception", _failed),
    Pattern("encountered a fatal error", r"EngineCore encountered a fatal error", _failed),
    Pattern(
        "ngine core initialization failed",
        r"ngine core initialization failed(?:.*Failed core proc\(s\): \{'(?P<name>\w+)': (?P<code>-?\d{1,5})\b)?",
        _failed,
    ),
    Pattern("validation error", r"\d+ validation errors? for \w+Config", _refused("process-start")),
    Pattern("EngineDeadError", r"EngineDeadError", _failed),
    Pattern(
        "unexpectedly", r"Worker proc (?P<name>\S+) died unexpectedly(?:.*exit code: (?P<code>-?\d{1,5})\b)?", _ended
    ),
    Pattern("unexpectedly", r"Engine core proc (?P<name>\S+) died unexpectedly", _ended),
    Pattern("died unexpectedly", r"(?P<name>RayWorkerProc \S+) died unexpectedly", _ended),
    Pattern("ChildProcessError", r"ChildProcessError: (?P<name>worker) died", _ended),
    Pattern("exited unexpectedly", r"MPClient: (?P<name>engine core) exited unexpectedly", _ended),
    Pattern(
        " died, exit code", r"Worker (?P<name>\S+) pid (?P<pid>\d{1,9}) died, exit code: (?P<code>-?\d{1,5})\b", _ended
    ),
)
