"""Sources that are no lines of text, and become lines: recorded timelines, summed up by what knows their format.

The lines of a digest are a capture like any other; a span's line number counts in the digest, not in the file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadpath.core.report import Skipped
from loadpath.core.text import Line
from loadpath.intake.recordings import SQLITE, is_recording, report_of
from loadpath.intake.sources import Source
from loadpath.readers.profile.gpu_work import WHOLE, Trace, View

_EVENTS = (b'"traceEvents"', b'"deviceProperties"')
"""Keys, one of which stands in the head of a Chrome trace of the torch profiler; the list of events may begin later."""


def is_digested(name: str, head: bytes) -> bool:
    """Whether a source of this name, whose text begins like this, is summed up instead of read line by line."""
    if is_recording(name, head):
        return True
    begins = head.lstrip()[:1]
    if begins == b"[":  # a trace without a document around its events
        return b'"ph"' in head and b'"dur"' in head and b'"ts"' in head
    return begins == b"{" and any(key in head for key in _EVENTS)


def is_table(head: bytes) -> bool:
    """Whether this begins as a CSV of Nsight Compute: every line of it counts, so it is not sifted, however big."""
    lines = (line for line in head.splitlines() if line.strip() and not line.startswith(b"=="))
    return (first := next(lines, b"")).startswith(b'"ID",') and b'"Kernel Name"' in first


def table_lines(chunks: Iterator[bytes]) -> list[Line]:
    """The lines of such a table as they stand."""
    text = b"".join(chunks).decode("utf-8", "replace")
    return [Line(number, line, line) for number, line in enumerate(text.splitlines(), 1)]


def digest_of(
    source: Source, head: bytes, chunks: Iterator[bytes], view: View = WHOLE
) -> tuple[list[Line], tuple[Skipped, ...]]:
    """The lines of the digest, and what could not be read. `chunks`: all bytes of the source, `head` their beginning."""
    if not head.startswith(SQLITE) and (why := report_of(source.name)):
        return [], (Skipped(source.name, why),)
    try:
        trace = _of_database(source, chunks) if head.startswith(SQLITE) else _of_events(chunks)
    except ValueError as error:
        return [], (Skipped(source.name, str(error)),)
    from loadpath.readers.profile.gpu_timeline import digest

    lines = [Line(number, text, text) for number, text in enumerate(digest(trace, view), 1)]
    return lines, ()


def _of_database(source: Source, chunks: Iterator[bytes]) -> Trace:
    from loadpath.readers.profile.nsys_sqlite import trace_of

    with _on_disk(source, chunks) as path:
        return trace_of(path)


def _of_events(chunks: Iterator[bytes]) -> Trace:
    from loadpath.readers.profile.torch_trace import trace_of

    return trace_of(chunks)


@contextmanager
def _on_disk(source: Source, chunks: Iterator[bytes]) -> Iterator[Path]:
    """The file itself, or a copy of what is packed or piped: a database is not read from front to back."""
    if source.path is not None:
        yield source.path
        return
    with tempfile.NamedTemporaryFile(prefix="loadpath-", suffix=".sqlite") as copy:
        for chunk in chunks:
            copy.write(chunk)
        copy.flush()
        yield Path(copy.name)
