"""What helps against an out-of-memory, by the step it happened in: in the engine's own flags, best first."""

from __future__ import annotations

import math

from loadpath.core.case import Case
from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.facts.memory import ProfiledItems
from loadpath.core.report import Remedy
from loadpath.core.units import show_bytes
from loadpath.diagnosis.memory.fits import SEQUENCES, SHARES, count, is_multimodal, is_v1, number
from loadpath.engines.registry import flag
from loadpath.planning.kv import GRAPHS_SUBTRACTED_SINCE
from loadpath.planning.oom import Holders
from loadpath.planning.remedies import Fit

STEP_TOKENS = 2048  # tokens of one step that every engine runs well with
OFFLOADED_GIB = 8
SAFE_SHARES = {
    "vllm": 0.85,
    "sglang": 0.8,
    "tgi": 0.9,
}  # a step below the usual default, where the present value is unknown
ONE_PIECE = 2 << 30  # bytes in one request that logits for all tokens of a prompt explain
SAFE_FRACTIONS = {"lmdeploy": 0.5, "tensorrt-llm": 0.8}  # of what is free after loading
LEAST_SHARE = 0.3  # of a GPU that is worth sharing
_PIXELS = "--mm-processor-kwargs '{\"max_pixels\": 1003520}'"


def _kept(*remedies: Remedy | None) -> tuple[Remedy, ...]:
    return tuple(r for r in remedies if r is not None)[:5]


def split(engine: str | None, fit: Fit) -> Remedy:
    ranks = fit.tensor_parallel * 2
    return Remedy(
        f"Split the model over {ranks} GPUs (tensor parallel)",
        flag(engine, "tensor-parallel", ranks),
        f"each holds half of the weights that one holds now; the attention heads must divide by {ranks}",
    )


def weights(engine: str | None, fit: Fit, phase: str, oom: OutOfMemory) -> tuple[Remedy, ...]:
    """Smaller weights, more cards, or weights on the host: nothing else bounds what loading takes."""
    if phase == "conversion" or oom.operation == "FP8 conversion":
        smaller = Remedy(
            "Serve a checkpoint that is already quantised (FP8, AWQ, GPTQ)",
            effect="nothing is converted at load, so the 16-bit weights are never resident",
        )
    elif fit.weight_bits > 8:
        smaller = Remedy(
            "Serve a checkpoint quantised to 8 or 4 bits (FP8, AWQ, GPTQ), or a smaller model",
            effect="8 bits take half of 16-bit weights, 4 bits a little over a quarter",
        )
    elif fit.weight_bits > 4:
        smaller = Remedy(
            "Serve a checkpoint quantised to 4 bits (AWQ, GPTQ, NVFP4), or a smaller model",
            effect="4 bits take a little over half of 8-bit weights",
        )
    else:
        smaller = Remedy("Serve a smaller model: these weights are quantised to 4 bits already")
    if engine is None:
        spread = Remedy("Let accelerate place layers on other GPUs or the host", 'device_map="auto"')
        half = Remedy("Load in 16 bits, if no dtype is given (transformers before 5 loads 32 bits then)", "torch_dtype=torch.bfloat16",
                      "half of 32-bit weights")  # fmt: skip
        bits = Remedy(
            "Load the weights quantised to 4 or 8 bits (bitsandbytes), or a smaller model",
            "quantization_config=BitsAndBytesConfig(load_in_4bit=True) (or load_in_8bit=True)",
            "a little over a quarter, or half, of 16-bit weights",
        )
        return _kept(bits if fit.weight_bits > 4 else smaller, half if fit.weight_bits > 8 else None, spread)
    offload = flag(engine, "cpu-offload", OFFLOADED_GIB)
    host = Remedy(
        "Keep part of the weights in host memory",
        offload,
        f"{OFFLOADED_GIB} GiB less on the GPU; every step reads them over PCIe, so it is slow",
    )
    return _kept(smaller, split(engine, fit), host if offload else None)


