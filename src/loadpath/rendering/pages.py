"""Pages of `loadpath explain` and `loadpath rules`, and of the generated documentation: the same text for all."""

from __future__ import annotations

from collections.abc import Iterable

from loadpath.core.vocabulary import BOUNDARIES
from loadpath.knowledge.tables import FindingRow
from loadpath.knowledge.terms import Term

WIDEST_CELL = 200  # characters


def term_page(term: Term) -> str:
    """Markdown page of a term."""
    parts = [f"# {term.title}", f"*{term.kind}*" + (f", seen in {', '.join(term.seen_in)}" if term.seen_in else "")]
    parts.append(term.is_)
    if term.is_not:
        parts.append(f"**It is not:** {term.is_not}")
    if term.look_at:
        parts.append(f"**Look at:** {term.look_at}")
    if term.source:
        parts.append(f"Source: {term.source}")
    return "\n\n".join(parts) + "\n"


def finding_page(row: FindingRow) -> str:
    """Markdown page of a finding: what it is, what proves it, the fix, and the usual wrong guess."""
    parts = [f"# {row.id}", f"*{row.severity}, {row.boundary}*", readable(row.title)]
    if row.what:
        parts.append(row.what)
    if row.cause:
        parts.append("**Said as:** " + " ".join(readable(s) for s in row.cause))
    if proof := proof_of(row):
        parts.append(f"**What proves it:** {proof}")
    if row.suggests:
        parts.append(f"**What only suggests it:** {row.suggests}")
    if row.wrong_guess:
        parts.append(f"**The usual wrong guess:** {row.wrong_guess}")
    if row.next_checks:
        parts.append(
            "**First check**\n\n" + "\n".join(f"- `{readable(c.command)}`: {readable(c.why)}" for c in row.next_checks)
        )
    if row.remedies:
        parts.append("**Fix**\n\n" + "\n".join(_remedy(r.action, r.command) for r in row.remedies))
    if row.holds:
        parts.append(f"**Shown to work by it:** {', '.join(row.holds)}")
    if row.source:
        parts.append(f"Source: {row.source}")
    return "\n\n".join(parts) + "\n"


def proof_of(row: FindingRow) -> str:
    """What proves a finding: the row's own words, else an example of its texts, else its rule."""
    return row.proves or _shown_by(row)


def _cell(text: str) -> str:
    """`text` as one cell of a table."""
    short = text if len(text) <= WIDEST_CELL else f"{text[:WIDEST_CELL].rstrip()} …"
    return short.replace("|", "/").replace("\n", " ") + ("`" if short.count("`") % 2 else "")


def _shown_by(row: FindingRow) -> str:
    examples = [m.example for m in row.match[:3]]
    if examples:
        return "a line such as " + " or ".join(f"`{e[:160]}`" for e in examples)
    return f"the rule `{row.judged_by}`, from the facts of several lines" if row.judged_by else ""


def _remedy(action: str, command: str) -> str:
    return f"- {readable(action)}" + (f": `{readable(command)}`" if command else "")


def readable(template: str) -> str:
    """A template's text with its `{groups}` shown as `‹groups›`."""
    return template.replace("{", "‹").replace("}", "›")


def rules_list(rows: Iterable[FindingRow]) -> str:
    """Markdown: every finding by boundary."""
    rows = list(rows)
    parts = [
        "# Findings",
        f"{len(rows)} findings, by the contract that broke. `loadpath explain ID` has the page of each.",
    ]
    for boundary in BOUNDARIES:
        own = [r for r in rows if r.boundary == boundary]
        if own:
            parts.append(f"## {boundary}")
            lines = ["| finding | severity | what it says | what proves it |", "|---|---|---|---|"]
            lines += [f"| `{r.id}` | {r.severity} | {_cell(readable(r.title))} | {_cell(proof_of(r))} |" for r in own]
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
