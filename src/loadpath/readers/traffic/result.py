"""A result of `loadpath bench` (`loadpath.bench/1`) → its levels, its client, its warm-up, and the timeline with the
server's own samples joined to it by time.

{
"schema": "loadpath.bench/1",
"target": "http://127.0.0.1:8000", …
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.traffic import BenchClient, Benchmark, BenchTimeline, BenchWarmUp, Latency, Stretch
from loadpath.core.text import Capture, Line
from loadpath.core.traffic import BENCH_SCHEMA, BenchResult, GpuSample, Interval, Level, MetricSample, Spread
from loadpath.readers.documents import Broken, parse_json

_LOAD = ("api", "stream", "loop", "arrivals", "dataset", "input_tokens", "output_tokens", "prefix_tokens", "turns",
         "same_prompts", "ignore_eos")  # fmt: skip
"""How requests were made: what two results must have alike to be compared."""
BUSY = 0.05
"""A local card that is busier than this may be the server's: so many cards are taken, where the user named no number."""
_EXCHANGES = '"exchanges": ['
_QUEUE = ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds")
_PREFILL = ("vllm:request_prefill_time_seconds",)
_DECODE = ("vllm:request_decode_time_seconds",)
_TTFT = ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds")


def extent(lines: Sequence[Line], i: int) -> int:
    head = " ".join(line.text for line in lines[i : i + 3])[:400]
    if not head.lstrip().startswith("{") or BENCH_SCHEMA not in head:
        return i
    if lines[i].text.strip() != "{":
        return i + 1
    return next((j + 1 for j in range(i + 1, len(lines)) if lines[j].text == "}"), len(lines))


def read(capture: Capture) -> Iterator[Fact]:
    result = _result(capture)
    if result is None:
        return
    common = at(capture, capture.lines[0], capture.lines[-1])
    told = _Told(result, common)
    yield from (told.level(level) for level in result.levels if level.figures)
    yield told.client()
    yield from told.warm_up()
    if timeline := told.timeline():
        yield timeline


def _result(capture: Capture) -> BenchResult | None:
    """The result without its exchanges: they are most of the lines, and a long file is cut within them."""
    kept: list[str] = []
    for line in capture.lines:
        if line.text.lstrip().startswith(_EXCHANGES):
            break
        kept.append(line.text)
    try:
        document = parse_json("\n".join(kept))
        return msgspec.convert(document, BenchResult, strict=False)
    except (Broken, msgspec.ValidationError):
        return None


class _Told:
    """The facts of one result. Evidence is a sentence: the JSON's own lines tell nobody anything."""

    def __init__(self, result: BenchResult, common: dict[str, Any]) -> None:
        self._result, self._common = result, common

    def _with(self, text: str) -> dict[str, Any]:
        return {**self._common, "text": text}

    def level(self, level: Level) -> Benchmark:
        result, found = self._result, level.figures
        assert found is not None
        settings, server = result.settings, result.server
        shown = f"concurrency {level.concurrency}" if level.concurrency else f"{level.rate or 0:.4g} requests/s asked"
        text = f"{shown}: {found.completed} of {found.requests} requests in {found.seconds:.1f} s, {found.request_rate:.4g} requests/s"
        text += f", {found.output_rate:,.1f} output tok/s" if found.output_rate else ""
        for name, spread in (("TTFT", found.ttft), ("ITL", found.itl), ("TPOT", found.tpot)):
            text += f", {name} p50 {spread.p50 * 1e3:.4g} ms" if spread else ""
        return Benchmark(
            **self._with(text),
            tool="loadpath",
            label=shown,
            level=level.number,
            engine=server.engine,
            version=server.version,
            model=settings.checkpoint or server.model_root or server.model,
            dtype=server.quantisation or server.dtype,
            gpu=settings.gpu or server.gpu or next((sample.name for sample in result.gpus if sample.name), ""),
            gpus=max(settings.gpus, len({sample.gpu for sample in result.gpus if (sample.busy or 0) > BUSY})),
            seconds=found.seconds,
            requests=found.requests,
            completed=found.completed,
            failed=sum(found.errors.values()),
            errors=found.errors,
            concurrency=level.concurrency,
            rate=level.rate,
            in_flight=found.mean_in_flight or None,
            most_in_flight=found.most_in_flight or None,
            input_tokens=found.input_tokens,
            output_tokens=found.output_tokens,
            input_mean=_share(found.input_tokens, found.completed),
            output_mean=_share(found.output_tokens, found.completed),
            cached_tokens=found.cached_tokens,
            request_rate=found.request_rate,
            input_rate=found.input_rate,
            output_rate=found.output_rate,
            goodput_rate=found.goodput_rate,
            good_share=found.good_share,
            ttft=_latency(found.ttft),
            itl=_latency(found.itl),
            tpot=_latency(found.tpot),
            e2e=_latency(found.e2e),
            delay=_latency(found.delay),
            tokens_per_chunk=found.tokens_per_chunk,
            output_basis=found.output_basis,
            same_prompts=settings.same_prompts or settings.prefix_tokens > 0 or settings.turns > 1,
            settings=_compared(result),
            ci=found.ci,
            repeats=max(1, len(level.repeats)),
            interrupted=result.interrupted,
        )

    def client(self) -> BenchClient:
        own = self._result.client
        late = f"{own.lag.p99 * 1e3:.3g} ms at p99, {own.lag.maximum * 1e3:.3g} ms at most"
        text = f"client: {own.cpu_share:.0%} of a core, event loop late by {late}"
        return BenchClient(
            **self._with(text),
            cpu_share=own.cpu_share,
            lag_p99=own.lag.p99,
            lag_max=own.lag.maximum,
            late_share=own.late_share,
            loop=own.loop,
        )

    def warm_up(self) -> Iterator[BenchWarmUp]:
        for one in self._result.warm_up:
            how = f"steady after {one.requests} of {one.seen}" if one.steady else f"not steady in {one.seen}"
            first = f", first TTFT {one.cold_ttft * 1e3:.4g} ms" if one.cold_ttft is not None else ""
            later = f", steady TTFT {one.steady_ttft * 1e3:.4g} ms" if one.steady_ttft is not None else ""
            yield BenchWarmUp(
                **self._with(f"requests of {one.bucket} tokens: {how}{first}{later}"),
                bucket=one.bucket,
                seen=one.seen,
                requests=one.requests,
                steady=one.steady,
                cold_ttft=one.cold_ttft,
                steady_ttft=one.steady_ttft,
                why=one.why,
                given=one.given,
            )

    def timeline(self) -> BenchTimeline | None:
        result = self._result
        if not result.intervals:
            return None
        first, last = (result.metrics[0], result.metrics[-1]) if result.metrics else (None, None)
        grown: Callable[[str], float | None] = lambda name: _grown(first, last, name)  # noqa: E731
        asked = grown("prefix_queries")
        return BenchTimeline(
            **self._with(f"{len(result.intervals)} stretches, {len(result.metrics)} samples of the server's metrics"),
            stretches=tuple(_stretch(one, result.metrics, result.gpus) for one in result.intervals),
            metrics=bool(result.metrics),
            gpus=bool(result.gpus),
            prefix_hits=grown("prefix_hits"),
            prefix_queries=asked if asked is not None else grown("prompt_tokens"),
            drafts=grown("drafts"),
            accepted=grown("accepted"),
        )


