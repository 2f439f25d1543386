"""The kernel's OOM-killer and its notes on crashed processes.

oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),…,oom_memcg=/kubepods/…,task=python3,pid=4321,uid=0
Memory cgroup out of memory: Killed process 4321 (python3) total-vm:91234kB, anon-rss:65536kB, file-rss:4kB
pt_main_thread[2536443]: segfault at 7f79 ip 00007f7c sp 00007f7c error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.kernel import OomKill, ProcessCrashed
from loadpath.core.text import Capture, Line

_SIZES = {"total-vm": "total_vm_bytes", "anon-rss": "anon_bytes", "file-rss": "file_bytes", "shmem-rss": "shmem_bytes"}


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile({
        "killed": r"Kill(?:ed)? process (?P<pid>\d+)(?:, UID \d+,)? ?\((?P<name>[^)]*)\)(?P<rest>.*)",
        "event": r"oom-kill:constraint=(?P<constraint>\w+)(?P<rest>.*)",
        "reaped": r"oom_reaper: reaped process (?P<pid>\d+) \((?P<name>[^)]*)\)",
        "usage": r"\bmemory: usage (?P<usage>\d+)kB, limit (?P<limit>\d+)kB",
        "task": r"Task in (?P<cgroup>\S+) killed as a result of limit of (?P<limit>\S+)",
        "size": r"(?P<what>total-vm|anon-rss|file-rss|shmem-rss):(?P<kb>\d+)\s*kB",
        "field": r"(?P<key>oom_memcg|task_memcg|task|pid)=(?P<value>[^,\s]+)",
        "segfault": r"(?P<name>[^\s\[\]:]+)\[(?P<pid>\d+)\]:? (?P<how>segfault at|trap \w+|general protection)[^\n]*?"
        r"(?:\bin (?P<library>[^\s\[]+)\[|$)",
    }[name])  # fmt: skip


def read(capture: Capture) -> Iterator[Fact]:
    killed: dict[int, OomKill] = {}
    about: dict[str, Any] = {}
    for line in capture.lines:
        if line.prose:
            continue
        text = line.text
        if found := _pattern("event").search(text):
            about |= _event(found)
            if pid := _field(found["rest"], "pid"):
                _merge(killed, OomKill(**at(capture, line), **about, pid=int(pid), name=_field(found["rest"], "task")))
        elif found := _pattern("usage").search(text):
            about |= {"usage_bytes": int(found["usage"]) * 1024, "limit_bytes": int(found["limit"]) * 1024}
        elif found := _pattern("task").search(text):
            about |= {"scope": "cgroup", "cgroup": found["limit"]}
        elif found := _pattern("killed").search(text):
            _merge(killed, _kill(capture, line, found, about))
            about = {}
        elif (found := _pattern("reaped").search(text)) and int(found["pid"]) not in killed:
            _merge(killed, OomKill(**at(capture, line), pid=int(found["pid"]), name=found["name"]))
        elif found := _pattern("segfault").search(line.raw):  # the program's name is a prefix to intake
            how, library = found["how"].removesuffix(" at"), found["library"]
            yield ProcessCrashed(
                **at(capture, line), pid=int(found["pid"]), name=found["name"], how=how, library=library
            )
    yield from killed.values()


def _event(found: re.Match[str]) -> dict[str, Any]:
    scope = {"CONSTRAINT_MEMCG": "cgroup", "CONSTRAINT_NONE": "host"}.get(found["constraint"], "unknown")
    cgroup = _field(found["rest"], "oom_memcg") or _field(found["rest"], "task_memcg")
    return {"scope": scope, "cgroup": cgroup} if scope == "cgroup" else {"scope": scope}


def _field(rest: str, key: str) -> str | None:
    return next((m["value"] for m in _pattern("field").finditer(rest) if m["key"] == key), None)


def _kill(capture: Capture, line: Line, found: re.Match[str], about: dict[str, Any]) -> OomKill:
    sizes = {_SIZES[m["what"]]: int(m["kb"]) * 1024 for m in _pattern("size").finditer(found["rest"])}
    if "scope" not in about:
        in_cgroup = "cgroup out of memory" in line.text.lower()
        about = {**about, "scope": "cgroup" if in_cgroup else "host" if "Out of memory" in line.text else "unknown"}
    return OomKill(**at(capture, line), **{**about, **sizes}, pid=int(found["pid"]), name=found["name"])


def _merge(killed: dict[int, OomKill], fact: OomKill) -> None:
    """One kill is told in several lines; later ones fill in what earlier ones left open."""
    assert fact.pid is not None
    before = killed.get(fact.pid)
    if before is None:
        killed[fact.pid] = fact
        return
    known = {f: v for f in OomKill.__struct_fields__ if f not in ("span", "origin", "text", "run")
             if (v := getattr(fact, f)) not in (None, "unknown")}  # fmt: skip
    sized = fact.anon_bytes is not None  # the line with the sizes is the better evidence
    where = {"span": fact.span, "text": fact.text} if sized else {}
    killed[fact.pid] = msgspec.structs.replace(before, **known, **where)
