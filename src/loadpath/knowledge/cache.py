"""Parsed tables kept between runs: TOML is for people and takes a tenth of a second to parse, msgpack a thousandth.

The stored form is keyed by the sizes and times of the files that it was made from, so it is never stale.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def cached(name: str, files: Sequence[Path], kind: type[T], parse: Callable[[], T]) -> T:
    """What `parse` makes of `files`, from the cache where it was kept before (as `name`-<key>.msgpack)."""
    key = hashlib.sha256()
    for path in files:
        stat = path.stat()
        key.update(f"{path}:{stat.st_size}:{stat.st_mtime_ns};".encode())
    store = cache_folder() / f"{name}-{key.hexdigest()[:16]}.msgpack"
    try:
        return msgspec.msgpack.decode(store.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        made = parse()
        keep(store, msgspec.msgpack.encode(made))
        return made


def cache_folder() -> Path:
    """Where derived tables are kept between runs (`$LOADPATH_CACHE`, else the user's cache folder)."""
    if own := os.environ.get("LOADPATH_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loadpath"


def keep(store: Path, data: bytes) -> None:
    """Write `data` to the cache, whole or not at all; a cache that cannot be written is no fault."""
    with contextlib.suppress(OSError):
        store.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=store.parent, delete=False) as file:
            file.write(data)
        Path(file.name).replace(store)
