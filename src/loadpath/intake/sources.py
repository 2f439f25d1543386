"""Arguments → named byte streams: files, folders, archives in any nesting, standard input.

Nothing is read before it is asked for, and nothing is held whole, so sizes do not matter. Formats are known by
their first bytes, not by their names.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import IO, cast

from loadpath.core.report import Skipped
from loadpath.intake.bundles import FOLDER, MANIFEST, MOST, is_manifest, names_a_bundle
from loadpath.intake.recordings import is_recording

GIB = 1 << 30
MOST_EXPANDED = 16 * GIB  # of one argument: what a bomb may cost is some time, never memory
MOST_MEMBERS = 5000  # files of one folder or archive
DEEPEST = 4  # archives in archives
SPOOL = 32 << 20  # a zip that does not lie in a file is held so far in memory, then on disk
MOST_SPOOLED = 4 * GIB

_PASSED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", "venv", "site-packages", ".cache"}
)
_WEIGHTS = frozenset(
    {".safetensors", ".gguf", ".pt", ".pth", ".bin", ".onnx", ".engine", ".plan", ".npy", ".npz", ".h5", ".parquet"}
)
_NO_TEXT = frozenset({
    ".pyc", ".so", ".o", ".a", ".whl", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".pdf", ".mp4", ".woff", ".woff2",
    ".db", ".deb", ".rpm", ".model", ".tiktoken",
})  # fmt: skip


class Unreadable(OSError):
    """An argument that cannot be read; the text names it and says what was expected."""


class Source:
    """A named stream of bytes, to be read once, before the next source is asked for."""

    def __init__(self, name: str, stream: IO[bytes], notes: list[Skipped]) -> None:
        self.name = name
        self._stream = stream
        self._notes = notes

    @property
    def path(self) -> Path | None:
        """The file itself, where the source is one that lies unpacked on a disk."""
        held = self._stream
        return held.path if isinstance(held, _Peeked) else None

    def chunks(self, size: int = 1 << 20) -> Iterator[bytes]:
        """The bytes, in pieces of at most `size`. What is damaged ends early, and is said by a note behind the source."""
        while True:
            try:
                piece = self._stream.read(size)
            except Exception as error:  # each of the decompressors has its own errors for damaged input
                if isinstance(error, MemoryError):
                    raise
                self._notes.append(Skipped(self.name, f"cut short where it could not be read on: {error}"))
                return
            if not piece:
                return
            yield piece


def sources(arguments: Sequence[str]) -> Iterator[Source | Skipped]:
    """The sources that `arguments` name, in order, with notes on what was passed over. Raises Unreadable."""
    for argument in arguments:
        if argument == "-":
            yield from _opened("stdin", standard_input(), _Budget(argument))
            continue
        path = Path(argument)
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise Unreadable(
                f"cannot read {argument}: {error.strerror or error}; a log, a folder or an archive was expected"
            ) from error
        if stat.S_ISDIR(mode):
            yield from _folder(path)
        else:
            yield from _file(path, argument, must=True)


def standard_input() -> IO[bytes]:
    """Standard input without a buffer between; a pipe is widened, so that it takes fewer reads."""
    try:
        stream = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    except (OSError, ValueError, AttributeError):
        return cast(IO[bytes], sys.stdin.buffer)  # replaced by a test or an embedding program
    with contextlib.suppress(OSError, ImportError, AttributeError):
        import fcntl

        fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)
    return cast(IO[bytes], stream)


class _Budget:
    """How much one argument may still expand to."""

    def __init__(self, argument: str) -> None:
        self.argument = argument
        self.left = MOST_EXPANDED
        self.members = MOST_MEMBERS

    def takes_another(self) -> bool:
        """Whether one more file of an archive may be read; counts it."""
        self.members -= 1
        return self.members >= 0


def _file(path: Path, name: str, *, must: bool) -> Iterator[Source | Skipped]:
    try:
        stream = path.open("rb", buffering=0)
    except OSError as error:
        if must:
            raise Unreadable(f"cannot read {name}: {error.strerror or error}; a readable file was expected") from error
        yield Skipped(name, f"cannot be read: {error.strerror or error}")
        return
    with stream:
        yield from _opened(name, cast(IO[bytes], stream), _Budget(name))


def _folder(folder: Path) -> Iterator[Source | Skipped]:
    """Every file below a folder that may hold text, by name."""
    count = 0
    if not os.access(folder, os.R_OK | os.X_OK):
        raise Unreadable(f"cannot read {folder}: Permission denied; a folder that may be listed was expected")
    for root, folders, files in os.walk(folder):
        passed = sorted(set(folders) & _PASSED_FOLDERS)
        folders[:] = sorted(set(folders) - _PASSED_FOLDERS)
        if passed:
            yield Skipped(root, f"folders that hold no logs: {', '.join(passed)}")
        for file in sorted(files):
            path = Path(root, file)
            if reason := _no_text(path):
                yield Skipped(str(path), reason)
                continue
            count += 1
            if count > MOST_MEMBERS:
                yield Skipped(str(folder), f"more than {MOST_MEMBERS} files: the rest was not read")
                return
            yield from _file(path, str(path), must=False)


def _no_text(path: Path) -> str | None:
    """Why a file that nobody named is passed over; None where it is to be read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if not stat.S_ISREG(mode):
        return "neither file nor folder"
    if reason := no_text_name(path.name):
        return reason
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if path.name == MANIFEST and names_a_bundle(head):
        return "the manifest of a bundle, no capture"
    return None if _kind(head) or is_recording(path.name, head) or not _binary(head) else "binary, no text"


