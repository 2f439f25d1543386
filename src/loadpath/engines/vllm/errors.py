"""Errors whose figures matter → typed facts; and where a start or the engine died.

Every other error text is a row of `knowledge/findings`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import KvShortfall
from loadpath.core.facts.errors import FreeBelowDesired, MemoryChangedWhileProfiling, ProcessEnded
from loadpath.core.units import gib
from loadpath.engines.vllm.pattern import Pattern, Seen


def _older_shortfall(seen: Seen) -> Iterator[Fact]:
    match = re.search(
        r"max seq len \(([\d,]+)\) is larger than the maximum number of tokens that can be stored in (?:the )?"
        r"KV cache \(([\d,]+)\)",
        seen.message,
    )
    if match and seen.run.once("shortfall", *match.groups()):
        asked, held = (int(group.replace(",", "")) for group in match.groups())
        yield KvShortfall(**seen.common, asked_tokens=asked, held_tokens=held)
        yield from _died(seen, "kv-pool")


def _shortfall(seen: Seen) -> Iterator[Fact]:
    text = seen.message
    match = re.search(
        r"max seq len \(([\d,]+)\),? \(?([\d.]+) Gi?B KV cache is needed, which is larger than the available "
        r"KV cache memory \((-?[\d.]+) Gi?B\)",
        text,
    )
    if match is None:
        return
    fits = re.search(r"estimated maximum model length is ([\d,]+)", text)
    if seen.run.once("shortfall", *match.groups()):
        yield KvShortfall(
            **seen.common,
            asked_tokens=int(match[1].replace(",", "")),
            needed_bytes=gib(float(match[2])),
            available_bytes=gib(float(match[3])),
            estimated_tokens=int(fits[1].replace(",", "")) if fits else None,
        )
        yield from _died(seen, "kv-pool")


def _nothing_left(seen: Seen) -> Iterator[Fact]:
    if seen.run.once("shortfall", "none"):
        yield KvShortfall(**seen.common, held_tokens=0)
        yield from _died(seen, "kv-pool")


def _free_below_desired(seen: Seen) -> Iterator[Fact]:
    match = re.search(
        r"Free memory on device(?: cuda:(\d+))? \(([\d.]+)/([\d.]+) GiB\) on startup is less than desired GPU "
        r"memory utilization \(([\d.]+), ([\d.]+) GiB\)",
        seen.message,
    )
    if match and seen.run.once("free", *match.groups()):
        yield FreeBelowDesired(
            **seen.common,
            device=int(match[1]) if match[1] else None,
            free_bytes=gib(float(match[2])),
            total_bytes=gib(float(match[3])),
            utilisation=float(match[4]),
            desired_bytes=gib(float(match[5])),
        )
        yield seen.mark("device-enumeration", "ended")
        yield from _died(seen, "context-creation")


def _memory_moved(seen: Seen) -> Iterator[Fact]:
    match = re.search(
        r"Error in memory profiling\.\s+Initial (free|used) memory ([\d.]+)( GiB)?,\s*current(?:ly)? (?:free|used) "
        r"memory ([\d.]+)( GiB)?",
        seen.message,
    )
    if match and seen.run.once("moved", *match.groups()):
        yield MemoryChangedWhileProfiling(
            **seen.common,
            measure=match[1],
            initial_bytes=_bytes(match[2], match[3]),
            current_bytes=_bytes(match[4], match[5]),
        )
        yield from _died(seen, "memory-profiling")


def _bytes(figure: str, unit: str | None) -> int:
    """Printed in GiB from 0.9.1, in bytes before."""
    figure = figure.rstrip(".")
    return gib(float(figure)) if unit else round(float(figure))


def _died(seen: Seen, step: str) -> Iterator[Fact]:
    seen.run.dead = True
    yield seen.mark(step, "failed")  # type: ignore[arg-type]


def _failed(seen: Seen) -> Iterator[Fact]:
    """A parent or a process says that the start (or the engine) is over; the cause is told elsewhere."""
    if not seen.run.dead:
        seen.run.dead = True
        step = "serving" if seen.run.ready else seen.run.step
        if step == "context-creation":
            # The context has no line of its own: the last that was seen is the rank's assignment.
            step = "context-creation"
        yield seen.mark(step, "failed")
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
    import signal

    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


PATTERNS = (
    Pattern("max seq len (", r"max seq len \([\d,]+\) is larger than", _older_shortfall),
    Pattern("max seq len (", r"max seq len \([\d,]+\),? \(", _shortfall),
    Pattern("o available memory for the cache blocks", r"[Nn]o available memory for the cache blocks", _nothing_left),
    Pattern("Cannot auto-fit max_model_len", r"Cannot auto-fit max_model_len", _nothing_left),
    Pattern("Free memory on device", r"Free memory on device", _free_below_desired),
    Pattern("Error in memory profiling", r"Error in memory profiling", _memory_moved),
    Pattern("failed to start", r"(?:WorkerProc|EngineCore|Engine process) failed to start", _failed),
    Pattern("WorkerProc hit an exception", r"WorkerProc hit an exception", _failed),
    Pattern("encountered a fatal error", r"EngineCore encountered a fatal error", _failed),
    Pattern(
        "ngine core initialization failed",
        r"ngine core initialization failed(?:.*Failed core proc\(s\): \{'(?P<name>\w+)': (?P<code>-?\d+))?",
        _failed,
    ),
    Pattern("validation error", r"\d+ validation errors? for \w+Config", _failed),
    Pattern("EngineDeadError", r"EngineDeadError", _failed),
    Pattern("unexpectedly", r"Worker proc (?P<name>\S+) died unexpectedly(?:.*exit code: (?P<code>-?\d+))?", _ended),
    Pattern("unexpectedly", r"Engine core proc (?P<name>\S+) died unexpectedly", _ended),
    Pattern(" died, exit code", r"Worker (?P<name>\S+) pid (?P<pid>\d+) died, exit code: (?P<code>-?\d+)", _ended),
)
