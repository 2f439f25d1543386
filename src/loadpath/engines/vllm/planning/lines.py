"""The lines that vLLM will print with a plan's figures, in the wording of its version (shared facts, vllm.md A.3, B.1).

Durations are not planned: `…` stands for them. Settings in effect are told where the engine prints those given.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadpath.core.plan import Identity
from loadpath.core.shape import ModelShape
from loadpath.core.units import GIB
from loadpath.engines.vllm.planning import budget, graphs, releases
from loadpath.engines.vllm.planning.kv_groups import Layout
from loadpath.engines.vllm.planning.kv_tokens import Pool
from loadpath.engines.vllm.planning.options import Options
from loadpath.planning.deployment import Card
from loadpath.planning.kv import subtracts_graphs

_DOCS = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
_DTYPE = {2: "bfloat16", 4: "float32"}


class Start(msgspec.Struct, frozen=True):
    """All that the lines state. Bytes on the card with the least room."""

    shape: ModelShape
    options: Options
    card: Card
    settings: dict[str, str]
    share: budget.Share
    weights: int
    activation: int
    graphs: int
    graph_sizes: tuple[int, ...]
    kv: int
    counts: int
    layout: Layout | None
    pool: Pool | None
    enough_free: bool
    identity: Identity


def lines(start: Start) -> tuple[str, ...]:
    """The start's lines in order, up to the refusal where there is one."""
    return tuple(_lines(start))


def _lines(start: Start) -> Iterator[str]:
    o = start.options
    if o.too_long:
        yield _info(
            o, "api_server.py",
            f"ValueError: User-specified max_model_len ({o.max_model_len}) is greater than the derived max_model_len "
            f"(max_position_embeddings={start.shape.max_position} or model_max_length=None in model's config.json).", "ERROR",
        )  # fmt: skip
        return
    yield from _configuration(start)
    if not start.enough_free:
        yield _error(o, _too_little_free(start))
        return
    if start.layout is not None and start.layout.state_block and o.version < releases.FLASHINFER_SAMPLER:
        yield from _state_block(start.layout, o)
    yield _info(o, _runner(o), f"Starting to load model {_name(start)}...")
    yield from _fallback(start)
    yield _weights_line(start)
    if start.layout is not None and start.layout.state_block and o.version >= releases.FLASHINFER_SAMPLER:
        yield from _state_block(start.layout, o)
    yield from _profile_v0(start) if o.v0 else _profile(start)
    if refusal := _refusal(start):
        yield _error(o, refusal)
        return
    if start.pool is not None and start.layout is not None:
        yield from _pool_v0(start, start.pool) if o.v0 else _pool(start, start.pool, start.layout)
    if start.graph_sizes:
        yield _info(o, _runner(o), f"Graph capturing finished in … secs, took {start.graphs / GIB:.2f} GiB")


def _fallback(start: Start) -> Iterator[str]:
    """The warning of weights that this card can only unpack (Marlin kernels of FP8 and FP4)."""
    kernel = start.identity.kernel
    if not start.identity.fallback or "weight-only" not in kernel:
        return
    bits = "FP4" if "FP4" in kernel else "FP8"
    text = (
        f"Your GPU does not have native support for {bits} computation but {bits} quantization is being used. Weight-only "
        f"{bits} compression will be used leveraging the Marlin kernel. This may degrade performance for compute-heavy workloads."
    )
    yield _info(start.options, f"marlin_utils_{bits.lower()}.py", text, "WARNING")


def _info(o: Options, source: str, text: str, level: str = "INFO") -> str:
    """A record in the version's format: brackets round the place from 0.8 on."""
    place = f"[{source}:1]" if o.version >= releases.V1_DEFAULT else f"{source}:1]"
    return f"{level} 01-01 00:00:00 {place} {text}"


def _runner(o: Options) -> str:
    return "model_runner.py" if o.v0 else "gpu_model_runner.py"


def _worker(o: Options) -> str:
    return "worker.py" if o.v0 else "gpu_worker.py"


