"""How vLLM keeps weights on a card, by version: which kernel experts and GPTQ layers are laid out for."""

from __future__ import annotations

from loadpath.core.shape import ModelShape
from loadpath.planning.mxfp4 import Mxfp4Kernel
from loadpath.planning.per_shape import per_shape
from loadpath.planning.weights import Keeping

HOPPER = (9, 0)
MACHETE_SINCE = (0, 6, 3)
"""Hopper's mixed-input kernel: it leaves the zero points of symmetric GPTQ files where they are; Marlin drops them."""
PADDED_TRITON_SINCE = (0, 13)
"""triton_kernels 3.5 pads packed values to 64 x 64 (between a start of about 0.11-0.12 without and one of 0.19 with)."""
BLACKWELL = (10, 0)
NVFP4_ROWS = 128
"""NVFP4 experts without a gate are padded to the tiles of their swizzled scales where the card multiplies FP4 itself."""
SHARED_ROPE_SINCE = (0, 6)
"""Gemma 2 built a cos/sin table in every layer before it used the shared ones (seen in 0.5.4)."""


@per_shape
def keeping(shape: ModelShape, capability: tuple[int, int] | None, version: tuple[int, ...]) -> Keeping:
    """For a card of this compute capability (None: taken as Hopper)."""
    card = capability or HOPPER
    quantisation = shape.quantisation
    mxfp4 = quantisation is not None and "mxfp4" in (quantisation.format, quantisation.expert_format)
    return Keeping(
        mxfp4=mxfp4_kernel(card, version) if mxfp4 else "",
        nvfp4_rows=NVFP4_ROWS if card >= BLACKWELL else 1,
        zero_points=card == HOPPER and version >= MACHETE_SINCE,
        rope_per_layer=shape.family == "gemma2" and version < SHARED_ROPE_SINCE,
    )


def mxfp4_kernel(card: tuple[int, int], version: tuple[int, ...]) -> Mxfp4Kernel:
    """Marlin before Hopper and on consumer Blackwell, Triton on Hopper, FlashInfer on data-centre Blackwell."""
    if card < HOPPER or card >= (11, 0):
        return "marlin"
    if card[0] == 10:
        return "flashinfer"
    return "triton" if version >= PADDED_TRITON_SINCE else "triton-early"
