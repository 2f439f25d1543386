"""The HTTP server and the life after the start: address, ready, access lines, periodic figures."""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import Progress, RequestServed, ServerListening, ServerReady, ServingStats
from loadpath.engines.vllm.pattern import Pattern, Seen, figure

# Requests that no client of the model sent.
PROBES = ("/health", "/ping", "/metrics", "/load", "/version", "/v1/models", "/is_sleeping", "/sleep", "/wake_up")


def _listening(seen: Seen) -> Iterator[Fact]:
    if seen.match[1]:
        yield ServerListening(**seen.common, address=seen.match[1])
    yield seen.mark("http-server", "began")


def _http_begins(seen: Seen) -> Iterator[Fact]:
    yield seen.mark("http-server", "began")


def _ready(seen: Seen) -> Iterator[Fact]:
    if not seen.run.ready:
        seen.run.ready = True
        yield ServerReady(**seen.common)
    yield seen.mark("http-server", "ended")


def _request(seen: Seen) -> Iterator[Fact]:
    method, path, status = seen.match[1], seen.match[2], int(seen.match[3])
    yield RequestServed(**seen.common, method=method, path=path, status=status)
    if method == "POST" and path.split("?")[0] not in PROBES:
        yield from _serving(seen)


def _up(seen: Seen) -> Iterator[Fact]:
    """Where uvicorn's own words went elsewhere, the list of routes or the first answer shows that the start is over."""
    if not seen.run.ready:
        yield from _ready(seen)


def _serving(seen: Seen) -> Iterator[Fact]:
    if seen.run.once("serving"):
        yield from _up(seen)
        yield seen.mark("serving", "began")


def _received(seen: Seen) -> Iterator[Fact]:
    yield from _serving(seen)


def _share(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text)
    value = figure(match[1]) if match else None
    return value / 100 if value is not None else None


def _stats(seen: Seen) -> Iterator[Fact]:
    rest = seen.match[5]
    preemptions = re.search(r"Preemptions: (\d{1,12})\b", rest)
    fact = ServingStats(
        **seen.common,
        prompt_tps=seen.number(1), generation_tps=seen.number(2), running=seen.count(3), waiting=seen.count(4),
        kv_usage=_share(r"KV cache usage: ([\d.]+)%", rest),
        prefix_hit_rate=_share(r"Prefix cache hit rate: (?:GPU: )?([\d.]+)%", rest),
        preemptions=int(preemptions[1]) if preemptions else None,
    )  # fmt: skip
    yield fact
    yield from _serving(seen)


def _preempted(seen: Seen) -> Iterator[Fact]:
    """V0 printed every fiftieth preemption with the count so far."""
    yield ServingStats(**seen.common, preemptions=seen.count(1))


def _steps(seen: Seen) -> Iterator[Fact]:
    """Offline runs (`LLM.generate`) show a bar of prompts."""
    yield from _serving(seen)
    yield Progress(
        **seen.common, step="serving", what="Processed prompts", done=seen.count(2) or 0, total=seen.count(3) or 0
    )


PATTERNS = (
    Pattern("Supported", r"Supported[_ ]tasks: \[", _http_begins),
    Pattern("Starting vLLM ", r"Starting vLLM (?:API )?server(?: \d+)? on (\S+)", _listening),
    Pattern("Available routes are:", r"Available routes are:", _up),
    Pattern("Started server process", r"Started server process", _http_begins),
    Pattern("Uvicorn running on", r"Uvicorn running on (\S+)", _listening),
    Pattern("Application startup complete", r"Application startup complete", _ready),
    Pattern(" HTTP/", r'"([A-Z]+) (\S+) HTTP/[\d.]+" (\d{3})', _request),
    Pattern("Received request ", r"Received request \S+:", _received),
    Pattern("Processed prompts", r"(Processed prompts):\s*\d+%[^|]*\|[^|]*\|\s*(\d+)/(\d+)", _steps),
    Pattern(
        "Avg prompt throughput",
        r"Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s, "
        r"Running: (\d+) reqs, (?:Swapped: \d+ reqs, )?(?:Waiting|Pending): (\d+) reqs(.*)",
        _stats,
    ),
    Pattern("total_num_cumulative_preemption", r"total_num_cumulative_preemption=(\d+)", _preempted),
)