def _error(o: Options, text: str) -> str:
    return _info(o, _worker(o), f"ValueError: {text}", "ERROR")


def _name(start: Start) -> str:
    return start.settings.get("model") or start.shape.id


def _gib(size: float, o: Options) -> str:
    """A size as the version formats it: two digits, without trailing zeros from 0.14 on."""
    return str(round(size / GIB, 2)) if o.version >= releases.GROUPED_FIT_CHECK else f"{size / GIB:.2f}"


def _configuration(start: Start) -> Iterator[str]:
    o = start.options
    generation = "V0 LLM" if (0, 8) > o.version >= (0, 7) else "V1 LLM" if not o.v0 else "LLM"
    article = "an" if generation == "LLM" else "a"
    scheme = start.shape.quantisation.method if start.shape.quantisation else None
    dump = (
        f"model='{_name(start)}', speculative_config={'None' if not o.speculation.method else repr(o.speculation.method)}, "
        f"dtype=torch.{_dtype(start)}, max_seq_len={o.max_model_len}, tensor_parallel_size={o.tensor_parallel}, "
        f"pipeline_parallel_size={o.pipeline_parallel}, quantization={scheme}, enforce_eager={o.eager}, "
        f"kv_cache_dtype={o.kv_dtype}"
    )
    version = releases.spelled(o.version)
    yield _info(o, "core.py", f"Initializing {article} {generation} engine (v{version}) with config: {dump}")
    given = {name.replace("-", "_"): value for name, value in start.settings.items() if value}
    given |= {
        "gpu_memory_utilization": f"{o.utilisation:g}",
        "max_num_seqs": str(o.max_num_seqs),
        "max_num_batched_tokens": str(o.max_num_batched_tokens),
    }
    if o.version >= (0, 9):
        yield _info(o, "utils.py", f"non-default args: {given}")
    else:
        yield _info(o, "api_server.py", f"args: Namespace({', '.join(f'{k}={v!r}' for k, v in given.items())})")


def _dtype(start: Start) -> str:
    named = start.settings.get("dtype") or "auto"
    named = {"half": "float16", "float": "float32"}.get(named, named)
    if named != "auto":
        return named
    return start.shape.dtype if start.shape.dtype in ("float16", "bfloat16") else _DTYPE[2]


def _state_block(found: Layout, o: Options) -> Iterator[str]:
    yield _info(
        o, "config.py",
        f"Setting attention block size to {found.block_tokens} tokens to ensure that attention page size is >= mamba page size.",
    )  # fmt: skip
    if found.padding > 0:
        yield _info(
            o, "config.py",
            f"Padding mamba page size by {100 * found.padding:.2f}% to ensure that mamba page size and attention page size "
            "are exactly equal.",
        )  # fmt: skip


def _weights_line(start: Start) -> str:
    o, size = start.options, start.weights / GIB
    if o.v0:
        return _info(o, _runner(o), f"Loading model weights took {size:.4f} GB")
    if o.version < (0, 8, 4):
        text = f"{size:.4f} GB and … seconds"
    elif o.version < (0, 11, 1):
        text = f"{size:.4f} GiB and … seconds"
    elif o.version < (0, 14):
        text = f"{size:.4f} GiB memory and … seconds"
    else:
        kind = "" if o.second_runner and o.version < releases.LARGE_CARD_TIER else " memory"
        text = f"{round(size, 2)} GiB{kind} and … seconds"
    return _info(o, _runner(o), f"Model loading took {text}")


