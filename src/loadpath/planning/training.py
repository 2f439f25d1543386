"""Memory of training, per GPU: weights, gradients, optimiser states, adapters, activations, and what sharding divides.

Model states follow the accounting of ZeRO (Rajbhandari et al. 2020): mixed-precision Adam takes 16 bytes a parameter
(2 weights, 2 gradients, 4 master weights, 4 + 4 moments); training wholly in BF16 takes 8 (the "four times the weights"
rule). Activations count what autograd keeps of a pre-norm layer with an attention kernel that stores no scores
(Korthikanti et al. 2022, recounted for gated feed-forward blocks). Sizes in bytes, lengths in tokens.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from loadpath.core.plan import PlanPart
from loadpath.core.shape import (
    DTYPE_BYTES,
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    GatedDelta,
    LatentAttention,
    Layer,
    Mamba,
    Mixer,
    ModelShape,
)  # fmt: skip
from loadpath.planning.layer_tensors import Tensor
from loadpath.planning.parameters import each, parameters
from loadpath.planning.split import WHOLE
from loadpath.planning.tensors import tensors

Method = Literal["full", "lora", "qlora"]
Precision = Literal["bf16", "mixed", "fp32"]
Optimiser = Literal["adamw", "adamw-8bit", "lion", "sgd", "sgd-momentum", "adafactor", "muon"]
Stage = Literal[0, 1, 2, 3]
"""ZeRO's stages: 0 nothing sharded (DDP), 1 optimiser states, 2 and gradients, 3 and weights (FSDP full shard)."""

NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""QLoRA's base: 4-bit codes, an 8-bit scale per 64 (double quantised), an FP32 scale per 256 of those (Dettmers et al. 2023)."""
STATE_NUMBERS: dict[Optimiser, float] = {
    "adamw": 2, "adamw-8bit": 2, "lion": 1, "sgd": 0, "sgd-momentum": 1, "adafactor": 0, "muon": 1,
}  # fmt: skip
"""Numbers that an optimiser keeps for each trainable parameter; Adafactor's rows and columns are next to nothing."""
BITS8_STATE_BYTES = 1 + 4 / 256
"""An 8-bit state: one byte, and an FP32 scale per block of 256 (bitsandbytes)."""
CONTEXT_BYTES = 1 << 30
"""CUDA context, cuBLAS workspaces and NCCL buffers of one process: assumed."""
LOGIT_BYTES = 10
"""Bytes a token and vocabulary entry of an unfused loss: 16-bit logits, their FP32 copy, and its gradient."""


class Training(msgspec.Struct, frozen=True):
    """What is trained, and how. `targets`: names of matrices that get adapters, () for all linear ones.

    `sequence` x `micro_batch` tokens go through a GPU at once; `gpus` share what `stage` shards.
    """

    method: Method = "full"
    precision: Precision = "mixed"
    optimiser: Optimiser = "adamw"
    rank: int = 16
    targets: tuple[str, ...] = ()
    sequence: int = 2048
    micro_batch: int = 1
    checkpointing: bool = True
    fused_loss: bool = False
    stage: Stage = 0
    gpus: int = 1


def memory(shape: ModelShape, how: Training) -> tuple[PlanPart, ...]:
    """The parts of one GPU's memory, greatest concern first. Raises ValueError for targets that match no matrix."""
    total = parameters(shape).total
    trained = total if how.method == "full" else adapter_parameters(shape, how)
    parts = [
        PlanPart("weights", round(_weights(shape, how) / _shared(how, 3)), "exact", note=_stored(how)),
        *([PlanPart("adapters", round(trained * _weight_bytes(how)), "exact")] if how.method != "full" else []),
        PlanPart("gradients", round(trained * _weight_bytes(how) / _shared(how, 2)), "exact"),
        *_states(trained, how),
        PlanPart("activations", activations(shape, how), "modelled", note="counted, not measured"),
        PlanPart("logits and loss", _logits(shape, how), "assumed"),
    ]
    if how.gpus > 1 and how.stage == 0:
        parts.append(
            PlanPart("DDP buckets", round(trained * _weight_bytes(how)), "assumed", note="a copy of the gradients")
        )
    if how.gpus > 1 and how.stage == 3:
        parts.append(PlanPart("gathered layers", _gathered(shape, how), "modelled", note="two layers at a time"))
    parts.append(PlanPart("context and libraries", CONTEXT_BYTES, "assumed"))
    return tuple(part for part in parts if part.bytes)


def bytes_per_parameter(how: Training) -> float:
    """Model states of one trained parameter, not sharded: 16 for mixed Adam, 8 in pure BF16."""
    return _weight_bytes(how) * 2 + _master_bytes(how) + STATE_NUMBERS[how.optimiser] * _state_bytes(how)


def adapter_parameters(shape: ModelShape, how: Training) -> int:
    """Parameters of LoRA adapters: rank x (inputs + outputs) for each target matrix (Hu et al. 2021)."""
    found = [(t, times) for t, times in each(tensors(shape, WHOLE)) if _is_target(t, how.targets)]
    if not found:
        raise ValueError(
            f"--targets {','.join(how.targets)}: no such matrix; there are {', '.join(target_names(shape))}"
        )
    return sum(times * t.stack * how.rank * (t.rows + t.parts * t.cols) for t, times in found)


