"""SGLang's memory model: its own rules to the letter, and figures that real starts logged."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loadpath
from conftest import shared_file
from loadpath.core.shape import Attention, Dense, GatedDelta, LatentAttention, Layer, ModelShape
from loadpath.core.units import GIB
from loadpath.engines.sglang import plan
from loadpath.engines.sglang.planning.cells import cells
from loadpath.engines.sglang.planning.fraction import (
    Demand,
    default_chunk,
    default_fraction,
    default_graph_batch,
    prefill_sizes,
)
from loadpath.engines.sglang.planning.options import options
from loadpath.engines.sglang.planning.pools import pools
from loadpath.knowledge.models import model
from loadpath.planning.deployment import Card, Deployment, Version

QWEN3_8B = ModelShape(
    "Qwen/Qwen3-8B", "qwen3", "Qwen3ForCausalLM", hidden=4096, vocab=151936, tied=False, max_position=40960,
    dtype="bfloat16", layers=(Layer((Attention(32, 8, 128, qk_norm="head"),), (Dense(12288),)),) * 36,
)  # fmt: skip
GPT_OSS = msgspec.structs.replace(
    QWEN3_8B, id="gpt", architecture="GptOssForCausalLM",
    layers=(Layer((Attention(64, 8, 64),), (Dense(2880),)), Layer((Attention(64, 8, 64, window=128),), (Dense(2880),))) * 12,
)  # fmt: skip
HYBRID = msgspec.structs.replace(
    QWEN3_8B, id="hybrid", architecture="Qwen3NextForCausalLM",
    layers=(*(Layer((GatedDelta("gdn", 16, 32, 128, 128),), (Dense(5120),)),) * 3,
            Layer((Attention(16, 2, 256),), (Dense(5120),))) * 12,
)  # fmt: skip
H100 = Card("H100 80GB", 85_028_175_872, id="h100-sxm", capability=(9, 0))
B200 = Card("B200", round(178.35 * GIB), capability=(10, 0))


def deployed(
    shape: ModelShape = QWEN3_8B, card: Card = H100, version: Version = (0, 5, 9), gpus: int = 1, **settings: Any
) -> Deployment:
    named = {name.replace("_", "-"): str(value) for name, value in settings.items()}
    return Deployment(shape, (card,) * gpus, "sglang", version, named)


@pytest.mark.parametrize(
    ("version", "card_mib", "expected"),
    [((0, 5, 9), 24_564, 0.847), ((0, 5, 9), 46_068, 0.851), ((0, 5, 9), 81_559, 0.835), ((0, 5, 9), 143_771, 0.907),
     ((0, 5, 9), 183_359, 0.857), ((0, 3, 0), 81_559, 0.88), ((0, 4, 5), 81_559, 0.88)],
)  # fmt: skip
def test_the_default_share_by_card_and_version(version: Version, card_mib: int, expected: float) -> None:
    demand = Demand(
        version, card_mib, chunk=default_chunk(card_mib, version), graph_batch=default_graph_batch(card_mib, 1, version)
    )  # fmt: skip
    assert default_fraction(demand) == pytest.approx(expected, abs=0.0006)


def test_prefill_graphs_take_their_allowance_from_0_5_10_on() -> None:
    demand = Demand((0, 5, 10), 81_559, prefill_graphs=prefill_sizes(8192))
    assert prefill_sizes(8192) == 58
    assert default_fraction(demand) == 0.83


def test_a_real_start_of_0_5_10_on_a_b200() -> None:
    """Logged: 177.57 GB free before 15.28 GB of weights, share 0.854, 992,896 tokens of 68.18 + 68.18 GB, pages of 64."""
    made = plan(deployed(card=B200, version=(0, 5, 10)))
    assert made.utilisation == 0.854 and made.kv_block_tokens == 64
    assert made.weights_bytes / GIB == pytest.approx(15.28, rel=0.01)
    assert made.kv_tokens == pytest.approx(992_896, rel=0.001)
    assert made.kv_bytes / GIB == pytest.approx(136.36, rel=0.001)


def test_a_real_start_of_0_4_2_given_what_was_free() -> None:
    """Logged: 22.76 GB before, 8.37 GB after the weights of Qwen2.5-7B, share 0.88: 105,531 tokens."""
    shape = msgspec.structs.replace(QWEN3_8B, layers=(Layer((Attention(28, 4, 128),), (Dense(18944),)),) * 28)
    o = options(deployed(shape, Card("RTX 4090", round(23.5 * GIB)), (0, 4, 2)))
    room = (8.37 - 22.76 * (1 - o.fraction)) * GIB
    assert pools(room, cells(shape.layers, 1, 2, False, 4), o).tokens == pytest.approx(105_531, rel=0.002)


def test_key_value_heads_are_split_until_each_rank_has_one() -> None:
    sizes = [cells(QWEN3_8B.layers, ranks, 2, False, 4).full for ranks in (1, 2, 8, 16)]
    assert sizes == [147_456, 73_728, 18_432, 18_432]


def test_a_latent_is_whole_on_every_rank_and_packed_where_its_attention_is_sparse() -> None:
    dense = (Layer((LatentAttention(128, 512, 128, 64, 128),), ()),) * 61
    sparse = (Layer((LatentAttention(128, 512, 128, 64, 128, index_heads=64, index_dim=128),), ()),)
    assert cells(dense, 8, 2, False, 4).full == 70_272
    assert cells(sparse, 8, 2, False, 4).full == 1152 + 132
    assert cells(sparse, 8, 1, False, 4).full == 656 + 132


def test_window_layers_get_a_pool_of_four_fifths() -> None:
    made = plan(deployed(GPT_OSS))
    assert any("swa_layer_tokens" in line for line in made.lines)
    o = options(deployed(GPT_OSS))
    one = pools(10 * GIB, cells(GPT_OSS.layers, 1, 2, True, 4), o)
    assert one.window_tokens == pytest.approx(0.8 * one.tokens, abs=2)
    assert one.cache_bytes == pytest.approx(10 * GIB, rel=0.001)


def test_states_of_a_hybrid_take_their_share_first() -> None:
    o = options(deployed(HYBRID))
    size = cells(HYBRID.layers, 1, 2, False, 4)
    assert size.main_state == 36 * 32 * 128 * 128 * 4 and size.conv_state == 36 * 8192 * 3 * 2
    one = pools(40 * GIB, size, o)
    assert one.state_bytes / (40 * GIB) == pytest.approx(0.9 / 1.9, rel=0.01)
    assert one.max_requests == one.state_slots // 3


def test_weights_that_leave_nothing_are_refused_in_the_words_of_the_version() -> None:
    small = Card("24GiB", 24 * GIB)
    old = plan(deployed(card=small, mem_fraction_static=0.6))
    new = plan(deployed(card=small, version=(0, 5, 20), mem_fraction_static=0.6))
    assert not old.fits and any(
        "Not enough memory. Please try to increase --mem-fraction-static" in x for x in old.lines
    )
    assert not new.fits and any("Raise --mem-fraction-static above" in line for line in new.lines)


@pytest.mark.parametrize("version", [(0, 4, 1), (0, 4, 6, 5), (0, 5, 9), (0, 5, 14), (0, 5, 23)])
@pytest.mark.parametrize("shape", [QWEN3_8B, GPT_OSS, HYBRID], ids=lambda shape: shape.id)
def test_its_own_reader_reads_the_planned_lines_back(shape: ModelShape, version: Version) -> None:
    made = plan(deployed(shape, version=version))
    report = loadpath.read_text("\n".join(made.lines), "planned.log")
    assert not [f.id for f in report.findings if f.severity == "error"]
    facts = {kind: [fact for fact in report.facts if fact["type"] == kind] for kind in ("WeightsLoaded", "KvPool")}
    assert facts["KvPool"][-1]["tokens"] == made.kv_tokens
    if version >= (0, 4, 3):
        assert facts["WeightsLoaded"][0]["bytes"] == pytest.approx(made.weights_bytes, abs=0.006 * GIB)


def test_a_share_far_above_the_own_rule_is_noted() -> None:
    assert any("the first long prefill" in note for note in plan(deployed(mem_fraction_static=0.95)).notes)
    assert not any("prefill" in note for note in plan(deployed()).notes)


@given(
    fraction=st.floats(0.3, 0.95), tp=st.sampled_from([1, 2, 4, 8]), context=st.sampled_from([2048, 32768, 131072]),
    shape=st.sampled_from([QWEN3_8B, GPT_OSS, HYBRID]),
)  # fmt: skip
def test_more_of_the_card_never_holds_fewer_tokens(fraction: float, tp: int, context: int, shape: ModelShape) -> None:
    settings: dict[str, Any] = {"tp_size": tp, "context_length": context}
    less = plan(deployed(shape, gpus=tp, mem_fraction_static=fraction, **settings))
    more = plan(deployed(shape, gpus=tp, mem_fraction_static=min(0.99, fraction + 0.04), **settings))
    assert more.kv_tokens >= less.kv_tokens
    assert (
        plan(deployed(shape, gpus=2 * tp, mem_fraction_static=fraction, tp_size=2 * tp)).weights_bytes
        <= less.weights_bytes
    )


def test_a_real_hybrid_on_two_gpus() -> None:
    """Logged for Qwen3.5-397B-A17B, tensor parallel 2: 82 slots of 0.13 + 7.29 GB, 580,364 tokens of 4.15 + 4.15 GB."""
    shape = model("Qwen3.5-397B-A17B")
    assert shape is not None
    size = cells(shape.layers, 2, 2, False, 4)
    assert 83 * size.main_state / GIB == pytest.approx(7.29, abs=0.006)
    assert 83 * size.conv_state / GIB == pytest.approx(0.13, abs=0.006)
    assert 580_364 * size.full / GIB == pytest.approx(8.30, abs=0.006)


def test_weights_beyond_the_card_end_the_load_and_no_share_is_advised() -> None:
    made = plan(deployed(card=Card("8GiB", 8 * GIB)))
    report = loadpath.read_text("\n".join(made.lines), "planned.log")
    assert not made.fits and report.root is not None and report.root.id == "gpu-oom-weights"
    assert not any("mem-fraction" in remedy.command for remedy in report.root.remedies)


@pytest.mark.parametrize(
    ("name", "ratio", "page", "expected"),
    [("DeepSeek-V4-Flash", 0.1, 128, 7705.45), ("DeepSeek-V4-Pro", 0.15, 128, 13735.04)],
)
def test_deepseek_v4_s_price_of_a_token_as_logged(
    name: str, ratio: float, page: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bytes_per_full_token` of 0.5.15 on other accelerators, whose pages have 128 tokens (256 on NVIDIA's)."""
    monkeypatch.setattr("loadpath.engines.sglang.planning.cells.COMPRESSED_PAGE", page)
    shape = model(f"deepseek-ai/{name}")
    assert shape is not None
    cells.cache_clear()
    size = cells(shape.layers, 8, 1, True, 4)
    cells.cache_clear()
    assert size.full + ratio * size.window == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("name", "heads", "layers", "context"),
    [
        ("good", (4, 2, 32), 2, 2048),
        ("load-retract", (4, 2, 32), 2, 2048),
        ("starts-kv-under-context", (16, 16, 256), 8, 32768),
    ],
)
def test_our_own_starts_of_0_5_23(name: str, heads: tuple[int, int, int], layers: int, context: int) -> None:
    """Tokens, requests and what the pools took (cache and request table), as logged on this machine's CPU."""
    log = shared_file("captures", "sglang", f"{name}.log").read_text("utf-8", "replace")
    asked = re.search(r"'max_total_tokens': (\d+)", log)
    after = re.search(r"Load weight end.*?avail mem=([\d.]+)", log)
    end = re.search(r"Memory pool end\. avail mem=([\d.]+)", log)
    final = re.search(r"max_total_num_tokens=(\d+), .*?max_running_requests=(\d+), context_len=(\d+)", log)
    assert asked and after and end and final
    shape = msgspec.structs.replace(
        QWEN3_8B, architecture="LlamaForCausalLM", max_position=context, layers=(Layer((Attention(*heads),), ()),) * layers
    )  # fmt: skip
    o = options(deployed(shape, version=(0, 5, 23), max_total_tokens=asked[1], cuda_graph_max_bs=8))
    one = pools(GIB, cells(shape.layers, 1, 2, False, 4), o)
    assert (one.tokens, one.max_requests, o.context) == tuple(map(int, final.groups()))
    assert (one.cache_bytes + one.table_bytes) / GIB == pytest.approx(float(after[1]) - float(end[1]), abs=0.011)


