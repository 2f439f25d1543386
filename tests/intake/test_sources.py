"""Arguments → streams: files, folders, archives in archives, damaged and hostile input."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard

from loadpath.core.report import Skipped
from loadpath.intake import sources as module
from loadpath.intake.sources import Unreadable, sources

LOG = b"INFO 04-09 05:39:54 [core.py:390] up\nRuntimeError: CUDA error: out of memory\n" * 20


def opened(*arguments: Path) -> dict[str, bytes]:
    return {s.name: b"".join(s.chunks()) for s in sources([str(a) for a in arguments]) if not isinstance(s, Skipped)}


def skipped(*arguments: Path) -> list[Skipped]:
    notes: list[Skipped] = []
    for item in sources([str(a) for a in arguments]):
        if isinstance(item, Skipped):
            notes.append(item)
        else:
            list(item.chunks())
    return notes


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(LOG, mtime=0),
        bz2.compress(LOG),
        lzma.compress(LOG),
        zstandard.compress(LOG),
        gzip.compress(LOG[:90], mtime=0) + gzip.compress(LOG[90:], mtime=0),
    ],
    ids=["gzip", "bz2", "xz", "zstd", "two-gzip-members"],
)
def test_compression_is_known_by_its_bytes_whatever_the_name(tmp_path: Path, packed: bytes) -> None:
    (tmp_path / "server.log").write_bytes(packed)
    assert opened(tmp_path / "server.log") == {str(tmp_path / "server.log"): LOG}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_members_of_an_archive_are_named_after_it(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "bundle.tar"
    path.write_bytes(tar_of({"logs/a.log": LOG, "logs/b.log.gz": gzip.compress(LOG)}, mode))
    assert opened(path) == {f"{path}:logs/a.log": LOG, f"{path}:logs/b.log.gz": LOG}


def test_archives_in_archives_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "case.zip"
    path.write_bytes(zip_of({"inner.tar.gz": tar_of({"x.log": LOG}), "y.log": LOG}))
    assert opened(path) == {f"{path}:inner.tar.gz:x.log": LOG, f"{path}:y.log": LOG}


def test_a_folder_gives_its_text_files_and_says_what_it_passed_over(tmp_path: Path) -> None:
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "sub" / ".git" / "config").write_text("x")
    (tmp_path / "a.log").write_bytes(LOG)
    (tmp_path / "sub" / "b.txt").write_bytes(LOG.decode().encode("utf-16"))
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    (tmp_path / "core.123").write_bytes(bytes(range(256)) * 20)
    assert list(opened(tmp_path)) == [str(tmp_path / "a.log"), str(tmp_path / "sub" / "b.txt")]
    said = " ".join(f"{note.what}: {note.why}" for note in skipped(tmp_path))
    assert "model.safetensors" in said and "core.123" in said and ".git" in said


def test_an_explicit_file_is_read_whatever_it_holds(tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(bytes(range(256)))
    assert opened(tmp_path / "core") == {str(tmp_path / "core"): bytes(range(256))}


@pytest.mark.parametrize(
    "content", [gzip.compress(LOG)[:12] + b"garbage" * 9, b"PK\x03\x04 no zip at all"], ids=("gzip", "zip")
)
def test_what_cannot_be_read_is_an_error_that_names_it_and_what_was_expected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=r"broken.*expected"):
        opened(path)
    with pytest.raises(Unreadable, match=r"missing\.log.*expected"):
        opened(tmp_path / "missing.log")


def test_a_file_that_ends_too_early_is_read_so_far_and_said(tmp_path: Path) -> None:
    noise = b"".join(str(i * i).encode() + b"\n" for i in range(30000))
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(noise)[:50000])
    (data,) = opened(path).values()
    assert data and noise.startswith(data)
    assert any("cut short" in note.why for note in skipped(path))


def test_a_bomb_ends_at_a_limit_and_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EXPANDED", 4 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\n" * (64 << 20)))
    (data,) = opened(path).values()
    assert len(data) <= 5 << 20
    assert any("expanded" in note.why for note in skipped(path))


def test_an_archive_within_itself_too_often_is_not_opened(tmp_path: Path) -> None:
    data = LOG
    for _ in range(8):
        data = gzip.compress(data)
    path = tmp_path / "onion.gz"
    path.write_bytes(data)
    assert any("times" in note.why for note in skipped(path))
