"""How many blocks and warps of a kernel an SM holds at once, what limits them, and what would let in more.

The arithmetic of NVIDIA's occupancy calculator: registers are given to whole warps, shared memory to whole blocks, each in
its unit. Occupancy is resident warps over the most that the SM holds; it bounds how much latency can be hidden, not speed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from loadpath.knowledge.sm import (
    BLOCK_THREADS,
    DEFAULT_BLOCK_SHARED,
    PARTITIONS,
    REGISTERS,
    THREAD_REGISTERS,
    WARP,
    WARP_REGISTER_UNIT,
    Sm,
)

USUAL_BLOCKS = (64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Block sizes that are worth advising; of equally good ones the nearest to 256 is taken."""
Limiter = Literal["warps", "blocks", "registers", "shared-memory"]


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """What one launch asks for. `registers` per thread as ptxas prints them, shared memory per block in bytes."""

    threads: int
    registers: int
    static_shared_bytes: int = 0
    dynamic_shared_bytes: int = 0

    @property
    def warps(self) -> int:
        return -(-self.threads // WARP)

    @property
    def shared_bytes(self) -> int:
        return self.static_shared_bytes + self.dynamic_shared_bytes


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the kernel that lets in more warps. `command`: how it is asked of the compiler, "" where it is code."""

    action: str
    warps: int
    occupancy: float
    command: str = ""


class Occupancy(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks and warps that an SM holds. `refused`: why the launch fails (then nothing is resident)."""

    capability: str
    blocks_per_sm: int
    warps_per_sm: int
    warps_most: int
    occupancy: float
    limits: dict[Limiter, int]
    """Blocks that each resource alone would let in; without those that the kernel does not use."""
    limiters: tuple[Limiter, ...]
    registers_per_block: int
    """As given out: in units, for whole warps."""
    shared_bytes_per_block: int
    """As given out: in units, with what the system takes."""
    refused: str = ""
    notes: tuple[str, ...] = ()


class Waves(msgspec.Struct, frozen=True, kw_only=True):
    """A grid on a card: `count` rounds of `blocks_at_once`, the last one `last_share` full.

    `busy_share`: part of the SMs' time that blocks use, if all take equally long.
    """

    grid: int
    sms: int
    blocks_at_once: int
    count: int
    last_share: float
    busy_share: float


def occupancy(kernel: Kernel, sm: Sm) -> Occupancy:
    """What the SM holds of the kernel."""
    limits = _limits(kernel, sm)
    refused = refusal(kernel, sm)
    blocks = 0 if refused else min(limits.values())
    warps = blocks * kernel.warps
    return Occupancy(
        capability=sm.capability,
        blocks_per_sm=blocks,
        warps_per_sm=warps,
        warps_most=sm.warps,
        occupancy=warps / sm.warps,
        limits=limits,
        limiters=tuple(name for name, most in limits.items() if most == blocks) if blocks else (),
        registers_per_block=_warp_registers(kernel) * kernel.warps,
        shared_bytes_per_block=_block_shared(kernel, sm),
        refused=refused,
        notes=_notes(kernel),
    )


def refusal(kernel: Kernel, sm: Sm) -> str:
    """Why the driver refuses the launch; "" where it does not. Registers are checked as if all partitions took part."""
    assumed = _warp_registers(kernel) * _up(kernel.warps, PARTITIONS)
    if kernel.threads > BLOCK_THREADS:
        return f"a block of {kernel.threads:,} threads: the most is {BLOCK_THREADS:,}"
    if kernel.registers > THREAD_REGISTERS:
        return f"{kernel.registers} registers per thread: the most is {THREAD_REGISTERS}"
    if assumed > REGISTERS:
        return (
            f"a block needs {assumed:,} registers ({kernel.registers} x {kernel.threads:,} threads, in units), an SM has "
            f"{REGISTERS:,}: the launch fails with error 701, too many resources requested"
        )
    if kernel.shared_bytes > sm.block_shared_bytes:
        return (
            f"a block asks for {kernel.shared_bytes:,} bytes of shared memory: the most on {sm.capability} is "
            f"{sm.block_shared_bytes:,} ({sm.block_shared_kib} KiB)"
        )
    if kernel.static_shared_bytes > DEFAULT_BLOCK_SHARED:
        return f"{kernel.static_shared_bytes:,} bytes of static shared memory: above 48 KiB it must be dynamic"
    return ""


def changes(kernel: Kernel, sm: Sm) -> tuple[Change, ...]:
    """What would let in more warps, the greatest gain first: what the limiters hold back, and other block sizes."""
    now = occupancy(kernel, sm)
    found = [_change(other, text, command, sm) for other, text, command in _leaner(kernel, sm, now)]
    found += [_change(other, text, "", sm) for other, text in _other_blocks(kernel, sm)]
    better = [change for change in found if change.warps > now.warps_per_sm]
    best: dict[str, Change] = {}
    for change in better:
        best.setdefault(change.action, change)
    return tuple(sorted(best.values(), key=lambda change: -change.warps))


def waves(found: Occupancy, grid: int, sms: int) -> Waves:
    """How a grid of so many blocks passes a card of so many SMs, each of which holds `found.blocks_per_sm`."""
    at_once = found.blocks_per_sm * sms
    count = -(-grid // at_once)
    return Waves(
        grid=grid,
        sms=sms,
        blocks_at_once=at_once,
        count=count,
        last_share=(grid - (count - 1) * at_once) / at_once,
        busy_share=grid / (count * at_once),
    )


def fitting_registers(kernel: Kernel, blocks: int) -> int:
    """Most registers per thread with which so many blocks fit an SM; 0: none."""
    partition_warps = -(-blocks * kernel.warps // PARTITIONS)
    per_warp = REGISTERS // PARTITIONS // partition_warps // WARP_REGISTER_UNIT * WARP_REGISTER_UNIT
    return min(THREAD_REGISTERS, per_warp // WARP)


def fitting_shared(blocks: int, sm: Sm) -> int:
    """Most bytes of shared memory per block, static and dynamic, with which so many blocks fit an SM; below 0: none."""
    unit = sm.shared_unit_bytes
    return min(sm.shared_bytes // blocks // unit * unit - sm.reserved_bytes, sm.block_shared_bytes)


def _limits(kernel: Kernel, sm: Sm) -> dict[Limiter, int]:
    made: dict[Limiter, int] = {"warps": sm.warps // kernel.warps, "blocks": sm.blocks}
    if per_warp := _warp_registers(kernel):
        made["registers"] = REGISTERS // PARTITIONS // per_warp * PARTITIONS // kernel.warps
    if shared := _block_shared(kernel, sm):
        made["shared-memory"] = sm.shared_bytes // shared
    return made


def _warp_registers(kernel: Kernel) -> int:
    return _up(kernel.registers * WARP, WARP_REGISTER_UNIT)


def _block_shared(kernel: Kernel, sm: Sm) -> int:
    return _up(kernel.shared_bytes + sm.reserved_bytes, sm.shared_unit_bytes)


def _notes(kernel: Kernel) -> tuple[str, ...]:
    notes = []
    if kernel.threads % WARP:
        idle = kernel.warps * WARP - kernel.threads
        notes.append(f"{kernel.threads} threads are not whole warps: {idle} lanes of the last warp never work")
    if kernel.shared_bytes > DEFAULT_BLOCK_SHARED and kernel.dynamic_shared_bytes:
        notes.append(
            "above 48 KiB the kernel must opt in: cudaFuncSetAttribute(…, cudaFuncAttributeMaxDynamicSharedMemorySize, …)"
        )
    return tuple(notes)


def _leaner(kernel: Kernel, sm: Sm, now: Occupancy) -> list[tuple[Kernel, str, str]]:
    """The same block with fewer registers, less shared memory, or both where both hold it back."""
    target = now.blocks_per_sm + 1
    if "warps" in now.limiters or "blocks" in now.limiters:
        return []
    registers, shared = fitting_registers(kernel, target), fitting_shared(target, sm)
    fewer = msgspec.structs.replace(kernel, registers=min(kernel.registers, registers))
    spare = max(0, shared - kernel.static_shared_bytes)
    less = msgspec.structs.replace(kernel, dynamic_shared_bytes=min(kernel.dynamic_shared_bytes, spare))
    both = msgspec.structs.replace(fewer, dynamic_shared_bytes=less.dynamic_shared_bytes)
    words = f"at most {registers} registers per thread (now {kernel.registers})"
    bounds = f"__launch_bounds__({kernel.threads}, {target}) or nvcc -maxrregcount {registers}"
    memory = f"at most {max(0, shared):,} bytes of shared memory per block (now {kernel.shared_bytes:,})"
    made = []
    if registers >= 16 and fewer != kernel:
        made.append((fewer, words, bounds))
    if shared > 0 and less != kernel:
        made.append((less, memory, ""))
    if len(made) == 2:
        made.append((both, f"{words} and {memory}", bounds))
    return made


def _other_blocks(kernel: Kernel, sm: Sm) -> list[tuple[Kernel, str]]:
    """The usual block size that lets in the most warps, with the same registers per thread.

    Only without shared memory: with it, another block size needs another amount, which only the kernel's author knows.
    """
    if kernel.shared_bytes:
        return []
    sizes = [msgspec.structs.replace(kernel, threads=n) for n in USUAL_BLOCKS]
    best = max(sizes, key=lambda other: (occupancy(other, sm).warps_per_sm, -abs(other.threads - 256)))
    return [(best, f"blocks of {best.threads} threads (now {kernel.threads})")]


def _change(kernel: Kernel, action: str, command: str, sm: Sm) -> Change:
    then = occupancy(kernel, sm)
    return Change(action=action, command=command, warps=then.warps_per_sm, occupancy=then.occupancy)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
