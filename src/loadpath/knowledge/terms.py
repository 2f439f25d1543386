"""Explanations: each step, boundary and figure, what it is, what it is not, and what to look at instead."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from loadpath.knowledge.tables import findings

HERE = Path(__file__).parent / "terms"


class Term(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that people read and misread. `names`: other spellings under which it is asked for."""

    id: str
    kind: Literal["step", "boundary", "figure", "setting", "tool", "concept"]
    title: str
    is_: str = msgspec.field(name="is")
    is_not: str = ""
    look_at: str = ""
    names: tuple[str, ...] = ()
    seen_in: tuple[str, ...] = ()
    source: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    term: tuple[Term, ...] = ()


@cache
def terms() -> dict[str, Term]:
    """Every term by id."""
    rows: dict[str, Term] = {}
    for path in sorted(HERE.glob("*.toml")):
        for term in msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File).term:
            rows[term.id] = term
    return rows


def normal(name: str) -> str:
    """The form in which names are compared: lower case, blanks and underscores as hyphens."""
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


def find_term(name: str) -> Term | None:
    """The term of that id or name, in any case and with any hyphens; None where there is none."""
    wanted = normal(name)
    for term in terms().values():
        if wanted in (normal(term.id), normal(term.title), *map(normal, term.names)):
            return term
    return None


def similar(name: str) -> list[str]:
    """Up to five ids of terms and findings that look like `name`."""
    wanted = normal(name)
    known = [*terms(), *findings()]
    inside = [k for k in known if wanted in k]
    return list(dict.fromkeys([*inside, *get_close_matches(wanted, known, n=5, cutoff=0.6)]))[:5]
