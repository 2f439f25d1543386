"""From the JSON documents of benchmark tools to the fields of `Benchmark`, one function a tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from loadpath.core.facts.traffic import Latency, Tool
from loadpath.readers.traffic.words import latency, number, statistic, unit, whole


class Told(msgspec.Struct, frozen=True):
    """Fields of `Benchmark` as one level of a result tells them; `shown`: its main figures as text, for the evidence."""

    tool: Tool
    fields: dict[str, Any]

    @property
    def shown(self) -> str:
        """ "request throughput 3.41/s, output 1746.2 tok/s, TTFT 387.4 ms, ITL 13.2 ms" """
        parts = []
        if rate := self.fields.get("request_rate"):
            parts.append(f"{rate:.4g} requests/s")
        if rate := self.fields.get("output_rate"):
            parts.append(f"{rate:,.1f} output tok/s")
        for name in ("ttft", "itl", "tpot", "e2e"):
            spread = self.fields.get(name)
            if isinstance(spread, Latency) and spread.average:
                parts.append(f"{name.upper()} {spread.average * 1e3:.4g} ms")
        return ", ".join(parts)


def serving(result: Mapping[str, Any]) -> Iterator[Told]:
    """vLLM's and SGLang's results: flat, `mean_ttft_ms`, `p99_itl_ms`; SGLang has `mean_e2e_latency_ms` and `concurrency`."""
    fields: dict[str, Any] = {
        "seconds": number(result.get("duration")),
        "completed": whole(result.get("completed")),
        "requests": whole(result.get("num_prompts")),
        "failed": whole(result.get("failed")),
        "concurrency": whole(result.get("max_concurrency")),
        "rate": number(result.get("request_rate")),
        "unlimited_rate": str(result.get("request_rate")).lower() in ("inf", "infinity"),
        "input_tokens": whole(result.get("total_input_tokens")),
        "output_tokens": whole(result.get("total_output_tokens")),
        "request_rate": number(result.get("request_throughput")),
        "input_rate": number(result.get("input_throughput")),
        "output_rate": number(result.get("output_throughput")),
        "total_rate": number(result.get("total_token_throughput")),
        "goodput_rate": number(result.get("request_goodput") or result.get("request_goodput:")),
        "peak_output_rate": number(result.get("max_output_tokens_per_s")),
        "in_flight": number(result.get("concurrency")),
        "acceptance_length": number(result.get("accept_length") or result.get("spec_decode_acceptance_length")),
        "model": _text(result.get("model_id") or _inside(result.get("server_info"), "model_path")),
        "engine": _text(result.get("backend")),
        "settings": _settings(
            result, ("dataset_name", "burstiness", "random_input_len", "random_output_len", "endpoint_type")
        ),
    }
    for field, name in (("ttft", "ttft"), ("itl", "itl"), ("tpot", "tpot"), ("e2e", "e2el"), ("e2e", "e2e_latency")):
        found = {key.removesuffix(f"_{name}_ms"): value for key, value in result.items() if key.endswith(f"_{name}_ms")}
        fields[field] = latency(found, 1e-3) or fields.get(field)
    of_sglang = "total_output_tokens_retokenized" in result or "sglang" in str(result.get("backend"))
    yield Told("sglang" if of_sglang else "vllm", fields)


def guidellm(report: Mapping[str, Any]) -> Iterator[Told]:
    """GuideLLM: a list of `benchmarks`, each with `metrics`, whose distributions are kept by the requests' fate.

    Its time per output token holds the first one too (latency over tokens): no TPOT as the others mean it. Its rates are
    means over the measured window, which is shorter than the run: the duration is left out.
    """
    for level, one in enumerate(report.get("benchmarks") or ()):
        metrics = one.get("metrics") if isinstance(one, dict) else None
        if not isinstance(metrics, dict):
            continue
        strategy = _strategy(one)
        totals = metrics.get("request_totals") or {}
        yield Told(
            "guidellm",
            {
                "level": level,
                "label": _text(strategy.get("type_")),
                "model": _text(_inside(one.get("worker"), "backend_model") or _inside(report.get("args"), "model")),
                "concurrency": whole(strategy.get("streams") or strategy.get("max_concurrency")),
                "rate": number(strategy.get("rate")),
                "completed": whole(totals.get("successful")),
                "failed": whole(totals.get("errored")),
                "requests": whole(totals.get("total")),
                "request_rate": _mean(metrics, "requests_per_second"),
                "in_flight": _mean(metrics, "request_concurrency"),
                "input_mean": _mean(metrics, "prompt_token_count"),
                "output_mean": _mean(metrics, "output_token_count"),
                "input_rate": _mean(metrics, "prompt_tokens_per_second"),
                "output_rate": _mean(metrics, "output_tokens_per_second"),
                "total_rate": _mean(metrics, "tokens_per_second"),
                "tokens_per_chunk": _mean(metrics, "iter_tokens_per_iteration"),
                "ttft": _kept(metrics, "time_to_first_token_ms", 1e-3),
                "itl": _kept(metrics, "inter_token_latency_ms", 1e-3),
                "e2e": _kept(metrics, "request_latency", 1.0),
            },
        )


def _strategy(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where GuideLLM keeps how requests were sent: `config`, before 0.4 `args`, or the scheduler's own part."""
    for holder in ("config", "args", "scheduler"):
        if isinstance(found := _inside(one.get(holder), "strategy"), dict):
            return found
    return {}


