"""What helps against an out-of-memory, by the step it happened in: in the engine's own flags, best first."""

from __future__ import annotations

import math

from loadpath.core.case import Case
from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.facts.memory import ProfiledItems
from loadpath.core.report import Remedy
from loadpath.core.units import show_bytes
from loadpath.diagnosis.fits import SEQUENCES, count, model_name, number
from loadpath.diagnosis.memory_remedies import ranked
from loadpath.engines.registry import flag
from loadpath.planning.oom import Holders
from loadpath.planning.remedies import Fit

STEP_TOKENS = 2048  # tokens of one step that every engine runs well with
SEQUENCES_STEP = (1024, 512, 256, 128, 64, 32, 16, 8)


def split(engine: str | None, fit: Fit, ranks: int | None = None) -> Remedy:
    ranks = ranks or fit.tensor_parallel * 2
    return Remedy(
        f"Split the model over {ranks} GPUs (tensor parallel)", flag(engine, "tensor-parallel", ranks),
        f"each holds about 1/{ranks} of the weights; the attention heads must divide by {ranks}",
    )  # fmt: skip


def weights(engine: str | None, fit: Fit, case: Case, phase: str, oom: OutOfMemory) -> tuple[Remedy, ...]:
    """Smaller weights, more cards, or weights on the host: nothing else bounds what loading takes."""
    converting = phase == "conversion" or oom.operation == "FP8 conversion"
    quantised = Remedy(
        "Serve a checkpoint that is already quantised (FP8, AWQ, GPTQ)" if converting else "Serve a checkpoint quantised to 8 or 4 bits (FP8, AWQ, GPTQ), or a smaller model",
        effect="nothing is converted at load, so the 16-bit weights are never resident" if converting
        else "8 bits take half of 16-bit weights, 4 bits a little over a quarter",
    )  # fmt: skip
    offload = flag(engine, "cpu-offload", 8)
    host = Remedy(
        "Keep part of the weights in host memory",
        offload,
        "8 GiB less on the GPU; every step reads them over PCIe, so it is slow",
    )
    transformers = Remedy(
        "Let accelerate place layers on other GPUs or the host", 'device_map="auto", load_in_4bit=True'
    )
    listed: list[Remedy | None] = [quantised, split(engine, fit)]
    listed.append(host if offload else transformers if engine is None else None)
    return tuple(r for r in listed if r is not None)


