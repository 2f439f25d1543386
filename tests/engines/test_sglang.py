# ruff: noqa: E501  (samples are lines as programs print them)
"""SGLang's logs: our captures of 0.5.23, and lines of other releases written from its sources."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from conftest import read_text, shared_file
from loadpath.core.facts.engine import (
    Concurrency,
    GraphsCaptured,
    KvPool,
    ServingStats,
    Setting,
    StepMark,
    WeightsLoaded,
)
from loadpath.core.facts.placement import FreeMemory, SidePool
from loadpath.core.report import Report
from loadpath.core.text import Capture
from loadpath.core.units import gib
from loadpath.engines import sglang
from loadpath.engines.sglang.memory import least_fraction, static_pool_bytes
from loadpath.intake.clean import clean
from loadpath.reading.service import read_bytes


def capture(text: str) -> Capture:
    return Capture("sglang-log", "server.log", tuple(clean(text.encode())))


def facts(text: str, kind: type[msgspec.Struct]) -> list:  # type: ignore[type-arg]
    return [fact for fact in sglang.read(capture(text)) if isinstance(fact, kind)]


def read_file(path: Path) -> Report:
    return read_bytes([(path.name, path.read_bytes())])


@pytest.mark.parametrize(
    ("line", "used", "seconds"),
    [
        ("[10:00:09 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=60.10 GB", None, None),
        (
            "[2025-03-01 10:00:09] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=60.10 GB, mem usage=15.05 GB.",
            15.05,
            None,
        ),
        (
            "[2026-03-01 10:00:09] Load weight end. elapsed=8.20 s, type=LlamaForCausalLM, quant=fp8, avail mem=60.10 GB, mem usage=15.05 GB.",
            15.05,
            8.2,
        ),
    ],
)
def test_weights_of_every_era(line: str, used: float | None, seconds: float | None) -> None:
    (loaded,) = facts(line, WeightsLoaded)
    assert loaded.bytes == (gib(used) if used else None)
    assert loaded.seconds == seconds
    assert [f.bytes for f in facts(line, FreeMemory)] == [gib(60.10)]


@pytest.mark.parametrize(
    ("line", "seconds", "used"),
    [
        ("Capture cuda graph end. Time elapsed: 11.50 s", 11.5, None),
        ("Capture cuda graph end. Time elapsed: 11.50 s. avail mem=5.10 GB. mem usage=1.20 GB.", 11.5, None),
        ("Capture cuda graph end. Time elapsed: 11.50 s. mem usage=1.20 GB. avail mem=5.10 GB.", 11.5, 1.2),
        (
            "Capture target decode CUDA graph end. bs=[1, 2], elapsed=11.50 s, mem usage=1.20 GB, avail mem=5.10 GB.",
            11.5,
            1.2,
        ),
    ],
)
def test_graph_capture_of_every_era(line: str, seconds: float, used: float | None) -> None:
    (graphs,) = facts(f"[2026-03-01 10:00:09] {line}", GraphsCaptured)
    assert graphs.seconds == seconds
    if used:
        assert graphs.bytes == gib(used)


@pytest.mark.parametrize(
    "line",
    [
        "KV Cache is allocated. #tokens: 4096, K size: 1.00 GB, V size: 1.00 GB",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4096, K size: 1.00 GB, V size: 1.00 GB",
        "KV Cache is allocated. #tokens: 4096, KV size: 2.00 GB",
    ],
)
def test_pool_of_every_era(line: str) -> None:
    (pool,) = facts(f"[2026-03-01 10:00:09 TP0] {line}", KvPool)
    assert (pool.tokens, pool.bytes, pool.rank) == (4096, gib(2), 0)


def test_settings_of_both_forms() -> None:
    old = "[2025-01-01 10:00:00] server_args=ServerArgs(model_path='/models/a', mem_fraction_static=0.85, tp_size=2, host='::')"
    new = "[2026-11-01 10:00:00] server_args={'model_path': '/models/a', 'mem_fraction_static': 0.85, 'tp_size': 2}"
    for line in (old, new):
        found = {s.name: s.value for s in facts(line, Setting)}
        assert found["mem-fraction-static"] == "0.85"
        assert found["tp-size"] == "2"


def test_advice_is_no_setting() -> None:
    assert not facts("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", Setting)


@pytest.mark.parametrize(
    ("line", "running", "usage", "waiting"),
    [
        (
            "Decode batch. #running-req: 4, #token: 900, token usage: 0.31, gen throughput (token/s): 88.10, #queue-req: 7",
            4,
            0.31,
            7,
        ),
        (
            "Decode batch, #running-req: 4, #full token: 9, full token usage: 0.31, #swa token: 1, swa token usage: 0.02, cuda graph: True, gen throughput (token/s): 88.10, #queue-req: 7",
            4,
            0.31,
            7,
        ),
    ],
)
def test_batch_lines(line: str, running: int, usage: float, waiting: int) -> None:
    (stats,) = facts(f"[2026-03-01 10:00:09 TP0] {line}", ServingStats)
    assert (stats.running, stats.kv_usage, stats.waiting, stats.generation_tps) == (running, usage, waiting, 88.1)


TARGET_AND_DRAFT = """\
[2026-08-01 10:00:00] Init torch distributed begin.
[2026-08-01 10:00:01] Init torch distributed ends. elapsed=0.20 s, mem usage=0.03 GB
[2026-08-01 10:00:01] Load weight begin. avail mem=110.00 GB
[2026-08-01 10:01:01] Load weight end. elapsed=60.00 s, type=BigForCausalLM, avail mem=50.00 GB, mem usage=60.00 GB.
[2026-08-01 10:01:02] Init torch distributed begin.
[2026-08-01 10:01:02] Load weight begin. avail mem=50.00 GB
[2026-08-01 10:01:07] Load weight end. elapsed=5.00 s, type=DraftForCausalLM, avail mem=48.00 GB, mem usage=2.00 GB.
[2026-08-01 10:01:08] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8000, K size: 5.00 GB, V size: 5.00 GB
[2026-08-01 10:01:08] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 10000, K size: 2.00 GB, V size: 2.00 GB
[2026-08-01 10:01:08] SWAKVPool mem usage: 14.00 GB, swa size: 8000, full size: 10000
[2026-08-01 10:01:08] Memory pool end. avail mem=34.00 GB
[2026-08-01 10:01:08] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 10000, K size: 1.00 GB, V size: 1.00 GB
[2026-08-01 10:01:08] Memory pool end. avail mem=32.00 GB
[2026-08-01 10:01:20] max_total_num_tokens=10000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=5000, available_gpu_mem=30.00 GB
"""


def test_drafter_and_window_pools_are_told_apart() -> None:
    read = list(sglang.read(capture(TARGET_AND_DRAFT)))
    assert [w.what for w in read if isinstance(w, WeightsLoaded)] == ["", "draft"]
    assert [p.what for p in read if isinstance(p, SidePool)] == ["sliding", "full", "draft"]
    assert [(p.tokens, p.bytes) for p in read if isinstance(p, KvPool)] == [(10000, gib(14)), (10000, None)]
    assert [c.ratio for c in read if isinstance(c, Concurrency)] == [2.0]
    # The drafter's second distributed init is no second start.
    assert sum(isinstance(m, StepMark) and m.step == "context-creation" and m.event == "began" for m in read) == 1


def test_memory_model() -> None:
    before, after = gib(78.0), gib(20.0)
    assert static_pool_bytes(before, after, 0.85) == pytest.approx(gib(8.3), rel=1e-3)
    assert static_pool_bytes(before, after, 0.70) < 0
    assert least_fraction(before, after) == pytest.approx(0.7436, abs=1e-4)


@pytest.mark.parametrize("name", ["good", "load-retract", "starts-missing-tensor"])
def test_good_captures_are_healthy(name: str) -> None:
    report = read_file(shared_file("captures", "sglang", f"{name}.log"))
    assert report.verdict.state == "healthy"
    assert not [f.id for f in report.findings if f.severity == "error"]
    steps = {s.step: s.state for s in report.steps}
    assert steps["weight-load"] == "done" and steps["kv-pool"] == "done" and steps["graph-capture"] == "skipped"


@pytest.mark.parametrize(
    ("name", "root", "boundary"),
    [
        ("bad-arch", "", ""),
        ("bad-context-over-model", "sglang-context-over-model", "model-config"),
        ("bad-mem-fraction", "kv-no-room-static-share", "memory-fit"),
        ("bad-port-in-use", "sglang-port-in-use", "host-limits"),
        ("bad-quant-awq", "sglang-quantisation-config-missing", "model-config"),
        ("bad-tp3", "sglang-cpu-threads-unbound", "model-config"),
        ("bad-truncated-weights", "", "model-config"),
        ("no-sgl-kernel", "sglang-kernels-missing", "library-set"),
    ],
)
def test_bad_captures(name: str, root: str, boundary: str) -> None:
    report = read_file(shared_file("captures", "sglang", f"{name}.log"))
    assert report.root is not None
    assert not boundary or report.root.boundary == boundary
    assert not root or report.root_cause == root
    assert report.verdict.state == "failed"


def test_pool_below_one_request_is_the_trap() -> None:
    report = read_file(shared_file("captures", "sglang", "starts-kv-under-context.log"))
    assert report.root_cause == "kv-cache-below-one-request-started"
    assert report.verdict.state == "degraded"


def test_kill_by_itself_is_not_the_oom_killer() -> None:
    report = read_file(shared_file("captures", "sglang", "bad-quant-awq.log"))
    assert "sglang-scheduler-exception" in (report.root.consequences if report.root else ())
    assert not any("oom" in f.id for f in report.findings)


def test_orderly_stop_is_no_crash() -> None:
    text = TARGET_AND_DRAFT + (
        "[2026-08-01 10:02:00] The server is fired up and ready to roll!\n"
        "[2026-08-01 11:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
        "[2026-08-01 11:00:00] Subprocess detokenizer (pid=77) crashed with exit code -15. Triggering SIGQUIT for cleanup...\n"
        "[2026-08-01 11:00:00] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
    )
    report = read_text(text)
    assert report.verdict.state == "healthy"
    assert "sglang-scheduler-exception" not in [f.id for f in report.findings]
