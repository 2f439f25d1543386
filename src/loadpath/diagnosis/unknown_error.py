"""An exception or error line that no row and no rule knows: still named, with what its own words suggest."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.errors import PythonException, Symptom
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Boundary
from loadpath.diagnosis.rule import Rule, finding

# Which contract an exception's class or innermost files point to; the first that fits.
HINTS: tuple[tuple[Boundary, tuple[str, ...]], ...] = (
    ("library-set", ("ImportError", "ModuleNotFoundError", "PackageNotFoundError", "utils/cpp_extension")),
    ("interconnect", ("DistBackendError", "DistNetworkError", "DistStoreError", "pynccl", "torch/distributed")),
    ("memory-fit", ("OutOfMemoryError",)),
    ("host-limits", ("MemoryError", "PermissionError", "BlockingIOError")),
    ("model-config", ("ValidationError", "/config.py", "configuration_", "transformers/", "huggingface_hub",
                      "tokeniz", "safetensors", "JSONDecodeError")),
)  # fmt: skip


ECHOES = (
    "KeyboardInterrupt",
    "SystemExit",
    "CancelledError",
    "EngineDeadError",
    "AsyncEngineDeadError",
    "MQEngineDeadError",
)


def judge(case: Case) -> Iterator[Finding]:
    """The earliest exception of the first process that failed; chained ones count by their first cause."""
    known = {(s.span.source, s.span.first_line) for s in case.all(Symptom)}
    exceptions = [e for e in case.all(PythonException) if not _echo(e) and not _recognised(e, known)]
    if not exceptions:
        return
    first = min(exceptions, key=lambda e: (e.origin.time or 0.0, e.span.first_line, e.chain))
    message = first.message.strip().split("\n")[0]
    values = {"exception": first.exception.rpartition(".")[2], "message": message[:300]}
    if first.frames:
        file, line, function = first.frames[-1]
        values |= {"file": file.rpartition("/site-packages/")[2] or file, "line": str(line), "function": function}
    made = finding("unrecognised-exception", [first], case=case, values=values)
    yield msgspec.structs.replace(made, boundary=_boundary(first) or made.boundary)


def _echo(e: PythonException) -> bool:
    """What a stop or another process's death raises, and warnings that only look like exceptions."""
    name = e.exception.rpartition(".")[2]
    return name in ECHOES or e.message == "cancelled" or (name.endswith("Warning") and not e.frames)


def _recognised(e: PythonException, known: set[tuple[str, int]]) -> bool:
    """Whether a row knows one of its lines: then there is a finding with better words."""
    return any((e.span.source, line) in known for line in range(e.span.first_line, e.span.last_line + 1))


def _boundary(e: PythonException) -> Boundary | None:
    files = " ".join(file for file, _, _ in e.frames[-3:])
    return next((b for b, hints in HINTS if any(h in e.exception or h in files for h in hints)), None)


RULES = (Rule(judge, (PythonException,), ("unrecognised-exception",)),)
