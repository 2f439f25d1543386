"""One GPU's memory drawn as a bar: each part's share of the whole, in cells."""

from __future__ import annotations

from rich.text import Text

from loadpath.core.report import MemoryLedger

STYLES = {"weights": "blue", "non_torch": "magenta", "activation_peak": "yellow", "graphs": "cyan", "kv_pool": "green",
          "unaccounted": "white", "outside_budget": "bright_black"}  # fmt: skip
# Without colour the parts are told apart by their letters.
LETTERS = {"weights": "W", "non_torch": "n", "activation_peak": "a", "graphs": "g", "kv_pool": "K", "unaccounted": "?",
           "outside_budget": "·"}  # fmt: skip


def cells(ledger: MemoryLedger, width: int) -> list[tuple[str, int]]:
    """(part, cells) that fill `width` in proportion; parts of nothing get none, small ones at least one."""
    parts = [p for p in ledger.parts if p.bytes > 0]
    whole = max(ledger.total_bytes or 0, sum(p.bytes for p in parts))
    if not whole:
        return []
    return [(p.name, max(1, round(p.bytes / whole * width))) for p in parts]


def memory_bar(ledger: MemoryLedger, width: int) -> tuple[Text, dict[str, str]]:
    """The bar, and the style of each part for its legend."""
    bar = Text()
    left = width
    for name, count in cells(ledger, width):
        count = min(count, left)
        left -= count
        bar.append(LETTERS.get(name, "#") * count, style=f"{STYLES.get(name, 'white')} reverse")
    if bar:
        bar.append("·" * left, style="dim")
    return bar, STYLES
