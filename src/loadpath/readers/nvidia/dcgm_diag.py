"""`dcgmi diag`, `dcgmi health -c` and `dcgmi discovery -l`: boxes whose words are broken at the column's edge.

    | GPU Memory                | Pass - GPUs: 1, 2, 3                           |
    |                           | Fail - GPU: 0                                  |
    | Warning                   | GPU 0 Thermal violations totaling 13.3 second  |
    |                           | s started at 9.7 seconds into the test         |

DCGM 4 writes lower-case test names and `GPU0: Pass` lines into the same box.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import takewhile
from typing import Literal

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.health import DiagResult, GpusFound, HealthReport
from loadpath.core.text import Capture, Line

Outcome = Literal["pass", "fail", "warn", "skip"]
_OUTCOMES: dict[str, Outcome] = {"pass": "pass", "fail": "fail", "warn": "warn", "skip": "skip"}
_WORDS = ("error", "warning", "info")
_STATES: dict[str, Literal["healthy", "degraded", "unhealthy"]] = {
    "healthy": "healthy", "warning": "degraded", "failure": "unhealthy", "unhealthy": "unhealthy",
}  # fmt: skip


class _Row(msgspec.Struct):
    """One entry of the box: its left cell, and its right cells put together again."""

    name: str
    value: str
    first: Line
    last: Line


@cache
def _outcome() -> re.Pattern[str]:
    return re.compile(
        r"^(?:GPU ?(?P<gpu>\d+): )?(?P<how>Pass|Fail|Warn|Skip)(?:ed)?\b(?: - )?(?P<rest>.*)$", re.IGNORECASE
    )


def extent(lines: Sequence[Line], i: int) -> int:
    text = _box(lines[i])
    begins = ("Successfully ran diagnostic", "| Diagnostic ", "| Health Monitor Report", "| GPU ID ")
    row = re.match(r"\s*(?:\d+ GPUs? found\.|\|[^|]+\| (?:Pass|Fail|Warn|Skip)\b)", text)
    if row is None and not any(word in text for word in begins):
        return i
    end = i + 1
    while end < len(lines) and _box(lines[end]).startswith(("|", "+")):
        end += 1
    return end


def _box(line: Line) -> str:
    """The line of the box, without what carried it (a quotation mark, a container's time)."""
    return line.text.strip() if line.text.lstrip().startswith(("|", "+")) else line.raw.strip()


def read(capture: Capture) -> Iterator[Fact]:
    text = capture.text
    if "GPU ID" in text and "found" in text:
        yield from _discovery(capture)
    elif "Health Monitor Report" in text:
        yield from _health(capture, _rows(capture))
    else:
        yield from _diag(capture, _rows(capture))


def _rows(capture: Capture) -> list[_Row]:
    width = _width(capture)
    rows: list[_Row] = []
    for line in capture.lines:
        raw = _box(line)
        if not raw.startswith("|") or raw.startswith(("|--", "| Diagnostic ", "| Health Monitor")):
            continue
        left, _, right = raw[1:].partition("|")
        piece = right.removesuffix("|")[1 : width + 1] if width else right.removesuffix("|").strip()
        name = left.strip()
        whole = _outcome().match(piece.strip())
        if name or not rows or whole or rows[-1].name.startswith("->") or not rows[-1].value:
            rows.append(_Row(name, piece.ljust(width) if width else piece, line, line))
        else:
            rows[-1].value += piece.ljust(width) if width else f" {piece}"
            rows[-1].last = line
    for row in rows:
        row.value = row.value.strip()
    return rows


def _width(capture: Capture) -> int:
    """Characters of a right cell that hold text: words that are longer are broken after so many."""
    for line in capture.lines:
        parts = _box(line).strip("+").split("+")
        if len(parts) == 2 and set(parts[1]) <= set("-="):
            return len(parts[1]) - 3
    whole = [_box(line) for line in capture.lines if _box(line).endswith("|")]
    cells = [raw[1:-1].partition("|")[2] for raw in whole if raw.count("|") == 3]
    return len(cells[0]) - 3 if cells else 0


def _diag(capture: Capture, rows: list[_Row]) -> Iterator[DiagResult]:
    test, failed = "", None
    for row in rows:
        found = _outcome().match(row.value)
        if row.name.lower().split(":")[0].split(" ")[0] in _WORDS and (failed is not None or not found):
            gpus = _gpus(row.value)
            if failed is not None:
                yield msgspec.structs.replace(failed, words=row.value, gpus=failed.gpus or gpus)
                failed = None
            else:
                outcome: Outcome = "fail" if row.name.lower().startswith("error") else "warn"
                yield DiagResult(
                    **at(capture, row.first, row.last), test=test, outcome=outcome, gpus=gpus, words=row.value
                )
            continue
        test = row.name or test
        if not found:
            continue
        if failed is not None:
            yield failed
            failed = None
        gpus = (int(found["gpu"]),) if found["gpu"] else _gpus(found["rest"])
        made = DiagResult(
            **at(capture, row.first, row.last), test=test, outcome=_OUTCOMES[found["how"].lower()], gpus=gpus
        )
        if made.outcome in ("fail", "warn"):
            failed = made
        else:
            yield made
    if failed is not None:
        yield failed


def _gpus(text: str) -> tuple[int, ...]:
    if found := re.match(r"(?:GPUs?:? )?(\d+(?:, ?\d+)*)\s*$", text.strip()):
        return tuple(int(n) for n in found[1].split(","))
    return tuple(dict.fromkeys(int(n) for n in re.findall(r"\bGPU ?(\d+)\b", text)))


def _health(capture: Capture, rows: list[_Row]) -> Iterator[HealthReport]:
    gpu: int | None = None
    for i, row in enumerate(rows):
        name = row.name.lstrip("-> ").strip()
        state = _STATES.get(row.value.lower())
        if name.isdigit():
            gpu = int(name)
        if state is None or (not name.isdigit() and gpu is None and name != "Overall Health"):
            continue
        words = " ".join(r.value for r in takewhile(lambda r: not r.name, rows[i + 1 :]))
        component = f"GPU {name}" if name.isdigit() else name
        yield HealthReport(**at(capture, row.first, row.last), component=component, state=state, gpu=gpu, words=words)


def _discovery(capture: Capture) -> Iterator[GpusFound]:
    for line in capture.lines:
        if found := re.match(r"\s*(\d+) GPUs? found\.", line.text):
            listed = len(re.findall(r"^\| \d+ +\| Name:", "\n".join(map(_box, capture.lines)), re.MULTILINE))
            yield GpusFound(**at(capture, line), count=int(found[1]), listed=listed)
