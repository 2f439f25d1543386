"""One GPU's memory drawn as a bar: each part's share of the whole, in cells."""

from __future__ import annotations

from rich.text import Text

from loadpath.core.report import MemoryLedger

# (how a part's name begins, its letter where there is no colour, its colour)
PARTS = (("weights", "W", "blue"), ("non-torch", "n", "magenta"), ("activation", "a", "yellow"),
         ("CUDA graphs", "g", "cyan"), ("KV cache", "K", "green"), ("gradients", "G", "red"),
         ("optimiser", "O", "bright_magenta"), ("master", "M", "bright_blue"), ("logits", "l", "bright_yellow"),
         ("adapters", "A", "bright_cyan"), ("context", "c", "bright_black"), ("", "+", "white"))  # fmt: skip


def look(name: str) -> tuple[str, str]:
    """The letter and the colour of a part."""
    return next((letter, style) for begin, letter, style in PARTS if name.startswith(begin))


def cells(ledger: MemoryLedger, width: int) -> list[tuple[str, int]]:
    """(part, cells) in proportion to the whole card: parts of nothing get none, small ones at least one."""
    parts = [p for p in ledger.parts if p.bytes > 0]
    whole = max(ledger.total_bytes or 0, sum(p.bytes for p in parts))
    if not whole:
        return []
    return [(p.name, max(1, round(p.bytes / whole * width))) for p in parts]


def memory_bar(ledger: MemoryLedger, width: int) -> Text:
    """The bar, `width` cells long; what no part takes is dotted."""
    bar = Text()
    left = width
    for name, count in cells(ledger, width):
        letter, style = look(name)
        count = min(count, left)
        left -= count
        bar.append(letter * count, style=f"{style} reverse")
    if bar:
        bar.append("·" * left, style="dim")
    return bar
