"""The gate before a real llama.cpp server with a tiny model."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from loadpath.traffic.ready import ReadyRequest, ready
from loadpath.traffic.stages import Shape
from loadpath.traffic.wire import target_of
from tiny_gguf import write_tiny_gguf

pytest.importorskip("xllamacpp", reason="the embedded llama.cpp server is not installed for this Python or machine")
pytest.importorskip("gguf")

SERVE = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], 1024, 1
params.hostnames, params.port, params.cpuparams.n_threads = ["127.0.0.1"], int(sys.argv[2]), 1
server = xllamacpp.Server(params)
print("up", flush=True)
time.sleep(600)
"""


def test_a_real_server_is_waited_for_from_before_its_start(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path / "tiny.gguf"), str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            target = target_of(f"http://127.0.0.1:{port}")
            result = ready(ReadyRequest(target=target, limit=60.0, shapes=(Shape(64, 8),), warming=True))
        finally:
            process.kill()
    assert result.ready, result.failed
    assert result.engine == "llama.cpp" and result.stages[-1].requests >= 8
    assert "503" not in result.stages[-1].why and "decodes nothing" in result.health_says
