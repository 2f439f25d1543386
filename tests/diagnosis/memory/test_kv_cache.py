"""The walk-through of one card, and what else is said of KV caches that are too small."""

from __future__ import annotations

from importlib import resources

import pytest

from conftest import read_text
from loadpath.core.report import Finding, Remedy, Report
from loadpath.core.units import GIB


def example(name: str) -> str:
    return (resources.files("loadpath") / "examples" / name).read_text("utf-8")


def root(report: Report) -> Finding:
    assert report.root is not None
    return report.root


def remedy(finding: Finding, word: str) -> Remedy:
    return next(r for r in finding.remedies if word in r.action or word in r.command)


def said(finding: Finding) -> str:
    return f"{finding.title}. {finding.cause}"


@pytest.fixture(scope="module")
def refused() -> Finding:
    report = read_text(example("kv-bf16-refused.log"))
    assert report.verdict.state == "failed"
    return root(report)


def test_refused_start_names_share_and_figures(refused: Finding) -> None:
    assert refused.id == "kv-cache-below-one-request"
    assert (refused.boundary, refused.step, refused.certainty) == ("memory-fit", "kv-pool", "established")
    assert "26.09 GiB" in refused.cause
    assert "8,192" in refused.cause
    assert "0.25x" in refused.cause


def test_only_quantising_suffices_for_that_context(refused: Finding) -> None:
    assert "only quantising suffices" in refused.cause
    assert remedy(refused, "quantised").suffices
    assert "adds only 4.75 GiB" in refused.cause
    assert not any("memory share" in r.action for r in refused.remedies)


def test_figures_that_no_model_needs_are_called_so(refused: Finding) -> None:
    assert "3.26 MiB a token" in refused.cause
    assert "do not belong together" in refused.cause


def test_shorter_context_is_the_pool(refused: Finding) -> None:
    assert remedy(refused, "context").command == "--max-model-len 8192"


def test_healthy_fp8_start_has_its_share_and_no_fault() -> None:
    report = read_text(example("kv-fp8-healthy.log"))
    assert report.verdict.state == "healthy"
    assert report.root_cause is None
    assert report.memory
    parts = {part.name: part.bytes for part in report.memory[0].parts}
    share = next(size for name, size in parts.items() if "KV" in name or "kv" in name)
    assert share / GIB == pytest.approx(54.79, abs=0.01)


def test_both_in_one_paste_cannot_be_one_model() -> None:
    report = read_text(example("kv-bf16-refused.log") + example("kv-fp8-healthy.log"))
    note = next(f for f in report.findings if f.id == "runs-do-not-belong-together")
    assert note.severity == "info"
    assert "3.26 MiB" in note.cause
    assert "0.32 MiB" in note.cause


def test_the_trap_that_started_anyway() -> None:
    report = read_text(example("kv-trap-started.log"))
    assert report.verdict.state == "degraded"
    found = root(report)
    assert found.id == "kv-cache-below-one-request-started"
    assert "0.89x" in found.title
    assert "116,656" in found.cause
    assert "num-gpu-blocks-override" in found.remedies[0].action


V0 = """\
INFO 10-30 08:00:01 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: model='org/model-7b'
INFO 10-30 08:00:20 model_runner.py:1067] Loading model weights took 15.0000 GB
INFO 10-30 08:00:31 worker.py:220] Memory profiling results: total_gpu_memory=23.60GiB initial_memory_usage=15.30GiB \
peak_torch_memory=18.00GiB memory_usage_post_profile=15.40GiB non_torch_memory=0.40GiB kv_cache_size=2.84GiB \
gpu_memory_utilization=0.90
INFO 10-30 08:00:31 gpu_executor.py:122] # GPU blocks: 1454, # CPU blocks: 2048
ValueError: The model's max seq len (26000) is larger than the maximum number of tokens that can be stored in KV cache (23264).
"""


def test_unchunked_prompt_takes_the_room() -> None:
    found = root(read_text(V0))
    assert "without chunked prefill" in found.cause
    assert "1,454 blocks of 16 tokens" in found.cause
    assert "--enable-chunked-prefill" in remedy(found, "chunked prefill").command
    assert "23552" not in found.remedies[0].command  # never above what fits


def shortfall(extra: str = "") -> str:
    return extra + (
        "(EngineCore_DP0 pid=9) ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV "
        "cache is needed, which is larger than the available KV cache memory (9.00 GiB). Based on the available memory, the "
        "estimated maximum model length is 73728. Try increasing `gpu_memory_utilization`\n"
    )


def test_error_line_alone_is_enough() -> None:
    found = root(read_text(shortfall()))
    assert "0.56x" in found.cause
    assert found.remedies[0].command == "--max-model-len 73728"
    assert remedy(found, "FP8").suffices
    assert "model's own maximum" in found.cause


def test_context_that_was_set_is_not_called_a_default() -> None:
    found = root(read_text(shortfall("vllm serve org/model-8b --max-model-len 131072\n")))
    assert "own maximum" not in found.cause


def test_pipeline_stages_are_named_as_the_bottleneck() -> None:
    found = root(read_text(shortfall("vllm serve org/model-8b --pipeline-parallel-size 2\n")))
    assert "pipeline stage" in found.cause


def test_fp8_cache_is_not_proposed_twice() -> None:
    found = root(read_text(shortfall("vllm serve org/model-8b --kv-cache-dtype fp8 --max-model-len 131072\n")))
    assert not any("FP8" in r.action for r in found.remedies)


def test_never_lower_the_share_where_the_pool_is_too_small() -> None:
    for text in (shortfall(), V0, example("kv-bf16-refused.log")):
        assert not any("Lower the memory share" in r.action for r in root(read_text(text)).remedies)


def test_several_ranks_make_one_finding() -> None:
    lines = shortfall().replace("EngineCore_DP0 pid=9", "Worker_TP0 pid=1") + shortfall().replace(
        "EngineCore_DP0 pid=9", "Worker_TP1 pid=2"
    )
    report = read_text(lines)
    assert [f.id for f in report.findings].count("kv-cache-below-one-request") == 1