def by_name(name: str) -> ModelShape:
    shape = model(name)
    assert shape is not None
    return shape


L4 = Card("L4", round(22.03 * GIB), id="l4", capability=(8, 9), link_bytes_per_s=64e9)
H200 = Card("H200", round(139.8 * GIB), id="h200-sxm", capability=(9, 0), link_bytes_per_s=900e9)


def test_ranks_that_reach_each_other_over_pcie_keep_small_buffers() -> None:
    """Logged by 0.4.3.post4 on four L4: 21.63 GB free before 15.54 GB of weights, share 0.85, 46,611 tokens."""
    made = plan(deployed(by_name("Qwen/QwQ-32B"), L4, (0, 4, 3), gpus=4, tp_size=4))
    assert made.kv_tokens == pytest.approx(46_611, rel=0.03)
    linked = plan(
        deployed(by_name("Qwen/QwQ-32B"), msgspec.structs.replace(L4, link_bytes_per_s=300e9), gpus=4, tp_size=4)
    )
    assert linked.non_torch_bytes > made.non_torch_bytes + GIB


def test_gemma_3_computes_its_positions_and_a_multimodal_share_is_cut() -> None:
    """Logged by 0.4.4 on an H200: 8.13 GB of weights, 834,615 tokens in 108.24 GB."""
    made = plan(deployed(by_name("google/gemma-3-4b-it"), H200, (0, 4, 4)))
    assert made.utilisation == pytest.approx(0.88 * 0.95)
    assert made.weights_bytes / GIB == pytest.approx(8.13, rel=0.01)
    assert made.kv_tokens == pytest.approx(834_615, rel=0.005)


