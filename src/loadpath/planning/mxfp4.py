"""Bytes of MXFP4 expert matrices as each kernel of vLLM wants them: padded, and partly kept twice.

Marlin and FlashInfer pad the expert width and the model's width. Triton's kernels on Hopper pad the packed values to
64 x 64 (`triton`; `triton-early`, before triton_kernels 3.5, did not), keep the scales as loaded beside a copy padded
to 256 rows, and biases in float32 beside the 16-bit ones.
"""

from __future__ import annotations

from typing import Literal

from loadpath.planning.layer_tensors import Tensor
from loadpath.planning.split import ceil_div

Mxfp4Kernel = Literal["", "marlin", "flashinfer", "flashinfer-hopper", "triton", "triton-early"]
_MULTIPLES: dict[str, tuple[int, int]] = {
    "marlin": (128, 256), "flashinfer": (256, 256), "flashinfer-hopper": (128, 128),
    "triton": (64, 1), "triton-early": (64, 1),
}  # fmt: skip
"""Kernel → multiples of the expert width on a rank and of the model's width."""
_GROUP = 32
_SCALE_ROWS, _SCALE_COLS = 256, 2


def _up(value: int, multiple: int) -> int:
    return ceil_div(value, multiple) * multiple


def padded(tensor: Tensor, kernel: Mxfp4Kernel) -> tuple[int, int]:
    """Rows and columns of an expert matrix (`w13`: gate and up; `w2`: down) as `kernel` creates it."""
    width, hidden = _MULTIPLES.get(kernel, (1, 1))
    if tensor.name.startswith("w13"):
        return _up(tensor.rows // tensor.parts, width) * tensor.parts, _up(tensor.cols, hidden)
    return _up(tensor.rows, hidden), _up(tensor.cols, width)


def matrix_arrays(tensor: Tensor, kernel: Mxfp4Kernel) -> tuple[int, ...]:
    """Bytes of each array that holds an expert matrix: two values to a byte, one scale byte for 32 inputs."""
    rows, cols = padded(tensor, kernel)
    scales = tensor.stack * rows * ceil_div(cols, _GROUP)
    if not kernel.startswith("triton"):
        return (tensor.stack * rows * cols // 2, scales)
    block = 64 if kernel == "triton" else 1
    values = tensor.stack * _up(rows, block) * _up(cols // 2, block)
    swizzled = tensor.stack * _up(rows, _SCALE_ROWS) * _up(ceil_div(cols, _GROUP), _SCALE_COLS)
    return (values, scales, swizzled)


def bias_arrays(bias: Tensor, kernel: Mxfp4Kernel) -> tuple[int, ...]:
    """Bytes of the arrays of an expert bias."""
    width, hidden = _MULTIPLES.get(kernel, (1, 1))
    parts = 2 if bias.name.startswith("w13") else 1
    rows = _up(bias.rows // parts, width if parts == 2 else hidden) * parts
    half = 2 * bias.stack * rows
    return (half, 2 * half) if kernel.startswith("triton") else (half,)
