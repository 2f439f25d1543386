"""What PyTorch's caching allocator counts as allocated for a run of tensors: whole blocks, not bytes asked for.

Rules (c10/cuda/CUDACachingAllocator): sizes are rounded up to 512 bytes. Up to 1 MiB a block is cut from segments of
2 MiB; up to 10 MiB from segments of 20 MiB; above, a segment of its own, rounded up to 2 MiB. The smallest free block
that is large enough is taken and split, but in the larger two classes only if more than 1 MiB is left over: otherwise
the whole block is charged to the tensor.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from loadpath.core.units import MIB

_ROUND = 512
_SMALL, _SMALL_SEGMENT = MIB, 2 * MIB
_LARGE_SHARED, _LARGE_SEGMENT = 10 * MIB, 20 * MIB
_STEP = 2 * MIB
_KEPT_WHOLE = MIB


def counted(sizes: Iterable[int]) -> list[int]:
    """Bytes of the block that each of `sizes` gets, allocated in this order and never freed."""
    small: list[int] = []
    large: list[int] = []
    blocks = []
    for asked in sizes:
        size = -(-asked // _ROUND) * _ROUND
        if size <= _SMALL:
            block, least, free = _SMALL_SEGMENT, _ROUND, small
        else:
            block = _LARGE_SEGMENT if size < _LARGE_SHARED else -(-size // _STEP) * _STEP
            least, free = _KEPT_WHOLE + 1, large
        fitting = bisect_left(free, size)
        if fitting < len(free):
            block = free.pop(fitting)
        if block - size >= least:
            insort(free, block - size)
            block = size
        blocks.append(block)
    return blocks
