"""Lines that are JSON objects around a program's words: docker's json-file, journald, Loki, structured loggers."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from loadpath.intake.prefixes.notes import Notes, level_name
from loadpath.intake.prefixes.times import STAMP, in_year, of_epoch

_WORDS = ("log", "MESSAGE", "msg", "message", "line", "event", "body", "text")
_TIMES = ("time", "timestamp", "@timestamp", "ts", "asctime", "datetime", "t", "__REALTIME_TIMESTAMP")
_LEVELS = ("level", "levelname", "severity", "lvl", "log.level")
_BESIDE = ("stream", "_PID", "logger", "kubernetes", "labels", "attrs", "caller", "logtag")
_MORE = ("error", "err", "exception", "exc_info", "exc_text", "stack", "stacktrace", "stack_trace", "traceback")
_STAMP = re.compile(STAMP)


def unwrap(text: str, notes: Notes) -> str | None:
    """The words inside a JSON record (more than one line where they hold line ends); None where it is none.

    An object counts as a record when beside its words it has a time, a level or a stream: an answer of an
    API (`{"object": "error", "message": …}`) is content and stays whole.
    """
    if not text.endswith("}"):
        return None
    try:
        record = msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    if not isinstance(record, dict) or not any(name in record for name in (*_TIMES, *_LEVELS, *_BESIDE)):
        return None
    words = _words(record)
    if words is None:
        return None
    _origin(record, notes)
    return words


def _words(record: dict[str, Any]) -> str | None:
    inner = record.get("fields")
    holders = [record] + ([inner] if isinstance(inner, dict) else [])
    for holder in holders:
        for name in _WORDS:
            value = holder.get(name)
            if isinstance(value, list) and value and all(isinstance(v, int) and 0 <= v < 256 for v in value):
                value = bytes(value).decode("utf-8", "replace")  # journald writes words with control codes so
            if isinstance(value, str):
                return "\n".join([value.rstrip("\r\n"), *_more(record, value)])
    return None


def _more(record: dict[str, Any], words: str) -> list[str]:
    found = [record[name] for name in _MORE if isinstance(record.get(name), str) and record[name]]
    return [text.rstrip() for text in found if text not in words]


def _origin(record: dict[str, Any], notes: Notes) -> None:
    for name in _TIMES:
        value = record.get(name)
        if isinstance(value, str) and (m := _STAMP.search(value)):
            notes.stamp(in_year(*m.group(2, 3, 4, 5, 6)), m[1])
        elif isinstance(value, (int, float, str)) and not isinstance(value, bool):
            notes.stamp(*of_epoch(_epoch(value)))
    for name in _LEVELS:
        if isinstance(record.get(name), str):
            notes.note(level=level_name(record[name]))
    kubernetes = record.get("kubernetes")
    labels = record.get("labels")
    for holder in (record, kubernetes, labels):
        if isinstance(holder, dict):
            notes.note(
                stream=_text(holder, "stream"),
                pod=_text(holder, "pod", "pod_name"),
                container=_text(holder, "container", "container_name", "CONTAINER_NAME"),
                host=_text(holder, "_HOSTNAME", "host", "hostname", "node_name"),
                process=_text(holder, "SYSLOG_IDENTIFIER", "_COMM", "processName", "process"),
                location=_text(holder, "caller", "source", "location"),
                pid=_whole(holder, "_PID", "pid"),
                rank=_whole(holder, "rank"),
            )


def _text(record: dict[str, Any], *names: str) -> str | None:
    return next((record[n] for n in names if isinstance(record.get(n), str) and record[n]), None)


def _whole(record: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = record.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
            return int(value)
    return None


def _epoch(value: float | str) -> float:
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return -1e30
    while 1e11 < number < 1e20:  # milli-, micro-, nanoseconds
        number /= 1e3
    return number
