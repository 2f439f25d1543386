"""llama-server once the model is there: warm-up, listening, timings, the end."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import ServerListening, ServerReady, ServingStats, StepMark, Stopped
from loadpath.engines.line_table import Row, Seen


def _warm_up(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="kv-pool", event="ended")
    yield StepMark(**seen.fields, step="warm-up", event="began")


def _http(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="http-server", event="progress")
    yield ServerListening(**seen.fields, address=f"http://{seen.match['host']}:{seen.match['port']}")


def _ready(seen: Seen) -> Iterator[Fact]:
    """Listening after the model was loaded; the older builds listen first and then say that all slots are idle."""
    yield StepMark(**seen.fields, step="http-server", event="ended")
    yield StepMark(**seen.fields, step="warm-up", event="ended")
    if address := seen.text("address"):
        yield ServerListening(**seen.fields, address=address)
    yield ServerReady(**seen.fields)
    yield StepMark(**seen.fields, step="serving", event="began")


def _timing(seen: Seen) -> Iterator[Fact]:
    rate = seen.number("rate")
    if seen.text("prompt"):
        yield ServingStats(**seen.fields, prompt_tps=rate)
    else:
        yield ServingStats(**seen.fields, generation_tps=rate)


def _cleaning(seen: Seen) -> Iterator[Fact]:
    yield Stopped(**seen.fields, how="orderly")
    yield StepMark(**seen.fields, step="shutdown", event="began")


SERVING: tuple[Row, ...] = (
    Row("warming up the model", r"warming up the model with an empty run", _warm_up),
    Row("HTTP server is listening", r"HTTP server is listening, hostname: (?P<host>\S+), port: (?P<port>\d+)", _http),
    Row("listening on", r"(?:server is|llama_server:|srv +init:) listening on (?P<address>\S+)", _ready),
    Row("all slots are idle", r"all slots are idle", _ready),
    Row("eval time", r"(?P<prompt>prompt )?eval time =.*?\bper token,\s*(?P<rate>[\d.]+) tokens per second", _timing),
    Row("cleaning up before exit", r"cleaning up before exit", _cleaning),
)
