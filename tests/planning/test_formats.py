"""Bytes of a stored weight in each format, against layouts written out by hand."""

from __future__ import annotations

import pytest

from loadpath.core.shape import Quantisation
from loadpath.knowledge.schemes import LINEAR
from loadpath.planning.formats import bits_per_weight, scheme_of, stored
from loadpath.planning.layer_tensors import Tensor

MATRIX = Tensor("gate_up", "mlp", 1024, 4096, parts=2, linear=True)
COUNT = 1024 * 4096


def quantised(method: str, bits: int, kind: str = "int", **more: object) -> Quantisation:
    return Quantisation(method=method, bits=bits, type=kind, modules=LINEAR, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scheme", "resident", "arrays"),
    [
        (None, True, (2 * COUNT,)),
        (quantised("fp8", 8, "float", block=(128, 128)), True, (COUNT, 4 * 8 * 32)),
        (quantised("fp8", 8, "float", strategy="channel"), True, (COUNT, 4 * 1024)),
        (quantised("fp8", 8, "float", strategy="tensor"), True, (COUNT, 4 * 2)),
        (quantised("compressed-tensors", 8, strategy="channel", activation_bits=8), True, (COUNT, 4 * 1024)),
        (quantised("awq", 4, group_size=128, zero_point=True), True, (COUNT // 2, 2 * 1024 * 32, 1024 * 32 // 2)),
        (quantised("gptq", 4, group_size=128), True, (COUNT // 2, 2 * 1024 * 32)),
        (quantised("gptq", 4, group_size=128), False, (COUNT // 2, 2 * 1024 * 32, 1024 * 32 // 2, 4 * 4096)),
        (quantised("gptq", 4, group_size=128, desc_act=True), True, (COUNT // 2, 2 * 1024 * 32, 4 * 4096, 4 * 4096)),
        (quantised("gptq", 8, group_size=128), True, (COUNT, 2 * 1024 * 32)),
        (quantised("compressed-tensors", 4, group_size=32), True, (COUNT // 2, 2 * 1024 * 128)),
        (quantised("modelopt", 4, "float", format="nvfp4"), True, (COUNT // 2, COUNT // 16, 8)),
        (quantised("mxfp4", 4, "float", format="mxfp4"), True, (COUNT // 2, COUNT // 32)),
        (quantised("bitsandbytes", 4, "float", format="nf4", group_size=64), True, (COUNT // 2, COUNT // 16)),
        (quantised("bitsandbytes", 4, "float", format="nf4", group_size=64), False,
         (COUNT // 2, COUNT // 64, 4 * (COUNT // 64 // 256))),
    ],
)  # fmt: skip
def test_arrays(scheme: Quantisation | None, resident: bool, arrays: tuple[int, ...]) -> None:
    assert stored(MATRIX, scheme, 2, resident=resident) == arrays


def test_what_a_scheme_leaves_alone() -> None:
    awq = quantised("awq", 4, group_size=128, zero_point=True)
    router, head = Tensor("router", "router", 64, 4096), Tensor("lm_head", "lm_head", 32000, 4096, linear=True)
    assert stored(router, awq, 2) == (2 * 64 * 4096,)
    assert stored(head, awq, 2) == (2 * 32000 * 4096,)
    assert scheme_of(MATRIX, awq, kept=True) == "plain"


def test_mixed_checkpoints() -> None:
    mixed = Quantisation(
        "modelopt", 4, "float", format="nvfp4", modules=frozenset({"mlp"}), fp8_modules=frozenset({"attention"})
    )
    assert scheme_of(MATRIX, mixed) == "nvfp4"
    assert scheme_of(Tensor("qkv", "attention", 8, 8, linear=True), mixed) == "fp8"
    experts = quantised("fp8", 8, "float", block=(128, 128), expert_format="mxfp4")
    assert scheme_of(Tensor("w2", "experts", 8, 8, stack=4, linear=True), experts) == "mxfp4"


def test_fixed_types_stay() -> None:
    assert stored(Tensor("A_log", "norm", 32, dtype="float32"), None, 2) == (128,)


@pytest.mark.parametrize(
    ("scheme", "bits"),
    [
        (None, 16.0),
        (quantised("awq", 4, group_size=128, zero_point=True), 4.156),
        (quantised("modelopt", 4, "float", format="nvfp4"), 4.5),
        (quantised("mxfp4", 4, "float", format="mxfp4"), 4.25),
        (quantised("bitsandbytes", 4, "float", format="nf4"), 4.5),
        (Quantisation("gguf", 4, format="Q4_0", modules=LINEAR), 4.66),
    ],
)
def test_bits_per_weight_with_all_metadata(scheme: Quantisation | None, bits: float) -> None:
    assert bits_per_weight(scheme) == pytest.approx(bits, abs=0.01)
