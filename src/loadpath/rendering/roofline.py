"""Rooflines and the work under them as a chart and as lines of text."""

from __future__ import annotations

from itertools import groupby
from textwrap import fill

from loadpath.core.quantities import show_quantity, show_time
from loadpath.planning.energy import Cap, CapEffect, CappedWork, RunEnergy
from loadpath.planning.roofline import Placement, Roof
from loadpath.rendering.chart import Axis, Chart, Series, letters

ROOM = 8.0
"""How far the chart reaches beyond the outermost point and ridge, as a factor."""
WORK_WORDS = {"decode": "decode", "speculative": "decode with drafts", "compute": "compute-bound work"}


def chart(roofs: tuple[Roof, ...], placed: tuple[Placement, ...]) -> Chart:
    """Log-log: every roof as a line, every piece of work as a letter: where it was measured, else on its roofs."""
    at = [p.intensity_flops_per_byte for p in placed if p.intensity_flops_per_byte]
    anchors = at + [roof.ridge_flops_per_byte for roof in roofs]
    low, high = min(anchors) / ROOM, max(anchors) * ROOM
    lines = [Series(name=roof.name, points=_line(roof, low, high)) for roof in roofs]
    dots = [
        Series(name=name, points=spots, mark="letters")
        for name, group in groupby(placed, lambda p: p.work)
        if (spots := tuple(dict.fromkeys(spot for p in group if (spot := _spot(p)))))
    ]
    return Chart(
        title="Roofline",
        x=Axis(label="intensity, FLOP/byte", log=True),
        y=Axis(label="attainable, FLOP/s", log=True),
        series=(*lines, *dots),
    )


def roof_lines(roofs: tuple[Roof, ...]) -> list[str]:
    """The roofs in words: both peaks, the ridge, and once where the figures come from."""
    made: list[str] = []
    for whence, group in groupby(roofs, _whence):
        made += [
            f"{roof.name}: peak {_flops(roof.peak_flops_per_s)}, bandwidth {_bandwidth(roof.bandwidth_bytes_per_s)}, "
            f"ridge point {_intensity(roof.ridge_flops_per_byte)}"
            for roof in group
        ]
        if whence:
            made.append(f"  from {whence}")
    return made


def _whence(roof: Roof) -> str:
    return f"{roof.source}; confidence {roof.confidence}" if roof.source else ""


def work_lines(roofs: tuple[Roof, ...], placed: tuple[Placement, ...]) -> list[str]:
    """Every piece of work under every roof, with its letter in the chart."""
    letter_of = {series.name: letter for letter, series in letters(chart(roofs, placed))}
    made: list[str] = []
    for name, group in groupby(placed, lambda p: p.work):
        own = tuple(group)
        first = own[0]
        at = "moves no bytes" if first.intensity_flops_per_byte is None else _intensity(first.intensity_flops_per_byte)
        begin = f"{letter_of[name]} " if name in letter_of else ""
        made.append(
            f"{begin}{name}: {show_quantity(first.flops, 'FLOP', top='T')}, {show_quantity(first.bytes, 'B')}, {at}"
        )
        for placement in own:
            if len(roofs) > 1:
                made.append(f"  under {placement.roof}")
            made += [f"{'    ' if len(roofs) > 1 else '  '}{line}" for line in _reach(placement)]
    return made


def lines(
    roofs: tuple[Roof, ...],
    placed: tuple[Placement, ...],
    spent: dict[str, RunEnergy],
    limit: Cap | None,
    capped: tuple[CappedWork, ...],
    notes: tuple[str, ...],
) -> list[str]:
    """Everything in words: the work first, then its roofs, energy, the power limit, notes."""
    made = work_lines(roofs, placed)
    made += roof_lines(roofs)
    measured = {p.work for p in placed if p.measured_seconds is not None}
    made += [_energy_line(name, one, name in measured) for name, one in spent.items()]
    if limit:
        made += _cap_lines(limit, capped)
    return made + [f"Note: {note}." for note in notes]


