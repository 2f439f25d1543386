"""Where a running engine's output is found, by what its process has open."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from loadpath.collect.engine_logs import gather_logs
from loadpath.collect.engine_names import ENGINES
from loadpath.collect.probe import Machine
from loadpath.collect.processes import Process
from loadpath.collect.runner import Ran
from loadpath.core.sample import Sample

VLLM = ENGINES[0]


def head(**changes: object) -> Process:
    return Process(**{"pid": 100, "parent": 1, "argv": ("vllm", "serve"), "state": "S", "started": 50.0, **changes})  # type: ignore[arg-type]


def look(
    tmp_path: Path, link: str, head: Process, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Sample], list[list[str]]]:
    """The samples, and the commands that were run for them; every program exists and answers with a log line."""
    asked: list[list[str]] = []

    def run(argv: Sequence[str], timeout_s: float, environ: Mapping[str, str]) -> Ran:
        asked.append(list(argv))
        return Ran("ok", 0, 0.1, b"INFO a line of the log\n")

    machine = Machine("/", run)
    monkeypatch.setattr(machine, "readlink", lambda path: link if "/fd/" in path else None)
    monkeypatch.setattr("loadpath.collect.engine_logs.find_program", lambda _, name: f"/usr/bin/{name}")
    return list(gather_logs(machine, VLLM, head, 8000.0)), asked


def test_a_services_log_is_asked_of_the_journal_its_start_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, asked = look(tmp_path, "socket:[123]", head(unit="vllm.service"), monkeypatch)
    assert [argv[0] for argv in asked] == ["journalctl", "journalctl"]
    assert all("vllm.service" in argv for argv in asked)
    assert "--until" in asked[0]
    assert samples[-1].data == b"INFO a line of the log\n" * 2
    assert b"the journal of vllm.service" in samples[0].data


def test_a_containers_log_is_asked_of_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, asked = look(tmp_path, "pipe:[9]", head(container="0123456789ab"), monkeypatch)
    assert asked[0][:2] == ["docker", "logs"]
    assert asked[0][-1] == "0123456789ab"
    assert samples[-1].kind == "log"


@pytest.mark.parametrize(
    ("link", "words"),
    [("/dev/pts/3", b"the terminal"), ("/dev/null", b"nothing is kept"), ("pipe:[7]", b"another process")],
)
def test_output_that_nobody_kept_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, words: bytes
) -> None:
    samples, asked = look(tmp_path, link, head(), monkeypatch)
    assert asked == []
    assert len(samples) == 1
    assert words in samples[0].data


def test_a_pipe_with_a_name_is_left_to_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "log.pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(Machine, "stat", lambda *_: pipe.stat())
    samples, asked = look(tmp_path, str(pipe), head(), monkeypatch)
    assert asked == []
    assert len(samples) == 1
    assert b"may keep it or not" in samples[0].data


def test_a_container_that_docker_does_not_know_is_asked_of_podman(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(argv: Sequence[str], timeout_s: float, environ: Mapping[str, str]) -> Ran:
        return (
            Ran("ok", 0, 0.1, b"a line\n")
            if argv[0] == "podman"
            else Ran("failed", 1, 0.1, b"Error: No such container\n")
        )

    machine = Machine("/", run)
    monkeypatch.setattr(machine, "readlink", lambda path: "pipe:[1]")
    monkeypatch.setattr("loadpath.collect.engine_logs.find_program", lambda _, name: f"/usr/bin/{name}")
    samples = list(gather_logs(machine, VLLM, head(container="0123456789ab"), 8000.0))
    assert samples[-1].command.startswith("podman logs")
    assert samples[-1].data.startswith(b"a line")
