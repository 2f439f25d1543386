"""A report as Markdown, to paste into an issue or a chat."""

from __future__ import annotations

from loadpath.core.plan import Plan
from loadpath.core.report import Finding, Report
from loadpath.core.table import Table
from loadpath.core.units import show_bytes
from loadpath.rendering import layers, tables, words
from loadpath.rendering import plan as planned


def to_markdown(report: Report) -> str:
    """The whole report; evidence in fences, commands in code spans."""
    parts = [f"## {words.state(report).capitalize()}: {report.verdict.sentence}"]
    if report.root:
        parts += _finding(report.root)
    parts += _layers(report)
    for heading, own in words.grouped(report):
        parts.append(f"### {heading}")
        parts.append(
            "\n".join(
                f"- **{f.title}**{_where(f)} {f.cause if f.severity != 'info' or report.root is None else ''}".rstrip()
                for f in own
            )
        )
    parts += (_steps(report) if layers.steps_matter(report) else []) + _memory(report)
    parts += _plan(report.plan) if report.plan else []
    for table in report.tables:
        parts += _figures(table)
    notes = words.notes(report)
    if report.holds:
        notes.insert(0, f"Shown to work: {', '.join(report.holds)}")
    if notes:
        parts += ["### Notes", "\n".join(f"- {note}" for note in notes)]
    if report.captures or not (report.plan or report.tables):
        parts.append(f"<sub>loadpath read: {words.seen(report)}</sub>")
    return "\n\n".join(parts) + "\n"


def _where(f: Finding) -> str:
    return f" (`{f.evidence[0].source}:{f.evidence[0].line}`)" if f.evidence else ""


def _finding(f: Finding) -> list[str]:
    parts = [f"*{words.judgement(f)}*", f.cause]
    if act := words.action(f):
        parts.append(f"**Operator:** {act}")
    if f.evidence:
        lines = "\n".join(f"{e.source}:{e.line}: {e.text}" for e in f.evidence).replace("```", "'''")
        parts += ["### Evidence", f"```text\n{lines}\n```"]
    if f.remedies:
        rows = []
        for number, r in enumerate(f.remedies, 1):
            alone = {True: " *(suffices alone)*", False: " *(does not suffice alone)*", None: ""}[r.suffices]
            command = f"\n   `{r.command}`" if r.command else ""
            effect = f"\n   → {r.effect}" if r.effect else ""
            rows.append(f"{number}. {r.action}{alone}{command}{effect}")
        parts += ["### What to change", "\n".join(rows)]
    if f.next_checks:
        parts += ["### Next checks", "\n".join(f"- `{c.command}`: {c.why}" for c in f.next_checks)]
    return parts


def _layers(report: Report) -> list[str]:
    rows = [
        f"| {name.strip()} | {state} | {layer.why.replace('|', '/')} |" for layer, name, state in layers.rows(report)
    ]
    return ["### Layers", "\n".join(["| layer | state | |", "|---|---|---|", *rows])] if rows else []


def _steps(report: Report) -> list[str]:
    seen = [s for s in report.steps if s.state != "unseen"]
    if not seen:
        return []
    rows = [f"| {s.step} | {s.state} | {words.took(s.seconds)} | {words.figures(s.figures)} |" for s in seen]
    return ["### Steps", "\n".join(["| step | state | took | |", "|---|---|---|---|", *rows])]


def _memory(report: Report) -> list[str]:
    parts = []
    for ledger in report.memory:
        total = f", {show_bytes(ledger.total_bytes)} in all" if ledger.total_bytes else ""
        rows = [f"| {p.name} | {show_bytes(p.bytes)} | {p.basis} |" for p in ledger.parts]
        parts += [
            f"### Memory of GPU {ledger.gpu}{total}",
            "\n".join(["| part | size | basis |", "|---|---|---|", *rows]),
        ]
    return parts


def _plan(plan: Plan) -> list[str]:
    rows = [*planned.figures(plan), *(planned.identity(plan.identity) if plan.identity else [])]
    lines = "\n".join(plan.lines)
    return [
        f"### Planned: {planned.headline(plan)}",
        "\n".join(f"- {label}: {text}" for label, text in rows),
        *([f"The engine will print:\n\n```text\n{lines}\n```"] if lines else []),
    ]


def _figures(table: Table) -> list[str]:
    heads = tables.heads(table)
    rows = [_row(heads), _row(["---"] * len(heads)), *(_row(row) for row in tables.cells(table))]
    return [f"### {table.title}", "\n".join(rows), *([table.note] if table.note else [])]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
