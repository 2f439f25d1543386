"""Record headers that programs' own loggers write: vLLM, Python logging, Ray, SGLang, llama.cpp, glog/klog, tracing."""

from __future__ import annotations

import re

from loadpath.intake.prefixes.notes import Notes, level_name
from loadpath.intake.prefixes.times import CLOCK, STAMP, in_year

LEVEL = r"(TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)"
PLACE = r"[\w./<>@+-]+:\d+"
_VLLM = re.compile(rf"{LEVEL}\s+(\d\d)-(\d\d) {CLOCK} \[?({PLACE})\s*\](?: |$)")
_LEVEL_DATE = re.compile(rf"{LEVEL}\s+{STAMP}(?:[ \t]+\[?({PLACE})\]?:?)?(?:[ \t]|$)")
_PLACE = re.compile(r"\[?((?:[\w.-]+/)*[\w.-]+\.(?:py|cc|cpp|cu|go|rs|cuh):\d+)\] ")
_LEVEL_PLACE = re.compile(rf"{LEVEL}:?\s+\[?([\w./-]+\.(?:py|cc|cpp|go):\d+)(?:\]|:| --)(?: |$)")
_DASHED = re.compile(
    rf"[-|] +(?:([\w.$-]+) +[-|] +)?{LEVEL}\s+[-|] +(?:([\w.<>]+:[\w<>]+:\d+|{PLACE}) - )?|[-|] +{LEVEL}\s+[-|] +"
)
_BRACKET_LEVEL = re.compile(rf"(?:\[[\w.]+\])?\[{LEVEL}\s*\](?: - )?(?:\s?\[([\w./-]+\.\w+:\d+)(?::[\w<>]+)?\])?:?\s?")
_LEVEL_TIME = re.compile(rf"\[{LEVEL}\s*\]:? ?(?=\[?{STAMP})")
_BASIC = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):([A-Za-z_][\w.]*):(?=\S)")
_AFTER_TIME = re.compile(
    rf"{LEVEL}(?!\s+\d\d-\d\d \d\d:|\s+in )(?:\s+|:\s)(?:([\w./-]+\.(?:py|go):\d+)(?: --|:|\]) ?)?"
)
_LLAMA = re.compile(r"(\d+)\.(\d+)\.(\d+)\.(\d+) ([DIWE]) (?=\S|\s)")
_KLOG = re.compile(rf"([IWEF])(\d\d)(\d\d) {CLOCK}\s+(\d+) ([\w./-]+:\d+)\] ?")
_RAY_CPP = re.compile(rf"\[{STAMP} ([IWEFCD]) (\d+) \d+\] (?:\([\w ]+\) )?(?:([\w./]+:\d+): ?)?")
_TRTLLM = re.compile(rf"\[(\d\d)/(\d\d)/(\d{{4}})-{CLOCK}\] ")
_TRT_LEVEL = re.compile(r"(?:\[RANK (\d+)\] )?\[TRT-LLM\] (?:\[RANK (\d+)\] )?\[([IWEVF])\]|\[TensorRT-LLM\]\[(\w+)\]")
_UVICORN = re.compile(r"(INFO|WARNING|ERROR|CRITICAL|DEBUG): {2,}")
_SLOG = re.compile(rf"time={STAMP} level=(\w+)(?: source=(\S+))?")
_SLOG_LEVEL = re.compile(r"level=(INFO|WARN|ERROR|DEBUG|TRACE)\b")
_TORCH = re.compile(r"\[([IWEFC])(?:\d{3,4} [\d:.]+)? ?(\w+\.(?:cpp|cc|h):\d+)\]")
_NCCL = re.compile(r"([\w.-]+):(\d+):\d+ (?:\[\d+\] )?NCCL ")


