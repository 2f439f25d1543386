"""What lies on a rank before the pass: the model's weights as PyTorch counts them, a drafter's, LoRA slots."""

from __future__ import annotations

from typing import Any

import msgspec

from loadpath.core.plan import Basis
from loadpath.core.shape import ModelShape, Quantisation, Role
from loadpath.engines.vllm.planning.buffers import buffers, whole_towers
from loadpath.engines.vllm.planning.keeping import keeping
from loadpath.engines.vllm.planning.options import Options
from loadpath.planning.deployment import Card, Deployment
from loadpath.planning.per_shape import per_shape
from loadpath.planning.split import Split
from loadpath.planning.stored_weights import checkpoint_weights
from loadpath.planning.tensors import tensors
from loadpath.planning.weights import Keeping, Weights, weights

WEIGHTS_ERROR = 0.004
_LINEAR: frozenset[Role] = frozenset({"attention", "mlp", "experts", "shared-experts", "recurrent"})
ONLINE: dict[str, Quantisation] = {
    "fp8": Quantisation(method="fp8", bits=8, type="float", strategy="tensor", activation_bits=8, modules=_LINEAR, online=True),
    "bitsandbytes": Quantisation(method="bitsandbytes", bits=4, type="float", format="nf4", group_size=64, modules=_LINEAR, online=True),
}  # fmt: skip
"""Schemes that vLLM makes itself of a checkpoint in 16 bits (`--quantization`)."""


class Resident(msgspec.Struct, frozen=True):
    """Bytes on the rank: `model` with its drafter, `lora` for adapter slots."""

    model: int
    lora: int
    basis: Basis
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return self.model + self.lora


def resident(deployment: Deployment, o: Options, stage: int, card: Card) -> Resident:
    """What a rank of pipeline stage `stage` holds."""
    shape = served(deployment)
    towers = whole_towers(shape, deployment.settings.get("mm-encoder-tp-mode", ""))
    split = msgspec.structs.replace(_split(o, stage), whole_towers=towers)
    last = stage == o.pipeline_parallel - 1
    own_drafter = last and "mtp" in o.speculation.method and shape.drafter is not None and deployment.drafter is None
    kept = keeping(shape, card.capability, o.version)
    dtype = dtype_of(deployment.settings)
    found = _weights(shape, split, kept, dtype, own_drafter)
    if deployment.checkpoint is not None and shape is deployment.shape:
        found = checkpoint_weights(shape, deployment.checkpoint, split, kept, dtype, own_drafter)
    total, notes = found.bytes, found.notes
    if deployment.drafter is not None and last and o.speculation.method:
        kept = keeping(deployment.drafter, card.capability, o.version)
        total += _weights(deployment.drafter, _split(o, 0, 1), kept, "", False).bytes
    if stage == 0:
        total += buffers(shape, o.max_num_batched_tokens, o.dtype_bytes, not o.text_only)
    if o.text_only:
        total -= found.by_role.get("vision", 0) + found.by_role.get("audio", 0)
    total = max(0, total - o.offload_bytes)
    lora = o.lora_slots * o.lora_rank * o.dtype_bytes * _adapted(shape, split) if o.lora_slots else 0
    return Resident(total, lora, found.basis, notes)


@per_shape
def _weights(shape: ModelShape, split: Split, keeping: Keeping, dtype: str, drafter: bool) -> Weights:
    return weights(shape, split, keeping, dtype, drafter)


def served(deployment: Deployment) -> ModelShape:
    """The shape as it is served: `--quantization` may quantise it at load."""
    return _served(deployment.shape, (deployment.settings.get("quantization") or "").lower())


@per_shape
def _served(shape: ModelShape, quantization: str) -> ModelShape:
    """The shape with the scheme that the engine makes at load, where the checkpoint has none."""
    scheme = ONLINE.get(quantization)
    if scheme is None or shape.quantisation is not None:
        return shape
    return msgspec.structs.replace(shape, quantisation=scheme)


def _split(o: Options, stage: int, stages: int = 0) -> Split:
    shared = o.tensor_parallel * o.data_parallel if o.expert_parallel else 0
    return Split(
        tp=o.tensor_parallel, pp=stages or o.pipeline_parallel, stage=stage, ep=shared,
        partition=() if stages else o.partition,
    )  # fmt: skip


def dtype_of(settings: dict[str, Any]) -> str:
    """The type of unquantised weights that `--dtype` asks for; "": the model's own."""
    named = settings.get("dtype") or ""
    return {"auto": "", "half": "float16", "float": "float32"}.get(named, named)


@per_shape
def _adapted(shape: ModelShape, split: Split) -> int:
    """Inputs (of each merged projection) and outputs of every linear layer that adapters may target, added up."""
    return sum(
        (tensor.rows + tensor.parts * tensor.cols) * tensor.stack * group.times
        for group in tensors(shape, split)
        for tensor in group.tensors
        if tensor.linear and tensor.role in ("attention", "mlp", "shared-experts")
    )
