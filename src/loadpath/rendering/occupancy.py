"""Occupancy as lines of text: the answer, what limits it, what would let in more."""

from __future__ import annotations

from loadpath.planning.occupancy import Change, Kernel, Limiter, Occupancy, Waves

WORDS: dict[Limiter, str] = {
    "warps": "warps of an SM",
    "blocks": "blocks of an SM",
    "registers": "registers",
    "shared-memory": "shared memory",
}


def lines(kernel: Kernel, found: tuple[Occupancy, ...], changes: tuple[Change, ...], waves: Waves | None) -> list[str]:
    """One capability in full, several as a table."""
    if len(found) > 1:
        return _table(found)
    only = found[0]
    made = [_headline(only, kernel)]
    if only.blocks_per_sm:
        made.append(f"Blocks that each resource allows: {_limits(only)}")
    made += [f"A block takes {only.registers_per_block:,} registers and {only.shared_bytes_per_block:,} bytes of shared "
             "memory as they are given out"]  # fmt: skip
    if waves:
        made.append(_waves(waves))
    for change in changes:
        how = f": {change.command}" if change.command else ""
        made.append(f"To raise it: {change.action}{how} gives {change.warps} warps, {change.occupancy:.0%}")
    made += [f"Note: {note}." for note in only.notes]
    made.append("Note: occupancy hides latency; it is not speed. Registers that spill cost more than warps bring.")
    return made


def _headline(found: Occupancy, kernel: Kernel) -> str:
    if found.refused:
        return f"Compute capability {found.capability}: the kernel does not start: {found.refused}"
    limited = " and ".join(WORDS[name] for name in found.limiters)
    return (
        f"Compute capability {found.capability}: {_count(found.blocks_per_sm, 'block')} of {_count(kernel.warps, 'warp')}, "
        f"{found.warps_per_sm} of {found.warps_most} warps, occupancy {found.occupancy:.0%}, limited by {limited}"
    )


def _limits(found: Occupancy) -> str:
    return ", ".join(f"{WORDS[name]} {blocks}" for name, blocks in found.limits.items())


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _waves(waves: Waves) -> str:
    last = f", the last {waves.last_share:.0%} full" if waves.last_share < 1 else ", all full"
    return (
        f"{waves.grid:,} blocks on {waves.sms} SMs: {waves.blocks_at_once:,} at once, {_count(waves.count, 'wave')}{last}; "
        f"{waves.busy_share:.0%} of the SMs' time is used if blocks take equally long"
    )


def _table(found: tuple[Occupancy, ...]) -> list[str]:
    made = [f"{'capability':<11}{'blocks':>7}{'warps':>10}{'occupancy':>11}  limited by"]
    for one in found:
        why = "does not start" if one.refused else ", ".join(WORDS[name] for name in one.limiters)
        warps = f"{one.warps_per_sm} of {one.warps_most}"
        made.append(f"{one.capability:<11}{one.blocks_per_sm:>7}{warps:>10}{one.occupancy:>11.0%}  {why}")
    made += [f"Does not start: {why}" for why in dict.fromkeys(one.refused for one in found if one.refused)]
    return made
