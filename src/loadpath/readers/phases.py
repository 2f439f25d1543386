"""What a process was doing when an error was printed: told by the frames and records around the line.

The words are those of `core.facts.memory`. A profiling pass, a capture and a request all run the model's forward, so the
outermost function decides: the phases are looked for in the order below, over the whole traceback.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from loadpath.core.text import Line

BACK, AHEAD, NEAR = 150, 25, 8  # lines of the same process that are looked at before and after

_FRAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("wake-up", (r"\bwake_up\b",)),
    ("context", (
        r"in init_device\b", r"_cuda_init\b", r"in _lazy_init\b", r"in set_device\b", "init_torch_distributed", "in init_process_group",
        "ncclCommInitRank", r"in mem_get_info\b",
    )),
    ("profiling", (
        "profile_run", "determine_available_memory", "determine_num_available_blocks", "profile_num_available_blocks",
        r"in warmup\b", "Method Warmup",
    )),
    ("graph-capture", (
        "capture_model", r"capture_end\(", r"torch\.cuda\.graph\(", "[Cc]apture (?:cuda|CUDA) graph failed", "capture_graph",
        "cuda_graph_runner", "CudaGraphRunner", "init_cuda_graphs", "init_device_graphs", "capture_cudagraphs", "aclgraph",
    )),
    ("sampler-warm-up", ("_dummy_sampler_run", "_dummy_pooler_run", "warming up sampler")),
    ("kv-pool", (
        r"initialize_kv_cache\b", "_allocate_kv_cache", "_create_model_instance", "init_memory_pool", "TokenToKVPool", "in _create_buffers",
        r"CacheEngine\(", "cache_engine", "init_kv_cache",
    )),
    ("conversion", (
        "process_weights_after_loading", "marlin_repack", "repack_", "quantize_weights", "_quantize_and_", "Params4bit",
        "Int8Params",
    )),
    ("training-setup", (
        "_configure_distributed_model", "_prepare_deepspeed", "_prepare_fsdp", r"accelerator\.prepare", r"deepspeed\.initialize",
        r"FullyShardedDataParallel\(", r"DistributedDataParallel\(",
    )),
    ("optimizer-step", (
        r"optimizer\.step\(", "in _init_group", "_multi_tensor_adam", "_single_tensor_adam", "optim/adam", "in _fused_adam",
        "init_optimizer_state", "initialize_optimizer_states", "_create_fp(?:16|32)_partitions", "_setup_for_real_optimizer",
    )),
    ("training-backward", (r"\.backward\(", r"in backward\b", "autograd/__init__", r"Variable\._execution_engine")),
    ("training-forward", (
        "training_step", "compute_loss", r"trainer\.py", r"Trainer\.train", r"in train\b", "finetune", r"train\w*\.py",
        "deepspeed/runtime", "parallel_apply", "in replica",
    )),
    ("image-generation", (
        r"\bcomfy/", "ComfyUI", "diffusers/pipelines", "stable-diffusion-webui", r"modules/(?:processing|sd_samplers)\w*\.py",
        "backend/diffusion_engine", "invokeai/",
    )),
    ("weights", (
        "make_layers", "create_weights", "in load_weights", "weight_loader", "_load_pretrained_model", r"in load_model\b",
        r"\bload_model\(", r"in get_model\b", r"_init_model\(", r"initialize_model\(", "in _initialize_model", "model_loader",
        "from_pretrained", "set_module_tensor_to_device", "safetensors", "dispatch_model", r"in convert\b",
        r"lambda t: t\.cuda", "vocab_parallel_embedding", "Failed to load model", "_create_weight", "_from_hf",
        r"text_generation_server/models/\w+\.py\", line \d+, in __init__",
    )),
    ("serving", (
        "execute_model", "run_busy_loop", "run_engine_loop", "event_loop_(?:normal|overlap)", "forward_thread_func",
        "forward_batch_generation",
        "run_batch", r"in generate\b", r"\bmodel\.generate\(",
        r"transformers/models/\w+/modeling_\w+\.py\", line \d+, in forward", "process_batch_result", "execute_method",
        "sample_tokens", r"in infer\b", "stream_infer",
        "output_handler", "Method (?:Prefill|Decode)", "entrypoints/openai/serving",
    )),
)  # fmt: skip
# Records (no frames) that name the phase by themselves.
_RECORDS: tuple[tuple[str, str], ...] = (
    ("sampler-warm-up", "occurred when warming up (?:sampler|pooler)"),
    ("graph-capture", "[Cc]apture (?:cuda|CUDA) graph failed"),
    ("profiling", r"warmup\{max_input|:warmup:"),
    ("profiling", "profile run for multi-modal|method determine_num_available|Unable to warmup|Warmup\\(Generation"),
    ("weights", r"Error executing load_\w+ with args|load_single_module"),
    ("image-generation", r"Got an OOM, unloading all loaded models|!!! Exception during processing|you ran out of memory on your GPU"),
    ("training-forward", r"\bMax_MA\b|\{'loss': |\bgrad_norm\b"),
)  # fmt: skip
_SERVING_RECORDS = (
    r"MQLLMEngine is already dead"
    r"|output_handler failed|encountered a fatal error|EngineDeadError|Background loop has errored|Exception in ASGI"
    r"|:prefill\{|:decode\{|Method (?:Prefill|Decode) encountered|Request failed during generation|POST /\S+ HTTP"
)
_SERVED_BEFORE = (
    r"MQLLMEngine is already dead|EngineDeadError|POST /\S+ HTTP/[\d.]+\"? (?:200|5\d\d)|POST +\"/(?:v1|api)/"
)
_PINNED = r"pin_memory|cudaHostAlloc|host_alloc"
_OPERATIONS: tuple[tuple[str, str], ...] = (
    ("prompt logprobs", r"prompt_logprobs|input_logprob|compute_logprobs|gather_logprobs|top_logprobs|normalized_logprobs"),
    ("log-softmax", r"log_softmax"),
    ("attention scores (softmax)", r"\bsoftmax"),
    ("cross-entropy loss", r"cross_entropy|loss_function|ForCausalLMLoss|nll_loss"),
    ("FP8 conversion", r"scaled_fp8_quant|torch\.empty\(shape, device=input\.device, dtype=out_dtype\)|per_token_group_quant"),
    ("weight repacking", r"marlin_repack|repack"),
    ("sampling over the vocabulary", r"top_k|top_p|sampler\.py|apply_penalties|torch\.sort"),
    ("logits", r"compute_logits|_get_logits|lm_head|logits_processor|logits\.float"),
    ("VAE", r"AutoencoderKL|autoencoder\w*\.py|/vae\w*\.py|\bvae\.(?:de|en)code|decode_first_stage|VAEDecode"),
    ("denoising model", r"transformer_flux|unet_\w+|/ldm/|openaimodel|self\.transformer\(|self\.unet\(|noise_pred|KSampler|k_diffusion"),
    ("text encoder", r"text_encoder|encode_prompt|CLIPTextEncode|/t5\w*\.py"),
    ("vision encoder", r"visual|vision_tower|vision_model|multimodal_embeddings|image_embeds|encoder_outputs|_process_image"),
    ("layer creation", r"make_layers|create_weights"),
    ("mixture-of-experts layer", r"fused_moe|fused_experts"),
    ("attention", r"scaled_dot_product_attention|flash_attn|attention\.py"),
    ("feed-forward layer", r"\bmlp\b|silu_and_mul|act_fn|gate_up_proj|down_proj"),
)  # fmt: skip


@cache
def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@cache
def _frames(phase: str) -> re.Pattern[str]:
    return re.compile("|".join(dict(_FRAMES)[phase]))


def _around(lines: Sequence[Line], i: int, back: int, ahead: int) -> list[str]:
    """Texts of the lines around line i that the same rank printed, as far as the prefixes tell ranks apart."""
    own = lines[i].origin.rank
    window = lines[max(0, i - back) : i + ahead + 1]
    return [line.text for line in window if own is None or line.origin.rank in (None, own)]


def phase_of(lines: Sequence[Line], i: int) -> str:
    """The phase in which line i was printed; "" where the lines around it do not tell."""
    traceback = _traceback(lines, i)
    if traceback:
        text = "\n".join([lines[i].text, *traceback])
        if _re(_PINNED).search(text):
            return "pinned"
        if found := next((phase for phase, _ in _FRAMES if _frames(phase).search(text)), ""):
            return found
    around = "\n".join(_around(lines, i, BACK, AHEAD))
    if found := next((phase for phase, pattern in _RECORDS if _re(pattern).search(around)), ""):
        return found
    after = "\n".join(_around(lines, i, 0, AHEAD))
    if _re(_SERVING_RECORDS).search(after):
        return "serving"
    # Access logs and the front end's own lines come before the engine's where the two processes share a stream.
    before = "\n".join(line.text for line in lines[max(0, i - NEAR) : i])
    return "serving" if _re(_SERVED_BEFORE).search(before) else ""


def _traceback(lines: Sequence[Line], i: int) -> list[str]:
    """The texts of the traceback that line i ends: back to its head (or as far as frames go)."""
    texts: list[str] = []
    own = lines[i].origin.rank
    for line in reversed(lines[max(0, i - BACK) : i]):
        if own is not None and line.origin.rank not in (None, own):
            continue
        texts.append(line.text)
        if "Traceback (most recent call last)" in line.text:
            break
    framed = any(re.search(r'File "|^\s*\^+|line \d+, in |\.py:\d+ in ', text) for text in (lines[i].text, *texts))
    return texts if framed else []


def operation_of(lines: Sequence[Line], i: int) -> str:
    """The operation that asked for the memory, from the innermost frames above line i; "" where they do not tell."""
    if any(
        _re(r"in replica \d+ on device|parallel_apply").search(line.text) for line in lines[max(0, i - BACK) : i + NEAR]
    ):
        return "torch.nn.DataParallel"
    near = "\n".join(_around(lines, i, NEAR, 0)[:-1])
    return next((name for name, pattern in _OPERATIONS if _re(pattern).search(near)), "")
