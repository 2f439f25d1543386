"""What a pool of so many bytes holds: blocks, the printed tokens, concurrency, the longest request (vllm.md C.6, C.7)."""

from __future__ import annotations

from math import ceil

import msgspec

from loadpath.engines.vllm.planning import releases
from loadpath.engines.vllm.planning.kv_groups import Group, Layout
from loadpath.engines.vllm.planning.kv_specs import CHECKPOINTED
from loadpath.engines.vllm.planning.options import Options

SMALL_BLOCK = 8  # tokens of the blocks of windows and states in a packed pool, about: one more than is needed is held


class Pool(msgspec.Struct, frozen=True):
    """A sized pool. `tokens`: the figure that this version prints; `request_bytes`: one request of full length;
    `fits`: it passes the engine's own check; `longest`: the greatest length that passes, 0: none."""

    blocks: int
    tokens: int
    concurrency: float
    request_blocks: int
    request_bytes: int
    fits: bool
    longest: int


def request_blocks(layout: Layout, length: int, options: Options) -> int:
    """Blocks that one request of `length` tokens may come to hold, over all groups."""
    total = sum(group.count * _pages(group, length, options) for group in layout.groups)
    if not layout.beside:
        return total
    beside = sum(
        spec.token_bytes * count * (min(spec.span - 1 + options.in_flight_tokens, length) + SMALL_BLOCK)
        for spec, count in layout.beside
    )
    return total + ceil(beside / layout.block_bytes)


def _pages(group: Group, length: int, options: Options) -> int:
    spec, block = group.spec, group.block_tokens
    if spec.kind == "state":
        return _states(length, block, options, spec.tag == CHECKPOINTED)
    if spec.kind == "sliding":
        held = min(spec.span - 1 + options.in_flight_tokens, length)
        return ceil(held / block) + 1
    if spec.kind == "chunked":
        return ceil(min(spec.span + options.in_flight_tokens, length) / block)
    if spec.kind == "cross":
        return ceil(max(options.max_num_batched_tokens, spec.span) / block)
    shared = options.decode_context_parallel * options.prefill_context_parallel
    return ceil(ceil(length / shared) / block)


def _states(length: int, block: int, options: Options, checkpointed: bool) -> int:
    """Pages of recurrent state of one request: one and the drafted ones; where the prefix cache keeps states, another,
    and a third of Mamba 2."""
    drafted = options.speculation.tokens
    if options.version < releases.STATE_MODES:
        return 1
    if options.state_mode == "all":
        return ceil(length / block) + drafted if block else 1 + drafted
    if options.state_mode != "align":
        return 1 + drafted
    return 2 + drafted + int(checkpointed and options.version >= releases.STATE_CHECKPOINTS)


def pool(layout: Layout, kv_bytes: int, options: Options) -> Pool:
    """The pool that `kv_bytes` of a rank make. A share below nothing holds no block."""
    blocks = options.block_override or max(0, kv_bytes) // layout.block_bytes
    length = options.max_model_len
    needed = request_blocks(layout, length, options)
    concurrency = blocks / needed if needed else 0.0
    # The check takes the memory, not the blocks; late releases put the never-used block aside.
    usable = kv_bytes - (layout.block_bytes if options.version >= releases.NULL_BLOCK_RESERVED else 0)
    if options.block_override:
        usable = blocks * layout.block_bytes
    fits = needed * layout.block_bytes <= usable and usable > 0
    longest = longest_request(layout, usable, options)
    if options.auto_length and longest and not fits:
        length, fits = longest, True
        needed = request_blocks(layout, length, options)
        concurrency = blocks / needed
    return Pool(
        blocks=blocks,
        tokens=_tokens(layout, blocks, concurrency, length, options),
        concurrency=_plain_ratio(layout, blocks, concurrency, length, options),
        request_blocks=needed,
        request_bytes=needed * layout.block_bytes,
        fits=fits,
        longest=longest if not fits else max(longest, length),
    )


def _tokens(layout: Layout, blocks: int, concurrency: float, length: int, options: Options) -> int:
    if options.version >= releases.TOKENS_BY_CONCURRENCY:
        return int(concurrency * length)
    shared = options.decode_context_parallel * options.prefill_context_parallel
    return blocks // layout.group_count * (layout.block_tokens or length) * shared


def _plain_ratio(layout: Layout, blocks: int, concurrency: float, length: int, options: Options) -> float:
    """Before 0.9.2 tokens / length, unrounded."""
    if options.version < releases.HYBRID_GROUPS:
        return blocks * (layout.block_tokens or length) / length
    return concurrency


def longest_request(layout: Layout, usable: int, options: Options) -> int:
    """The greatest length of which one request fits in `usable` bytes (the engine's binary search); 0: none."""
    blocks = usable // layout.block_bytes
    if blocks <= 0 or request_blocks(layout, 1, options) > blocks:
        return 0
    if layout.plain:
        shared = options.decode_context_parallel * options.prefill_context_parallel
        return blocks * layout.block_tokens * shared
    low, high = 1, 2 * max(options.max_model_len, 1)
    while request_blocks(layout, high, options) <= blocks:
        low, high = high, high * 2
        if high > 1 << 40:
            return low
    while high - low > 1:
        middle = (low + high) // 2
        if request_blocks(layout, middle, options) <= blocks:
            low = middle
        else:
            high = middle
    return low