def fewer_sequences(engine: str | None, case: Case, to: int = 16, effect: str = "") -> Remedy:
    now = count(case, *SEQUENCES)
    to = min(to, max(1, now // 4)) if now else to
    instead = f" instead of {now}" if now else "; the default is 256 or more" if engine == "vllm" else ""
    return Remedy(f"Allow fewer sequences at once ({to}{instead})", flag(engine, "sequences", to), effect)


def fewer_tokens(engine: str | None, case: Case) -> Remedy:
    now = count(case, "max-num-batched-tokens", "chunked-prefill-size")
    to = min(STEP_TOKENS, max(256, now // 2)) if now else STEP_TOKENS
    chunked = flag(engine, "chunked-prefill", True) if engine == "vllm" else ""
    how = ": chunked prefill with a cap on the batched tokens" if engine in (None, "vllm", "sglang") else ""
    return Remedy(
        f"Run fewer tokens in one step ({to}){how}",
        f"{chunked} {flag(engine, 'batched-tokens', to)}".strip(),
        "the activation peak shrinks about in proportion",
    )


def fewer_images(engine: str | None) -> Remedy | None:
    if engine not in (None, "vllm"):
        return None
    return Remedy(
        "Allow fewer or smaller images and videos per prompt",
        f'--limit-mm-per-prompt \'{{"image": 2, "video": 0}}\' {_PIXELS}',
        "the pass holds the most that a prompt may bring",
    )


def profiling(engine: str | None, case: Case, multimodal: bool = False) -> tuple[Remedy, ...]:
    """A smaller dummy run. Whole prompts in one step are a matter of vLLM's first engine (before 0.8)."""
    counted = case.last(ProfiledItems) is not None
    multimodal = counted or is_multimodal(case) or multimodal
    sequences = fewer_sequences(engine, case, effect="fewer dummy sequences, and with them images, in the pass")
    context = None
    if engine in (None, "vllm") and not is_v1(case):
        context = Remedy(
            "Set the context to what is needed, where it is the model's own (long) default",
            flag(engine, "context-length", 16384),
            "without chunked prefill the pass runs a prompt of that length",
        )
    images = fewer_images(engine) if multimodal else None
    tokens = fewer_tokens(engine, case)
    if counted:
        return _kept(images, sequences, tokens)
    if context is not None and multimodal:
        return _kept(sequences, context, tokens, images)
    if context is not None:
        return _kept(context, tokens, sequences)
    return _kept(tokens, images, sequences, split(engine, fit=Fit()))


def lower_share(engine: str | None, fit: Fit, by: float = 0.05) -> Remedy:
    """Less of the GPU for weights and KV cache: what is left over is where graphs, libraries and spikes live."""
    share = fit.share
    if (fraction := SAFE_FRACTIONS.get(engine or "")) is not None:
        return Remedy(
            f"Give the KV cache a smaller part of the free memory ({fraction:g})", flag(engine, "memory-share", fraction),
            "what it leaves is for run-time buffers",
        )  # fmt: skip
    if share is None:
        usual = SAFE_SHARES.get(engine or "", 0.8)
        return Remedy(
            f"Lower the memory share by {by:g}, so that more stays free outside the budget",
            flag(engine, "memory-share", f"{usual + 0.05 - by:.2g}"),
            "each 0.01 leaves 1 % of the card; the KV cache gives it up",
        )
    to = math.floor(round(100 * (share - by), 6)) / 100
    effect = "the KV cache gives it up"
    if fit.total_bytes:
        left, before = show_bytes((1 - to) * fit.total_bytes), show_bytes((1 - share) * fit.total_bytes)
        effect = f"leaves {left} outside the budget instead of {before}"
    return Remedy(f"Lower the memory share from {share:g} to {to:g}", flag(engine, "memory-share", to), effect)


def capture(engine: str | None, fit: Fit, case: Case) -> tuple[Remedy, ...]:
    sizes = 64 if engine == "sglang" else "[1,2,4,8,16,32,64]"
    estimate = None
    if engine == "vllm" and case.version is not None and (0, 18) <= case.version < GRAPHS_SUBTRACTED_SINCE:
        estimate = Remedy(
            "Let this version take the graphs' memory out of the KV share (off by default before 0.20)",
            "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1",
            "the KV cache becomes smaller by the estimate",
        )
    return _kept(
        estimate,
        Remedy(
            "Capture fewer and smaller CUDA graphs",
            flag(engine, "graph-sizes", sizes),
            "graph memory grows with the largest size and their number",
        ),
        lower_share(engine, fit),
        Remedy("Do without CUDA graphs", flag(engine, "eager", True), "no graph memory; decoding is slower"),
    )


def sampler(engine: str | None, fit: Fit, requests: int | None) -> tuple[Remedy, ...]:
    now = requests or 1024
    to = max(16, now // 4)
    instead = f" instead of {requests}" if requests else ""
    return (
        Remedy(
            f"Allow fewer sequences at once ({to}{instead})",
            flag(engine, "sequences", to),
            f"the warm-up's logits shrink to {100 * to / now:.0f} %",
        ),
        lower_share(engine, fit),
    )


def pool(engine: str | None, fit: Fit) -> tuple[Remedy, ...]:
    by_hand = "Let the engine size the pool itself: remove a size set by hand (blocks, KV bytes, maximum tokens)"
    return (Remedy(by_hand), lower_share(engine, fit))


def _by(oom: OutOfMemory) -> float:
    """How much less of the card: what the request lacked and a little more, a twentieth at least."""
    if not oom.total_bytes or oom.requested_bytes is None or oom.free_bytes is None:
        return 0.05
    lacked = (oom.requested_bytes - oom.free_bytes) / oom.total_bytes
    return min(0.3, max(0.05, math.ceil(100 * lacked + 1) / 100))


def serving(engine: str | None, fit: Fit, case: Case, oom: OutOfMemory) -> tuple[Remedy, ...]:
    """More room outside the budget, or a step that needs less."""
    images = oom.operation == "vision encoder" or is_multimodal(case)
    smaller = Remedy("Limit the size of images", _PIXELS, "the encoder's spike shrinks with the pixels")
    if engine is None and fit.share is None:
        return _kept(
            Remedy(
                "Run smaller batches or shorter inputs, without gradients",
                "batch_size=1; with torch.inference_mode(): …",
                "buffers of a step shrink in proportion",
            ),
            Remedy("Load the weights in 16, 8 or 4 bits", "torch_dtype=torch.bfloat16, load_in_4bit=True"),
            Remedy("Attention that never stores the scores", 'attn_implementation="flash_attention_2" (or "sdpa")')
            if "softmax" in oom.operation or oom.operation == "attention"
            else None,
            Remedy(
                "Update transformers: newer releases make logits only for the last token of a prompt",
                "pip install -U transformers",
            )
            if oom.operation == "logits"
            else None,
            smaller if images else None,
        )
    logprobs = Remedy(
        "Ask for no prompt log-probabilities on long prompts",
        "logprob_start_len=-1 (the default) with return_logprob"
        if engine == "sglang"
        else "omit prompt_logprobs, and echo with logprobs",
        "saves prompt tokens x vocabulary x 4 bytes",
    )
    known = oom.operation == "prompt logprobs"
    maybe = not oom.operation and engine in ("vllm", "sglang") and (oom.requested_bytes or 0) >= ONE_PIECE
    return _kept(
        logprobs if known else None,
        lower_share(engine, fit, _by(oom)),
        fewer_tokens(engine, case),
        logprobs if maybe and not images else None,
        smaller if images and engine == "vllm" else None,
        fewer_sequences(engine, case, 64, "fewer requests share a step"),
    )


def smaller_step(engine: str | None, case: Case, phase: str) -> tuple[Remedy, ...]:
    """Beside the allocator's setting: a step that needs less in one piece."""
    if phase.startswith("training") or phase == "optimizer-step":
        return (
            Remedy("Train with a smaller micro-batch and more accumulation steps", "--per_device_train_batch_size 1"),
        )
    return (fewer_tokens(engine, case),) if engine else ()


def other_process(engine: str | None, oom: OutOfMemory, who: Holders, alike: bool = False) -> tuple[Remedy, ...]:
    pids = " ".join(str(pid) for pid, _ in who.others[:4])
    one = len(who.others) == 1
    named = f"process {pids} if it is a left-over, or wait for it (look first who it is)"
    if not one:
        named = f"processes {pids} if they are left-overs, or wait for them (look first who they are)"
    share = None
    if oom.total_bytes and engine in ("vllm", "sglang"):
        value = math.floor(100 * max(0.0, 1 - who.other_bytes / oom.total_bytes - 0.03)) / 100
        if value >= LEAST_SHARE and value * oom.total_bytes > 1.1 * (who.own or 0):
            share = Remedy(
                f"Or share the GPU on purpose: a memory share of at most {value:g}",
                flag(engine, "memory-share", value),
                f"budget {show_bytes(value * oom.total_bytes)} beside {show_bytes(who.other_bytes)} of the others",
            )
    apart = Remedy(
        "If it is a rank or copy of the same server: give each a GPU of its own, do not end it",
        "CUDA_VISIBLE_DEVICES=<one GPU each>, docker run --gpus all, the local rank as device",
    )
    return _kept(
        apart if alike else None,
        Remedy(
            f"End {named}",
            f"kill {pids}",
            f"frees {show_bytes(who.other_bytes)}, more than what was asked for",
            {"freed_bytes": who.other_bytes},
            True,
        ),
        Remedy("Start on a GPU that is empty", "CUDA_VISIBLE_DEVICES=<empty GPU>"),
        share,
    )


def unknown(engine: str | None, fit: Fit, case: Case, oom: OutOfMemory) -> tuple[Remedy, ...]:
    """Where the step is not known: one remedy for each step that it may have been."""
    share = number(case, *SHARES)
    limits = (flag(engine, "batched-tokens", STEP_TOKENS), flag(engine, "sequences", 64))
    bare = oom.requested_bytes is None and oom.allocator in ("cuda", "nccl")
    holder = Remedy("If nvidia-smi shows another process on the GPU: end it if it is a left-over, or choose another GPU",
                    "CUDA_VISIBLE_DEVICES=<empty GPU>")  # fmt: skip
    return _kept(
        Remedy(
            "Let the framework take memory as it needs it, and less of the card (it reserves most of it at the start)",
            "XLA_PYTHON_CLIENT_PREALLOCATE=false; XLA_PYTHON_CLIENT_MEM_FRACTION=0.8; TF_FORCE_GPU_ALLOW_GROWTH=true",
        )
        if oom.allocator in ("xla", "tensorflow")
        else None,
        holder if bare else None,
        Remedy("Give each rank a GPU of its own", "docker run --gpus all; CUDA_VISIBLE_DEVICES with one entry a rank")
        if oom.allocator == "nccl"
        else None,
        lower_share(engine, fit) if oom.allocator == "nccl" or (share is not None and share > 0.9) else None,
        Remedy(
            "If it happened while loading: a checkpoint quantised to 8 or 4 bits, or more GPUs",
            flag(engine, "tensor-parallel", fit.tensor_parallel * 2),
        ),
        Remedy(
            "If it happened in a pass or a request: fewer tokens and sequences in one step, smaller batches",
            " ".join(text for text in limits if text),
        ),
    )
