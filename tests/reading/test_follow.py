"""Following: what is appended, a file that was replaced or cut, a source that grows big."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadpath.intake.sources import Unreadable
from loadpath.reading.follow import Growing, follow

START = "(APIServer pid=1) INFO 11-30 00:00:01 [api_server.py:1102] vLLM API server version 0.18.1\n"
OOM = (
    "(EngineCore pid=9) ERROR 11-30 00:00:09 [core.py:1131] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
    "350.00 MiB. GPU 0 has a total capacity of 23.68 GiB of which 212.81 MiB is free.\n"
)


def test_the_report_changes_as_the_file_grows_is_rotated_and_cut(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(START)
    snapshots = follow(str(path), interval=0.02, idle=0.05)
    assert next(snapshots).report.verdict.state == "starting"
    with path.open("a") as file:
        file.write(OOM)
    assert next(s for s in snapshots if s.grown).report.verdict.state == "failed"
    path.rename(tmp_path / "server.log.1")
    path.write_text(START * 4)
    rotated = next(s for s in snapshots if s.grown)
    assert (rotated.report.verdict.state, rotated.lines) == ("starting", 4)
    path.write_text("")
    path.write_text(OOM)
    assert next(s for s in snapshots if s.grown).report.verdict.state == "failed"
    assert not next(snapshots).grown, "nothing came, but a snapshot does, so that a stall can be seen"


def test_what_cannot_be_followed_is_an_error_that_says_why(tmp_path: Path) -> None:
    for name in ("missing.log", "."):
        with pytest.raises(Unreadable, match="cannot follow"):
            next(follow(str(tmp_path / name)))


def test_beyond_a_size_only_what_matters_is_kept_under_its_number() -> None:
    growing = Growing("pipe")
    growing.feed(START.encode())
    for _ in range(30):
        growing.feed(b'(APIServer pid=1) INFO:     10.0.0.7:4000 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 1000)
    growing.feed(OOM.encode())
    report = growing.report()
    assert report.verdict.state in ("failed", "degraded")
    assert growing.lines == 30002
    assert any("lines" in note.what for note in report.skipped)
    assert report.findings[0].evidence[0].line == 30002
