"""A plan as SGLang prints it: the lines of its start in the format of its version, refusals included.

SGLang prints GB and divides by 2^30. `engines.sglang` reads these lines back to the plan's own figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from loadpath.core.units import GIB
from loadpath.engines.sglang.memory import least_fraction
from loadpath.engines.sglang.planning.cells import Cells
from loadpath.engines.sglang.planning.options import Options
from loadpath.engines.sglang.planning.pools import Pools

_STAMP = "[2026-01-01 00:00:00"


class Start(msgspec.Struct, frozen=True):
    """Everything that the lines state. Bytes on the rank with the least room."""

    model: str
    architecture: str
    dtype: str
    options: Options
    cells: Cells
    pools: Pools
    free_before: int
    weights: int
    after_pools: int
    after_graphs: int
    connect: int
    """Memory that initialising the ranks took."""
    draft: int = 0
    compressed: bool = False
    """DeepSeek-V4, whose pools have a line of their own."""
    refusal: str = ""
    load_error: str = ""
    """PyTorch's refusal where the weights alone are more than the card has free."""


def _gb(size: float) -> str:
    return f"{size / GIB:.2f} GB"


def lines(start: Start) -> tuple[str, ...]:
    return tuple(_lines(start))


def _lines(start: Start) -> Iterator[str]:
    o = start.options
    main, rank = f"{_STAMP}] ", f"{_STAMP} TP0] " if o.tp > 1 or o.version < (0, 4, 6) else f"{_STAMP}] "
    free_after = start.free_before - start.weights
    yield main + _arguments(start)
    yield rank + ("Init parallel begin." if o.version >= (0, 5, 21) else "Init torch distributed begin.")
    yield from (rank + text for text in _connected(start))
    yield f"{rank}Load weight begin. avail mem={_gb(start.free_before)}"
    if start.load_error:
        yield f"{rank}Scheduler hit an exception: {start.load_error}"
        yield f"{main}Received sigquit from a child process. It usually means the child failed."
        return
    kind = f"type={start.architecture}" if start.architecture else "type=Model"
    dtype = f", dtype=torch.{start.dtype}" if o.version < (0, 5, 10) else ""
    usage = f", mem usage={_gb(start.weights)}." if o.version >= (0, 4, 3) else ""
    yield f"{rank}Load weight end. {kind}{dtype}, avail mem={_gb(free_after)}{usage}"
    if start.refusal:
        yield f"{rank}Scheduler hit an exception: {start.refusal}"
        yield f"{main}Received sigquit from a child process. It usually means the child failed."
        return
    if start.draft:
        yield f"{rank}Load weight begin. avail mem={_gb(free_after)}"
        yield f"{rank}Load weight end. type=Draft{dtype}, avail mem={_gb(free_after - start.draft)}, mem usage={_gb(start.draft)}."
    yield from (rank + text for text in _pool_lines(start))
    yield f"{rank}Memory pool end. avail mem={_gb(start.after_pools)}"
    if o.version >= (0, 5, 23) and start.pools.tokens < o.context:
        yield (
            f"{rank}KV pool holds {start.pools.tokens} tokens, fewer than --context-length {o.context}. One full-length "
            "request cannot fit, so long requests will be refused or truncated at serving time. Lower --context-length, "
            "raise --mem-fraction-static, or free memory taken before the pool is sized."
        )
    if o.graph_batch:
        yield from (rank + text for text in _graph_lines(start))
    chunked = f"chunked_prefill_size={o.chunk}, " if o.version >= (0, 4, 3) else ""
    left = f", available_gpu_mem={_gb(start.after_graphs)}" if o.version >= (0, 4, 8) else ""
    yield (
        f"{rank}max_total_num_tokens={start.pools.tokens}, {chunked}max_prefill_tokens={o.max_prefill_tokens}, "
        f"max_running_requests={start.pools.max_requests}, context_len={o.context}{left}"
    )


def _arguments(start: Start) -> str:
    """The effective arguments, as far as they decide about memory."""
    o = start.options
    values: dict[str, object] = {
        "model_path": start.model, "kv_cache_dtype": o.kv_dtype if o.kv_dtype_given else "auto",
        "context_length": o.context, "mem_fraction_static": o.fraction, "max_running_requests": o.max_requests,
        "max_total_tokens": o.max_tokens, "chunked_prefill_size": o.chunk, "max_prefill_tokens": o.max_prefill_tokens,
        "page_size": o.page, "tp_size": o.tp, "pp_size": o.pp, "dp_size": o.dp, "ep_size": o.ep,
        "cuda_graph_max_bs": o.graph_batch or None, "disable_cuda_graph": not o.graph_batch,
        "disable_radix_cache": not o.radix_cache, "swa_full_tokens_ratio": o.window_ratio,
        "mamba_full_memory_ratio": o.state_ratio, "speculative_algorithm": o.speculation or None,
    }  # fmt: skip
    if o.version >= (0, 5, 19):
        return "server_args={" + ", ".join(f"'{name}': {value!r}" for name, value in values.items()) + "}"
    return "server_args=ServerArgs(" + ", ".join(f"{name}={value!r}" for name, value in values.items()) + ")"


