"""A report for the terminal: the verdict first, then why, what to change, and what was seen.

Colour and width are the console's: none in a pipe or with NO_COLOR, 60 to 200 columns.
"""

from __future__ import annotations

import sys
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loadpath.core.plan import Plan
from loadpath.core.report import Finding, MemoryLedger, Report
from loadpath.core.table import Table as Figures
from loadpath.core.units import show_bytes, show_seconds
from loadpath.rendering import layers, tables, words
from loadpath.rendering import plan as planned
from loadpath.rendering import sweep as swept
from loadpath.rendering.bar import look, memory_bar
from loadpath.rendering.plot import Glyphs, glyphs_for, plot

NARROWEST, WIDEST, PIPED = 60, 200, 100
STATE_STYLES = {"failed": "bold white on red", "degraded": "bold black on yellow", "healthy": "bold white on green",
                "starting": "bold white on blue", "unknown": "bold black on white"}  # fmt: skip
SEVERITY_STYLES = {"error": "red", "warning": "yellow", "info": "cyan"}
STEP_STYLES = {"done": "green", "failed": "bold red", "stalled": "yellow", "running": "blue"}
MOST_EVIDENCE_CHARS = 600
MOST_NOTED = 6
MOST_ROWS = 60
WIDEST_PLOT = 96
MOST_LINE = 200
"""Characters of a predicted line; engines dump all their settings in one."""


def console(*, color: bool | None = None, width: int | None = None, file: IO[str] | None = None) -> Console:
    """A console for reports. `color` False: none; None: as the terminal and NO_COLOR say."""
    out = file or sys.stdout
    made = Console(file=out, no_color=color is False or None, highlight=False, emoji=False, soft_wrap=False)
    if width is None:
        width = made.width if made.is_terminal else PIPED
    made.width = max(NARROWEST, min(WIDEST, width))
    return made


def show(report: Report, to: Console) -> None:
    """Print the whole report, without blanks at the ends of lines."""
    with to.capture() as captured:
        for block in blocks(report, to.width, glyphs_for(to)):
            to.print(block)
    to.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def blocks(report: Report, width: int, glyphs: Glyphs) -> list[RenderableType]:
    """The report's parts, in the order in which they are read."""
    made: list[RenderableType] = [_verdict(report)]
    if report.plan:
        made.append(Text(planned.headline(report.plan), style="dim"))
    if root := report.root:
        made += _cause(root, evidence=report.plan is None)
    asked = [table for table in report.tables if report.plan and table.id in planned.ASKED_FOR]
    for table in asked:
        made += _figures(table, width)
    if report.layers:
        made += [_heading("Layers"), _in(_layers(report))]
    for heading, own in words.grouped(report):
        made += _others(heading, own, in_full=report.root is None)
    if (ladder := ladder_block(report)) and layers.steps_matter(report):
        made += [_heading("Steps"), ladder]
    for ledger in report.memory:
        made += [_heading(f"Memory of GPU {ledger.gpu}"), *_ledger(ledger, width)]
    made += _plan(report.plan) if report.plan else []
    for table in (table for table in report.tables if table not in asked):
        made += _figures(table, width)
        if chart := swept.chart(table):
            made.append(_in(plot(chart, min(width - 4, WIDEST_PLOT), glyphs)))
    made += _notes(report)
    return made


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _in(block: RenderableType, left: int = 2) -> Padding:
    return Padding(block, (0, 0, 0, left))


def _verdict(report: Report) -> RenderableType:
    state = report.verdict.state
    line = Text()
    line.append(f" {words.state(report)} ", style=STATE_STYLES[state])
    line.append(f" {report.verdict.sentence}", style="bold")
    return line


def _cause(root: Finding, *, evidence: bool) -> list[RenderableType]:
    """Why and what to change. The `evidence` of a plan stands in its predicted lines already."""
    made: list[RenderableType] = [Text(words.judgement(root), style="dim")]
    if root.cause and root.cause.strip(" .") != root.title.strip(" ."):
        made.append(_in(Text(root.cause), 0))
    if act := words.action(root):
        made.append(Text.assemble(("Operator: ", "bold"), act))
    if root.evidence and evidence:
        made += [_heading("Evidence"), _in(_evidence(root))]
    if root.remedies:
        made += [_heading("What to change"), _in(_remedies(root))]
    if root.next_checks:
        made += [
            _heading("What would settle it" if root.certainty != "established" else "Next checks"),
            _in(_checks(root)),
        ]
    if root.consequences:
        made.append(Text(f"\nFollows from it: {', '.join(root.consequences)}", style="dim"))
    return made


def _evidence(finding: Finding) -> RenderableType:
    """Each line under its place, so that long ones have the whole width."""
    rows: list[RenderableType] = []
    for e in finding.evidence:
        text = e.text if len(e.text) <= MOST_EVIDENCE_CHARS else e.text[:MOST_EVIDENCE_CHARS] + " […]"
        rows += [Text(words.place(e), style="cyan"), _in(Text(text, style="dim"))]
    return Group(*rows)


def _remedies(finding: Finding) -> RenderableType:
    table = _rows()
    for number, remedy in enumerate(finding.remedies, 1):
        text = Text(remedy.action)
        if remedy.suffices:
            text.append("  (suffices alone)", style="green")
        elif remedy.suffices is False:
            text.append("  (does not suffice alone)", style="yellow")
        if remedy.command:
            text.append(f"\n{remedy.command}", style="bold cyan")
        if remedy.effect:
            text.append(f"\n→ {remedy.effect}", style="dim")
        table.add_row(Text(f"{number}."), text)
    return table


