"""What the figures of an out-of-memory message say: who holds the card, and whether the pool is in pieces."""

from __future__ import annotations

from typing import Literal

import msgspec

from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.units import GIB, MIB

Shortage = Literal["other-process", "unseen-holder", "fragmented", "true"]
OTHER_LEAST, OTHER_SHARE = 1 * GIB, 0.06  # below, another process is company, not the cause
UNSEEN_LEAST, UNSEEN_SHARE = 4 * GIB, 0.12  # context, NCCL, graphs and libraries explain what lies below
PIECES_LEAST, PIECES_SHARE = 256 * MIB, 0.015  # of the card: less in pieces is every allocator's rounding


class Holders(msgspec.Struct, frozen=True):
    """Who holds the GPU, in bytes. `own`: this process; `others`: (pid, bytes); `unnamed`: what nobody accounts for."""

    own: int | None = None
    own_pid: int | None = None
    others: tuple[tuple[int, int], ...] = ()
    unnamed: int | None = None

    @property
    def other_bytes(self) -> int:
        return sum(size for _, size in self.others)


def holders(oom: OutOfMemory) -> Holders:
    """This process and the others. Inside a container NVML names the own process by its pid on the host, as if it were
    another one: the listed process that holds PyTorch's own figure (and little more) is this one."""
    pool = None if oom.allocated_bytes is None else oom.allocated_bytes + (oom.reserved_unallocated_bytes or 0)
    own, own_pid, others = oom.own_bytes, None, oom.others
    if own is None and others and pool == 0:
        own = 0  # PyTorch has allocated nothing: whose the listed memory is, these figures do not tell
    elif own is None and others and pool is not None:
        like = [entry for entry in others if entry[1] >= 0.98 * pool]
        if like:
            own_pid, own = min(like, key=lambda entry: entry[1])
            others = tuple(entry for entry in others if entry[0] != own_pid)
    elif own is None and others and pool is None:
        # A cut message: nothing tells whether the process that it names is this one.
        return Holders()
    own = own if own is not None else pool
    unnamed = None
    if oom.allocator == "cudaMallocAsync":
        return Holders(own, own_pid, others, None)  # its pool keeps freed memory that no figure of the message counts
    if own is not None and oom.total_bytes is not None and oom.free_bytes is not None:
        unnamed = max(0, oom.total_bytes - oom.free_bytes - own - sum(size for _, size in others))
    return Holders(own, own_pid, others, unnamed)


def shortage(oom: OutOfMemory) -> Shortage:
    """Which of the four kinds of shortage the message's figures show."""
    who = holders(oom)
    total = oom.total_bytes or 0
    missing = (oom.requested_bytes or 0) - (oom.free_bytes or 0)
    if who.other_bytes > max(OTHER_LEAST, OTHER_SHARE * total, missing):
        return "other-process"
    if oom.limit_bytes is not None and oom.limit_bytes < total:
        return "true"  # the process's own limit ended it, whoever holds the rest
    if who.unnamed is not None and who.unnamed > max(UNSEEN_LEAST, UNSEEN_SHARE * total, missing):
        return "unseen-holder"
    idle = oom.reserved_unallocated_bytes
    if (
        idle is not None
        and oom.requested_bytes
        and idle >= max(oom.requested_bytes, PIECES_LEAST, PIECES_SHARE * total)
    ):
        return "fragmented"
    return "true"
