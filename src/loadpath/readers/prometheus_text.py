"""A Prometheus page (`/metrics` of vLLM, SGLang, llama.cpp, the DCGM exporter) → the samples that rules know.

# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="m"} 3.0
DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-…",pci_bus_id="00000000:3B:00.0"} 79
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.engine import ServingStats
from loadpath.core.facts.gpu import GpuHealth
from loadpath.core.facts.health import Metric
from loadpath.core.text import Capture, Line

# Which field of ServingStats a gauge is. Shares are 0..1 on the wire too, whatever their names say.
_STATS = {
    "vllm:num_requests_running": "running", "vllm:num_requests_waiting": "waiting",
    "vllm:gpu_cache_usage_perc": "kv_usage", "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:num_preemptions": "preemptions", "vllm:num_preemptions_total": "preemptions",
    "sglang:num_running_reqs": "running", "sglang:num_queue_reqs": "waiting",
    "sglang:token_usage": "kv_usage", "sglang:gen_throughput": "generation_tps",
    "sglang:num_retracted_requests_total": "preemptions",
    "llamacpp:requests_processing": "running", "llamacpp:requests_deferred": "waiting",
    "llamacpp:kv_cache_usage_ratio": "kv_usage",
}  # fmt: skip
_COUNTS = ("running", "waiting", "preemptions")
_HEALTH = {
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "remap_failed", "DCGM_FI_DEV_ROW_REMAP_PENDING": "remap_pending",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "remapped_uncorrected",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "remapped_corrected",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "uncorrected_volatile", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "corrected_volatile",
}  # fmt: skip
_FLAGS = ("remap_failed", "remap_pending")
_KEPT = ("DCGM_FI_DEV_XID_ERROR", "vllm:cache_config_info", "vllm:engine_sleep_state", "up")


@cache
def _sample() -> re.Pattern[str]:
    return re.compile(
        r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+"
        r"(?P<value>[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|NaN|Inf))(?:\s+\d+)?$"
    )


@cache
def _label() -> re.Pattern[str]:
    return re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def extent(lines: Sequence[Line], i: int) -> int:
    """Sample and comment lines; a page has at least one name with a colon or labels."""
    end, samples = i, 0
    for j in range(i, len(lines)):
        text = lines[j].text.strip()
        if text.startswith(("# HELP ", "# TYPE ", "# EOF")):
            end = j + 1
        elif found := _sample().match(text):
            samples += bool(found["labels"]) or ":" in found["name"] or "_" in found["name"]
            end = j + 1
        elif text:
            break
    return end if samples else i


def read(capture: Capture) -> Iterator[Fact]:
    stats: dict[str, float] = {}
    health: dict[str, dict[str, float]] = {}
    shown: dict[str, Line] = {}
    for line in capture.lines:
        found = _sample().match(line.text.strip())
        if found is None or found["value"] in ("NaN", "Inf"):
            continue
        name, value = found["name"], float(found["value"])
        labels = dict(_label().findall(found["labels"] or ""))
        if field := _STATS.get(name):
            stats[field] = max(stats.get(field, 0.0), value) if field == "kv_usage" else stats.get(field, 0.0) + value
            shown.setdefault("stats", line)
        elif field := _HEALTH.get(name):
            gpu = labels.get("pci_bus_id") or labels.get("gpu", "0")
            health.setdefault(gpu, {})[field] = value
            if value:
                shown.setdefault(gpu, line)
        if name.startswith(_KEPT) and (value or name == "up"):
            yield Metric(**at(capture, line), name=name, value=value, labels=labels)
    if stats:
        fields = {k: int(v) if k in _COUNTS else v for k, v in stats.items()}
        yield ServingStats(**at(capture, shown["stats"]), **fields)  # type: ignore[arg-type]
    for gpu, values in health.items():
        where = {"bus_id": gpu} if ":" in gpu else {"index": int(gpu)}
        flags = {k: bool(v) if k in _FLAGS else int(v) for k, v in values.items()}
        yield GpuHealth(**at(capture, shown.get(gpu, capture.lines[0])), **where, **flags)  # type: ignore[arg-type]