def _profile_v0(start: Start) -> Iterator[str]:
    """V0 from 0.6.5: three lines; one in 0.6.4; none before."""
    o, share = start.options, start.share
    if o.version >= (0, 6, 5):
        yield _info(
            o, _worker(o),
            f"the current vLLM instance can use total_gpu_memory ({share.total / GIB:.2f}GiB) x gpu_memory_utilization "
            f"({o.utilisation:.2f}) = {share.budget / GIB:.2f}GiB",
        )  # fmt: skip
        yield _info(
            o, _worker(o),
            f"model weights take {start.weights / GIB:.2f}GiB; non_torch_memory takes {share.non_torch / GIB:.2f}GiB; "
            f"PyTorch activation peak memory takes {start.activation / GIB:.2f}GiB; "
            f"the rest of the memory reserved for KV Cache is {start.kv / GIB:.2f}GiB.",
        )  # fmt: skip
    elif o.version >= (0, 6, 4):
        peak = start.weights + start.activation
        yield _info(
            o, _worker(o),
            f"Memory profiling results: total_gpu_memory={share.total / GIB:.2f}GiB "
            f"peak_torch_memory={peak / GIB:.2f}GiB non_torch_memory={share.non_torch / GIB:.2f}GiB "
            f"kv_cache_size={start.kv / GIB:.2f}GiB gpu_memory_utilization={o.utilisation:.2f}",
        )  # fmt: skip


def _profile(start: Start) -> Iterator[str]:
    o, share = start.options, start.share
    if o.version >= releases.GRAPH_ESTIMATE and start.graph_sizes:
        pieces, whole = graphs.graph_counts(o, list(start.graph_sizes))
        parts = [
            f"{mode}={count} (largest={start.graph_sizes[count - 1]})"
            for mode, count in (("PIECEWISE", pieces), ("FULL", whole))
            if count
        ]
        yield _info(o, _runner(o), f"Profiling CUDA graph memory: {', '.join(parts)}")
        yield _info(o, _runner(o), f"Estimated CUDA graph memory: {start.graphs / GIB:.2f} GiB total")
    if o.kv_bytes is not None:
        yield _info(
            o, _worker(o),
            f"Initial free memory {_gib(share.free, o)} GiB, reserved {_gib(start.kv, o)} GiB memory for KV Cache as "
            "specified by kv_cache_memory_bytes config and skipped memory profiling.",
        )  # fmt: skip
        return
    if o.version >= releases.OWN_MEMORY_ONLY:
        yield _info(o, _worker(o), _breakdown(start), "DEBUG")
    if o.version >= releases.HYBRID_GROUPS:
        yield _info(o, _worker(o), f"Available KV cache memory: {_gib(start.kv, o)} GiB")
    if subtracts_graphs(o.version) and start.graph_sizes:
        yield _info(o, _worker(o), _equivalent_share(start))


def _equivalent_share(start: Start) -> str:
    """What the graphs' part of the share is worth, as the engine says it."""
    share = start.options.utilisation
    part = start.graphs / start.share.total
    return (
        f"CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization={share:.4f} is "
        f"equivalent to --gpu-memory-utilization={share - part:.4f} without CUDA graph memory profiling. To maintain the same "
        f"effective KV cache size as before, increase --gpu-memory-utilization to {min(share + part, 1):.4f}. To disable, set "
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0."
    )


def _breakdown(start: Start) -> str:
    """The profiling result, which the engine prints at DEBUG."""
    o, outside = start.options, start.share.non_torch
    total = start.weights + start.activation + outside + start.counts
    if o.version >= releases.CONSUMED_BY_DEVICE:
        middle = f"total consumed (from mem_get_info): {_gib(start.weights + outside + start.counts, o)}GiB"
    else:
        middle = f"non-torch forward increase memory: {_gib(outside, o)}GiB"
    return (
        f"Memory profiling takes … seconds. Total non KV cache memory: {_gib(total, o)}GiB; torch peak memory increase: "
        f"{_gib(start.activation, o)}GiB; {middle}; weights memory: {_gib(start.weights, o)}GiB."
    )


def _pool_v0(start: Start, held: Pool) -> Iterator[str]:
    o = start.options
    name = "GPU" if o.version < (0, 7) else "CUDA" if o.version < (0, 7, 3) else "cuda"
    yield _info(o, "executor.py", f"# {name} blocks: {held.blocks}, # CPU blocks: {_swap_blocks(start)}")
    if o.version >= (0, 6, 3):
        yield _info(
            o, "executor.py", f"Maximum concurrency for {o.max_model_len} tokens per request: {held.concurrency:.2f}x"
        )


