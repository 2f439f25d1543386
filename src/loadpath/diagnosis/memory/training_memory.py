"""Training that ran out of GPU memory: activations, logits, or the optimizer's states; each with its own remedies."""

from __future__ import annotations

from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.report import Remedy

_WHERE = {
    "training-setup": "the set-up: model and optimizer states being placed",
    "training-forward": "the forward pass",
    "training-backward": "the backward pass",
    "optimizer-step": "the optimizer step",
}
_CHECKPOINTING = Remedy(
    "Recompute activations (gradient checkpointing)",
    "model.gradient_checkpointing_enable() / --gradient_checkpointing true",
    "a layer keeps about 2 bytes x sequence x batch x hidden instead of 30 or more",
)
_BATCH = Remedy(
    "Smaller micro-batch, with more accumulation steps for the same total",
    "--per_device_train_batch_size 1 --gradient_accumulation_steps <n>",
    "activations shrink in proportion; static memory does not",
)
_ATTENTION = Remedy(
    "Attention that never stores the scores",
    'attn_implementation="flash_attention_2" (or "sdpa")',
    "removes the batch x heads x sequence squared term",
)
_TORCHRUN = Remedy(
    "One process a card instead of DataParallel (DDP, or FSDP to shard as well)",
    "torchrun --nproc_per_node <cards> train.py",
    "no card holds the others' outputs",
)
_SHORTER = Remedy("Shorter sequences", "--max_seq_length 2048", "activations shrink at least in proportion")
_FUSED = Remedy("A fused loss that never keeps all logits", "--use_liger_kernel true")
_SHARD = Remedy(
    "Shard or offload the optimizer's states",
    "DeepSpeed ZeRO-2/3 or FSDP full_shard; offload_optimizer: cpu",
    "12 of 16 bytes a parameter leave the GPU, or are divided by the ranks",
)
_EIGHT_BIT = Remedy("An 8-bit optimizer", "--optim adamw_bnb_8bit", "2 bytes a parameter for its states instead of 8")
_ADAPTERS = Remedy(
    "Train adapters only (LoRA; QLoRA with a 4-bit base)",
    "peft LoraConfig, load_in_4bit=True",
    "no gradients or states for the base weights",
)


def is_scores(oom: OutOfMemory) -> bool:
    return "softmax" in oom.operation and "log" not in oom.operation


def is_logits(oom: OutOfMemory) -> bool:
    return "loss" in oom.operation or oom.operation in ("logits", "log-softmax")


def words(phase: str, oom: OutOfMemory, asked: str) -> dict[str, str]:
    """Where it happened, and what fills the card there."""
    place = _WHERE.get(phase, "the step")
    if phase == "optimizer-step":
        what = (
            "The optimizer's states are made at the first step (8 bytes a parameter for Adam in fp32, beside weights "
            "and gradients): model states, not activations."
        )
    elif phase == "training-setup":
        what = (
            "No step has run: weights, gradients and optimizer states alone do not fit (16 bytes a parameter with mixed "
            "Adam, divided by the ranks only as far as they are sharded)."
        )
    elif is_scores(oom):
        what = (
            f"A softmax over attention scores asked for {asked}: activations dominate, not the parameters; scores grow "
            "with batch x heads x sequence squared, whatever the number of nodes."
        )
    elif is_logits(oom):
        what = (
            "Logits in fp32 over the whole vocabulary (batch x sequence x vocabulary x 4 bytes, and their gradient) "
            "are the peak here: activations, not parameters."
        )
    elif oom.operation == "torch.nn.DataParallel":
        what = (
            "torch.nn.DataParallel runs all cards from one process, and device 0 also holds the inputs, outputs and "
            "loss of the others: it fills first."
        )
    else:
        what = "Activations grow with micro-batch x sequence; weights, gradients and optimizer states do not."
    return {"where": f"{place}: {oom.operation}" if oom.operation else place, "share_of_what": what}


def remedies(phase: str, oom: OutOfMemory) -> tuple[Remedy, ...]:
    if phase == "training-setup":
        return (_SHARD, _ADAPTERS, _EIGHT_BIT)
    if phase == "optimizer-step":
        return (_SHARD, _EIGHT_BIT, _ADAPTERS, _BATCH)
    if oom.operation == "torch.nn.DataParallel":
        return (_TORCHRUN, _BATCH, _CHECKPOINTING, _SHARD)
    if is_scores(oom):
        return (_CHECKPOINTING, _ATTENTION, _BATCH, _SHORTER)
    if is_logits(oom):
        return (_BATCH, _SHORTER, _FUSED, _CHECKPOINTING)
    return (_CHECKPOINTING, _BATCH, _ATTENTION, _SHARD, _ADAPTERS)
