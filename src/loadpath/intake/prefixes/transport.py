"""Prefixes of what carried a line: docker, CRI, compose, kubectl, journald, syslog, kernel, MPI."""

from __future__ import annotations

import re

from loadpath.intake.prefixes.notes import Notes, level_name
from loadpath.intake.prefixes.times import CLOCK, DAY, MONTH, STAMP, in_year

_ISO = re.compile(rf"{STAMP}(?=[ \t]|$)[ \t]?")
_BRACKET_ISO = re.compile(rf"\[{STAMP}((?: [A-Z]+\d+)*)\](?:[ \t]|(?=\[)|$)")
_CRI = re.compile(r"(stdout|stderr) ([FP]) ")
_SYSLOG = re.compile(rf"({MONTH})\s+(\d{{1,2}}) (?:(\d{{4}}) )?{CLOCK}(?: |$)\s*")
_WHO = re.compile(r"(\w[\w.-]*)\s+([\w./@:-]+?)(?:\[(\d+)\])?: ?")
_PROGRAM = re.compile(r"(kernel|systemd|dockerd|containerd|kubelet|python3?|vllm|ollama)(?:\[(\d+)\])?: ")
_UPTIME = re.compile(r"(?:<\d{1,3}>)?\[\s*(\d{1,9}\.\d{3,6})\](?:\[\s*[TC]\d+\])? ?")
_DMESG_T = re.compile(rf"\[{DAY} ({MONTH})\s+(\d{{1,2}}) {CLOCK} (\d{{4}})\] ?")
_DMESG_X = re.compile(r"(kern|user|daemon|syslog)\s*:(\w+)\s*: ")
_KMSG = re.compile(r"\d{1,3},\d+,(\d+),[-+c][^;]{0,60};")
_PRI = re.compile(rf"<\d{{1,3}}>(?=1 |{MONTH} |\d{{4}}-)(?:1 )?")
_RFC5424 = re.compile(r"(\w[\w.-]*) (\S+) (\d+|-) \S+ (?:-|\[[^\]]*\]) ")
_KUBECTL = re.compile(r"\[pod/([\w.-]+)/([\w.-]+)\](?: |$)")
_LABELS = re.compile(r"\{((?:\w+=\"[^\"]*\",?\s?)+)\}\s+")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_MPI = re.compile(r"\[(\d+),(\d+)\]<(stdout|stderr)>: ?")
_CRI_MARK = "\ue000"  # a private character that stands for "the rest of this line follows in the next one"


def bracket(text: str, notes: Notes) -> str | None:
    """Prefixes that begin with `[` or `<`."""
    if m := _UPTIME.match(text):
        notes.note(uptime=float(m[1]))
        return text[m.end() :]
    if m := _DMESG_T.match(text):
        notes.stamp(in_year(m[1], m[2], m[3], m[4], m[5]), m[6])
        return text[m.end() :]
    if m := _BRACKET_ISO.match(text):
        notes.stamp(in_year(*m.group(2, 3, 4, 5, 6)), m[1])
        for group, rank in re.findall(r"([A-Z]+)(\d+)", m[7]):
            notes.note(rank=int(rank) if group == "TP" or " TP" not in m[7] else None)
        if m[7]:
            notes.note(process=m[7].strip().replace(" ", "_"))
        return text[m.end() :]
    if m := _KUBECTL.match(text):
        notes.note(pod=m[1], container=m[2])
        return text[m.end() :]
    if m := _MPI.match(text):
        notes.note(rank=int(m[2]), stream=m[3])
        return text[m.end() :]
    if m := _PRI.match(text):
        return text[m.end() :]
    return None


def digit(text: str, notes: Notes) -> str | None:
    """Prefixes that begin with a digit: ISO times, and what journald, syslog, CRI put behind them."""
    if m := _ISO.match(text):
        notes.stamp(in_year(*m.group(2, 3, 4, 5, 6)), m[1])
        return _behind_time(text[m.end() :], notes, iso=True)
    if m := _KMSG.match(text):
        notes.note(uptime=int(m[1]) / 1e6)
        return text[m.end() :]
    return None


def letter(text: str, notes: Notes) -> str | None:
    """Prefixes that begin with a letter: syslog's `Nov 30 03:24:00 host program[1]: `, `kernel: `."""
    if m := _SYSLOG.match(text):
        notes.stamp(in_year(m[1], m[2], m[4], m[5], m[6]), m[3])
        return _behind_time(text[m.end() :], notes, iso=False)
    if m := _DMESG_X.match(text):
        notes.note(level=level_name(m[2]), process="kernel")
        return text[m.end() :]
    if m := _PROGRAM.match(text):
        if m[1] != "kernel" and not m[2]:
            return None
        notes.note(process=m[1], pid=int(m[2]) if m[2] else None)
        return text[m.end() :]
    return None


def brace(text: str, notes: Notes) -> str | None:
    """Loki's labels as logcli prints them: `{namespace="x", pod="y"} `."""
    if m := _LABELS.match(text):
        labels = dict(_LABEL.findall(m[1]))
        notes.note(pod=labels.get("pod"), container=labels.get("container") or labels.get("container_name"))
        notes.note(host=labels.get("host") or labels.get("node_name") or labels.get("instance"))
        return text[m.end() :]
    return None


def _behind_time(rest: str, notes: Notes, *, iso: bool) -> str:
    if iso and (m := _CRI.match(rest)):
        notes.note(stream=m[1])
        return rest[m.end() :] + (_CRI_MARK if m[2] == "P" else "")
    if iso and (m := _RFC5424.match(rest)):
        notes.note(host=m[1], process=m[2], pid=int(m[3]) if m[3].isdigit() else None)
        return rest[m.end() :]
    if (m := _WHO.match(rest)) and (m[3] or m[2] == "kernel" or not iso):
        notes.note(host=m[1], process=m[2], pid=int(m[3]) if m[3] else None)
        return rest[m.end() :]
    return rest


def partial(text: str) -> tuple[str, bool]:
    """`text` without the mark of a CRI line that was cut (`P`), and whether it bore one."""
    return (text[:-1], True) if text.endswith(_CRI_MARK) else (text, False)