def letter(text: str, notes: Notes) -> str | None:
    """Headers that begin with a level's name: vLLM's above all."""
    if m := _VLLM.match(text):
        notes.stamp(in_year(m[2], m[3], m[4], m[5], m[6]))
        notes.note(level=level_name(m[1]), location=m[7])
        return text[m.end() :]
    if m := _LEVEL_PLACE.match(text):
        notes.note(level=level_name(m[1]), location=m[2])
        return text[m.end() :]
    if m := _LEVEL_DATE.match(text):
        notes.stamp(in_year(*m.group(3, 4, 5, 6, 7)), m[2])
        notes.note(level=level_name(m[1]), location=m[8])
        return text[m.end() :]
    if m := _KLOG.match(text):
        notes.stamp(in_year(m[2], m[3], m[4], m[5], m[6]))
        notes.note(level=level_name(m[1]), pid=int(m[7]), location=m[8])
        return text[m.end() :]
    if m := _BASIC.match(text):
        notes.note(level=m[1])
        return text[m.end() :]
    if m := _PLACE.match(text):
        notes.note(location=m[1])
        return text[m.end() :]
    return None


def bracket(text: str, notes: Notes) -> str | None:
    """Headers that begin with `[`: Ray's C++ parts, TensorRT-LLM's time, a place without its level."""
    if m := _RAY_CPP.match(text):
        notes.stamp(in_year(*m.group(2, 3, 4, 5, 6)), m[1])
        notes.note(level=level_name(m[7]), pid=int(m[8]), location=m[9])
        return text[m.end() :]
    if m := _TRTLLM.match(text):
        notes.stamp(in_year(m[1], m[2], m[4], m[5], m[6]), m[3])
        return text[m.end() :]
    if m := _LEVEL_TIME.match(text):
        notes.note(level=level_name(m[1]))
        return text[m.end() :]
    if m := _PLACE.match(text):
        notes.note(location=m[1])
        return text[m.end() :]
    return None


def digit(text: str, notes: Notes) -> str | None:
    """llama.cpp's `<minutes>.<seconds>.<ms>.<µs> <level> ` since 2026."""
    if m := _LLAMA.match(text):
        notes.note(uptime=int(m[1]) * 60 + int(m[2]) + int(m[3]) / 1e3 + int(m[4]) / 1e6, level=level_name(m[5]))
        return text[m.end() :]
    return None


def behind_time(text: str, notes: Notes) -> str:
    """What follows a time in Python logging, loguru, Ray, DeepSpeed: ` - name - LEVEL - `, ` [INFO] [file:1] `."""
    stripped = text.lstrip()
    if stripped[:1] in "-|" and (m := _DASHED.match(stripped)):
        level = m[2] or m[4]
        notes.note(level=level_name(level), location=m[3])
        return stripped[m.end() :]
    if stripped[:1] == "[" and (m := _BRACKET_LEVEL.match(stripped)):
        notes.note(level=level_name(m[1]), location=m[2])
        return stripped[m.end() :]
    if (m := _AFTER_TIME.match(stripped)) and not _UVICORN.match(stripped):
        notes.note(level=level_name(m[1]), location=m[2])
        return stripped[m.end() :]
    return text


def look(text: str, notes: Notes) -> None:
    """Facts of headers that stay in the text, because they are part of what readers know the line by."""
    first = text[:1]
    if first == "[":
        if m := _TORCH.match(text):
            notes.note(level=level_name(m[1]), location=m[2])
        elif m := _TRT_LEVEL.match(text):
            rank = m[1] or m[2]
            notes.note(level=level_name(m[3] or m[4]), rank=int(rank) if rank else None)
    elif first == "t" and (m := _SLOG.match(text)):
        notes.stamp(in_year(*m.group(2, 3, 4, 5, 6)), m[1])
        notes.note(level=level_name(m[7]), location=m[8])
    elif first == "l" and (m := _SLOG_LEVEL.match(text)):
        notes.note(level=level_name(m[1]))
    elif m := _UVICORN.match(text):
        notes.note(level=m[1])
    elif "NCCL " in text and (m := _NCCL.match(text)):
        notes.note(host=m[1], pid=int(m[2]))