def _swap_blocks(start: Start) -> int:
    return 4 * GIB // start.layout.block_bytes if start.layout else 0


def _pool(start: Start, held: Pool, found: Layout) -> Iterator[str]:
    o = start.options
    length = min(o.max_model_len, held.longest) if o.auto_length and held.longest else o.max_model_len
    tokens = f"GPU KV cache size: {held.tokens:,} tokens"
    concurrency = f"Maximum concurrency for {length:,} tokens per request: {held.concurrency:.2f}x"
    shared = o.decode_context_parallel * o.prefill_context_parallel
    if shared > 1 and o.version <= releases.GRAPHS_CHARGED:
        yield _info(o, "kv_cache_utils.py", f"Multiplying the GPU KV cache size by the cp_world_size {shared}.")
    if o.block_override:
        size = max(0, start.kv) // found.block_bytes
        yield _info(
            o, "kv_cache_utils.py", f"Overriding num_gpu_blocks={size} with num_gpu_blocks_override={o.block_override}"
        )
    if o.auto_length and length < o.max_model_len:
        yield _info(
            o, "kv_cache_utils.py",
            f"Auto-fit max_model_len: reduced from {o.max_model_len} to {length} to fit in available KV cache memory "
            f"({_gib(start.kv, o)} GiB GPU)",
        )  # fmt: skip
    if o.version >= releases.LARGE_CARD_TIER:
        yield _info(o, "kv_cache_utils.py", f"{tokens}, {concurrency}")
        return
    yield _info(o, "kv_cache_utils.py", tokens)
    yield _info(o, "kv_cache_utils.py", concurrency)


def _too_little_free(start: Start) -> str:
    o, share = start.options, start.share
    place = "on device cuda:0 " if o.version >= releases.GROUPED_FIT_CHECK else "on device "
    return (
        f"Free memory {place}({_gib(share.free, o)}/{_gib(share.total, o)} GiB) on startup is less than desired GPU memory "
        f"utilization ({o.utilisation:g}, {_gib(share.budget, o)} GiB). Decrease GPU memory utilization or reduce GPU memory "
        "used by other processes."
    )


def _refusal(start: Start) -> str:
    """The error with which the engine would end here; "": it goes on."""
    o, held = start.options, start.pool
    if start.kv <= 0:
        docs = f" {_DOCS}" if o.version >= (0, 13) else ""
        return (
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the "
            f"engine.{docs}"
        )
    if held is None or held.fits:
        return ""
    if o.block_override and not o.v0 and start.kv >= held.request_bytes:
        return ""  # the check is against the memory: a pool cut by hand starts, and cannot serve a full-length request
    if o.v0:
        return (
            f"The model's max seq len ({o.max_model_len}) is larger than the maximum number of tokens that can be stored in "
            f"KV cache ({held.tokens}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
            "initializing the engine."
        )
    if o.auto_length:
        return "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token."
    owner = "model's" if o.version >= (0, 22) else "models's"
    unit = "GiB" if o.version >= (0, 8, 4) else "GB"
    have = start.kv
    if o.version >= releases.NULL_BLOCK_RESERVED and start.layout is not None:
        have -= start.layout.block_bytes
    estimate = (
        f"Based on the available memory, the estimated maximum model length is {held.longest}. "
        if held.longest and o.version >= (0, 8, 4)
        else ""
    )
    docs = f" {_DOCS}" if o.version >= (0, 13) else ""
    return (
        f"To serve at least one request with the {owner} max seq len ({o.max_model_len}), ({_gib(held.request_bytes, o)} "
        f"{unit} KV cache is needed, which is larger than the available KV cache memory ({_gib(have, o)} {unit}). {estimate}"
        f"Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.{docs}"
    )
