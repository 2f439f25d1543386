"""A sample: what one probe of a live machine saw, with how it was asked. Its text form is a capture that can be saved,
pasted, bundled and read again: one header line, then the data as they were.

#loadpath-sample {"name":"module-version","kind":"proc-driver","command":"cat /proc/driver/nvidia/version",…}
NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  …
"""

from __future__ import annotations

from typing import Literal

import msgspec

MARK = "#loadpath-sample "
Outcome = Literal["ok", "failed", "missing", "denied", "timed-out", "not-run"]


class Sample(msgspec.Struct, frozen=True):
    """`kind` is the capture kind whose reader reads `data`. `command`: what a person would type (or which files were
    read). `status`: exit status, None where nothing was run or it did not end. `started`: ISO 8601, UTC.

    `outcome`: `failed` is a status other than 0; `missing` no such tool or file; `denied` no right to it; `not-run`
    nothing was tried (a saved tree, a step that came first and failed). `note` says more where there is more to say.
    """

    name: str
    kind: str
    command: str
    status: int | None = None
    seconds: float = 0.0
    started: str = ""
    outcome: Outcome = "ok"
    data: bytes = b""
    note: str = ""


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The header line of a sample: all but its data."""

    name: str
    kind: str
    command: str = ""
    status: int | None = None
    seconds: float = 0.0
    started: str = ""
    outcome: Outcome = "ok"
    note: str = ""


def to_bytes(sample: Sample) -> bytes:
    """The text form: header line, then data; it ends with a line feed."""
    header = Header(**{name: getattr(sample, name) for name in Header.__struct_fields__})
    data = sample.data if not sample.data or sample.data.endswith(b"\n") else sample.data + b"\n"
    return MARK.encode() + msgspec.json.encode(header) + b"\n" + data


def header_of(line: str) -> Header | None:
    """The header that a line states; None where it is none (or damaged)."""
    if not line.startswith(MARK):
        return None
    try:
        return msgspec.json.decode(line[len(MARK) :].strip(), type=Header)
    except msgspec.MsgspecError:
        return None


def from_bytes(text: bytes) -> Sample | None:
    """The sample of a saved text form; None where it does not begin with a header."""
    first, _, data = text.partition(b"\n")
    header = header_of(first.decode("utf-8", "replace"))
    if header is None:
        return None
    return Sample(**{name: getattr(header, name) for name in Header.__struct_fields__}, data=data)
