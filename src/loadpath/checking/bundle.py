"""The evidence of one machine in one file: samples and logs, masked, with a manifest that says what was asked and what was
left out. `loadpath read` of it anywhere gives the report that was made here."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec

from loadpath import __version__
from loadpath.checking.names import Names
from loadpath.checking.redaction import Redactor
from loadpath.checking.service import gathered, saved
from loadpath.collect.probe import Machine
from loadpath.collect.run import Progress
from loadpath.collect.windows import keep
from loadpath.core.report import Skipped
from loadpath.core.sample import Sample, header_of
from loadpath.intake.bundles import FOLDER, MANIFEST, SCHEMA
from loadpath.intake.sources import Source, sources

MOST_BYTES = 200 * 10**6
LOG_SHARE = 0.85
"""Of the room: what logs may take; the rest is for what the probes saw."""
MOST_LOG = 32 * 10**6
"""Bytes of one log that are kept: more is neither masked in reasonable time nor read by anybody."""
LEAST_LOG = 64_000
"""Bytes that a log gets, however many there are."""


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file of a bundle, and how it came about."""

    file: str
    sha256: str
    bytes: int
    command: str = ""
    started: str = ""
    seconds: float = 0.0
    status: int | None = None
    outcome: str = "ok"
    note: str = ""
    """What more there is to say: why it is empty, how much of it was left out."""


class Manifest(msgspec.Struct, frozen=True):
    """What a bundle holds. `masked`: how many different things of each sort have an alias in place of their name."""

    schema: str
    loadpath: str
    made: str
    redacted: bool
    masked: dict[str, int]
    most_bytes: int
    changed_or_restarted: str
    members: tuple[Member, ...]
    not_kept: tuple[str, ...] = ()


class Bundle(msgspec.Struct, frozen=True):
    """A written bundle: where, how large, and its manifest."""

    path: Path
    size: int
    manifest: Manifest


def bundle(
    machine: Machine,
    out: Path,
    *,
    redact: bool = True,
    most_bytes: int = MOST_BYTES,
    logs: Sequence[str] = (),
    progress: Progress | None = None,
) -> Bundle:
    """Collect from `machine` and from the files `logs`, and write the archive `out`. Raises OSError."""
    room = min(MOST_LOG, max(LEAST_LOG, int(most_bytes * LOG_SHARE)))
    machine.options.setdefault("log-bytes", str(max(LEAST_LOG, room // 8)))
    not_kept: list[str] = []
    given = list(_given_logs(logs, room, not_kept))
    samples = [*gathered(machine, progress=progress), *given]
    return write(samples, out, names_of(machine) if redact else None, most_bytes=most_bytes, not_kept=not_kept)


def write(
    samples: Sequence[Sample],
    out: Path,
    names: Names | None,
    *,
    most_bytes: int = MOST_BYTES,
    not_kept: Sequence[str] = (),
) -> Bundle:
    """Write `samples` as a bundle, masked by `names` (None: as they are)."""
    files = saved(fit(samples, most_bytes))
    masked: dict[str, int] = {}
    if names is not None:
        files, not_kept, masked = _masked(files, not_kept, names)
    members = tuple(_member(name, data) for name, data in files)
    manifest = Manifest(
        SCHEMA, __version__, datetime.now(UTC).isoformat(timespec="seconds"), names is not None, masked, most_bytes,
        "nothing: loadpath only read files and ran the commands named below", members, tuple(not_kept),
    )  # fmt: skip
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    return Bundle(
        out, _write_archive(out, [(MANIFEST, text), *((FOLDER + name, data) for name, data in files)]), manifest
    )


def fit(samples: Sequence[Sample], most_bytes: int) -> list[Sample]:
    """Samples that together take at most about `most_bytes`: the largest are cut first, each to its first error and its ends."""
    limit = _share([len(s.data) for s in samples], most_bytes)
    fitted: list[Sample] = []
    for sample in samples:
        if len(sample.data) <= limit:
            fitted.append(sample)
            continue
        kept = keep([sample.data], limit)
        note = f"{kept.left_out_bytes} of {kept.total_bytes} bytes left out to keep the bundle small"
        fitted.append(
            msgspec.structs.replace(sample, data=kept.data, note="; ".join(filter(None, (sample.note, note))))
        )
    return fitted


def _share(sizes: Sequence[int], room: int) -> int:
    """The most that one of so many files may take, when what small ones leave goes to the others."""
    left = room
    for position, size in enumerate(sorted(sizes)):
        fair = left // (len(sizes) - position)
        if size > fair:
            return fair
        left -= size
    return max(sizes, default=0)


def _given_logs(paths: Iterable[str], room: int, not_kept: list[str]) -> Iterator[Sample]:
    """The files that the caller named (packed ones and folders too), each cut to `room`."""
    for item in sources(tuple(paths)):
        if isinstance(item, Skipped):
            not_kept.append(f"{item.what}: {item.why}")
        else:
            yield _given_log(item, room)


def _given_log(source: Source, room: int) -> Sample:
    kept = keep(source.chunks(), room)
    note = f"{kept.left_out_bytes} of {kept.total_bytes} bytes left out" if kept.left_out_bytes else ""
    return Sample(f"log-{Path(source.name).stem or 'stdin'}", "log", f"read {source.name}", data=kept.data, note=note)


def _masked(
    files: Sequence[tuple[str, bytes]], not_kept: Sequence[str], names: Names
) -> tuple[list[tuple[str, bytes]], tuple[str, ...], dict[str, int]]:
    redactor = Redactor(names)
    for _, data in files:
        redactor.learn(data.decode("utf-8", "surrogateescape"))
    made = [(redactor.redact(name), redactor.redact_bytes(data)) for name, data in files]
    return made, tuple(redactor.redact(line) for line in not_kept), redactor.counts


def names_of(machine: Machine) -> Names:
    """The host names of a machine and the people with an account on it, by its own files."""
    hosts = [machine.text("/etc/hostname") or "", machine.text("/proc/sys/kernel/hostname") or ""]
    for line in (machine.text("/etc/hosts") or "").splitlines():
        hosts += line.partition("#")[0].split()[1:]
    users = [machine.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")]
    for line in (machine.text("/etc/passwd") or "").splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isdigit() and 1000 <= int(fields[2]) < 65000:
            users.append(fields[0])
    return Names(tuple(dict.fromkeys(filter(None, hosts))), tuple(dict.fromkeys(filter(None, users))))


def _member(name: str, data: bytes) -> Member:
    header = header_of(data.partition(b"\n")[0].decode("utf-8", "replace"))
    told = {} if header is None else {
        field: getattr(header, field) for field in ("command", "started", "seconds", "status", "outcome", "note")
    }  # fmt: skip
    return Member(FOLDER + name, hashlib.sha256(data).hexdigest(), len(data), **told)


def _write_archive(out: Path, files: Sequence[tuple[str, bytes]]) -> int:
    """Write a .tar.zst that only its owner may read; either whole or not at all. Its size."""
    import zstandard

    part = out.with_name(f"{out.name}.part")
    opener: Callable[[str, int], int] = lambda path, flags: os.open(path, flags, 0o600)  # noqa: E731
    try:
        with (
            open(part, "wb", opener=opener) as file,
            zstandard.ZstdCompressor(level=10, write_checksum=True).stream_writer(file) as packed,
            tarfile.open(fileobj=cast("io.BufferedWriter", packed), mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name, data in files:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o600
                archive.addfile(member, io.BytesIO(data))
        size = part.stat().st_size
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return size