def fewer_sequences(engine: str | None, case: Case, to: int = 16) -> Remedy:
    now = count(case, *SEQUENCES)
    to = min(to, max(1, now // 4)) if now else to
    return Remedy(
        f"Allow fewer sequences at once ({to}" + (f" instead of {now})" if now else "; the default is 256 or more)"),
        flag(engine, "sequences", to), "fewer dummy sequences (and images) in the pass",
    )  # fmt: skip


def fewer_tokens(engine: str | None, case: Case) -> Remedy:
    now = count(case, "max-num-batched-tokens", "chunked-prefill-size")
    to = min(STEP_TOKENS, max(256, now // 2)) if now else STEP_TOKENS
    command = " ".join(t for t in (
        flag(engine, "chunked-prefill", True) if engine == "vllm" else "", flag(engine, "batched-tokens", to)) if t)  # fmt: skip
    return Remedy(
        f"Run fewer tokens in one step ({to}): chunked prefill with a cap on the batched tokens", command,
        "the activation peak shrinks about in proportion",
    )  # fmt: skip


def profiling(engine: str | None, case: Case, multimodal: bool | None = None) -> tuple[Remedy, ...]:
    items = case.last(ProfiledItems)
    images = items is not None or bool(multimodal)
    limit = Remedy(
        "Allow fewer or smaller images and videos per prompt", "--limit-mm-per-prompt '{\"image\": 2, \"video\": 0}' "
        "--mm-processor-kwargs '{\"max_pixels\": 1003520}'", "the pass holds the most that a prompt may bring",
    ) if engine in (None, "vllm") else None  # fmt: skip
    context = Remedy(
        "Set the context to what is needed, where it is the model's own (long) default", flag(engine, "context-length", 16384),
        "without chunked prefill the pass runs a prompt of that length",
    )  # fmt: skip
    sequences = fewer_sequences(engine, case)
    known = (
        [limit, sequences, fewer_tokens(engine, case)]
        if items
        else [sequences, context, fewer_tokens(engine, case), limit if images else None]
    )
    return tuple(r for r in known if r is not None)[:5]


def lower_share(engine: str | None, case: Case | None, fit: Fit, by: float = 0.05) -> Remedy:
    share = number(case, "gpu-memory-utilization", "mem-fraction-static") if case else fit.share
    share = share or fit.share
    if share is None:
        return Remedy(
            "Lower the memory share by 0.05, so that more stays free outside the budget",
            flag(engine, "memory-share", 0.85), "each 0.01 leaves 1 % of the card; the KV cache gives it up",
        )  # fmt: skip
    to = math.floor(round(100 * (share - by), 6)) / 100
    effect = "the KV cache gives it up"
    if fit.total_bytes:
        effect = f"leaves {show_bytes((1 - to) * fit.total_bytes)} outside the budget instead of {show_bytes((1 - share) * fit.total_bytes)}"
    return Remedy(f"Lower the memory share from {share:g} to {to:g}", flag(engine, "memory-share", to), effect)


def capture(engine: str | None, fit: Fit) -> tuple[Remedy, ...]:
    sizes = 64 if engine == "sglang" else "[1,2,4,8,16,32,64]"
    return (
        Remedy("Capture fewer and smaller CUDA graphs", flag(engine, "graph-sizes", sizes), "graph memory grows with the largest size and their number"),
        lower_share(engine, None, fit),
        Remedy("Do without CUDA graphs", flag(engine, "eager", True), "no graph memory; decoding is slower"),
    )  # fmt: skip


def sampler(engine: str | None, fit: Fit, requests: int | None) -> tuple[Remedy, ...]:
    to = max(16, (requests or 1024) // 4)
    return (
        Remedy(
            f"Allow fewer sequences at once ({to}" + (f" instead of {requests})" if requests else ")"), flag(engine, "sequences", to),
            f"the warm-up's logits shrink to {100 * to / (requests or 1024):.0f} %",
        ),
        lower_share(engine, None, fit),
    )  # fmt: skip


def pool(engine: str | None, fit: Fit) -> tuple[Remedy, ...]:
    return (
        Remedy("Let the engine size the pool itself: remove a size set by hand (blocks, KV bytes, max tokens)"),
        lower_share(engine, None, fit),
    )


def serving(engine: str | None, fit: Fit, case: Case, oom: OutOfMemory) -> tuple[Remedy, ...]:
    name = (model_name(case) or "").lower()
    images = oom.operation == "vision encoder" or "-vl" in name or "vision" in name
    limit = Remedy(
        "Limit the size of images",
        "--mm-processor-kwargs '{\"max_pixels\": 1003520}'",
        "the encoder's spike shrinks with the pixels",
    )
    logprobs = Remedy("Ask for no prompt log-probabilities on long prompts", "omit prompt_logprobs / echo with logprobs",
                      "saves prompt tokens x vocabulary x 4 bytes")  # fmt: skip
    if engine in (None, "transformers") and fit.share is None:
        return (
            Remedy("Run smaller batches or shorter inputs", "batch_size=1", "buffers of a step shrink in proportion"),
            Remedy("Load the weights in 16, 8 or 4 bits", "torch_dtype=torch.bfloat16, load_in_4bit=True"),
            *([limit] if images else []),
        )
    listed = [
        logprobs if oom.operation == "prompt logprobs" else None,
        lower_share(engine, case, fit),
        fewer_tokens(engine, case),
        limit if images and engine == "vllm" else None,
        fewer_sequences(engine, case, 64),
    ]
    return tuple(r for r in listed if r is not None)


def smaller_step(engine: str | None, case: Case, phase: str) -> tuple[Remedy, ...]:
    """Beside the allocator's setting: a step that needs less in one piece."""
    if phase.startswith("training") or phase == "optimizer-step":
        return (
            Remedy("Train with a smaller micro-batch and more accumulation steps", "--per_device_train_batch_size 1"),
        )
    return (fewer_tokens(engine, case),) if engine else ()


def training(phase: str, oom: OutOfMemory) -> tuple[Remedy, ...]:
    checkpointing = Remedy("Recompute activations (gradient checkpointing)", "model.gradient_checkpointing_enable() / --gradient_checkpointing true",
                           "keeps about 2 bytes x sequence x batch x hidden a layer instead of 30 or more")  # fmt: skip
    batch = Remedy("Smaller micro-batch, with more accumulation steps for the same total", "--per_device_train_batch_size 1 --gradient_accumulation_steps <n>",
                   "activations shrink in proportion; static memory does not")  # fmt: skip
    attention = Remedy("Attention that never stores the scores", "attn_implementation=\"flash_attention_2\" (or \"sdpa\")",
                       "removes the batch x heads x sequence squared term")  # fmt: skip
    shorter = Remedy("Shorter sequences", "--max_seq_length 2048", "activations shrink at least in proportion")
    states = (
        Remedy("Shard or offload the optimizer's states", "DeepSpeed ZeRO-2/3 or FSDP full_shard; offload_optimizer: cpu", "12 of 16 bytes a parameter"),
        Remedy("An 8-bit optimizer", "--optim adamw_bnb_8bit", "2 bytes a parameter for its states instead of 8"),
        Remedy("Train adapters only (LoRA; QLoRA with a 4-bit base)", "peft LoraConfig, load_in_4bit=True", "no gradients or states for the base weights"),
    )  # fmt: skip
    if phase == "optimizer-step":
        return (*states, batch)
    if "softmax" in oom.operation:
        return (checkpointing, attention, batch, shorter)
    if "loss" in oom.operation or oom.operation == "logits":
        return (
            batch,
            shorter,
            Remedy("A fused loss that never keeps all logits", "Liger kernel: --use_liger_kernel true"),
            checkpointing,
        )
    return (checkpointing, batch, attention, states[0], states[2])


def other_process(engine: str | None, oom: OutOfMemory, who: Holders) -> tuple[Remedy, ...]:
    pids = " ".join(str(pid) for pid, _ in who.others[:4])
    named = f"process {pids}" if len(who.others) == 1 else f"processes {pids}"
    share = None
    if oom.total_bytes and engine in ("vllm", "sglang"):
        free = max(0.0, 1 - who.other_bytes / oom.total_bytes - 0.03)
        value = math.floor(100 * free) / 100
        if value >= 0.3 and value * oom.total_bytes > 1.1 * (who.own or 0):
            share = Remedy(
                f"Or share the GPU on purpose: a memory share of at most {value:g}", flag(engine, "memory-share", value),
                f"budget {show_bytes(value * oom.total_bytes)} beside the {show_bytes(who.other_bytes)} of the others",
            )  # fmt: skip
    return (
        Remedy(
            f"End {named} if it is a left-over, or wait for it (look first who it is)", f"kill {pids}",
            f"frees {show_bytes(who.other_bytes)}, more than what was asked for", {"freed_bytes": who.other_bytes}, True,
        ),
        Remedy("Start on a GPU that is empty", "CUDA_VISIBLE_DEVICES=<empty GPU>"),
        *([share] if share else []),
    )  # fmt: skip


def turbomind(large: bool) -> tuple[Remedy, ...]:
    tensor = Remedy(
        "Split the model over two GPUs", "TurbomindEngineConfig(tp=2) / --tp 2", "half of the weights on each"
    )
    awq = Remedy(
        "Serve the 4-bit (AWQ) checkpoint, or a smaller model", "model_format='awq'", "weights about 0.28 of 16 bits"
    )
    share = Remedy(
        "Lower cache_max_entry_count from 0.8 to 0.4",
        "--cache-max-entry-count 0.4",
        "leaves 60 % of the free memory for run-time buffers instead of 20 %",
    )
    batch = Remedy("Smaller batches and sessions", "--max-batch-size 4 --session-len 4096", "fewer buffers at once")
    return (tensor, awq, batch) if large else (share, batch, awq, tensor)


def unknown(engine: str | None, fit: Fit, case: Case) -> tuple[Remedy, ...]:
    """Where the step is not known: what does no harm in any of them, and each for its step."""
    quantised = Remedy(
        "If it happened while loading: a checkpoint quantised to 8 or 4 bits, or more GPUs",
        flag(engine, "tensor-parallel", fit.tensor_parallel * 2),
    )
    step = Remedy("If it happened in a pass or a request: fewer tokens and sequences in one step",
                  " ".join(t for t in (flag(engine, "batched-tokens", STEP_TOKENS), flag(engine, "sequences", 64)) if t))  # fmt: skip
    return ranked([quantised, step])
