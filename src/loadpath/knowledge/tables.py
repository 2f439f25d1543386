"""The findings tables: every finding that loadpath can make, its words, and the texts that show it.

The tables are TOML for people; parsing them takes a tenth of a second, so the parsed form is kept in the
user's cache, keyed by the files' sizes and times.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from loadpath.core.vocabulary import (
    BlastRadius,
    Boundary,
    Certainty,
    FindingStep,
    OperatorAction,
    Severity,
    State,
)
from loadpath.knowledge.cache import cached
from loadpath.knowledge.literals import literals_of

HERE = Path(__file__).parent


class RemedyRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: str
    command: str = ""
    effect: str = ""


class CheckRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    why: str
    command: str


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One text that shows the finding. `regex` is searched in a line's clean text; `example` is a literal
    program output that it matches. `literals` (lower case): one of them is in every match; derived if absent.
    `engine`: only in that engine's logs. `also`: further examples."""

    regex: str
    example: str
    also: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    engine: str = ""
    note: str = ""
    source: str = ""


class FindingRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One finding. Texts are templates: `{name}` is a named group of the pattern. A sentence of `cause`, a
    remedy or a check that names a group which did not match is left out.

    `holds`: boundaries that this text proves to be working. `folds`: ids (or `*` suffixes, `engine-*`) of
    findings that are its consequences. `consequence`: true where the text itself says that the cause is elsewhere.
    `harmless`: its lines are no fault, whatever other row they match: they show only this one.
    `depth` (0..100) orders root causes: the deeper cause leads; 50 is usual, below 30 symptoms of something else.
    `judged_by`: the diagnosis module that makes this finding; its matches are then evidence, not findings.
    `step` may be `auto`: the step in which the run was, else `unseen` (`auto:warm-up`: else that one).
    `state`: what the finding says of the verdict; by default error → failed, warning → degraded, info → nothing.
    `what`, `proves`, `suggests`, `wrong_guess` are for `loadpath explain`: what it is, what proves it, what only hints
    at it, the usual wrong guess.
    """

    id: str
    boundary: Boundary
    title: str
    severity: Severity = "error"
    certainty: Certainty = "established"
    step: FindingStep | str = "auto"
    cause: tuple[str, ...] = ()
    remedies: tuple[RemedyRow, ...] = ()
    next_checks: tuple[CheckRow, ...] = ()
    operator_action: OperatorAction = "none"
    blast_radius: BlastRadius | None = None
    state: State | None = None
    holds: tuple[Boundary, ...] = ()
    also: tuple[Boundary, ...] = ()
    folds: tuple[str, ...] = ()
    consequence: bool = False
    harmless: bool = False
    depth: int = 50
    judged_by: str = ""
    what: str = ""
    proves: str = ""
    suggests: str = ""
    wrong_guess: str = ""
    source: str = ""
    match: tuple[Match, ...] = ()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    finding: tuple[FindingRow, ...] = ()


class TableError(ValueError):
    """A table is not as it should be; the text names the file and the row."""


def read_findings(path: Path) -> tuple[FindingRow, ...]:
    """The rows of one TOML file, literals filled in. Raises TableError."""
    try:
        rows = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File).finding
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise TableError(f"{path.name}: {error}") from error
    return tuple(
        msgspec.structs.replace(row, match=tuple(
            m if m.literals else msgspec.structs.replace(m, literals=literals_of(m.regex)) for m in row.match
        ))
        for row in rows
    )  # fmt: skip


@cache
def findings() -> dict[str, FindingRow]:
    """Every finding by id, in the tables' order."""
    files = sorted((HERE / "findings").glob("*.toml"))
    made_by = (*files, Path(__file__), HERE / "literals.py")
    rows = cached("findings", made_by, tuple[FindingRow, ...], lambda: _rows(files))
    return {row.id: row for row in rows}


def _rows(files: list[Path]) -> tuple[FindingRow, ...]:
    return tuple(row for path in files for row in read_findings(path))
