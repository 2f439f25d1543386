"""Prefixes that name a process or a rank: vLLM's of every era, Ray's, torchrun's, SGLang's."""

from __future__ import annotations

import re

from loadpath.intake.prefixes.notes import Notes

_PID = re.compile(
    r"\((?P<name>[^\n\"']{0,160}?)\s?\b(?:rank=(?P<rank>\d+) )?pid=(?P<pid>\d+)"
    r"(?:, ip=(?P<ip>[\w.:-]+))?(?:, [^()\n]{0,60})?\)(?: |$)"
)
_RAY = re.compile(r"\((raylet|autoscaler|scheduler|gcs_server|dashboard)(?:, ip=([\w.:-]+)| [+\w]+)?\) ")
_GROUP = re.compile(r"(?:^|[_ ])(TP|PP|EP|DP|rank)[=_ ]?(\d+)(?=_|$|\s)")
_RANK = re.compile(r"\[(?:(?:rank|default)\s?(\d+))\]:(?: |$)?")
_TP = re.compile(r"\[((?:(?:TP|DP|PP|EP)\d+ ?)+)\] ")
_ACTOR = re.compile(r"([A-Za-z]\w*)-(\d+)$")
_REPEATED = re.compile(r"\[repeated (\d+)x across (?:all nodes|cluster)\](?:\s*\(Ray deduplicates.*)?\s*$")


def paren(text: str, notes: Notes) -> str | None:
    """`(EngineCore_DP0 pid=94) `, `(RayWorkerWrapper pid=345, ip=10.0.0.2) `, `(VllmWorker rank=3 pid=7) `, …"""
    if m := _PID.match(text):
        name = m["name"].strip()
        rank = int(m["rank"]) if m["rank"] else rank_of(name)
        notes.note(process=name or None, pid=int(m["pid"]), ip=m["ip"], rank=rank)
        return text[m.end() :]
    if m := _RAY.match(text):
        notes.note(process=m[1], ip=m[2])
        return text[m.end() :]
    return None


def bracket(text: str, notes: Notes) -> str | None:
    """`[rank3]: `, `[default0]:`, `[TP0] `, `[DP0 TP1] `."""
    if m := _RANK.match(text):
        notes.note(rank=int(m[1]))
        return text[m.end() :]
    if m := _TP.match(text):
        name = m[1].replace(" ", "_")
        notes.note(process=name, rank=rank_of(name))
        return text[m.end() :]
    return None


def rank_of(name: str) -> int | None:
    """The rank that a process name tells: its tensor-parallel rank, else its pipeline or expert rank.

    >>> rank_of("Worker_DP0_TP3_EP3"), rank_of("VllmWorker TP1"), rank_of("EngineCore_DP0")
    (3, 1, None)
    """
    groups = dict(_GROUP.findall(name))
    for group in ("TP", "rank", "PP", "EP") if "EngineCore" not in name else ():
        if group in groups:
            return int(groups[group])
    return None


def repeats(text: str, notes: Notes) -> str:
    """`text` without Ray's `[repeated 3x across cluster]` at its end."""
    if "[repeated" in text and (m := _REPEATED.search(text)):
        notes.note(repeats=int(m[1]))
        return text[: m.start()]
    return text
