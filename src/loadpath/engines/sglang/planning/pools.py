"""From the memory that is left to tokens: SGLang's pools (every token, window, recurrent state) and its request table.

There is no profiling pass: with P free before the weights and A after them, the pools share A - P x (1 - f); see
`engines.sglang.memory`. Sizes in bytes on one rank.
"""

from __future__ import annotations

import msgspec

from loadpath.engines.sglang.planning.cells import Cells
from loadpath.engines.sglang.planning.options import Options

PADDED_STATE_SINCE = (0, 5, 18)
"""The state pool keeps one slot more than it hands out; since then (not in 0.5.16) the budget counts it."""
COMPRESSED_CAP_SINCE = (0, 5, 21)
"""DeepSeek-V4's window pool holds the worst case of the requests, and four reusable prefix ends for each."""
PREFIX_ENDS = 4
EVICTION_STEP = 128
"""Tokens between two evictions of a request's window (SGLANG_SWA_EVICTION_INTERVAL)."""


class Pools(msgspec.Struct, frozen=True):
    """Capacities and bytes. `tokens` is what SGLang prints as max_total_num_tokens; `window_tokens` 0: no window pool."""

    tokens: int
    max_requests: int
    full_bytes: int
    window_tokens: int = 0
    fixed_window: bool = False
    """The window pool's size follows the requests, not the other pool."""
    window_bytes: int = 0
    state_slots: int = 0
    state_bytes: int = 0
    spare_state_bytes: int = 0
    """States that verification of drafts keeps beside the slots."""
    table_bytes: int = 0

    @property
    def cache_bytes(self) -> int:
        return self.full_bytes + self.window_bytes


def pools(room: float, cells: Cells, options: Options, draft_layers: int = 0) -> Pools:
    """The pools in `room` bytes; `tokens` <= 0 where it does not suffice."""
    slots, spare = _state_slots(room, cells, options)
    held = (slots + 1) * cells.state if slots else 0
    counted = held if options.version >= PADDED_STATE_SINCE else slots * cells.state
    left = room - counted - spare
    full, window = _tokens(left, cells, options, draft_layers)
    tokens = _capped(full or window, cells, options)
    if tokens <= 0:
        return Pools(tokens, 0, 0, state_slots=slots, state_bytes=held, spare_state_bytes=spare)
    fixed = _fixed_window(cells, options) is not None and bool(window)
    if window and tokens != (full or window):
        window = min(window, tokens) if fixed or not full else _aligned(tokens * options.window_ratio, options.page)
    requests = max_requests(tokens, slots, options)
    kept = tokens + options.page  # one page more, which padded batches write to
    return Pools(
        tokens=tokens, max_requests=requests,
        full_bytes=round(kept * cells.full) if full else 0,
        window_tokens=window, fixed_window=fixed, window_bytes=round((window + options.page) * cells.window) if window else 0,
        state_slots=slots, state_bytes=held, spare_state_bytes=spare,
        table_bytes=(requests + 1) * (options.context + 4 + options.draft_tokens) * 4,
    )  # fmt: skip


def _state_slots(room: float, cells: Cells, options: Options) -> tuple[int, int]:
    """(slots, bytes of drafts' states). The states get m / (1 + m) of the room unless their number is given."""
    if not cells.state:
        return 0, 0
    drafts, requests = options.draft_tokens, max(1, (options.max_requests or 0) // options.dp)
    if options.state_slots is not None or (not options.radix_cache and options.max_requests):
        slots = (options.state_slots or options.max_requests or 0) // options.dp
        return slots, cells.state * min(requests, slots) * drafts if drafts else 0
    budget = room * options.state_ratio / (1 + options.state_ratio)
    pad = options.version >= PADDED_STATE_SINCE
    if not drafts:
        return max(0, int((budget - cells.state * pad) // cells.state)), 0
    if options.version < (0, 5, 14):
        spare = cells.state * requests * drafts
        budget = (room - spare) * options.state_ratio / (1 + options.state_ratio)
        return max(0, int(budget // cells.state)), spare
    price = cells.state * (1 + drafts / options.slots_per_request)
    slots = max(0, int((budget - cells.state * (1 + drafts) * pad) // price))
    return slots, cells.state * (min(requests, slots // options.slots_per_request) + pad) * drafts


def _tokens(left: float, cells: Cells, options: Options, draft_layers: int) -> tuple[int, int]:
    """(tokens of the full pool, of the window pool) before caps; a drafter's layers share the cells (0.5.14 on)."""
    full, window = cells.sized or cells.full, cells.window
    if draft_layers and cells.full_layers:
        full += full / cells.full_layers * draft_layers
    if not window:
        return _aligned(left / full, options.page) if full else 0, 0
    if not full:
        return 0, _aligned(left / window, options.page)
    if (span := _fixed_window(cells, options)) is not None:
        return _aligned((left - span * window) / full, options.page), span
    if options.version < (0, 5, 10):  # the tokens of one uniform pool, shared out anew
        uniform = int(left // (full + window))
        tokens = int(uniform * (full + window) / (full + options.window_ratio * window))
        return _aligned(tokens, options.page), _aligned(int(tokens * options.window_ratio), options.page)
    tokens = _aligned(left / (full + options.window_ratio * window), options.page)
    return tokens, _aligned(int(tokens * options.window_ratio), options.page)


def _fixed_window(cells: Cells, options: Options) -> int | None:
    """Where the number of requests is known, the window pool may hold their worst case instead of a ratio: without a
    prefix cache (0.5.16 on), and in DeepSeek-V4 with one as well (0.5.21 on)."""
    if not options.max_requests or options.chunk <= 0:
        return None
    if options.compressed:
        if options.version < COMPRESSED_CAP_SINCE or options.window_ratio_given:
            return None
    elif options.version < (0, 5, 16) or options.radix_cache:
        return None
    page, drafts = options.page, max(1, options.draft_tokens)
    requests = max(1, options.max_requests // options.dp)
    one = cells.window_tokens + EVICTION_STEP * drafts + page + (2 * drafts if options.speculation else page)
    total = one * requests + 2 * options.chunk + page
    if options.compressed and options.radix_cache:
        total += PREFIX_ENDS * requests * (cells.window_tokens + page)
    return -(-total // page) * page


def _capped(tokens: int, cells: Cells, options: Options) -> int:
    """The user's cap, and the headroom that drafts add to the printed number up to 0.5.9."""
    if options.speculation and (0, 4, 6) <= options.version < (0, 5, 10) and not cells.state and tokens > 0:
        requests = max_requests(tokens, 0, options)
        tokens += requests * (options.draft_steps * options.draft_topk + options.draft_tokens) + 100
    if options.max_tokens is not None:
        tokens = min(tokens, options.max_tokens)
    return _aligned(tokens, options.page)


def max_requests(tokens: int, slots: int, options: Options) -> int:
    """max_running_requests per data-parallel rank."""
    if options.max_requests is not None:
        most = max(1, options.max_requests // (options.dp if options.attention_tp != options.tp else 1))
    else:
        most = min(max(int(tokens / options.context * 512), 2048), 4096)
    if options.version >= (0, 5, 10):
        most = min(most, tokens // 2)
    return min(most, slots // options.slots_per_request) if slots else most


def _aligned(tokens: float, page: int) -> int:
    return int(tokens // page) * page
