"""A report as one self-contained HTML file: no script, no network, readable on paper and in the dark."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from loadpath.core.plan import Plan
from loadpath.core.report import Finding, MemoryLedger, Remedy, Report
from loadpath.core.table import Table
from loadpath.core.units import show_bytes
from loadpath.rendering import layers, tables, words
from loadpath.rendering import plan as planned

_COLOURS = (("weights", "#4c78a8"), ("non-torch", "#b279a2"), ("activation peak", "#eeca3b"), ("CUDA graphs", "#72b7b2"),
            ("KV cache", "#54a24b"), ("", "#9d9da1"))  # fmt: skip


def to_html(report: Report, pieces: str = "") -> str:
    """The whole report as an HTML document. `pieces`: HTML that stands before the notes' end, of the verb's own."""
    body = [
        f'<span class="state {report.verdict.state}">{words.state(report)}</span>',
        f"<h1>{escape(report.verdict.sentence)}</h1>",
    ]
    if report.plan:
        body.append(f'<p class="soft">{escape(planned.headline(report.plan))}</p>')
    if report.root:
        body += _finding(report.root, evidence=report.plan is None)
    asked = [table for table in report.tables if report.plan and table.id in planned.ASKED_FOR]
    body += [_figures(table) for table in asked]
    body += _layers(report)
    for heading, own in words.grouped(report):
        items = "".join(f"<li><strong>{escape(f.title)}</strong> {_place(f)}<br>{escape(f.cause)}</li>" for f in own)
        body.append(f"<h2>{heading}</h2><ul>{items}</ul>")
    body += (_steps(report) if layers.steps_matter(report) else []) + [_memory(ledger) for ledger in report.memory]
    body += _plan(report.plan) if report.plan else []
    body += [_figures(table) for table in report.tables if table not in asked] + _notes(report)
    style = files("loadpath.rendering").joinpath("report.css").read_text("utf-8")
    title = escape(f"{words.state(report).capitalize()}: {report.verdict.sentence}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{style}</style></head><body><main>{''.join(body)}{pieces}</main></body></html>\n"
    )


def _place(f: Finding) -> str:
    return f'<span class="soft">{escape(f.evidence[0].source)}:{f.evidence[0].line}</span>' if f.evidence else ""


def _finding(f: Finding, *, evidence: bool) -> list[str]:
    """Why and what to change. The `evidence` of a plan stands in its predicted lines already."""
    made = [f'<p class="soft">{escape(words.judgement(f))}</p>', f"<p>{escape(f.cause)}</p>"]
    if act := words.action(f):
        made.append(f"<p><strong>Operator:</strong> {escape(act)}</p>")
    if f.evidence and evidence:
        lines = "\n".join(f"{e.source}:{e.line}  {e.text}" for e in f.evidence)
        made.append(f"<h2>Evidence</h2><pre>{escape(lines)}</pre>")
    if f.remedies:
        made.append(f"<h2>What to change</h2><ol>{''.join(_remedy(r) for r in f.remedies)}</ol>")
    if f.next_checks:
        checks = "".join(
            f"<li><code>{escape(c.command)}</code><br><span class='soft'>{escape(c.why)}</span></li>"
            for c in f.next_checks
        )
        made.append(f"<h2>Next checks</h2><ul>{checks}</ul>")
    return made


def _remedy(remedy: Remedy) -> str:
    alone = {
        True: ' <span class="alone">suffices alone</span>',
        False: ' <span class="not">does not suffice alone</span>',
        None: "",
    }
    command = f"<br><code>{escape(remedy.command)}</code>" if remedy.command else ""
    effect = f'<br><span class="soft">→ {escape(remedy.effect)}</span>' if remedy.effect else ""
    return f"<li>{escape(remedy.action)}{alone[remedy.suffices]}{command}{effect}</li>"


def _layers(report: Report) -> list[str]:
    rows = "".join(
        f"<tr><td>{layers.MARKS[layer.state]} {escape(name.strip())}</td><td>{state}</td><td>{escape(layer.why)}</td></tr>"
        for layer, name, state in layers.rows(report)
    )
    return [f"<h2>Layers</h2><table>{rows}</table>"] if rows else []


def _steps(report: Report) -> list[str]:
    seen = [s for s in report.steps if s.state != "unseen"]
    if not seen:
        return []
    rows = "".join(
        f"<tr><td>{words.STEP_MARKS[s.state]} {s.step}</td><td>{s.state}</td>"
        f"<td>{words.took(s.seconds)}</td>"
        f"<td class='soft'>{escape(words.figures(s.figures))}</td></tr>"
        for s in seen
    )
    return [f"<h2>Steps</h2><table>{rows}</table>"]


def _colour(part: str) -> str:
    return next(colour for begin, colour in _COLOURS if part.startswith(begin))


def _memory(ledger: MemoryLedger) -> str:
    whole = max(ledger.total_bytes or 0, sum(max(0, p.bytes) for p in ledger.parts)) or 1
    bar = "".join(
        f'<span style="width:{max(0, p.bytes) / whole:.3%};background:{_colour(p.name)}"'
        f' title="{escape(p.name)}"></span>'
        for p in ledger.parts
    )
    rows = "".join(
        f'<tr><td><span class="dot" style="background:{_colour(p.name)}"></span>'
        f"{escape(p.name)}</td>"
        f"<td>{show_bytes(p.bytes)}</td><td class='soft'>{p.basis}</td></tr>"
        for p in ledger.parts
    )
    total = f", {show_bytes(ledger.total_bytes)} in all" if ledger.total_bytes else ""
    drawn = f'<div class="bar">{bar}</div>' if ledger.total_bytes else ""
    return f"<h2>Memory of GPU {ledger.gpu}{total}</h2>{drawn}<table>{rows}</table>"


def _notes(report: Report) -> list[str]:
    notes = words.notes(report)
    if report.holds:
        notes.insert(0, f"Shown to work: {', '.join(report.holds)}")
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    made = [f"<h2>Notes</h2><ul class='soft'>{items}</ul>"] if notes else []
    if report.captures or not (report.plan or report.tables):
        made.append(f"<p class='soft'>Read: {escape(words.seen(report))}.</p>")
    return made


def _plan(plan: Plan) -> list[str]:
    rows = [*planned.figures(plan), *(planned.identity(plan.identity) if plan.identity else [])]
    told = "".join(f"<tr><td>{escape(label)}</td><td>{escape(text)}</td></tr>" for label, text in rows)
    made = [f"<h2>Planned</h2><table>{told}</table>"]
    if plan.lines:
        made.append(f"<h2>The engine will print</h2><pre>{escape(chr(10).join(plan.lines))}</pre>")
    return made


def _figures(table: Table) -> str:
    marks = [' class="figure"' if tables.is_number(column, table) else "" for column in table.columns]
    head = "".join(f"<th{mark}>{escape(name)}</th>" for mark, name in zip(marks, tables.heads(table), strict=True))
    rows = "".join(
        f"<tr>{''.join(f'<td{mark}>{escape(cell)}</td>' for mark, cell in zip(marks, row, strict=True))}</tr>"
        for row in tables.cells(table)
    )
    note = f"<p class='soft'>{escape(table.note)}</p>" if table.note else ""
    return f"<h2>{escape(table.title)}</h2><table><tr>{head}</tr>{rows}</table>{note}{_chart(table)}"


def _chart(table: Table) -> str:
    """The drawing of a sweep; "" for other tables."""
    from loadpath.rendering.scene import scene
    from loadpath.rendering.svg import to_svg
    from loadpath.rendering.sweep import chart

    drawn = chart(table)
    return f"<figure>{to_svg(scene(drawn))}</figure>" if drawn else ""