def _connected(start: Start) -> Iterator[str]:
    version = start.options.version
    if version >= (0, 5, 21):
        yield "Init parallel ends. elapsed=0.00 s"
        yield f"Memory baseline taken. mem usage={_gb(start.connect)}"
    elif version >= (0, 4, 3):
        elapsed = "elapsed=0.00 s, " if version >= (0, 5, 9) else ""
        yield f"Init torch distributed ends. {elapsed}mem usage={_gb(start.connect)}"


def _pool_lines(start: Start) -> Iterator[str]:
    o, p, cells = start.options, start.pools, start.cells
    if p.window_tokens and not start.compressed:
        first = "Use Sliding" if o.version < (0, 5, 7) else "Use sliding"
        if p.full_bytes:
            yield f"{first} window memory pool. full_layer_tokens={p.tokens}, swa_layer_tokens={p.window_tokens}"
        else:
            yield f"{first} window memory pool (all SWA). swa_layer_tokens={p.window_tokens}"
    if p.state_slots:
        conv = p.state_bytes * cells.conv_state / cells.state
        count = f"max_mamba_cache_size: {p.state_slots}, " if o.version >= (0, 5, 3) else ""
        yield (
            f"Mamba Cache is allocated. {count}conv_state size: {conv / GIB:.2f}GB, "
            f"ssm_state size: {(p.state_bytes - conv) / GIB:.2f}GB "
        )
    if (0, 5, 3) <= o.version < (0, 5, 13):
        yield f"Using KV cache dtype: {o.kv_torch_dtype}"
    if o.version < (0, 4, 3):
        key = p.full_bytes * cells.key_share
        yield f"KV Cache is allocated. K size: {_gb(key)}, V size: {_gb(p.full_bytes - key)}."
        return
    if start.compressed:
        price = cells.full + (0 if p.fixed_window else o.window_ratio * cells.window)
        yield (
            f"DSV4 memory calculation: bytes_per_full_token={price:.2f}, available_bytes={_gb(p.cache_bytes)}, "
            f"full_token={p.tokens}"
        )
        yield f"DSV4 pool sizes: full={p.tokens}, swa={p.window_tokens}, c4={p.tokens // 4}, c128={p.tokens // 128}"
        return
    for tokens, size in ((p.window_tokens, p.window_bytes), (p.tokens, p.full_bytes)):
        if size:
            yield _allocated(start, tokens, size)
    if p.window_bytes and p.full_bytes:
        yield f"SWAKVPool mem usage: {_gb(p.cache_bytes)}, swa size: {p.window_tokens}, full size: {p.tokens}"


def _allocated(start: Start, tokens: int, size: int) -> str:
    o, share = start.options, start.cells.key_share
    dtype = f"dtype: {o.kv_torch_dtype}, " if o.version >= (0, 5, 13) else ""
    if share == 1:
        return f"KV Cache is allocated. {dtype}#tokens: {tokens}, KV size: {_gb(size)}"
    sizes = f"K size: {_gb(size * share)}, V size: {_gb(size * (1 - share))}"
    return f"KV Cache is allocated. {dtype}#tokens: {tokens}, {sizes}"


def _graph_lines(start: Start) -> Iterator[str]:
    used = _gb(start.after_pools - start.after_graphs)
    before, after = _gb(start.after_pools), _gb(start.after_graphs)
    if start.options.version >= (0, 5, 14):
        yield f"Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem={before}"
        yield f"Capture target decode CUDA graph end. elapsed=0.00 s, mem usage={used}, avail mem={after}."
    else:
        yield f"Capture cuda graph begin. This can take up to several minutes. avail mem={before}"
        yield f"Capture cuda graph end. Time elapsed: 0.00 s. mem usage={used}. avail mem={after}."


def refusal(options: Options, cells: Cells, pools: Pools, free_before: int, free_after: int, room: float) -> str:
    """The error with which SGLang ends where the pools get nothing; "" where they get something."""
    if cells.state and pools.state_slots <= 0:
        if options.version < (0, 5, 13):
            return f"RuntimeError: Not enough memory. {_raise_fraction(options)}"
        return (
            "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
            f"max_mamba_cache_size={pools.state_slots} (total_rest_memory={_gb(room)}, "
            f"mamba_cache_per_req={cells.state / 2**20:.2f} MB)."
        )
    if cells.state and pools.tokens > 0 and pools.max_requests <= 0 and options.version >= (0, 5, 13):
        return (
            "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
            f"max_mamba_cache_size={pools.state_slots}, mamba_ratio={options.slots_per_request}, "
            f"resulting max_num_reqs={pools.max_requests}."
        )
    if pools.tokens > 0:
        return ""
    if room <= 0 and options.version >= (0, 5, 14):
        least = least_fraction(free_before, free_after)
        return (
            "ValueError: Loaded weights leave no GPU memory for the KV cache under "
            f"--mem-fraction-static={options.fraction}. Raise --mem-fraction-static above "
            f"{math.ceil(least * 1000) / 1000:.3f} (minimum viable = 1 - available/pre = {least:.4f}). "
            "If using speculative decoding, draft weights are now counted."
        )
    return f"RuntimeError: Not enough memory. {_raise_fraction(options)}"


def _raise_fraction(options: Options) -> str:
    return f"Please try to increase --mem-fraction-static. Current value: mem_fraction_static={options.fraction}"
