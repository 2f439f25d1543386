"""The Xid, SXid and NVLink 5 tables, typed: what a code means, what to do first, and whether a program can cause it."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from loadpath.core.vocabulary import BlastRadius, OperatorAction
from loadpath.knowledge.cache import cached

HERE = Path(__file__).parent
T = TypeVar("T")

Kind = Literal["app", "driver", "memory", "bus", "nvlink", "firmware", "power", "info"]


class Xid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One code of the catalogue. `action`, `then`: its immediate and second action (`reset_gpu`, `restart_app`, …).

    `app`: whether a program can cause it. `on`: the generations whose table lists it (`a100`, `h100`, `b100`, `gb200`).
    """

    code: int
    name: str
    what: str
    kind: Kind
    severity: str
    action: str
    app: Literal["yes", "possible", "no"]
    then: str = ""
    on: tuple[str, ...] = ()
    since: str = ""
    note: str = ""


class Recovery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recovery action as the driver states it: in Xid 154, and as GPU Recovery Action of nvidia-smi -q."""

    value: int
    words: tuple[str, ...]
    meaning: str
    action: str


class Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator does for an action word. `{gpus}` and `{first_gpu}` stand for PCI addresses."""

    action: str
    does: OperatorAction
    blast: BlastRadius
    text: str
    effect: str
    command: str = ""


class Sxid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One code of the NVSwitch driver; severity and action only where the Fabric Manager guide gives them."""

    code: int
    name: str
    severity: Literal["fatal", "always_fatal", "nonfatal", ""] = ""
    action: str = ""


class LinkRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the decoding of Xid 144 to 150. `v1`, `v2`: masks of the interrupt-info word ("-" is any bit)."""

    xid: int
    unit: str
    v1: str
    v2: str
    status: str
    severity: Literal["nonfatal", "link_fatal", "gpu_fatal"]
    side: str
    action: str
    catalogue: str
    leads_to_48: bool = False
    second: str = ""


class _XidFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    as_of: str
    source: str
    unused: tuple[int, ...]
    xid: tuple[Xid, ...]
    recovery: tuple[Recovery, ...]
    response: tuple[Response, ...]


class _SxidFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    sxid: tuple[Sxid, ...]


class _LinkFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    rule: tuple[LinkRule, ...]


@cache
def _xid_file() -> _XidFile:
    return _read("xid", _XidFile)


def _read(name: str, kind: type[T]) -> T:
    path = HERE / f"{name}.toml"
    return cached(name, (path, Path(__file__)), kind, lambda: msgspec.convert(tomllib.loads(path.read_text()), kind))


@cache
def xids() -> dict[int, Xid]:
    """Every Xid that means something on current GPUs, by code."""
    return {row.code: row for row in _xid_file().xid}


def recovery(words: str) -> Recovery | None:
    """The recovery action that the driver names so (`GPU Reset Required`, `Reset`, `OS Reboot`, …), any case."""
    wanted = words.strip().lower()
    return next((row for row in _xid_file().recovery if wanted in (w.lower() for w in row.words)), None)


def response(action: str) -> Response | None:
    """What to do for an action word (`reset_gpu`, `reboot_node`, …); None where there is nothing to do."""
    return next((row for row in _xid_file().response if row.action == action), None)


@cache
def sxids() -> dict[int, Sxid]:
    """Every SXid by code."""
    return {row.code: row for row in _read("sxid", _SxidFile).sxid}


def link_rule(xid: int, unit: str, words: tuple[int, ...], driver_branch: int | None = None) -> LinkRule | None:
    """The row that decodes an NVLink 5 Xid: `words` are (interrupt info, error status, …) as printed.

    The layout of the interrupt info changed with driver 575; where the branch is unknown both are tried.
    """
    if len(words) < 2:
        return None
    bits = f"{words[0]:032b}"
    candidates = [
        row for row in _read("nvlink5", _LinkFile).rule
        if row.xid == xid and unit in row.unit.split("/") and int(row.status, 16) == words[1]
    ]  # fmt: skip
    masks = ("v1", "v2") if driver_branch is None else ("v2",) if driver_branch >= 575 else ("v1",)
    return next((row for mask in masks for row in candidates if _fits(bits, getattr(row, mask))), None)


def _fits(bits: str, mask: str) -> bool:
    return all(want in ("-", bit) for bit, want in zip(bits, mask, strict=True))
