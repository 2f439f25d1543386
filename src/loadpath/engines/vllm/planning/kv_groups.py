"""How layers share the pool: groups of layers, one page size, blocks (shared facts, vllm.md C.6, hybrid grouping)."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, lcm

import msgspec

from loadpath.engines.vllm.planning import releases
from loadpath.engines.vllm.planning.kv_specs import KvSpec, Specs
from loadpath.engines.vllm.planning.options import Options

PACKED_BLOCK = 256
"""Tokens of a block where caches hold one entry for several tokens."""
LATENT_ALIGN, ALIGN = 64, 16
"""Tokens that a block of latent and of plain attention is a multiple of, where recurrent layers raise it."""

LARGEST_KERNEL_BLOCK = 256
"""A greater block size that the user set is taken as it is: kernels see it in parts."""


class Group(msgspec.Struct, frozen=True):
    """Layers with one block table. `block_tokens`: tokens of the text in one block; 0 for states."""

    spec: KvSpec
    count: int
    block_tokens: int


class Layout(msgspec.Struct, frozen=True):
    """The pool: bytes of one block over all layers of a group, and who claims blocks. `block_tokens`: tokens of the
    smallest block, 0: a block is a whole request (states only). `padding`: share of a state's
    page that is padding; `state_block`: the attention block was raised to fit a state."""

    block_bytes: int
    groups: tuple[Group, ...]
    block_tokens: int
    padding: float = 0.0
    state_block: bool = False
    padded_layers: int = 0
    beside: Specs = ()
    """Windows and states that a packed pool holds for each request beside its blocks."""

    @property
    def group_count(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def plain(self) -> bool:
        """One group of full attention: a token has one price."""
        return self.group_count == 1 and self.groups[0].spec.kind == "full" and not self.beside


def layout(found: Specs, options: Options) -> Layout | None:
    """The pool's layout for these cache specs; None for a model that keeps no cache."""
    return _layout(
        found, options.version, options.block_size, options.block_size_set, options.prefix_caching, options.v0
    )


@lru_cache(maxsize=4096)
def _layout(
    found: Specs, version: tuple[int, ...], block: int, block_set: bool, prefix_caching: bool, v0: bool
) -> Layout | None:
    found = tuple((spec, count) for spec, count in found if count)
    if not found:
        return None
    states = [spec for spec, _ in found if spec.kind == "state"]
    if _uniform(found, version) or v0 or version < releases.HYBRID_GROUPS:
        return _one_group(found, block)
    if not states and all(spec.every > 1 or spec.latent for spec, _ in found) and any(s.every > 1 for s, _ in found):
        return _packed(found, block)
    raised = _state_block(found, states, block, version) if states else block
    return _grouped(found, raised, version, state_block=bool(states) and raised != block)


def _uniform(found: Specs, version: tuple[int, ...]) -> bool:
    """One type of cache: all full attention, or one window, one chunk; of one width before 0.11."""
    kinds = {(spec.kind, spec.span) for spec, _ in found}
    apart = any(spec.tag in ("pool", "draft") for spec, _ in found) or any(spec.every > 1 for spec, _ in found)
    return len(kinds) == 1 and not apart and (len(found) == 1 or version >= releases.UNIFORM_TYPE)


def _one_group(found: Specs, block: int) -> Layout:
    """All layers in one group; a block holds a page of each layer, whatever its width. States lie outside in V0."""
    grows = [(spec, count) for spec, count in found if spec.kind != "state"]
    if not grows:
        page = sum(spec.page_bytes * count for spec, count in found)
        return Layout(page, (Group(found[0][0], 1, 0),), 0)
    size = sum(spec.token_bytes * count for spec, count in grows) * block
    widest = max((spec for spec, _ in grows), key=lambda spec: (spec.kind == "full", spec.token_bytes))
    return Layout(size, (Group(widest, 1, block),), block)


def _state_block(found: Specs, states: list[KvSpec], block: int, version: tuple[int, ...]) -> int:
    """Tokens of an attention block whose page holds the largest state (two block sizes must share one pool)."""
    grows = [spec for spec, _ in found if spec.kind != "state"]
    if not grows:
        return block
    widest = max(grows, key=lambda spec: spec.token_bytes)
    least = (128 if version >= (0, 20) else LATENT_ALIGN) if widest.latent else ALIGN
    align = max(least, block) if block <= LARGEST_KERNEL_BLOCK else least
    state = max(spec.page_bytes for spec in states)
    return max(block, align * ceil(state / (align * widest.token_bytes)))


def _grouped(found: Specs, block: int, version: tuple[int, ...], state_block: bool) -> Layout:
    grows = [spec for spec, _ in found if spec.kind != "state"]
    states = [spec.page_bytes for spec, _ in found if spec.kind == "state"]
    page = max((spec.token_bytes for spec in grows), default=0) * block or max(states)
    least, most = min(count for _, count in found), max(count for _, count in found)
    slack = 1.5 if version >= (0, 18) else 1.25 if version >= releases.PAGE_UNIFICATION else 1.0
    size = most if most < slack * least else least
    groups = tuple(
        Group(spec, ceil(count / size), page // spec.token_bytes if spec.token_bytes else 0) for spec, count in found
    )
    tokens = [group.block_tokens for group in groups if group.block_tokens]
    return Layout(
        block_bytes=page * size,
        groups=groups,
        block_tokens=min(tokens, default=block),
        padding=page / max(states) - 1 if states else 0.0,
        state_block=state_block,
        padded_layers=sum(-count % size for _, count in found),
    )


def _packed(found: Specs, block: int) -> Layout:
    """Caches that hold one entry for several tokens: blocks of one span of text, pages of different size side by side."""
    span = lcm(*(spec.every for spec, _ in found), max(block, PACKED_BLOCK))
    grows = [(spec, count) for spec, count in found if spec.kind == "full"]
    size = sum(spec.token_bytes * count * span // spec.every for spec, count in grows)
    local = tuple((spec, count) for spec, count in found if spec.kind == "sliding")
    return Layout(size, (Group(grows[0][0], 1, span),), span, beside=local)
