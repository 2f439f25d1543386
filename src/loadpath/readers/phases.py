"""What a process was doing when an error was printed: told by the frames and records around the line.

The words are those of `core.facts.memory`. A profiling pass, a capture and a request all run the model's forward, so the
outermost function decides: the phases are looked for in the order below, over the whole traceback.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from loadpath.core.text import Line

BACK, AHEAD = 150, 25  # lines of the same process that are looked at before and after

_PHASES: tuple[tuple[str, str], ...] = (
    ("wake-up", r"\bwake_up\b"),
    ("profiling", r"profile_run|determine_available_memory|determine_num_available_blocks|profile_num_available_blocks"
                  r"|profile run for multi-modal"),
    ("graph-capture", r"capture_model|capture_graph|cuda_graph_runner|CudaGraphRunner|init_cuda_graphs|init_device_graphs"
                      r"|Capture cuda graph failed|in _capture_cudagraphs|_capture_cuda_graphs|aclgraph"),
    ("sampler-warm-up", r"_dummy_sampler_run|_dummy_pooler_run|warming up sampler"),
    ("kv-pool", r"initialize_kv_cache\b|_allocate_kv_cache|init_memory_pool|TokenToKVPool|in _create_buffers"
                r"|CacheEngine\(|_allocate_kv_cache_tensors|BlockManager|init_kv_cache"),
    ("conversion", r"process_weights_after_loading|marlin_repack|repack_|quantize_weights|_quantize_and_|Params4bit|Int8Params"),
    ("optimizer-step", r"optimizer\.step\(|in _init_group|_multi_tensor_adam|_single_tensor_adam|optim/adam|in _fused_adam|init_optimizer_state"
                       r"|initialize_optimizer_states"),
    ("training-backward", r"\.backward\(|in backward\b|autograd/__init__|Variable\._execution_engine|loss\.backward"),
    ("training-forward", r"training_step|compute_loss|trainer\.py|Trainer\.train|in train\b|finetune|train\.py|Max_MA|deepspeed/runtime"),
    ("weights", r"make_layers|create_weights|in load_weights|weight_loader|_load_pretrained_model|in load_model\b|\bload_model\("
                r"|in get_model\b|_init_model\(|initialize_model\(|in _initialize_model|model_loader|from_pretrained|set_module_tensor_to_device"
                r"|safetensors|dispatch_model|in convert\b|lambda t: t\.cuda|Failed to load model|vocab_parallel_embedding"),
    ("serving", r"output_handler failed|encountered a fatal error|EngineDeadError|AsyncEngineDeadError|execute_model|run_busy_loop|in engine_step"
                r"|event_loop_(?:normal|overlap)|forward_batch_generation|run_batch|in generate\b|POST /|Exception in ASGI|Background loop"
                r"|process_batch_result|execute_method|sample_tokens|while serving|in infer\b|stream_infer"),
)  # fmt: skip
_PINNED = r"pin_memory|cudaHostAlloc|host_alloc|empty\(.{0,80}pin_memory"
_OPERATIONS: tuple[tuple[str, str], ...] = (
    ("prompt logprobs", r"prompt_logprobs|compute_logprobs|gather_logprobs"),
    ("log-softmax", r"log_softmax"),
    ("attention scores (softmax)", r"\bsoftmax"),
    ("cross-entropy loss", r"cross_entropy|loss_function|ForCausalLMLoss|nll_loss"),
    (
        "FP8 conversion",
        r"scaled_fp8_quant|torch\.empty\(shape, device=input\.device, dtype=out_dtype\)|per_token_group_quant",
    ),
    ("weight repacking", r"marlin_repack|repack"),
    ("sampling over the vocabulary", r"top_k|top_p|sampler\.py|apply_penalties|torch\.sort"),
    ("logits", r"compute_logits|_get_logits|lm_head|logits_processor"),
    (
        "vision encoder",
        r"visual|vision_tower|vision_model|get_multimodal_embeddings|image_embeds|encoder_outputs|_process_image",
    ),
    ("mixture-of-experts layer", r"fused_moe|fused_experts"),
    ("attention", r"scaled_dot_product_attention|flash_attn|attention\.py"),
    ("feed-forward layer", r"\bmlp\b|silu_and_mul|act_fn|gate_up_proj|down_proj"),
    ("layer creation", r"make_layers|create_weights"),
)


@cache
def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _around(lines: Sequence[Line], i: int, back: int, ahead: int) -> list[str]:
    """Texts of the lines around line i that the same process printed, as far as the prefixes tell processes apart."""
    own = lines[i].origin
    texts = []
    for line in lines[max(0, i - back) : i + ahead + 1]:
        other = line.origin
        if own.rank is not None and other.rank is not None and other.rank != own.rank:
            continue
        texts.append(line.text)
    return texts


def phase_of(lines: Sequence[Line], i: int) -> str:
    """The phase in which line i was printed; "" where the lines around it do not tell."""
    traceback = _traceback(lines, i)
    if traceback:
        text = "\n".join(traceback)
        if _re(_PINNED).search(text):
            return "pinned"
        if found := next((phase for phase, pattern in _PHASES if _re(pattern).search(text)), ""):
            return found
    after = "\n".join(_around(lines, i, 0, AHEAD)[1:])
    if re.search(_PHASES[-1][1].split("|execute_model")[0], after):
        return "serving"
    words = "\n".join(_around(lines, i, BACK, AHEAD))
    return next((phase for phase, pattern in _PHASES if phase not in ("serving",) and _re(pattern).search(words)), "")


def _traceback(lines: Sequence[Line], i: int) -> list[str]:
    """The texts of the traceback that line i ends: back to its head (or as far as frames go)."""
    texts: list[str] = []
    own = lines[i].origin
    for line in reversed(lines[max(0, i - BACK) : i]):
        if own.rank is not None and line.origin.rank is not None and line.origin.rank != own.rank:
            continue
        texts.append(line.text)
        if "Traceback (most recent call last)" in line.text:
            break
    framed = any(re.search(r'File "|^\s*\^+|line \d+, in ', text) for text in texts)
    return texts if framed else []


def operation_of(lines: Sequence[Line], i: int) -> str:
    """The operation that asked for the memory, from the innermost frames above line i; "" where they do not tell."""
    near = "\n".join(_around(lines, i, 8, 0)[:-1])
    return next((name for name, pattern in _OPERATIONS if _re(pattern).search(near)), "")
