"""A benchmark run in this process against the programmable server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadpath.core.traffic import BenchResult, BenchSettings
from loadpath.traffic.lengths import lengths_of
from loadpath.traffic.prompts import Synthetic
from loadpath.traffic.request import Request
from loadpath.traffic.run import bench
from loadpath.traffic.wire import target_of

Bench = Callable[..., BenchResult]


@pytest.fixture
def run_bench() -> Bench:
    """`run_bench(url, requests=40, concurrency=(8,), …)`: settings by name; prompts of 64 tokens, answers of 16."""

    def run(
        url: str, *, inputs: str = "64", outputs: str = "16", request: dict[str, Any] | None = None, **given: Any
    ) -> BenchResult:
        settings = BenchSettings(**{"requests": 40, "concurrency": (8,), "request_timeout": 20.0, **given})
        dataset = Synthetic(lengths_of(inputs), lengths_of(outputs), turns=settings.turns)
        asked = Request(target=target_of(url), settings=settings, dataset=dataset, watch_gpus=False, **(request or {}))
        return bench(asked, lambda progress: None)

    return run
