"""The result of the last check in a file: read by the next one, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path

import msgspec

from loadpath.core.readiness import READY_SCHEMA, Readiness, to_bytes

MOST = 1 << 20


def load_state(path: Path, url: str) -> Readiness | None:
    """The last result, where it says that this URL was ready. None for anything else: damaged, of another server, later
    than now."""
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.read(MOST), type=Readiness)
    except (OSError, msgspec.MsgspecError):
        return None
    right = found.schema == READY_SCHEMA and found.url == url and found.ready and found.at <= time.time()
    return found if right else None


def save_state(path: Path, result: Readiness) -> None:
    """Replace the file in one step, so that no reader sees half of it. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(to_bytes(result))
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        os.replace(name, path)  # noqa: PTH105 - the same call, and the one whose atomicity is documented
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise


def forget_state(path: Path) -> None:
    """A server that failed has to pass the whole gate again."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
