"""SGLang while it serves and stops: batch lines, retractions, signals, the ends of its processes."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import RequestServed, ServingStats, StepMark, Stopped
from loadpath.core.facts.errors import ProcessEnded
from loadpath.engines.line_table import Row, Seen

_USAGE = r"(?:full )?token usage: (?P<usage>[\d.]+)"


def _batch(seen: Seen) -> Iterator[Fact]:
    decode = seen.match["kind"] == "Decode"
    rate = seen.number("rate")
    yield ServingStats(
        **seen.fields,
        running=seen.whole("running"),
        waiting=seen.whole("waiting"),
        kv_usage=seen.number("usage"),
        generation_tps=rate if decode else None,
        prompt_tps=None if decode else rate,
    )


def _asked_to_stop(seen: Seen) -> Iterator[Fact]:
    yield Stopped(**seen.fields, how="signal", signal="SIGTERM")
    yield StepMark(**seen.fields, step="shutdown", event="began")


def _stopped(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="shutdown", event="ended")


def _subprocess(seen: Seen) -> Iterator[Fact]:
    yield ProcessEnded(
        **seen.fields, name=seen.match["name"], pid=seen.whole("pid"), exit_code=seen.whole("code")
    )  # fmt: skip


def _request(seen: Seen) -> Iterator[Fact]:
    match = seen.match
    yield RequestServed(**seen.fields, method=match["method"], path=match["path"], status=int(match["status"]))


SERVING: tuple[Row, ...] = (
    Row(" batch", r"(?P<kind>Decode|Prefill) batch(?: \[\d+\])?[.,] "
        rf"(?=(?:.*?#running-req: (?P<running>\d+))?)(?=(?:.*?#queue-req: (?P<waiting>\d+))?)(?=(?:.*?{_USAGE})?)"
        r"(?=(?:.*?throughput \(token/s\): (?P<rate>[\d.]+))?)", _batch),
    Row("SIGTERM received", r"SIGTERM received\.", _asked_to_stop),
    Row("Gracefully exiting", r"Gracefully exiting\.\.\.", _stopped),
    Row("kill_process_tree called", r"kill_process_tree called", _stopped),
    Row("crashed with exit code",
        r"Subprocess (?P<name>\S+) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<code>-?\d+)", _subprocess),
    Row("scheduler died during",
        r"Rank \d+ (?P<name>scheduler) died during initialization \(exit code: (?P<code>-?\d+)\)", _subprocess),
    Row('HTTP/1.1" ', r'"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/1\.1" (?P<status>\d{3})', _request),
)  # fmt: skip
