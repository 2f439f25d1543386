"""The highest rate that meets an SLO: rates to try, each chosen from what the ones before it showed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from loadpath.core.traffic import Level

CLOSE = 1.08
"""Where the lowest rate that failed is less than this times the highest that held, the search ends."""
MOST_STEPS = 14


def rates_to_try(levels: Sequence[Level], alone: float) -> Iterator[float]:
    """Requests/s to try next; `levels` grows between two of them. Doubles until the SLO breaks, then halves the gap.

    `alone`: seconds of one request by itself, where the search begins: one after the other must be possible.
    """
    rate = _round(1.0 / max(alone, 1e-3))
    for _ in range(MOST_STEPS):
        yield rate
        held = max((level.rate for level in levels if level.rate and level.meets_slo), default=None)
        failed = min((level.rate for level in levels if level.rate and not level.meets_slo), default=None)
        if held and failed:
            if failed <= held * CLOSE:
                return
            rate = _round(math.sqrt(held * failed))
            if rate in (held, failed):
                return
        elif held:
            rate = _round(held * 2)
        elif failed:
            rate = _round(failed / 2)
            if rate < 0.01:
                return


def _round(rate: float) -> float:
    """Three digits: a rate that a person would write."""
    return float(f"{rate:.3g}")
