"""A sweep as a chart: concurrency over the first field, a line for each setting of the others."""

from __future__ import annotations

from loadpath.core.table import Table
from loadpath.rendering.chart import Axis, Chart, Series

MOST_LINES = 8
WHAT = "requests at once"


def chart(table: Table) -> Chart | None:
    """The chart of a sweep's table; None where its first field is no number, or too few points can be drawn."""
    if table.id != "sweep" or not table.rows:
        return None
    names = [column.name for column in table.columns]
    fields, at = names[: names.index("weights")], names.index(WHAT)
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in table.rows:
        x, y = row[0], row[at]
        if isinstance(x, str | bool | None) or isinstance(y, str | bool | None):
            return None
        name = ", ".join(f"{field} {value}" for field, value in zip(fields[1:], row[1 : len(fields)], strict=True))
        lines.setdefault(name or WHAT, []).append((float(x), float(y)))
    series = tuple(Series(name=n, points=tuple(sorted(p))) for n, p in list(lines.items())[:MOST_LINES] if len(p) > 1)
    if not series:
        return None
    log = max(p[0] for s in series for p in s.points) > 20 * min(p[0] for s in series for p in s.points) > 0
    positive = all(y > 0 for s in series for _, y in s.points)
    return Chart(
        title=f"Full-length requests at once, by {fields[0]}",
        x=Axis(label=fields[0], log=log),
        y=Axis(label=WHAT, log=log and positive),
        series=series,
    )