def _compared(result: BenchResult) -> dict[str, str]:
    """What else two results must have alike: how requests were made."""
    own = result.settings
    made = {name: str(getattr(own, name)) for name in _LOAD}
    made |= {f"server {name}": value for name, value in result.server.settings.items()}
    if result.server.max_model_len:
        made["server max-model-len"] = str(result.server.max_model_len)
    clocks = [sample.sm_mhz for sample in result.gpus if sample.sm_mhz]
    if clocks:
        made["SM clock (median MHz)"] = f"{sorted(clocks)[len(clocks) // 2]:.0f}"
    return made


def _latency(spread: Spread | None) -> Latency | None:
    if spread is None:
        return None
    return Latency(spread.mean, spread.p50, spread.p90, spread.p95, spread.p99, spread.minimum, spread.maximum)


def _share(total: int | None, count: int) -> float | None:
    return total / count if total and count else None


def _stretch(one: Interval, metrics: Sequence[MetricSample], gpus: Sequence[GpuSample]) -> Stretch:
    """An interval with the server's figures of its time: gauges at their greatest, counters by their growth."""
    seconds = max(one.end - one.begin, 1e-9)
    inside = [sample for sample in metrics if one.begin <= sample.time <= one.end]
    before = [sample for sample in metrics if sample.time < one.begin]
    first = before[-1] if before else (inside[0] if inside else None)
    last = inside[-1] if inside else None
    cards = [sample for sample in gpus if one.begin <= sample.time <= one.end]
    return Stretch(
        begin=one.begin,
        end=one.end,
        level=one.level,
        repeat=one.repeat,
        sent=one.sent,
        first_tokens=one.first_tokens,
        completed=one.completed,
        errors=one.errors,
        in_flight=one.in_flight,
        output_rate=one.output_tokens / seconds,
        prompt_rate=one.prompt_tokens / seconds,
        ttft=one.ttft_p50,
        itl=one.itl_p50,
        itl_p99=one.itl_p99,
        itl_max=one.itl_max,
        lag_max=one.lag_max,
        running=_most(inside, "running"),
        waiting=_most(inside, "waiting"),
        kv_usage=_most(inside, "kv_usage"),
        preemptions=_grown(first, last, "preemptions"),
        queue_seconds=_per_request(first, last, _QUEUE),
        prefill_seconds=_per_request(first, last, _PREFILL),
        decode_seconds=_per_request(first, last, _DECODE),
        server_ttft=_per_request(first, last, _TTFT),
        watts=_most(cards, "watts"),
        watts_limit=_most(cards, "limit_watts"),
        sm_mhz=min((s.sm_mhz for s in cards if s.sm_mhz), default=None),
        gpu_busy=_most(cards, "busy"),
        throttle=next((s.throttle for s in cards if s.throttle), None),
    )


def _most(samples: Sequence[msgspec.Struct], name: str) -> float | None:
    return max((value for sample in samples if (value := getattr(sample, name)) is not None), default=None)


def _grown(first: MetricSample | None, last: MetricSample | None, name: str) -> float | None:
    """Growth of a counter; None where it was not there, or the server began anew."""
    if first is None or last is None or getattr(last, name) is None:
        return None
    growth: float = getattr(last, name) - (getattr(first, name) or 0.0)
    return growth if growth >= 0 else None


def _per_request(first: MetricSample | None, last: MetricSample | None, names: Sequence[str]) -> float | None:
    """Mean of a histogram over the time between two samples."""
    if first is None or last is None or first is last:
        return None
    for name in names:
        count = last.values.get(f"{name}_count", 0.0) - first.values.get(f"{name}_count", 0.0)
        total = last.values.get(f"{name}_sum", 0.0) - first.values.get(f"{name}_sum", 0.0)
        if count > 0 and total >= 0:
            return total / count
    return None