def _checks(finding: Finding) -> RenderableType:
    return Group(*[
        Text.assemble(("$ ", "dim"), (check.command, "bold cyan"), "\n", (f"  {check.why}", "dim"))
        for check in finding.next_checks
    ])  # fmt: skip


def _others(heading: str, own: list[Finding], in_full: bool) -> list[RenderableType]:
    """Findings beside the root cause; notes with their reasons only where there is nothing graver to read."""
    table = _rows()
    shown = own if own[0].severity == "error" else own[:MOST_NOTED]
    for f in shown:
        where = words.place(f.evidence[0]) if f.evidence else ""
        text = Text(f.title, style=SEVERITY_STYLES[f.severity])
        if (in_full or f.severity != "info") and f.cause.strip(" .") != f.title.strip(" ."):
            text.append(f"\n{f.cause}", style="none")
        if (in_full or f.severity != "info") and f.remedies:
            first = f.remedies[0]
            text.append(f"\n→ {first.action}{': ' + first.command if first.command else ''}", style="none")
        if where:
            text.append(f"  {where}", style="dim")
        table.add_row(Text("•"), text)
    if len(own) > len(shown):
        table.add_row("", Text(f"and {len(own) - len(shown)} more (--json has all)", style="dim"))
    return [_heading(heading), _in(table)]


def _layers(report: Report) -> RenderableType:
    """A line for each layer, from the ground up."""
    table = _rows(columns=4)
    for layer, name, state in layers.rows(report):
        style = layers.STYLES[layer.state]
        why = Text(layer.why, style="dim" if layer.state == "not-seen" else "none")
        table.add_row(Text(layers.MARKS[layer.state], style=style), name, Text(state, style=style), why)
    return table


def ladder_block(report: Report) -> RenderableType | None:
    """The steps that were seen, a line each; None where there are none."""
    seen = [s for s in report.steps if s.state != "unseen"]
    if not seen:
        return None
    table = _rows(columns=4)
    for step in seen:
        style = STEP_STYLES.get(step.state, "dim")
        took = words.took(step.seconds)
        ranks = step.ranks
        spread = (
            f"ranks {show_seconds(min(ranks.values()))} to {show_seconds(max(ranks.values()))}"
            if len(ranks) > 1
            else ""
        )
        told = "; ".join(part for part in (words.figures(step.figures), spread) if part)
        state = took if step.state == "done" else step.state
        mark = Text(words.STEP_MARKS[step.state], style=style)
        table.add_row(mark, step.step, Text(state, style=style), Text(told, style="dim"))
    missing = [s.step for s in report.steps if s.state == "unseen"]
    note = Text(f"not seen here: {', '.join(missing)}", style="dim") if missing else Text("")
    return _in(Group(table, note) if missing else table)


def _ledger(ledger: MemoryLedger, width: int) -> list[RenderableType]:
    head = Text()
    if ledger.total_bytes:
        head.append(f"{show_bytes(ledger.total_bytes)} in all")
    if ledger.budget_bytes:
        share = f" ({ledger.utilisation:g} of it)" if ledger.utilisation else ""
        head.append(f"{', ' if head else ''}{show_bytes(ledger.budget_bytes)} usable{share}")
    table = _rows(columns=4)
    # Without the card's size a bar would show shares of nothing.
    bar = memory_bar(ledger, min(width - 6, 72)) if ledger.total_bytes else Text()
    for part in ledger.parts:
        size = Text(show_bytes(part.bytes), justify="right")
        basis = "" if part.basis == "read" else part.basis
        letter, style = look(part.name)
        table.add_row(Text(letter, style=f"{style} reverse"), part.name, size, Text(basis, style="dim"))
    return [_in(block) for block in (head, bar, table) if block]


def _plan(plan: Plan) -> list[RenderableType]:
    """A plan's figures, what the engine will print, and what the numbers are made of."""
    made: list[RenderableType] = [_heading("Planned"), _in(_pairs(planned.figures(plan)))]
    if plan.lines:
        lines = Group(*(Text(_predicted(line), style="dim") for line in plan.lines))
        made += [_heading("The engine will print"), _in(lines)]
    if plan.identity:
        made += [_heading("Numbers"), _in(_pairs(planned.identity(plan.identity)))]
    return made


def _predicted(line: str) -> str:
    """A predicted line; those that dump all settings are cut, a refusal is not."""
    return line if len(line) <= MOST_LINE or "Error" in line else line[:MOST_LINE] + " […]"


def _pairs(rows: list[tuple[str, str]]) -> RenderableType:
    table = _rows()
    for label, text in rows:
        table.add_row(Text(label, style="dim"), text)
    return table


def _figures(table: Figures, width: int) -> list[RenderableType]:
    head, body = tables.laid_out(table, width - 2, MOST_ROWS)
    made: list[RenderableType] = [_heading(table.title), _in(Text("\n".join(head), style="dim"))]
    made += [_in(Text("\n".join(body)))] if body else []
    if (more := len(table.rows) - MOST_ROWS) > 0:
        made.append(_in(Text(f"and {more:,} more rows (--csv and --json have all)", style="dim")))
    return [*made, _in(Text(table.note, style="dim"))] if table.note else made


def _notes(report: Report) -> list[RenderableType]:
    made: list[RenderableType] = []
    if report.holds:
        made.append(Text.assemble(("\nShown to work: ", "bold"), ", ".join(report.holds)))
    if notes := words.notes(report):
        made += [_heading("Notes"), _in(Group(*(Text(f"• {note}", style="dim") for note in notes[:12])))]
    if report.captures or not (report.plan or report.tables):
        made.append(Text(f"\nRead: {words.seen(report)}.", style="dim"))
    return made


def _rows(columns: int = 2) -> Table:
    """A borderless table whose last column takes what is left and wraps under itself."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(columns - 1):
        table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    return table
