"""`nvidia-smi dmon` and `pmon`: rows of readings, any set of columns (`-s`, `-o`, `--gpm-metrics`, `--format csv`).

    # gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
    # Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
        0     71     41      -    100      2      0      0      0      0   6250   2040

The names come from the header line, whatever their order; it is repeated every screen, and `-` is "no figure".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import GpuSeries, ProcessSeries
from loadpath.core.text import Capture, Line

_TIMES = ("date", "time")
_COLUMNS = (
    "gpu date time pid type pwr gtemp mtemp temp sm mem enc dec jpg ofa mclk pclk pviol tviol fb bar1 ccpm sbecc dbecc "
    "pci rxpci txpci command"
)
_NAMES = frozenset(_COLUMNS.split())


def _cells(text: str) -> list[str]:
    return [cell for cell in re.split(r"[,\s]+", text.strip()) if cell]


def _header(text: str) -> list[str]:
    """The column names of a header line (`# gpu pwr …`, `#Time gpu …`, `#gpu, pwr, …`); [] where it is none."""
    text = text.strip()
    if not text.startswith("#"):
        return []
    names = [name.lstrip("#").lower() for name in _cells(text)]
    names = [name for name in names if name]
    if "gpu" not in names[:3] or sum(name in _NAMES for name in names) < 2:
        return []
    return names


def _is_units(text: str) -> bool:
    return text.startswith("#") and re.search(r"\bIdx\b|HH:MM:SS|YYYYMMDD", text) is not None


def extent(lines: Sequence[Line], i: int) -> int:
    names = _header(lines[i].text)
    if not names:
        return i
    end = j = i + 1
    while j < len(lines) and j - end < 2:
        text = lines[j].text.strip()
        j += 1
        again = _header(text)
        if again and again != names:
            break
        if again or _is_units(text) or _row(text, names) is not None:
            end = j
        elif text:
            break
    return end


def _row(text: str, names: list[str]) -> dict[str, str] | None:
    """The cells of a row by column; None where it does not fit the columns."""
    cells = _cells(text)
    if "command" in names and len(cells) > len(names):
        cells = [*cells[: len(names) - 1], " ".join(cells[len(names) - 1 :])]
    if len(cells) != len(names) or not cells:
        return None
    row = dict(zip(names, cells, strict=True))
    if not row["gpu"].isdigit():
        return None
    return row if all(_is_cell(name, cell) for name, cell in row.items()) else None


def _is_cell(name: str, cell: str) -> bool:
    if name in ("command", "type", *_TIMES):
        return True
    return cell == "-" or re.fullmatch(r"-?\d+(?:\.\d+)?|[Nn]/?[Aa]", cell) is not None


def read(capture: Capture) -> Iterator[Fact]:
    names: list[str] = []
    rows: dict[tuple[str, ...], list[tuple[Line, dict[str, str]]]] = {}
    for line in capture.lines:
        text = line.text.strip()
        if found := _header(text):
            names = found
        elif names and not _is_units(text) and (row := _row(text, names)) is not None:
            rows.setdefault((row["gpu"], row.get("pid", "")), []).append((line, row))
    for (gpu, pid), own in rows.items():
        if "pid" not in own[0][1]:
            yield _gpu(int(gpu), own, capture)
        elif pid.isdigit():
            yield _process(int(gpu), int(pid), own, capture)


def _figures(own: list[tuple[Line, dict[str, str]]]) -> dict[str, tuple[float | None, ...]]:
    names = [name for name in own[0][1] if name not in ("gpu", "pid", "type", "command", *_TIMES)]
    return {name: tuple(_number(row[name]) for _, row in own) for name in names}


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _gpu(index: int, own: list[tuple[Line, dict[str, str]]], capture: Capture) -> GpuSeries:
    times = tuple(" ".join(row[t] for t in _TIMES if t in row) for _, row in own if "time" in row)
    return GpuSeries(**at(capture, own[0][0]), index=index, tool="dmon", columns=_figures(own), times=times)


def _process(index: int, pid: int, own: list[tuple[Line, dict[str, str]]], capture: Capture) -> ProcessSeries:
    row = own[0][1]
    return ProcessSeries(
        **at(capture, own[0][0]),
        index=index,
        pid=pid,
        kind=row.get("type"),
        command=row.get("command"),
        columns=_figures(own),
    )
