"""The server's own side during the run: its metrics page every second, and the local cards."""

from __future__ import annotations

import asyncio
import re
import sys
from functools import cache

import msgspec

from loadpath.core.traffic import GpuSample, MetricSample
from loadpath.traffic.pages import page
from loadpath.traffic.sender import Sender
from loadpath.traffic.wire import Target

METRICS_EVERY = 1.0
_ENDING = 3.0  # seconds for the child that asks NVML to end

# Metric name → field. A name without `_total` is what older releases print.
_FIELDS = {
    "vllm:num_requests_running": "running", "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage", "vllm:gpu_cache_usage_perc": "kv_usage",
    "vllm:num_preemptions": "preemptions", "vllm:prefix_cache_queries": "prefix_queries",
    "vllm:prefix_cache_hits": "prefix_hits", "vllm:gpu_prefix_cache_queries": "prefix_queries",
    "vllm:gpu_prefix_cache_hits": "prefix_hits", "vllm:prompt_tokens": "prompt_tokens",
    "vllm:generation_tokens": "generation_tokens", "vllm:spec_decode_num_draft_tokens": "drafts",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
    "sglang:num_running_reqs": "running", "sglang:num_queue_reqs": "waiting", "sglang:token_usage": "kv_usage",
    "sglang:num_retracted_requests": "preemptions", "sglang:prompt_tokens": "prompt_tokens",
    "sglang:generation_tokens": "generation_tokens", "sglang:cached_tokens": "prefix_hits",
    "llamacpp:requests_processing": "running", "llamacpp:requests_deferred": "waiting",
    "llamacpp:kv_cache_usage_ratio": "kv_usage", "llamacpp:prompt_tokens": "prompt_tokens",
    "llamacpp:tokens_predicted": "generation_tokens",
}  # fmt: skip
_GAUGES_OF_SHARE = ("kv_usage",)


@cache
def _wanted() -> re.Pattern[bytes]:
    """The samples of interest of a page: the fields above, and sums and counts of the engines' histograms of time."""
    names = "|".join(sorted(map(re.escape, _FIELDS), key=len, reverse=True))
    times = r"(?:vllm|sglang):[a-z_]+_(?:seconds|latency)_(?:sum|count)"
    return re.compile(rf"^({names}|{times})(?:_total)?(?:\{{[^\n]*\}})?\s+([-+0-9.eE]+)".encode(), re.M)


def sample_of(time: float, text: bytes) -> MetricSample | None:
    """The figures of a metrics page; None where it has none that is known. Series of several engines are added."""
    fields: dict[str, float] = {}
    values: dict[str, float] = {}
    for found in _wanted().finditer(text):
        name, value = found[1].decode(), float(found[2])
        field = _FIELDS.get(name)
        if field is None:
            values[name] = values.get(name, 0.0) + value
        elif field in _GAUGES_OF_SHARE:
            fields[field] = max(fields.get(field, 0.0), value)
        else:
            fields[field] = fields.get(field, 0.0) + value
    if not fields and not values:
        return None
    return MetricSample(time=round(time, 3), values=values, **fields)


class MetricsWatch:
    """Asks the metrics page until it is stopped. A page that is slow is asked less often, never twice at once."""

    def __init__(self, sender: Sender, path: str) -> None:
        self._sender, self._path = sender, path
        self._task: asyncio.Task[None] | None = None
        self.samples: list[MetricSample] = []

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._ask()

    async def _run(self) -> None:
        while True:
            await self._ask()
            await asyncio.sleep(METRICS_EVERY)

    async def _ask(self) -> None:
        asked = self._sender.now()
        found = await page(self._sender, self._path)
        if found.status == 200 and (sample := sample_of((asked + self._sender.now()) / 2, found.body)):
            self.samples.append(sample)


class GpuWatch:
    """The local cards through NVML, asked by a child process: a driver that hangs does not hang the run."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._child: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self.samples: list[GpuSample] = []

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "loadpath.collect.nvml_stream", stdin=pipe, stdout=pipe,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        self._task = asyncio.create_task(self._read(self._child))

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        while line := await child.stdout.readline():
            try:
                said = msgspec.json.decode(line)
                self.samples.append(msgspec.convert({**said, "time": round(self._sender.now(), 3)}, GpuSample))
            except msgspec.MsgspecError:
                continue

    async def stop(self) -> None:
        """The child ends when its standard input does; it is killed where it does not."""
        if self._child is None or self._task is None:
            return
        if self._child.stdin:
            self._child.stdin.close()
        try:
            await asyncio.wait_for(self._child.wait(), _ENDING)
        except TimeoutError:
            self._child.kill()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def is_local(target: Target) -> bool:
    """Whether the target's host is this machine by its name alone."""
    return target.host in ("localhost", "::1", "0.0.0.0") or target.host.startswith("127.")
