"""Files of profilers: no text, but worth an answer, so intake hands them on instead of passing them over."""

from __future__ import annotations

from pathlib import PurePath

SQLITE = b"SQLite format 3\0"
"""How an SQLite file begins; profilers export their recordings as such."""
REPORTS = {
    ".nsys-rep": "a report of Nsight Systems in its own format: nsys export --type sqlite -o out.sqlite FILE.nsys-rep",
    ".qdrep": "a report of Nsight Systems in its own format: nsys export --type sqlite -o out.sqlite FILE.qdrep",
    ".ncu-rep": "a report of Nsight Compute in its own format: ncu --import FILE.ncu-rep --csv --page raw > kernels.csv",
}
"""Formats that only their own tool reads, by suffix, and the command that makes one of them readable."""


def report_of(name: str) -> str | None:
    """What a file of this name is, and the command that exports it; None for other files."""
    return REPORTS.get(PurePath(name).suffix.lower())


def is_recording(name: str, head: bytes) -> bool:
    return head.startswith(SQLITE) or report_of(name) is not None
