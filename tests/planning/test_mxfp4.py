"""MXFP4 experts as each kernel lays them out (gpt-oss-20b: 32 experts, widths 2880 and 2880)."""

from __future__ import annotations

import pytest

from loadpath.planning.layer_tensors import Tensor
from loadpath.planning.mxfp4 import Mxfp4Kernel, bias_arrays, matrix_arrays, padded

W13 = Tensor("w13", "experts", 2 * 1440, 2880, stack=32, parts=2, linear=True)
W2 = Tensor("w2", "experts", 2880, 1440, stack=32, linear=True)


@pytest.mark.parametrize(
    ("kernel", "w13", "w2"),
    [
        ("marlin", (2 * 1536, 3072), (3072, 1536)),
        ("flashinfer", (2 * 1536, 3072), (3072, 1536)),
        ("flashinfer-hopper", (2 * 1536, 2944), (2944, 1536)),
        ("triton", (2 * 1472, 2880), (2880, 1472)),
    ],
)
def test_padding(kernel: Mxfp4Kernel, w13: tuple[int, int], w2: tuple[int, int]) -> None:
    assert padded(W13, kernel) == w13 and padded(W2, kernel) == w2


def test_triton_keeps_scales_twice_and_pads_the_packed_values() -> None:
    values, scales, swizzled = matrix_arrays(W13, "triton")
    assert values == 32 * 2944 * 1472, "1440 bytes of a row become 1472"
    assert scales == 32 * 2944 * 90 and swizzled == 32 * 3072 * 90
    assert matrix_arrays(W13, "triton-early")[0] == 32 * 2944 * 1440


def test_marlin_holds_values_and_one_set_of_scales() -> None:
    assert matrix_arrays(W2, "marlin") == (32 * 3072 * 1536 // 2, 32 * 3072 * 48)


def test_biases() -> None:
    bias = Tensor("w13.bias", "bias", 2 * 1440, stack=32)
    assert bias_arrays(bias, "marlin") == (2 * 32 * 2 * 1536,)
    assert bias_arrays(bias, "triton") == (2 * 32 * 2944, 4 * 32 * 2944)
