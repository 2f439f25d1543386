"""The weights that one SGLang rank holds, and its drafter's."""

from __future__ import annotations

import msgspec

from loadpath.checkpoints.hf_config.rope import MROPE_FACTOR
from loadpath.core.plan import Basis
from loadpath.core.shape import ModelShape
from loadpath.core.units import MIB
from loadpath.engines.sglang.planning.options import Options
from loadpath.planning.deployment import Deployment
from loadpath.planning.split import Split
from loadpath.planning.weights import Weights, weights

LOADING_BYTES = 64 * MIB
"""Workspaces that loading leaves behind (0 to 130 MiB in public logs of small models)."""
DRAFT_COUNTED_SINCE = (0, 5, 14)
"""The drafter is loaded before the pools are sized, so that its weights come out of the static share."""


class Resident(msgspec.Struct, frozen=True):
    """Bytes of weights on a rank and how sure they are; `draft`: the drafter's, loaded after the model's own."""

    bytes: int
    basis: Basis
    note: str = ""
    draft: int = 0


def resident(deployment: Deployment, options: Options) -> Resident:
    """The weights of the pipeline stage that holds most of them."""
    split = Split(
        tp=options.tp, pp=options.pp, ep=options.ep if options.ep > 1 else 0,
        attention_tp=options.attention_tp if options.attention_tp != options.tp else 0,
    )  # fmt: skip
    own = max((_rank(deployment.shape, split, stage) for stage in range(options.pp)), key=lambda one: one.bytes)
    draft = 0
    if options.speculation and options.speculation != "NGRAM":
        if deployment.drafter is not None:
            draft = _total(deployment.drafter, _rank(deployment.drafter, split, 0))
        elif deployment.shape.drafter is not None:
            draft = weights(deployment.shape, split, drafter=True).by_role["drafter"]
    basis: Basis = "modelled" if own.basis == "exact" else own.basis
    return Resident(_total(deployment.shape, own) + LOADING_BYTES, basis, "; ".join(own.notes), draft)


def _rank(shape: ModelShape, split: Split, stage: int) -> Weights:
    return weights(shape, msgspec.structs.replace(split, stage=stage) if stage else split)


def _total(shape: ModelShape, one: Weights) -> int:
    """SGLang keeps the cos/sin tables in float32, twice what the model's dtype would take, but not vLLM's four times as long
    ones of multimodal positions, and none for Gemma 3, which computes them."""
    table = one.by_role.get("rope", 0)
    if shape.architecture.startswith("Gemma3For"):
        return one.bytes - table
    long = all(rope.scaling == "mrope" for rope in shape.rope)
    return one.bytes - table + 2 * table // (MROPE_FACTOR if long else 1)