def wrapped(lines: list[str], width: int) -> str:
    """The lines, folded at the width under their own indent."""
    folded = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        folded.append(fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
    return "\n".join(folded)


def _energy_line(name: str, made: RunEnergy, measured: bool) -> str:
    """What one run of the work costs."""
    spent = show_quantity(made.joules_per_run, "J", digits=3)
    if made.joules_per_token and made.tokens_per_kwh:
        token = show_quantity(made.joules_per_token, "J/token", digits=3)
        spent += f" a run, {token}, {show_quantity(made.tokens_per_kwh, 'tokens/kWh', top='')},"
    when = "in the measured time" if measured else "at its floor"
    whose = "as given" if made.basis == "given" else "the board's limit: assumed"
    return f"Energy of {name}: {spent} {when} and {made.watts:,.0f} W ({whose})"


def _cap_lines(cap: Cap, capped: tuple[CappedWork, ...]) -> list[str]:
    """What a power limit was measured to do at that share of the full one, and to this work."""
    made = [
        f"Power limit {cap.watts:,.0f} W, {cap.share:.0%} of {cap.full_watts:,.0f} W, by published runs of other cards:"
    ]
    if cap.refused:
        made.append(f"  {cap.refused}")
    if not cap.effects:
        made.append("  nobody published a run so low; memory clocks fall there too, and every speed with them")
    made += [f"  {_effect_line(effect)}" for effect in cap.effects]
    return made + [f"  {_capped_line(one)}" for one in capped]


def _capped_line(one: CappedWork) -> str:
    least, most = show_time(one.least_seconds), show_time(one.most_seconds)
    then = most if least == most else f"{least} to {most}"
    return (
        f"{one.work}: {show_time(one.seconds)} becomes {then}; {show_quantity(one.most_joules, 'J', digits=3)} a run instead "
        f"of {show_quantity(one.joules, 'J', digits=3)}, if each limit is drawn in full"
    )


def _effect_line(effect: CapEffect) -> str:
    least, most = f"{effect.least:.0%}", f"{effect.most:.0%}"
    kept = most if least == most else f"{least} to {most}"
    return f"{WORK_WORDS[effect.work]} kept {kept} of its speed ({', '.join(effect.cards)})"


def _reach(placement: Placement) -> list[str]:
    share = placement.share_of_peak
    of_peak = "the peak" if share > 0.9995 else f"{share:.1%} of peak" if share >= 0.001 else "below 0.1% of peak"
    made = [
        f"at most {_flops(placement.attainable_flops_per_s)} ({of_peak}), {placement.bound}",
        f"no faster than {show_time(placement.floor_seconds)}: memory {show_time(placement.memory_seconds)}, "
        f"compute {show_time(placement.compute_seconds)}",
    ]
    return [*made, _measured(placement)] if placement.measured_seconds is not None else made


def _measured(placement: Placement) -> str:
    seconds = show_time(placement.measured_seconds or 0.0)
    share = placement.share_of_roof or 0.0
    if share > 1:
        return f"measured {seconds}: faster than the roof allows, so FLOP, bytes or peaks are not those of this run"
    rates = f"{_flops(placement.achieved_flops_per_s or 0.0)} and {_bandwidth(placement.achieved_bytes_per_s or 0.0)}"
    return f"measured {seconds}: {rates}, {share:.0%} of the roof"


def _spot(placement: Placement) -> tuple[float, float] | None:
    """Where the work is drawn; None without bytes or operations."""
    if not placement.intensity_flops_per_byte:
        return None
    return placement.intensity_flops_per_byte, placement.achieved_flops_per_s or placement.attainable_flops_per_s


def _line(roof: Roof, low: float, high: float) -> tuple[tuple[float, float], ...]:
    ridge = roof.ridge_flops_per_byte
    return ((low, low * roof.bandwidth_bytes_per_s), (ridge, roof.peak_flops_per_s), (high, roof.peak_flops_per_s))


def _flops(value: float) -> str:
    return show_quantity(value, "FLOP/s", top="T")


def _bandwidth(value: float) -> str:
    return show_quantity(value, "B/s", top="T")


def _intensity(value: float) -> str:
    return show_quantity(value, "FLOP/byte", top="")
