"""Tables of figures as text cells: one spelling of each unit, for every rendering."""

from __future__ import annotations

import textwrap

from loadpath.core.table import Cell, Column, Table
from loadpath.core.units import show_bytes, show_count, show_seconds

GAP = "  "
MANY = 7
"""From so many columns on they stand one blank apart, to fit 80."""
SHORT = 12
"""A text column is not made narrower than this."""
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def cell(value: Cell, column: Column) -> str:
    """One value with its unit: `"44.71 GiB"`, `"5 %"`, `"yes"`; `"–"` where nothing is known."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    match column.unit:
        case "bytes":
            return show_bytes(value)
        case "seconds":
            return _short(value) if value < 1 else show_seconds(value)
        case "share":
            return f"{value * 100:.3g} %" if abs(value) < 1 else f"{value * 100:,.0f} %"
        case "tokens/s" | "tokens" | "requests":
            return show_count(value) if value >= 100 or value == int(value) else f"{value:.3g}"
        case "FLOP/s" | "bytes/s":
            return _prefixed(value, column.unit.replace("bytes", "B"))
        case "watts":
            return f"{value:,.0f} W"
        case _:
            return show_count(value) if isinstance(value, int) else f"{value:,.4g}"


def _short(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def _prefixed(value: float, unit: str) -> str:
    factor, prefix = next(((f, p) for f, p in _PREFIXES if value >= f), (1.0, ""))
    return f"{value / factor:.3g} {prefix}{unit}"


def heads(table: Table) -> list[str]:
    """The columns' names, with the unit where the cells do not say it."""
    return [f"{c.name} ({c.unit})" if c.unit in ("tokens", "tokens/s", "requests") else c.name for c in table.columns]


def cells(table: Table, most: int | None = None) -> list[list[str]]:
    """The rows as text: all of them, or the first `most`."""
    rows = table.rows[:most]
    return [[cell(value, column) for value, column in zip(row, table.columns, strict=True)] for row in rows]


def is_number(column: Column, table: Table) -> bool:
    """Whether a column holds figures only, to be set to the right."""
    at = table.columns.index(column)
    return all(isinstance(row[at], int | float | None) and not isinstance(row[at], bool) for row in table.rows)


def laid_out(table: Table, width: int, most: int | None = None) -> tuple[list[str], list[str]]:
    """(lines of the head, lines of the body) in `width` columns: figures are never broken, texts and heads wrap."""
    rows, names = cells(table, most), heads(table)
    numeric = [is_number(column, table) for column in table.columns]
    gap = GAP if len(names) < MANY else " "
    widths = _widths(names, rows, numeric, width - len(gap) * (len(names) - 1))
    head = _wrapped(names, widths, numeric, gap)
    return head, [line for row in rows for line in _wrapped(row, widths, numeric, gap)]


def _widths(names: list[str], rows: list[list[str]], numeric: list[bool], width: int) -> list[int]:
    """Figures and short texts take what they need; long texts share what is left."""
    needs = []
    for at, name in enumerate(names):
        longest = max((len(row[at]) for row in rows), default=1)
        needs.append(max([longest, *map(len, name.split())]))
    texts = [at for at, number in enumerate(numeric) if not number and needs[at] > SHORT]
    free = width - sum(need for at, need in enumerate(needs) if at not in texts)
    for at in sorted(texts, key=lambda i: needs[i]):  # what a shorter one does not need, longer ones get
        needs[at] = min(needs[at], max(SHORT, free // len(texts)))
        free -= needs[at]
        texts = texts[1:]
    return needs


def _wrapped(row: list[str], widths: list[int], numeric: list[bool], gap: str) -> list[str]:
    """One row as lines, each column set right (figures) or left."""
    parts = [
        textwrap.wrap(text, max(w, 1), break_on_hyphens=False) or [""] for text, w in zip(row, widths, strict=True)
    ]
    lines = []
    for depth in range(max(map(len, parts))):
        texts = [part[depth] if depth < len(part) else "" for part in parts]
        padded = [t.rjust(w) if n else t.ljust(w) for t, w, n in zip(texts, widths, numeric, strict=True)]
        lines.append(gap.join(padded).rstrip())
    return lines


def to_csv(table: Table) -> str:
    """The table as CSV with plain figures, units in the heads (`kv_cache_bytes`)."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_csv_name(column) for column in table.columns)
    writer.writerows(["" if value is None else value for value in row] for row in table.rows)
    return out.getvalue()


def _csv_name(column: Column) -> str:
    name = column.name.replace(" ", "_")
    unit = column.unit.replace("/s", "_per_s")
    return f"{name}_{unit}" if unit and not name.endswith(unit) else name
