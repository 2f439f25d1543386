"""Numbers of tokens as a person writes them: fixed, a range, or a distribution."""

from __future__ import annotations

import math
from random import Random
from typing import Literal

import msgspec

Shape = Literal["fixed", "uniform", "normal", "lognormal"]


class Lengths(msgspec.Struct, frozen=True):
    """`first` and `second`: the value; least and most; mean and deviation; median and sigma of the logarithm."""

    shape: Shape
    first: float
    second: float = 0.0

    def draw(self, random: Random) -> int:
        """One length, at least 1; the tails of a distribution are cut at 8 times its middle."""
        match self.shape:
            case "fixed":
                value = self.first
            case "uniform":
                return random.randint(int(self.first), int(self.second))
            case "normal":
                value = random.gauss(self.first, self.second)
            case "lognormal":
                value = random.lognormvariate(math.log(self.first), self.second)
        return max(1, min(round(value), round(8 * self.first)))

    @property
    def middle(self) -> float:
        return (self.first + self.second) / 2 if self.shape == "uniform" else self.first


def lengths_of(text: str) -> Lengths:
    """`1024`, `128:2048` (uniform), `normal:1024:200`, `lognormal:512:0.6`. Raises ValueError with what is expected."""
    words = text.strip().split(":")
    try:
        if words[0] in ("normal", "lognormal") and len(words) == 3:
            made = Lengths("normal" if words[0] == "normal" else "lognormal", float(words[1]), float(words[2]))
        elif words[0] == "uniform" and len(words) == 3:
            made = Lengths("uniform", int(words[1]), int(words[2]))
        elif len(words) == 2:
            made = Lengths("uniform", int(words[0]), int(words[1]))
        elif len(words) == 1:
            made = Lengths("fixed", int(words[0]))
        else:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r}: write 1024, 128:2048, normal:1024:200 or lognormal:512:0.6") from None
    if made.first < 1 or made.second < 0 or (made.shape == "uniform" and made.second < made.first):
        raise ValueError(f"{text!r}: lengths begin at 1, and the least comes first")
    return made
