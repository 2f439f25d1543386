"""A real llama.cpp server on this machine's CPU: what it prints, read as its user would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import loadpath
from tiny_gguf import write_tiny_gguf

pytest.importorskip("xllamacpp", reason="the embedded llama.cpp server is not installed for this Python or machine")
pytest.importorskip("gguf")

SERVE = """
import os, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], int(sys.argv[2]), 1
params.hostnames, params.port, params.verbosity, params.cpuparams.n_threads = ["127.0.0.1"], 0, 4, 1
server = xllamacpp.Server(params)
sys.stdout.flush()
os._exit(0)  # it serves until it is killed; its start is what we want
"""


def start(model: Path, context: int = 1024) -> loadpath.Report:
    """The report on what a start of the server printed, standard output and error together."""
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(model), str(context)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120
    )  # fmt: skip
    return loadpath.read_text(done.stdout.decode("utf-8", "replace"), "llama.log")


def test_a_good_start_has_no_error_and_its_figures(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    report = start(tmp_path / "tiny.gguf")
    assert not [f for f in report.findings if f.severity == "error"], report.verdict
    assert {s.step: s.state for s in report.steps}["weight-load"] == "done"
    assert any(fact["type"] == "KvPool" for fact in report.facts), "the KV cache's size is printed at this verbosity"


def test_a_cut_file_is_named_as_damaged(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "whole.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes((tmp_path / "whole.gguf").read_bytes()[:200_000])
    root = start(cut).root
    assert root is not None and root.id == "gguf-damaged" and root.step == "weight-load"


def test_an_architecture_that_this_build_does_not_know(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "new.gguf", architecture="novelnet")
    root = start(tmp_path / "new.gguf").root
    assert root is not None and root.id == "gguf-architecture-unknown" and "novelnet" in root.cause
