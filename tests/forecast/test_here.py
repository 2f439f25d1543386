"""`--gpu here`: the cards that a driver lists, asked through the real binding and a stub library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from driver_stubs import built, environment


def run(stubs: Path, folder: Path, scenario: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "loadpath",
        "plan",
        "Qwen/Qwen3-8B",
        "--gpu",
        "here",
        "--max-model-len",
        "8192",
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True, env=environment(stubs, folder, scenario), timeout=60)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("stubs"))


def test_the_cards_of_this_machine_are_planned_for(stubs: Path, tmp_path: Path) -> None:
    done = run(stubs, tmp_path, "count 2")
    assert done.returncode == 0, done.stderr
    assert "Qwen/Qwen3-8B on NVIDIA" in done.stdout


def test_more_cards_than_are_here_is_refused(stubs: Path, tmp_path: Path) -> None:
    done = run(stubs, tmp_path, "count 1", "--tensor-parallel-size", "2")
    assert done.returncode == 2 and "1 GPUs are here, but 2 are needed" in done.stderr
