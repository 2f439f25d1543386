"""PyTorch's own refusal, predicted: weights that are more than a card has free stop the load at some tensor."""

from __future__ import annotations

from loadpath.core.units import GIB, MIB
from loadpath.planning.deployment import Card

PARTS = 4
"""Matrices of a layer that are allocated one by one: merged query-key-value, output, merged gate-up, down."""


def out_of_memory(card: Card, free: int, weights: int, layers: int, index: int = 0) -> str:
    """PyTorch's message where `weights` bytes in `layers` layers are loaded into `free` bytes of a card: the tensor that
    finds no room is taken to be of the average size."""
    size = max(weights // (max(layers, 1) * PARTS) // (2 * MIB) * 2 * MIB, 2 * MIB)
    left = free % size
    held = free - left
    beside = card.total_bytes - free
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size / MIB:.2f} MiB. GPU {index} has a total capacity "
        f"of {card.total_bytes / GIB:.2f} GiB of which {left / MIB:.2f} MiB is free. Including non-PyTorch memory, this "
        f"process has {(held + beside) / GIB:.2f} GiB memory in use. Of the allocated memory {held / GIB:.2f} GiB is "
        "allocated by PyTorch, and 0.00 MiB is reserved by PyTorch but unallocated."
    )
