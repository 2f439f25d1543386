"""Peak rates: only where the path exists, with the reason where it does not; shapes that tensor cores refuse or waste."""

from __future__ import annotations

import pytest

from loadpath.knowledge.gpus import Gpu, by_id, gpus
from loadpath.planning.rates import (
    BadFormat,
    Matmul,
    blended,
    canonical,
    ggml_rate,
    matmul_rate,
    product_rate,
    rate,
    tile_share,
)


def card(id: str) -> Gpu:
    found = by_id(id)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("id", "dtype", "tflops"),
    [
        ("h100-sxm-80", "bf16", 989),
        ("h100-sxm-80", "e4m3", 1979),
        ("a100-sxm4-80", "int8", 624),
        ("rtx-5090", "nvfp4", 1676),
        ("t4", "half", 65),
    ],
)
def test_dense_rates_are_read_from_the_table(id: str, dtype: str, tflops: float) -> None:
    found = rate(card(id), dtype)
    assert (found.flops_per_s, found.path, found.basis) == (tflops * 1e12, "tensor-cores", "read")
    assert found.source and found.confidence


@pytest.mark.parametrize(
    ("id", "dtype", "says"),
    [
        ("a100-sxm4-80", "fp8", "from 8.9 on"),
        ("h100-sxm-80", "fp4", "from 10.0 on"),
        ("t4", "bf16", "from 8.0 on"),
        ("v100-sxm2-32", "int8", "from 7.2 on"),
        ("h100-sxm-80", "fp32", "tensor cores do not multiply fp32"),
        ("rtx-5090-d", "fp4", "no confirmed fp4 figure"),
    ],
)
def test_a_rate_is_refused_with_its_reason(id: str, dtype: str, says: str) -> None:
    found = rate(card(id), dtype)
    assert found.flops_per_s is None
    assert says in found.refused


def test_cards_without_tensor_cores_run_on_cuda_cores_and_say_so() -> None:
    found = rate(card("p100-pcie-16"), "fp16")
    assert (found.flops_per_s, found.path) == (18.7e12, "cuda-cores")
    assert "no tensor cores" in found.notes[0]


def test_computed_rates_say_how() -> None:
    thor = rate(card("jetson-thor-t5000"), "bf16")
    assert (thor.flops_per_s, thor.basis) == (258.5e12, "computed")
    assert rate(card("a100-sxm4-80"), "tf32").flops_per_s == 156e12


def test_the_computed_rule_holds_on_every_card_that_states_both() -> None:
    for gpu in gpus():
        known = gpu.tflops
        if "bf16" in known:
            assert known["bf16"] == known["fp16"], gpu.id
        if "fp8" in known and "fp16" in known:
            assert known["fp8"] == pytest.approx(2 * known["fp16"], rel=0.02), gpu.id


def test_stored_formats_have_no_rate_of_their_own() -> None:
    with pytest.raises(BadFormat, match="16 bits"):
        canonical("awq")
    with pytest.raises(BadFormat, match="no number format"):
        canonical("int3")


@pytest.mark.parametrize(
    ("id", "weights", "activations", "dtype", "tflops", "says"),
    [
        ("h100-sxm-80", "fp8", 8, "fp8", 1979, ""),
        ("a100-sxm4-80", "fp8", 8, "bf16", 312, "multiplied in 16 bits"),
        ("h100-sxm-80", "int4", 16, "bf16", 989, "multiplied in 16 bits"),
        ("h100-sxm-80", "nvfp4", 4, "bf16", 989, "from 10.0 on"),
        ("b200", "nvfp4", 4, "fp4", 9000, ""),
        ("t4", "bf16", 16, "fp16", 65, "engines run the model in fp16"),
    ],
)
def test_products_run_at_the_rate_of_the_path_that_the_card_has(
    id: str, weights: str, activations: int, dtype: str, tflops: float, says: str
) -> None:
    found = product_rate(card(id), weights, activations)
    assert (found.dtype, found.flops_per_s) == (dtype, tflops * 1e12)
    assert says in " ".join(found.notes)


def test_llama_cpp_multiplies_quantised_weights_in_int8_and_some_sums_in_16_bits() -> None:
    gpu = card("rtx-3090")
    assert ggml_rate(gpu, quantised=True).dtype == "int8"
    assert ggml_rate(gpu, quantised=False).flops_per_s == 142.3e12
    assert ggml_rate(card("h100-sxm-80"), quantised=False).flops_per_s == 989e12
    assert ggml_rate(card("p100-pcie-16"), quantised=True).path == "cuda-cores"


def test_tensor_parallel_shards_must_be_whole() -> None:
    peak = rate(card("h100-sxm-80"), "bf16")
    cut = matmul_rate(Matmul(name="down", k=11008, n=4096, split="inputs"), peak, 4)
    assert (cut.k, cut.n, cut.useful_share, cut.flops_per_s) == (2752, 4096, 1.0, 989e12)
    odd = matmul_rate(Matmul(name="qkv", k=4096, n=4100, split="outputs"), peak, 8)
    assert odd.flops_per_s is None
    assert "do not divide by tensor parallel size 8" in odd.refused


def test_scale_blocks_must_be_whole_or_the_engine_refuses() -> None:
    fp8 = rate(card("h100-sxm-80"), "fp8")
    expert = Matmul(name="gate_proj", k=3072, n=1536, split="outputs")
    assert matmul_rate(expert, fp8, 4, block=(128, 128)).refused == ""
    assert "scale blocks" in matmul_rate(expert, fp8, 8, block=(128, 128)).refused


def test_unaligned_fp8_falls_back_to_16_bits_and_unaligned_16_bits_is_only_slower() -> None:
    gpu = card("h100-sxm-80")
    odd = Matmul(name="router", k=4096, n=200, split="none")
    fallen = matmul_rate(odd, rate(gpu, "fp8"), wide=rate(gpu, "bf16"))
    assert fallen.dtype == "bf16"
    assert "kernels refuse" in fallen.notes[0]
    assert matmul_rate(odd, rate(gpu, "fp8")).flops_per_s is None
    slower = matmul_rate(Matmul(name="odd", k=4095, n=4096), rate(gpu, "bf16"))
    assert slower.flops_per_s == 989e12
    assert "slower kernel" in slower.notes[0]


def test_tiles_that_are_not_full_are_counted() -> None:
    assert tile_share(4096) == 1
    assert tile_share(1344, 128) == pytest.approx(1344 / 1408)
    part = matmul_rate(Matmul(name="up", k=4096, n=96), rate(card("h100-sxm-80"), "bf16"))
    assert part.useful_share == 0.75
    assert part.flops_per_s == 989e12 * 0.75


def test_a_pass_over_several_products_takes_the_sum_of_their_times() -> None:
    peak = rate(card("h100-sxm-80"), "bf16")
    whole = matmul_rate(Matmul(name="a", k=4096, n=4096), peak)
    part = matmul_rate(Matmul(name="b", k=4096, n=96), peak)
    both = blended((whole, part))
    assert both is not None
    assert 0.75 * 989e12 < both < 989e12
    assert blended((whole, matmul_rate(Matmul(name="c", k=8, n=4098, split="outputs"), peak, 4))) is None
    assert blended(()) is None
