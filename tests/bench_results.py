"""A benchmark's result to change in tests: a steady run of 200 requests, 16 at once."""

from __future__ import annotations

from typing import Any

import msgspec

from loadpath.core.traffic import (
    BENCH_SCHEMA,
    BenchResult,
    BenchSettings,
    ClientLoad,
    Exchange,
    Figures,
    Level,
    ServerIdentity,
    Spread,
    WarmUp,
)


def around(value: float) -> Spread:
    """A narrow distribution."""
    return Spread(200, value, value, value * 1.1, value * 1.2, value * 1.4, value * 0.9, value * 1.5)


def made_figures(**changes: Any) -> Figures:
    told = Figures(
        seconds=100.0, requests=200, completed=200, request_rate=2.0, input_rate=2048.0, output_rate=512.0, input_tokens=204_800,
        output_tokens=51_200, prompt_basis="usage", output_basis="usage", ttft=around(0.35), itl=around(0.03), tpot=around(0.03),
        e2e=around(8.0), mean_in_flight=16.0, most_in_flight=16,
    )  # fmt: skip
    return msgspec.structs.replace(told, **changes)


def made_result(figures: dict[str, Any] | None = None, **changes: Any) -> BenchResult:
    told = BenchResult(
        schema=BENCH_SCHEMA,
        target="http://127.0.0.1:8000",
        started="2026-01-01T00:00:00Z",
        seconds=110.0,
        loadpath="1.0",
        settings=BenchSettings(requests=200, concurrency=(16,)),
        server=ServerIdentity(engine="vllm", version="0.19.0", model="Qwen/Qwen3-14B"),
        client=ClientLoad(cpu_share=0.1, lag=around(0.0005)),
        levels=(Level(number=0, concurrency=16, figures=made_figures(**(figures or {}))),),
        warm_up=(WarmUp("1024x256", 204, 4, True, cold_ttft=0.5, steady_ttft=0.35),),
        exchanges=(Exchange(intended=0.0, sent=0.0),),
    )
    return msgspec.structs.replace(told, **changes)
