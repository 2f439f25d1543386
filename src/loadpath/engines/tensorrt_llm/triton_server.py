"""Triton Inference Server around its backends (TensorRT-LLM's lines are read here as well; vLLM's have their own log).

Triton serves many models: one that fails to load does not stop the others unless `--exit-on-error` (the default) is on.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import EngineStarted, ModelNamed, ServerListening, ServerReady, StepMark, Stopped
from loadpath.core.text import Capture, Line
from loadpath.engines.line_table import Row, Seen, read_table, thinned
from loadpath.engines.tensorrt_llm import TENSORRT_LLM

ENGINE = "triton-server"


def flag(lever: str, value: object) -> str:
    """Triton has no such levers of its own: they are in each model's config.pbtxt."""
    names = {"memory-share": "kv_cache_free_gpu_mem_fraction", "sequences": "max_batch_size"}
    return f"{names[lever]}: {value} (config.pbtxt)" if lever in names else ""


def starts_run(line: Line) -> bool:
    return "Triton Inference Server" in line.text and "Release" not in line.text[:12] and "==" in line.text


def read(capture: Capture) -> Iterator[Fact]:
    yield from thinned(list(read_table(capture, (*TRITON, *TENSORRT_LLM))))


def _started(seen: Seen) -> Iterator[Fact]:
    yield EngineStarted(**seen.fields, engine=ENGINE, version=seen.text("version"))
    yield StepMark(**seen.fields, step="process-start", event="began")


def _loading(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="process-start", event="ended")
    yield StepMark(**seen.fields, step="weight-load", event="began")
    yield ModelNamed(**seen.fields, name=seen.match["model"])


def _loaded(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="weight-load", event="ended", what=seen.match["model"])


def _failed(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="weight-load", event="failed", what=seen.match["model"])


def _listening(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="http-server", event="ended")
    yield ServerListening(**seen.fields, address=seen.match["address"])
    yield ServerReady(**seen.fields)
    yield StepMark(**seen.fields, step="serving", event="began")


def _stopping(seen: Seen) -> Iterator[Fact]:
    yield Stopped(**seen.fields, how="signal", signal=seen.text("signal"))
    yield StepMark(**seen.fields, step="shutdown", event="began")


TRITON: tuple[Row, ...] = (
    Row("Triton Server", r"NVIDIA Release (?P<version>[\d.]+)", _started),
    Row("server_version", r"server_version\s*\|\s*(?P<version>[\d.]+)", _started),
    Row("loading: ", r"^loading: (?P<model>[\w.-]+):\d+", _loading),
    Row("successfully loaded '", r"successfully loaded '(?P<model>[^']+)'", _loaded),
    Row("failed to load '", r"failed to load '(?P<model>[^']+)'", _failed),
    Row("Started HTTPService", r"Started HTTPService at (?P<address>\S+)", _listening),
    Row("Signal (", r"^Signal \((?P<signal>\d+)\) received", _stopping),
)
