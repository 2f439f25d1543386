"""Work, traffic and rates as people write them: `60T`, `989 TFLOP/s`, `27.31 GiB`, `1792 GB/s`, `400 W`.

Prefixes are powers of ten (k, M, G, T, P, E), powers of two where an `i` follows (KiB, MiB, GiB, TiB).
"""

from __future__ import annotations

import re
from typing import Literal

Unit = Literal["FLOP", "FLOP/s", "B", "B/s", "W", "s"]

PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18,
            "ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40, "pi": 2.0**50}  # fmt: skip
SMALL = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0}
"""Prefixes of seconds: there `m` is a thousandth."""
SPELLINGS: dict[Unit, tuple[str, ...]] = {
    "FLOP": ("flop", "flops", "op", "ops", ""),
    "FLOP/s": ("flop/s", "flops/s", "flops", "op/s", "ops", "ops/s", ""),
    "B": ("b", "byte", "bytes", ""),
    "B/s": ("b/s", "byte/s", "bytes/s", "bps", ""),
    "W": ("w", "watt", "watts", ""),
    "s": ("s", "sec", "seconds", ""),
}
NAMES: dict[Unit, tuple[str, str]] = {
    "FLOP": ("a number of operations", "60T, 60 TFLOP or 6e13"),
    "FLOP/s": ("a rate of operations", "989T, 989 TFLOP/s or 9.89e14"),
    "B": ("a number of bytes", "6T, 6 TB, 27.31 GiB or 6e12"),
    "B/s": ("a bandwidth", "4T, 1792 GB/s or 4e12 (bytes, not bits)"),
    "W": ("a power in watts", "400, 400W or 0.4kW"),
    "s": ("a time", "0.012, 12ms or 12e-3"),
}
_SHOWN = (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_NUMBER = re.compile(r"\s*([+-]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$")


class BadQuantity(ValueError):
    """Text that is no quantity of the unit asked for; the message says how to write one."""


def parse_quantity(text: str, unit: Unit, *, zero: bool = False) -> float:
    """The value in `unit` (bytes, FLOP, seconds, …) of what somebody wrote; positive, or 0 where `zero` allows it."""
    match = _NUMBER.match(text)
    factor = _factor(match[2], unit) if match else None
    if match is None or factor is None:
        what, example = NAMES[unit]
        bits = " Bits are not bytes: divide by 8." if "bit" in text.lower() else ""
        raise BadQuantity(f"{text!r} is not {what}: write it like {example}.{bits}")
    value = float(match[1].replace(",", "").replace("_", "")) * factor
    if value < 0 or (value == 0 and not zero) or value == float("inf"):
        raise BadQuantity(f"{text!r} is not {NAMES[unit][0]} above 0")
    return value


def _factor(suffix: str, unit: Unit) -> float | None:
    """What a suffix (`TFLOP/s`, `Ti`, `ms`) multiplies by; None where it does not belong to the unit."""
    prefixes = SMALL if unit == "s" else PREFIXES
    lowered = suffix.lower().replace(" ", "")
    for spelling in SPELLINGS[unit]:
        if lowered.endswith(spelling):
            factor = prefixes.get(lowered[: len(lowered) - len(spelling)])
            if factor is not None:
                return factor
    return None


def show_quantity(value: float, unit: str, digits: int = 4, *, top: str = "E") -> str:
    """`"40 TFLOP/s"`, `"1.792 TB/s"`, `"22.5 FLOP/byte"`: the prefix that fits, so many significant digits.

    `top`: the greatest prefix (`"T"`: 1,979 TFLOP/s as datasheets have it; `""`: none).
    """
    for prefix, factor in _SHOWN[_SHOWN.index(next(p for p in _SHOWN if p[0] == top)) :]:
        if abs(value) >= factor * (1 - 0.5 * 10**-digits):
            return f"{_plain(value / factor, digits)} {prefix}{unit}"
    return f"{_plain(value, digits)} {unit}"


def show_time(seconds: float, digits: int = 3) -> str:
    """`"16.4 ms"`, `"730 µs"`, `"1.5 s"`: times of kernels and steps."""
    for name, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= factor * (1 - 0.5 * 10**-digits):
            return f"{_plain(seconds / factor, digits)} {name}"
    return f"{_plain(seconds / 1e-9, digits)} ns"


def _plain(value: float, digits: int) -> str:
    """So many significant digits, never fewer than the whole part has, no exponent, no trailing noughts."""
    if value == 0:
        return "0"
    text = f"{float(f'{value:.{digits}g}'):,.12f}" if abs(value) < 10**digits else f"{value:,.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