def target_names(shape: ModelShape) -> tuple[str, ...]:
    """Matrices that adapters can be put on."""
    return tuple(dict.fromkeys(t.name for t, _ in each(tensors(shape, WHOLE)) if t.linear and t.role != "lm_head"))


_MERGED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "o_proj": "o", "gate_proj": "gate_up", "up_proj": "gate_up",
           "down_proj": "down"}  # fmt: skip


def _is_target(tensor: Tensor, targets: tuple[str, ...]) -> bool:
    if not tensor.linear or tensor.role == "lm_head":
        return False
    return not targets or tensor.name in {_MERGED.get(t, t) for t in targets}


def _shared(how: Training, since: int) -> int:
    """Among how many GPUs a part is divided: those of the run where the stage shards it."""
    return how.gpus if how.stage >= since else 1


def _weight_bytes(how: Training) -> int:
    """Adapters are kept in FP32 by PEFT unless everything is BF16; full training follows its precision."""
    if how.method != "full":
        return 2 if how.precision == "bf16" else 4
    return 4 if how.precision == "fp32" else 2


def _master_bytes(how: Training) -> int:
    return 4 if how.precision == "mixed" and how.method == "full" else 0


def _state_bytes(how: Training) -> float:
    if how.optimiser == "adamw-8bit":
        return BITS8_STATE_BYTES
    return 2 if how.precision == "bf16" else 4


def _states(trained: int, how: Training) -> list[PlanPart]:
    share = _shared(how, 1)
    states = trained * STATE_NUMBERS[how.optimiser] * _state_bytes(how)
    parts = [PlanPart("optimiser states", round(states / share), "exact", note=how.optimiser)]
    if master := trained * _master_bytes(how):
        parts.append(PlanPart("master weights", round(master / share), "exact", note="FP32"))
    return parts


def _weights(shape: ModelShape, how: Training) -> float:
    if how.method == "qlora":
        quantised = sum(t.elements * n for t, n in each(tensors(shape, WHOLE)) if t.linear and t.role != "lm_head")
        return quantised * NF4_BYTES + (parameters(shape).total - quantised) * 2
    if how.method == "lora":
        return parameters(shape).total * 2
    return parameters(shape).total * _weight_bytes(how)


def _stored(how: Training) -> str:
    return {"qlora": "NF4, double quantised; embeddings in BF16", "lora": "BF16, frozen"}.get(how.method, "")


def activations(shape: ModelShape, how: Training) -> int:
    """What autograd keeps between forward and backward on one GPU.

    With checkpointing: each layer's input, and all of the one layer that is being recomputed.
    """
    tokens, element = how.sequence * how.micro_batch, 4 if how.precision == "fp32" else 2
    per_layer = [_kept(layer, shape.hidden, element) for layer in shape.layers]
    if not how.checkpointing:
        return tokens * sum(per_layer)
    return tokens * (len(shape.layers) * shape.hidden * element + max(per_layer, default=0))


def _kept(layer: Layer, hidden: int, element: int) -> int:
    """Bytes that one layer keeps for one token: inputs and outputs of its norms, projections and products."""
    kept = 4 * hidden * element
    kept += sum(_mixer_kept(mixer, element) for mixer in layer.mixers)
    for feed in layer.feeds:
        width = feed.width if isinstance(feed, Dense) else feed.active * feed.width + feed.shared_width
        kept += (4 if feed.gated else 2) * width * element
        if isinstance(feed, Experts):
            kept += 2 * feed.active * hidden * element
    return kept


def _mixer_kept(mixer: Mixer, element: int) -> int:
    """Query, key, value and the attention's output; FP32 soft-max statistics of each head."""
    if isinstance(mixer, Attention):
        return element * (2 * mixer.heads * mixer.head_dim + 2 * mixer.kv_heads * mixer.head_dim) + 4 * mixer.heads
    if isinstance(mixer, LatentAttention):
        wide = mixer.heads * (2 * (mixer.nope_dim + mixer.rope_dim) + 2 * mixer.v_dim)
        return element * (wide + mixer.q_rank + mixer.kv_rank) + 4 * mixer.heads
    return element * 6 * _inner(mixer)


def _inner(mixer: Mixer) -> int:
    """Width at which a recurrent (or compressed) mixer works; six tensors of it are kept (projections, gates, convolution)."""
    if isinstance(mixer, Mamba):
        return mixer.inner_width
    if isinstance(mixer, GatedDelta):
        return mixer.v_heads * mixer.v_dim
    return mixer.heads * mixer.head_dim if isinstance(mixer, CompressedAttention) else 0


def _logits(shape: ModelShape, how: Training) -> int:
    return 0 if how.fused_loss else how.sequence * how.micro_batch * shape.vocab * LOGIT_BYTES


def _gathered(shape: ModelShape, how: Training) -> int:
    """FSDP and ZeRO-3 hold the layer at work whole, and the next one while it is fetched."""
    groups = tensors(shape, WHOLE)
    layer = max((sum(t.elements for t in group.tensors) for group in groups), default=0)
    element = NF4_BYTES if how.method == "qlora" else DTYPE_BYTES["float32" if how.precision == "fp32" else "bfloat16"]
    return round(2 * layer * element)
