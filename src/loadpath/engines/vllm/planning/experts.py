"""Workspaces of the experts' kernels: two buffers for the routed tokens, or fewer, by kernel, card and release.

Read in the kernels' own declarations and in the order in which vLLM prefers them (0.16 to 0.33); the two routed
buffers meet a logged start of Mixtral on H100 within 0.1 %.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from loadpath.core.shape import Experts, ModelShape
from loadpath.engines.vllm.planning import releases
from loadpath.engines.vllm.planning.options import Options
from loadpath.planning.deployment import Version

Buffers = Literal["routed", "outputs", "none"]
"""`routed`: a row for every token and each of its experts, twice; `outputs`: one row a token; `none`: none that is kept."""


class Routing(msgspec.Struct, frozen=True, cache_hash=True):
    """What of the settings the workspaces depend on. `kept`: they stay allocated for all layers and steps."""

    parallel: bool
    data_parallel: int
    kept: bool
    version: Version


def routing(options: Options) -> Routing:
    kept = options.version >= releases.KEPT_WORKSPACE and not options.v0
    return Routing(options.expert_parallel, options.data_parallel, kept, options.version)


def token_bytes(
    shape: ModelShape, feed: Experts, ranks: int, element: int, how: Routing, capability: tuple[int, int]
) -> int:
    """Bytes of workspace for each token of the batch."""
    outputs = feed.latent or shape.hidden
    kind = buffers(shape, how, capability)
    if kind != "routed":
        return element * outputs if kind == "outputs" else 0
    width = feed.width if how.parallel else -(-feed.width // ranks)
    both = (2 if feed.gated else 1) * width
    rows = feed.active * (how.data_parallel if how.parallel else 1)
    if how.kept:
        return element * rows * (max(width, outputs) + max(both, outputs))
    return element * rows * (max(both, outputs) + width)


def buffers(shape: ModelShape, how: Routing, capability: tuple[int, int]) -> Buffers:
    """Which buffers the kernel keeps that this release prefers on this card."""
    scheme = _scheme(shape)
    if scheme == "mxfp4" and capability >= (9, 0):
        return "none"  # Triton's and FlashInfer's kernels for it bring their own
    if not how.kept:
        return "routed"
    flashinfer = how.version >= releases.FLASHINFER_EXPERTS
    if capability[0] == 10 and (scheme in ("fp8", "nvfp4") or (scheme == "" and flashinfer)):
        return "none"
    if capability[0] == 12 and (scheme == "nvfp4" or (scheme == "" and flashinfer)):
        return "outputs"
    if capability[0] == 9 and scheme == "fp8" and how.parallel and _in_blocks(shape):
        return "outputs"
    return "routed"


def _scheme(shape: ModelShape) -> str:
    """How the experts are stored: `fp8`, `nvfp4`, `mxfp4`, `other`, "": not quantised."""
    scheme = shape.quantisation
    if scheme is None or not ({"experts"} & (scheme.modules | scheme.fp8_modules) or scheme.expert_format):
        return ""
    for name in ("mxfp4", "nvfp4"):
        if name in (scheme.expert_format, scheme.format, scheme.method):
            return name
    return "fp8" if scheme.bits == 8 and scheme.type == "float" else "other"


def _in_blocks(shape: ModelShape) -> bool:
    return shape.quantisation is not None and shape.quantisation.block is not None
