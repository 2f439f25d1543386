"""TensorRT-LLM, TGI and LMDeploy: a share of what is free, against figures that real starts logged."""

from __future__ import annotations

from typing import Any

import pytest

import loadpath
from loadpath.core.shape import ModelShape
from loadpath.core.units import GIB
from loadpath.engines import lmdeploy, tensorrt_llm, tgi
from loadpath.knowledge.models import model
from loadpath.planning.deployment import Card, Deployment, Version
from loadpath.planning.share import token_bytes

A100 = Card("A100 80GB", round(79.15 * GIB), capability=(8, 0))
ENGINES: dict[str, Any] = {"tensorrt-llm": tensorrt_llm, "tgi": tgi, "lmdeploy": lmdeploy}


def llama(name: str = "Llama-2-7B") -> ModelShape:
    shape = model(name)
    assert shape is not None
    return shape


def planned(engine: str, version: Version | None = None, card: Card = A100, **settings: Any) -> Any:
    shape = settings.pop("shape", llama())
    named = {name: str(value) for name, value in settings.items()}
    return ENGINES[engine].plan(Deployment(shape, (card,), engine, version, named))


def test_an_engine_s_pool_is_nine_tenths_of_what_its_load_leaves() -> None:
    """Logged by TensorRT-LLM 0.8 for an INT8 engine of 6.53 GiB on an A100 80GB: 64.75 GiB for 132,608 tokens."""
    made = planned("tensorrt-llm", (0, 8), max_seq_len=4096)
    left = 79.15 - made.weights_bytes / GIB - made.non_torch_bytes / GIB - made.activation_peak_bytes / GIB
    assert made.kv_bytes / GIB == pytest.approx(0.9 * left, abs=0.05)
    logged = 0.9 * (79.15 - 6.53 - 0.7)
    assert logged == pytest.approx(64.75, rel=0.001)
    assert 132_608 * token_bytes(llama(), 1, 2) / GIB == pytest.approx(64.75, rel=0.001)


def test_the_pytorch_backend_holds_more_outside_torch() -> None:
    """Logged by TensorRT-LLM 1.2.0rc4 for Llama-3-8B on an H200: 15.06 GiB of weights, 109.96 GiB of cache."""
    card = Card("NVIDIA H200", round(139.81 * GIB), capability=(9, 0))
    made = planned("tensorrt-llm", (1, 2), card, shape=llama("Meta-Llama-3-8B-Instruct"))
    assert made.weights_bytes / GIB == pytest.approx(15.06, rel=0.01)
    assert made.kv_bytes / GIB == pytest.approx(109.96, rel=0.005)


def test_tgi_leaves_a_tenth_of_the_whole_card() -> None:
    made = planned("tgi")
    assert (made.weights_bytes + made.kv_bytes + made.non_torch_bytes) / A100.total_bytes == pytest.approx(
        0.9, abs=0.002
    )


def test_lmdeploy_takes_its_share_after_the_weights_and_its_pytorch_engine_sets_logits_aside() -> None:
    free = A100.total_bytes - planned("lmdeploy").weights_bytes - planned("lmdeploy").non_torch_bytes
    assert planned("lmdeploy").kv_bytes == pytest.approx(0.8 * free, rel=0.002)
    assert planned("lmdeploy", cache_max_entry_count=0.5).kv_bytes == pytest.approx(0.5 * free, rel=0.002)
    assert planned("lmdeploy", backend="pytorch").kv_bytes < planned("lmdeploy").kv_bytes
    assert planned("lmdeploy", quant_policy=8).kv_tokens > 1.9 * planned("lmdeploy").kv_tokens


@pytest.mark.parametrize("engine", list(ENGINES))
def test_its_own_reader_reads_the_planned_lines_back(engine: str) -> None:
    made = planned(engine)
    report = loadpath.read_text("\n".join(made.lines), "planned.log")
    assert not [f.id for f in report.findings if f.severity == "error"]
    pools = [fact for fact in report.facts if fact["type"] == "KvPool"]
    assert pools[-1]["tokens"] == made.kv_tokens or pools[-1]["blocks"] == made.kv_blocks


@pytest.mark.parametrize("engine", list(ENGINES))
def test_weights_beyond_the_card_leave_no_cache(engine: str) -> None:
    made = planned(engine, card=Card("8GiB", 8 * GIB))
    assert not made.fits and made.kv_tokens == 0 and made.kv_bytes == 0
