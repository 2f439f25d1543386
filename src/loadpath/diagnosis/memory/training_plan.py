"""A training run that was planned: does it fit its GPUs, and what makes it fit."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.planned import Alternative, TrainingNeed
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import show_bytes
from loadpath.core.vocabulary import Certainty
from loadpath.diagnosis.rule import Rule, finding

TIGHT = 0.95
"""Above this share of a card, fragmentation and a longer batch end the run sooner or later."""


def judge(case: Case) -> Iterator[Finding]:
    """More than the card holds: an error with what would do; nearly all of it: a warning."""
    for need in case.all(TrainingNeed):
        if need.needed_bytes <= TIGHT * need.total_bytes:
            continue
        row = "training-does-not-fit" if need.needed_bytes > need.total_bytes else "training-fits-tightly"
        values = {
            "model": need.model,
            "method": need.method,
            "needed": show_bytes(need.needed_bytes),
            "total": show_bytes(need.total_bytes),
            "gpu": need.gpu,
            "largest": need.largest,
            "largest_size": show_bytes(need.largest_bytes),
            "per_parameter": f"{need.bytes_per_parameter:.3g}",
        }
        figures = {"needed_bytes": need.needed_bytes, "total_bytes": need.total_bytes}
        sure: Certainty = "established" if need.exact_bytes > need.total_bytes else "likely"
        remedies = _remedies(need)
        yield finding(row, [need], case=case, values=values, certainty=sure, remedies=remedies, figures=figures)


def _remedies(need: TrainingNeed) -> list[Remedy]:
    """Those that suffice first, the least change of them leading; then those that only help."""
    ranked = sorted(need.alternatives, key=lambda a: (a.bytes > TIGHT * need.total_bytes, -a.bytes))
    return [_remedy(a, need) for a in ranked if a.bytes < need.needed_bytes][:5]


def _remedy(other: Alternative, need: TrainingNeed) -> Remedy:
    return Remedy(
        other.what, other.command, f"{show_bytes(other.bytes)} per GPU instead of {show_bytes(need.needed_bytes)}",
        {"needed_bytes": other.bytes}, suffices=other.bytes <= TIGHT * need.total_bytes,
    )  # fmt: skip


RULES = (Rule(judge, (TrainingNeed,), ("training-does-not-fit", "training-fits-tightly")),)
