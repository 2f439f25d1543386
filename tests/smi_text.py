"""Tables of nvidia-smi for tests, row by row, and short ways to what a report says of them."""

from __future__ import annotations

from pathlib import Path

import loadpath
from conftest import read_text
from loadpath.core.report import Finding, Report

EXAMPLES = Path(loadpath.__file__).parent / "examples"
HEAD = "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |\n"
NONE = "| Processes:                            |\n|  No running processes found           |\n"
EMPTY = "| Processes:                            |\n|  GPU   GI   CI   PID   Type   Process name   GPU Memory |\n"


def gpu(
    index: int = 0, used: object = 1, total: object = 46068, util: str = "0%", power: str = "35W /  350W", name: str = "NVIDIA L40S",
    on: str = "On", temp: str = "41C", perf: str = "P8", mode: str = "Default", mig: str = "N/A", ecc: str = "0", fan: str = "N/A",
) -> str:  # fmt: skip
    """The lines of one GPU as the table prints them."""
    memory = f"{used}MiB / {total}MiB" if isinstance(used, int) else str(used)
    return (
        f"|   {index}  {name}    {on} | 00000000:{index + 1:02X}:00.0 Off | {ecc} |\n"
        f"| {fan}  {temp}  {perf}  {power} | {memory} | {util}  {mode} |\n"
        f"|          |          | {mig} |\n"
    )


def process(index: int, pid: int, name: str, size: str, kind: str = "C") -> str:
    return f"|  {index}   N/A  N/A   {pid}   {kind}   {name}    {size} |\n"


def table(*parts: str) -> Report:
    return read_text(HEAD + "".join(parts))


def found(report: Report, id: str) -> Finding:
    return next(f for f in report.findings if f.id == id)


def ids(report: Report) -> set[str]:
    return {f.id for f in report.findings}
