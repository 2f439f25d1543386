"""When a server was warm: the change-point in the latencies of successive requests of one shape.

Latencies are compared as logarithms, so that a change is a ratio; outliers are clipped, so that one slow request is not a
change. The noise is taken from the differences of neighbours, which a change of level does not inflate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median

import msgspec

LEAST = 8
"""Requests of a shape below which only the first can be told apart."""
COLD_RATIO = 1.5
"""The first request is cold where it took this many times the median of the next ones."""
SHIFT = 1.15
"""A change of level by less is none."""
DRIFT = 1.25
"""From the first third to the last: more is a drift."""
_CLIP = 6.0  # deviations
_EDGE = 3  # requests on each side of a change, at least
_TAIL = 10  # after a change at least this part of all: the last few requests meet a server that empties
_LEAST_NOISE = 0.01  # as a share of the value


class Steadiness(msgspec.Struct, frozen=True):
    """`start`: index of the first steady value. `steady`: False where none of the tail is."""

    start: int
    steady: bool
    why: str = ""


def steady_start(values: Sequence[float]) -> Steadiness:
    """Where `values` (seconds, in the order of sending) become steady."""
    logs = [math.log(max(v, 1e-9)) for v in values]
    if len(logs) < LEAST:
        ratio = COLD_RATIO if len(logs) > 4 else 2 * COLD_RATIO  # beside two or three others only what is glaring
        cold = len(logs) > 1 and logs[0] - median(logs[1:]) > math.log(ratio)
        return Steadiness(int(cold), True, "too few requests of this shape to tell more than the first one")
    cold = logs[0] - median(logs[1 : 1 + 2 * LEAST]) > math.log(COLD_RATIO)
    begin = start = int(cold)
    while (found := _change(logs[start:])) is not None:
        start += found
    first = start  # the end of the first level, which the last change may have spanned
    while (found := _change(logs[begin:first])) is not None:
        first = begin + found
    if first < start and _same_level(logs[begin:first], logs[start:]):
        # Slow in the middle and as before after it: that happened to a warm server, and has to be counted.
        return Steadiness(begin, True, f"requests {first + 1} to {start} were off the level of the others")
    if start - begin > (len(logs) - begin) / 2:
        return Steadiness(begin, False, f"the level still changed at request {start + 1} of {len(logs)}")
    if drift := _drift(logs[start:]):
        return Steadiness(start, False, drift)
    return Steadiness(start, True)


def _same_level(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether a stretch long enough to be sure lies at the level of another."""
    return len(before) >= LEAST and abs(median(before) - median(after)) < math.log(SHIFT)


def _noise(logs: Sequence[float]) -> float:
    """Deviation of a value around its own level, by the median step between neighbours."""
    steps = [abs(b - a) for a, b in pairwise(logs)]
    return max(_LEAST_NOISE, median(steps) / (0.6745 * math.sqrt(2))) if steps else _LEAST_NOISE


def _change(logs: Sequence[float]) -> int | None:
    """The index at which two levels explain the values best, where they do so much better than one."""
    count = len(logs)
    if count < LEAST:
        return None
    noise, middle = _noise(logs), median(logs)
    wide = _CLIP * max(noise, 1.4826 * median(abs(v - middle) for v in logs))
    clipped = [min(max(v, middle - wide), middle + wide) for v in logs]
    sums = [0.0, *accumulate(clipped)]
    whole = sums[-1]

    def gain(k: int) -> float:
        """Squares saved by a change at k: n1 n2 / n times the squared distance of the two means."""
        left, right = sums[k] / k, (whole - sums[k]) / (count - k)
        return k * (count - k) / count * (left - right) ** 2

    best = max(range(_EDGE, count - max(_EDGE, count // _TAIL) + 1), key=gain)
    # The largest of many chances: about 2 log log n under no change; neighbours share batches, so more is asked.
    if gain(best) / noise**2 < 12 + 4 * math.log(count):
        return None
    return best if abs(median(logs[:best]) - median(logs[best:])) > math.log(SHIFT) else None


def _drift(logs: Sequence[float]) -> str:
    """In words, where the last third lies clearly off the first; "" where it does not."""
    third = len(logs) // 3
    if third < LEAST // 2:
        return ""
    first, last = median(logs[:third]), median(logs[-third:])
    doubt = 1.2533 * _noise(logs) * math.sqrt(2 / third)
    if abs(last - first) < max(math.log(DRIFT), 4 * doubt):
        return ""
    how = "rose" if last > first else "fell"
    return f"it {how} by a factor of {math.exp(abs(last - first)):.2f} from the first third to the last"
