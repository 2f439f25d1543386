"""Logs of vLLM 0.32 on a CPU, made by us: good ones, broken ones, killed, drained and preempting ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from conftest import shared_file
from loadpath.core.report import Report
from loadpath.reading.service import read_bytes

DATA = Path(__file__).parents[2] / "data" / "vllm"
HEALTHY = (
    "good", "good-compile-cold-quiet", "good-compile-warm", "good-compile-warm-quiet", "good-debug", "good-eager",
    "good-eager-quiet", "good-fp8-kv", "good-gemma3", "good-hybrid", "good-mamba2", "good-mla", "good-qwen3",
    "good-qwen3moe", "good-rlimit-as-6g", "good-tp2-bind", "good-tp2-nobind", "kv-cache-memory-bytes-ignored",
    "load-preempt-term", "pipe", "pipe.timed", "serve-sigint", "serve-sigterm", "serve-sigterm-drain",
    "starts-missing-tensor", "term-mid-start-ignored", "term-mid-start-ignored-2",
)  # fmt: skip
# Boundary and step of the root cause, and a word that its title or cause must have.
BROKEN = {
    "bad-arch": (("model-config", "framework-engine"), "process-start", "novelnet"),
    "bad-batched-tokens": (("model-config",), "process-start", "max_num_batched_tokens"),
    "bad-config-json": (("model-config",), "process-start", "config.json"),
    "bad-flag": (("model-config",), "process-start", "--no-such-flag"),
    "bad-hub-name-offline": (("model-config", "host-limits"), "process-start", "cache"),
    "bad-kv-8192-of-8064": (("memory-fit",), "kv-pool", "8,192"),
    "bad-kv-auto-no-env": (("memory-fit",), "context-creation", "20.99"),
    "bad-kv-blocks-override": (("memory-fit",), "kv-pool", "2,048"),
    "bad-kv-space-over-ram": (("memory-fit",), "memory-profiling", "200.0"),
    "bad-kv-space-text": (("model-config",), "process-start", "1GB"),
    "bad-kv-too-small-fat": (("memory-fit",), "kv-pool", "32,768"),
    "bad-max-len-over-model": (("model-config",), "process-start", "2048"),
    "bad-no-such-path": (("model-config",), "process-start", "/models/tiny-"),
    "bad-no-tokenizer": (("model-config",), "process-start", "tokenizer"),
    "bad-no-weights": (("model-config",), "weight-load", "/models/tiny-noweights"),
    "bad-port-in-use": (("host-limits",), "process-start", "port"),
    "bad-quant-awq": (("model-config",), "process-start", "awq"),
    "bad-quant-fp8": (("framework-engine", "arch"), "weight-load", "static_scaled_fp8_quant"),
    "bad-quant-unknown": (("model-config",), "process-start", "nosuch"),
    "bad-shape-mismatch": (("model-config",), "weight-load", "384"),
    "bad-tool-parser": (("model-config",), "process-start", "nosuch"),
    "bad-tp2-numa": (("host-limits",), "device-enumeration", "NUMA"),
    "bad-tp3-heads": (("model-config",), "process-start", "3"),
    "bad-tp8-cores": (("host-limits",), "device-enumeration", "NUMA"),
    "bad-truncated-weights": (("model-config", "host-limits"), "weight-load", "file"),
    "bad-trust-remote": (("model-config",), "process-start", "code"),
    "kill9-engine-mid-start": (("host-limits",), "device-enumeration", "SIGKILL"),
    "load-preempt-kill-worker": (("host-limits",), "serving", "SIGKILL"),
    "serve-kill-engine": (("host-limits",), "serving", "died"),
    "serve-kill-worker": (("host-limits",), "serving", "SIGKILL"),
}


@cache
def report_on(name: str) -> Report:
    path = shared_file("captures", "vllm", f"{name}.log")
    return read_bytes([(path.name, path.read_bytes())])


@pytest.mark.parametrize("name", HEALTHY)
def test_a_good_start_raises_no_error(name: str) -> None:
    report = report_on(name)
    assert [f.id for f in report.findings if f.severity == "error"] == []
    assert (report.verdict.state, report.root_cause) == ("healthy", None)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_start_names_its_cause(name: str) -> None:
    boundaries, step, word = BROKEN[name]
    report = report_on(name)
    root = report.root
    assert report.verdict.state == "failed"
    assert root is not None
    assert root.boundary in boundaries, root.id
    assert root.step == step, root.id
    assert word.lower() in f"{root.title} {root.cause}".lower(), f"{root.title} {root.cause}"
    assert root.remedies or root.next_checks


def test_a_start_cut_off_is_no_fault() -> None:
    assert report_on("kill9-api-mid-start").verdict.state == "starting"


def test_every_step_of_a_good_start_is_done() -> None:
    states: dict[str, str] = {s.step: s.state for s in report_on("good").steps}
    steps = ("process-start", "device-enumeration", "context-creation", "weight-load", "memory-profiling", "kv-pool",
             "http-server", "serving")  # fmt: skip
    assert {states[step] for step in steps} == {"done"}


def test_bundled_hybrid_capacity_is_marked_as_derived() -> None:
    path = DATA / "hybrid-healthy.log"
    report = read_bytes([(path.name, path.read_bytes())])
    pool = next(f for f in report.facts if f["type"] == "KvPool")
    assert pool["derived"]
    assert report.verdict.state == "healthy"


def test_bundled_refusal_leads_with_its_own_cause() -> None:
    path = DATA / "kv-below-one-request.log"
    report = read_bytes([(path.name, path.read_bytes())])
    assert report.root_cause == "kv-cache-below-one-request"
    assert "engine-core-failed" in (report.root.consequences if report.root else ())


@pytest.mark.parametrize("name", ["bad-tp3-heads", "bad-max-len-over-model", "bad-no-weights"])
def test_a_paste_wrapped_at_a_terminals_width_names_the_same_cause(name: str) -> None:
    path = shared_file("captures", "vllm", f"{name}.log")
    rows = [row[i : i + 80] for row in path.read_text("utf-8").split("\n") for i in range(0, max(1, len(row)), 80)]
    report = read_bytes([(name, "\n".join(rows).encode())])
    assert report.root_cause == report_on(name).root_cause