@pytest.mark.parametrize(("version", "factor"), [((0, 4, 1), 0.95), ((0, 4, 5), 0.9), ((0, 4, 9), 1), ((0, 5, 9), 1)])
def test_a_given_share_of_a_multimodal_model_is_cut_by_the_runner_of_old(version: Version, factor: float) -> None:
    made = plan(deployed(by_name("google/gemma-3-4b-it"), H200, version, mem_fraction_static=0.8))
    assert made.utilisation == pytest.approx(0.8 * factor)


def test_multimodal_positions_have_a_plain_table() -> None:
    """Logged on an H200: 8.62 GB of Qwen3.5-4B."""
    made = plan(deployed(by_name("Qwen/Qwen3.5-4B"), H200, (0, 5, 13)))
    assert made.weights_bytes / GIB == pytest.approx(8.62, rel=0.003)


@pytest.mark.parametrize(
    ("version", "card", "dtype", "sized", "kept"),
    [((0, 5, 8), H200, "bfloat16", 1284, 1284), ((0, 5, 8), B200, "fp8_e4m3", 708, 788),
     ((0, 5, 10), B200, "fp8_e4m3", 708, 708)],
)  # fmt: skip
def test_sparse_attention_keeps_fp8_on_blackwell(
    version: Version, card: Card, dtype: str, sized: int, kept: int
) -> None:
    """Up to 0.5.16 a pool is sized by latents of 576 bytes, whatever they take."""
    made = plan(deployed(by_name("deepseek-ai/DeepSeek-V3.2-Exp"), card, version, gpus=8, tp_size=8))
    layers = len(by_name("deepseek-ai/DeepSeek-V3.2-Exp").layers)
    assert made.settings["kv-cache-dtype"] == dtype and made.kv_block_tokens == 64
    assert made.kv_bytes / (made.kv_tokens + 64) == pytest.approx(layers * kept, rel=1e-6)
    given = deployed(by_name("deepseek-ai/DeepSeek-V3.2-Exp"), card, version, gpus=8, tp_size=8)
    room = msgspec.structs.replace(given, available_kv_bytes=10 * GIB)
    assert plan(room).kv_tokens == pytest.approx(10 * GIB / (layers * sized), abs=64)