def no_text_name(name: str) -> str | None:
    """Why a file of this name holds no log; None where it may."""
    suffix = PurePath(name).suffix.lower()
    if suffix in _WEIGHTS:
        return f"{suffix} holds weights or tensors, no text"
    return f"{suffix} holds no text" if suffix in _NO_TEXT else None


def _binary(head: bytes) -> bool:
    """Is this no text, in no encoding? UTF-16 has a NUL in every other place, a sparse log long runs of them."""
    from loadpath.intake.decode import encoding_of

    if encoding_of(head)[0] != "utf-8":
        return False
    text = head.replace(b"\0", b"")
    if len(text) < 0.3 * len(head):
        return bool(text) and not text.isascii()
    odd = sum(1 for byte in text if byte < 9 or 13 < byte < 27 or 27 < byte < 32)
    odd += text.decode("utf-8", "replace").count("\ufffd")
    return odd > 0.05 * max(1, len(text))


def _kind(head: bytes) -> str | None:
    """What packs these bytes: gzip, zstd, xz, bz2, zip, tar, or nothing."""
    for magic, kind in (
        (b"\x1f\x8b\x08", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh", "bz2"),
        (b"PK\x03\x04", "zip"), (b"PK\x05\x06", "zip"),
    ):  # fmt: skip
        if head.startswith(magic) and (kind != "bz2" or head[4:10] == b"1AY&SY"):
            return kind
    return "tar" if head[257:262] == b"ustar" else None


def _opened(name: str, stream: IO[bytes], budget: _Budget, depth: int = 0) -> Iterator[Source | Skipped]:
    """The sources in a stream: itself, or what is packed in it."""
    peeked = _Peeked(stream)
    kind = _kind(peeked.peek(512))
    notes: list[Skipped] = []
    whole = cast(IO[bytes], peeked)
    if kind is None:
        yield Source(name, whole, notes)
        yield from notes
        return
    if depth >= DEEPEST:
        yield Skipped(name, f"packed more than {DEEPEST} times: not opened")
        return
    try:
        if kind == "zip":
            yield from _zip(name, whole, budget, depth)
        elif kind == "tar":
            yield from _tar(name, whole, budget, depth)
        else:
            expanded = _Bounded(_expander(kind)(whole), budget, name, notes)
            yield from _opened(name, cast(IO[bytes], expanded), budget, depth + 1)
            yield from notes
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        if depth == 0 and name == budget.argument:
            raise Unreadable(f"cannot read {name}: {error}; a sound {kind} archive was expected") from error
        yield Skipped(name, f"damaged {kind} archive: {error}")


def _expander(kind: str) -> Callable[[IO[bytes]], IO[bytes]]:
    if kind == "gzip":
        import gzip

        return lambda stream: cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if kind == "bz2":
        import bz2

        return lambda stream: cast(IO[bytes], bz2.BZ2File(stream))
    if kind == "xz":
        import lzma

        return lambda stream: cast(IO[bytes], lzma.LZMAFile(stream))
    import zstandard

    # Frames of one stream follow each other where a logger appended; a window is memory, so it is bounded.
    machine = zstandard.ZstdDecompressor(max_window_size=128 << 20)
    return lambda stream: cast(IO[bytes], machine.stream_reader(stream, read_across_frames=True))


def _tar(name: str, stream: IO[bytes], budget: _Budget, depth: int) -> Iterator[Source | Skipped]:
    import tarfile

    with tarfile.open(fileobj=stream, mode="r|") as archive:
        bundle = False
        for position, member in enumerate(archive):
            if not member.isfile():
                continue
            if position == 0 and member.name == MANIFEST and member.size < MOST:
                text = cast(IO[bytes], archive.extractfile(member)).read()
                if bundle := is_manifest(text):
                    continue
                yield from _member(f"{name}:{member.name}", io.BytesIO(text), budget, depth)
                continue
            inner = member.name.removeprefix(FOLDER) if bundle else f"{name}:{member.name}"
            if reason := no_text_name(member.name):
                yield Skipped(inner, reason)
                continue
            if not budget.takes_another():
                yield Skipped(name, f"more than {MOST_MEMBERS} files: the rest was not read")
                return
            file = archive.extractfile(member)
            if file is not None:
                yield from _member(inner, file, budget, depth)


def _zip(name: str, stream: IO[bytes], budget: _Budget, depth: int) -> Iterator[Source | Skipped]:
    import zipfile

    with _seekable(stream, name) as file, zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            inner = f"{name}:{member.filename}"
            if reason := no_text_name(member.filename):
                yield Skipped(inner, reason)
                continue
            if not budget.takes_another():
                yield Skipped(name, f"more than {MOST_MEMBERS} files: the rest was not read")
                return
            if member.flag_bits & 1:
                yield Skipped(inner, "encrypted: unpack it first")
                continue
            with archive.open(member) as opened:
                yield from _member(inner, opened, budget, depth)


def _member(name: str, stream: IO[bytes], budget: _Budget, depth: int) -> Iterator[Source | Skipped]:
    notes: list[Skipped] = []
    bounded = _Peeked(cast(IO[bytes], _Bounded(stream, budget, name, notes)))
    head = bounded.peek(4096)
    if _kind(head) is None and not is_recording(name, head) and _binary(head):
        yield Skipped(name, "binary, no text")
        return
    yield from _opened(name, cast(IO[bytes], bounded), budget, depth + 1)
    yield from notes


def _seekable(stream: IO[bytes], name: str) -> IO[bytes]:
    """A zip's index stands at its end, so what cannot be sought is spooled."""
    import tempfile

    if isinstance(stream, _Peeked) and (file := stream.rewound()) is not None:
        return file
    spooled = tempfile.SpooledTemporaryFile(max_size=SPOOL)  # noqa: SIM115 (the caller closes it)
    copied = 0
    while piece := stream.read(1 << 20):
        copied += len(piece)
        if copied > MOST_SPOOLED:
            spooled.close()
            raise Unreadable(f"{name} is a zip of more than {MOST_SPOOLED // GIB} GiB: unpack it first")
        spooled.write(piece)
    spooled.seek(0)
    return cast(IO[bytes], spooled)


class _Peeked(io.RawIOBase):
    """A stream whose first bytes can be looked at before they are read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._head = b""

    def readable(self) -> bool:
        return True

    def peek(self, size: int) -> bytes:
        while len(self._head) < size and (piece := self._stream.read(size - len(self._head))):
            self._head += piece
        return self._head

    @property
    def path(self) -> Path | None:
        """Where the bytes lie, unpacked; None for a pipe or a member of an archive."""
        held = self._stream
        named = isinstance(held, io.FileIO) and held.seekable() and isinstance(held.name, str)
        return Path(held.name) if named else None

    def rewound(self) -> IO[bytes] | None:
        """The file itself at its beginning, where it is one that can be sought."""
        if not isinstance(self._stream, io.FileIO) or not self._stream.seekable():
            return None
        self._stream.seek(0)
        return os.fdopen(os.dup(self._stream.fileno()), "rb")

    def read(self, size: int = -1) -> bytes:
        if self._head:
            if size is None or size < 0:
                head, self._head = self._head, b""
                return head + self._stream.read()
            head, self._head = self._head[:size], self._head[size:]
            return head
        return self._stream.read(size) or b""


class _Bounded(io.RawIOBase):
    """A stream that ends, and says so, where its argument has expanded too far."""

    def __init__(self, stream: IO[bytes], budget: _Budget, name: str, notes: list[Skipped]) -> None:
        self._stream = stream
        self._budget = budget
        self._name = name
        self._notes = notes
        self._begun = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._budget.left <= 0:
            if not self._notes:
                self._notes.append(Skipped(self._name, f"stopped after {MOST_EXPANDED // GIB} GiB of expanded data"))
            return b""
        try:
            piece = self._stream.read(min(size, 1 << 20) if size and size > 0 else 1 << 20) or b""
        except Exception as error:  # each decompressor has its own errors for damaged input
            if not self._begun or isinstance(error, MemoryError):
                raise
            self._notes.append(Skipped(self._name, f"cut short where it could not be read on: {error}"))
            self._stream = cast(IO[bytes], io.BytesIO())
            return b""
        self._begun = True
        self._budget.left -= len(piece)
        return piece
