"""When an open loop sends: the seconds of each request from the load's start."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from loadpath.core.traffic import Arrivals


def arrivals(kind: Arrivals, rate: float, seed: int, burstiness: float = 1.0) -> Iterator[float]:
    """Endless. `rate`: requests a second, on average. `burstiness`: shape of gamma gaps; 1 is Poisson, below 1 burstier."""
    random = Random(seed)
    if kind == "constant":
        number = 0
        while True:
            yield number / rate
            number += 1
    now = 0.0
    while True:
        yield now
        now += (
            random.expovariate(rate) if kind == "poisson" else random.gammavariate(burstiness, 1 / (rate * burstiness))
        )
