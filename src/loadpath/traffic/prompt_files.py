"""Files of prompts and traces: ShareGPT-like JSON or JSONL, and request traces as JSONL or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from loadpath.traffic.prompts import Listed, Prompt, Replayed, Talk

_SPEAKERS = {"human": "user", "user": "user", "system": "system", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant",
             "assistant": "assistant", "bard": "assistant"}  # fmt: skip
_WHEN = ("timestamp", "time", "arrival_time", "arrived_at", "TIMESTAMP", "start_time")
_INPUT = ("input_length", "prompt_tokens", "input_tokens", "ContextTokens", "num_prefill_tokens", "request_tokens")
_OUTPUT = (
    "output_length",
    "output_tokens",
    "completion_tokens",
    "GeneratedTokens",
    "num_decode_tokens",
    "response_tokens",
)


class NoPrompts(Exception):
    """The file has nothing that can be asked; the message says what was looked for."""


def prompts_of(path: Path, output: int | None, words_per_token: float = 0.75) -> Listed:
    """The conversations of a file. `output`: limit of every answer; None takes the length of the file's own answer.

    Raises NoPrompts, OSError.
    """
    talks = tuple(talk for row in _rows(path) if (talk := _talk(row, output, words_per_token)))
    if not talks:
        raise NoPrompts(
            f"{path}: no prompts found; each row needs `messages`, `conversations`, or `prompt` (JSON or JSONL)"
        )
    return Listed(talks)


def trace_of(path: Path, speed: float = 1.0) -> Replayed:
    """The calls of a trace, in order of time. `speed`: 2 replays twice as fast. Raises NoPrompts, OSError."""
    found = []
    rows = list(_rows(path))
    milliseconds = any("hash_ids" in row for row in rows)  # Mooncake's traces count milliseconds
    for row in rows:
        when, tokens, output = (_first(row, names) for names in (_WHEN, _INPUT, _OUTPUT))
        if when is not None and tokens is not None:
            seconds = _seconds(when) / (1000 if milliseconds else 1)
            found.append((seconds, max(1, int(float(tokens))), max(1, int(float(output or 1)))))
    if not found:
        raise NoPrompts(f"{path}: no calls found; each row needs a time ({_WHEN[0]}) and prompt tokens ({_INPUT[0]})")
    found.sort()
    start = found[0][0]
    return Replayed(tuple(((at - start) / speed, tokens, output) for at, tokens, output in found))


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    data = path.read_bytes()
    if path.suffix.lower() == ".csv":
        yield from csv.DictReader(io.StringIO(data.decode("utf-8-sig", "replace")))
        return
    if data.lstrip().startswith(b"["):
        try:
            whole = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise NoPrompts(f"{path}: {error}") from error
        yield from (row for row in whole if isinstance(row, dict))
        return
    for line in data.splitlines():
        try:
            row = msgspec.json.decode(line) if line.strip() else None
        except msgspec.DecodeError as error:
            raise NoPrompts(f"{path}: a line is no JSON: {error}") from error
        if isinstance(row, dict):
            yield row


def _talk(row: dict[str, Any], output: int | None, words_per_token: float) -> Talk | None:
    """The turns of a row: what the user says, with the answers of the file replaced by the server's own."""
    said = row.get("messages") or row.get("conversations") or row.get("conversation")
    limit = output or (int(stated) if (stated := _first(row, _OUTPUT)) else None)
    if not isinstance(said, list):
        text = row.get("prompt") or row.get("question") or row.get("instruction") or row.get("text")
        if not isinstance(text, str) or not text.strip():
            return None
        answer = row.get("completion") or row.get("response") or row.get("output") or ""
        return Talk((Prompt(({"role": "user", "content": text},), limit or _long(str(answer), words_per_token)),))
    turns: list[Prompt] = []
    held: list[dict[str, str]] = []
    for message in said:
        role = _SPEAKERS.get(str(message.get("role") or message.get("from") or "").lower())
        content = message.get("content") or message.get("value")
        if role is None or not isinstance(content, str):
            continue
        if role != "assistant":
            held.append({"role": role, "content": content})
        elif any(m["role"] == "user" for m in held):
            turns.append(Prompt(tuple(held), limit or _long(content, words_per_token)))
            held = []
    if any(m["role"] == "user" for m in held):
        turns.append(Prompt(tuple(held), limit))
    return Talk(tuple(turns)) if turns else None


def _long(answer: str, words_per_token: float) -> int | None:
    words = len(answer.split())
    return max(1, round(words / words_per_token)) if words else None


def _first(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) not in (None, "")), None)


def _seconds(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        pass
    try:
        return datetime.fromisoformat(str(value)[:26]).timestamp()
    except ValueError:
        raise NoPrompts(f"a time that is neither a number nor ISO 8601: {value!r}") from None