def _kept(metrics: Mapping[str, Any], name: str, factor: float) -> Latency | None:
    """The distribution of the successful requests."""
    part = _inside(metrics.get(name), "successful")
    if not isinstance(part, dict):
        return None
    inner = part.get("percentiles")
    return latency({**(inner if isinstance(inner, dict) else {}), **part}, factor)


def _mean(metrics: Mapping[str, Any], name: str) -> float | None:
    return number(_inside(_inside(metrics.get(name), "successful"), "mean"))


_AIPERF = {
    "request_throughput": "request_rate", "output_token_throughput": "output_rate", "total_token_throughput": "total_rate",
    "request_count": "completed", "error_request_count": "failed", "input_sequence_length": "input_mean",
    "output_sequence_length": "output_mean", "benchmark_duration": "seconds", "goodput": "goodput_rate",
}  # fmt: skip
_AIPERF_TIMES = {"time_to_first_token": "ttft", "inter_token_latency": "itl", "request_latency": "e2e"}


def aiperf(document: Mapping[str, Any]) -> Iterator[Told]:
    """AIPerf and its forerunner GenAI-Perf: one block of statistics a metric, each with its unit."""
    held = document.get("records")
    metrics = held if isinstance(held, dict) else document
    fields: dict[str, Any] = {}
    for name, field in _AIPERF.items():
        if isinstance(block := metrics.get(name), dict):
            value = number(block.get("avg"))
            is_time = name == "benchmark_duration" and value is not None
            fields[field] = value * unit(str(block.get("unit")), "s") if is_time and value else value
    for name, field in _AIPERF_TIMES.items():
        if isinstance(block := metrics.get(name), dict):
            told = {key: value for key, value in block.items() if statistic(key)}
            fields[field] = latency(told, unit(str(block.get("unit"))))
    for name in ("completed", "failed"):
        fields[name] = whole(fields.get(name))
    config = document.get("input_config") or document.get("run_config") or {}
    load = _inside(config, "loadgen") or {}
    stimulus = _inside(_inside(config, "perf_analyzer"), "stimulus")  # GenAI-Perf: {"concurrency": 24}
    asked = _inside(load, "concurrency") or _inside(stimulus, "concurrency") or _inside(config, "concurrency")
    names = _inside(_inside(config, "endpoint"), "model_names") or _inside(config, "model_names")
    fields["concurrency"] = whole(asked)
    fields["rate"] = number(_inside(load, "request_rate"))
    fields["model"] = _text(names[0] if isinstance(names, list) and names else names)
    old = "perf_analyzer" in config if isinstance(config, dict) else False
    yield Told("genai-perf" if old else "aiperf", fields)


def inference_perf(document: Mapping[str, Any]) -> Iterator[Told]:
    """inference-perf: `load_summary`, `successes`, `failures`; times in seconds."""
    load, done, lost = (_mapping(document.get(name)) for name in ("load_summary", "successes", "failures"))
    times, rates = _mapping(done.get("latency")), _mapping(done.get("throughput"))
    prompts = _mapping(done.get("prompt_tokens") or done.get("prompt_len"))
    outputs = _mapping(done.get("output_tokens") or done.get("output_len"))
    fields = {
        "requests": whole(load.get("count")),
        "rate": number(load.get("requested_rate")),
        "concurrency": whole(load.get("concurrency")),
        "completed": whole(done.get("count")),
        "failed": whole(lost.get("count")),
        "request_rate": number(rates.get("requests_per_sec")),
        "input_rate": number(rates.get("input_tokens_per_sec")),
        "output_rate": number(rates.get("output_tokens_per_sec")),
        "total_rate": number(rates.get("total_tokens_per_sec")),
        "input_mean": number(prompts.get("mean")),
        "output_mean": number(outputs.get("mean")),
        "cached_tokens": whole(prompts.get("cached")) or None,
        "input_tokens": whole(prompts.get("total")),
        "output_tokens": whole(outputs.get("total")),
        "ttft": latency(_mapping(times.get("time_to_first_token"))),
        "itl": latency(_mapping(times.get("inter_token_latency"))),
        "tpot": latency(_mapping(times.get("time_per_output_token"))),
        "e2e": latency(_mapping(times.get("request_latency"))),
        "delay": latency(_mapping(load.get("schedule_delay"))),
    }
    yield Told("inference-perf", fields)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _inside(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _settings(result: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    return {name: str(result[name]) for name in names if result.get(name) not in (None, "")}
