"""Sizes, durations and counts: one conversion at the edge, one spelling on the screen."""

from __future__ import annotations

import re

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
_BINARY = {"b": 1, "bytes": 1, "byte": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB,
           "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB}  # fmt: skip
_DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE = re.compile(r"^\s*(-?[\d,]*\.?\d+)\s*([A-Za-z]*)\s*$")


def parse_size(text: str, *, decimal_is_binary: bool = False) -> int | None:
    """Bytes of `"54.12 GiB"`, `"80 MB"`, `"64m"`; None where `text` is no size.

    `decimal_is_binary` reads KB, MB, GB and TB as powers of two, for the programs that print GB and
    mean GiB (old vLLM, SGLang, nvidia tools).
    """
    match = _SIZE.match(text)
    if match is None:
        return None
    unit = match[2].lower()
    factor = _BINARY.get(unit or "b")
    if factor is None and unit in _DECIMAL:
        factor = _BINARY[unit[0]] if decimal_is_binary else _DECIMAL[unit]
    if factor is None:
        return None
    return round(float(match[1].replace(",", "")) * factor)


def gib(value: float) -> int:
    """Bytes of a figure in GiB."""
    return round(value * GIB)


def mib(value: float) -> int:
    """Bytes of a figure in MiB."""
    return round(value * MIB)


def show_bytes(value: float, digits: int = 2) -> str:
    """`"26.09 GiB"`, `"512 MiB"`, `"336 KiB"`: the unit that fits, powers of two."""
    size = abs(value)
    if size >= GIB:
        return f"{value / GIB:,.{digits}f} GiB"
    if size >= MIB:
        return f"{value / MIB:,.{0 if size >= 10 * MIB else digits}f} MiB"
    if size >= KIB:
        return f"{value / KIB:,.{0 if size >= 10 * KIB else digits}f} KiB"
    return f"{value:,.0f} bytes"


def show_seconds(value: float) -> str:
    """`"0.4 s"`, `"94 s"`, `"12 min 5 s"`, `"3 h 2 min"`."""
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        minutes, seconds = divmod(round(value), 60)
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def show_count(value: float) -> str:
    """`"176,128"`."""
    return f"{value:,.0f}"


def show_time(seconds: float) -> str:
    """Of short times, three figures: `"3.1 µs"`, `"12.4 ms"`, `"2.51 s"`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s" if seconds < 100 else show_seconds(seconds)
