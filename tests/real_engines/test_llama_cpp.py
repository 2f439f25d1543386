"""`loadpath bench` on a real llama.cpp server, embedded by xllamacpp."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from real_engines.running import LOADPATH, Server, bench, free_port, run, server, stages
from tiny_gguf import write_tiny_gguf

pytest.importorskip("xllamacpp", reason="the embedded llama.cpp server is not installed for this Python or machine")
pytest.importorskip("gguf")

SLOTS, CONTEXT = 2, 1024  # the context is shared by the slots
SERVE = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], int(sys.argv[3]), int(sys.argv[4])
params.hostnames, params.port, params.verbosity, params.cpuparams.n_threads = ["127.0.0.1"], int(sys.argv[2]), 3, 1
params.endpoint_metrics = True
server = xllamacpp.Server(params)
time.sleep(3600)
"""


def serving(folder: Path, port: int) -> AbstractContextManager[Server]:
    write_tiny_gguf(folder / "tiny.gguf")
    command = [sys.executable, "-c", SERVE, str(folder / "tiny.gguf"), str(port), str(CONTEXT), str(SLOTS)]
    return server(command, port, folder / "llama.log", limit=60)


@pytest.fixture
def llama(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, free_port()) as running:
        yield running


def test_it_is_measured_and_named(llama: Server, tmp_path: Path) -> None:
    made = bench(tmp_path, llama.url, "--requests", "40", "--concurrency", "4", "--input-tokens", "64",
                 "--output-tokens", "32")  # fmt: skip
    assert made.status == 0 and not made.figures.errors
    assert made.result.server.engine == "llama.cpp"
    assert made.figures.completed >= 40 and made.figures.output_basis == "usage"
    assert made.figures.ttft and made.figures.itl and made.figures.itl.p50 > 0
    assert made.figures.output_tokens == 32 * made.figures.completed


def test_its_metrics_are_joined_by_time(llama: Server, tmp_path: Path) -> None:
    made = bench(
        tmp_path, llama.url, "--duration", "4s", "--concurrency", "4", "--output-tokens", "64", "--warmup", "0"
    )
    samples = made.result.metrics
    assert len(samples) >= 3 and all(0 <= sample.time <= made.result.seconds for sample in samples)
    busy = [sample for sample in samples if sample.running]
    assert busy and max(sample.running or 0 for sample in busy) <= SLOTS, "it serves as many at once as it has slots"
    assert any(sample.waiting for sample in samples), "four were sent at once, to two slots"


def test_a_request_over_the_context_is_an_error_and_said(llama: Server, tmp_path: Path) -> None:
    made = bench(
        tmp_path, llama.url, "--requests", "6", "--concurrency", "2", "--input-tokens", "3000", "--warmup", "0"
    )
    refused = [x for x in made.result.exchanges if x.status == 400]
    assert len(refused) == 6 and all(x.error == "http" and "context" in x.message for x in refused)
    assert made.status != 0 and made.report["verdict"]["state"] != "healthy"


def test_a_server_that_dies_in_mid_run_ends_the_run_and_is_told(llama: Server, tmp_path: Path) -> None:
    killer = threading.Timer(2.5, llama.kill)
    killer.start()
    begun = time.monotonic()
    made = bench(
        tmp_path, llama.url, "--duration", "60s", "--concurrency", "4", "--output-tokens", "64", "--warmup", "0"
    )
    assert time.monotonic() - begun < 30, "it does not go on asking a dead server"
    assert "gone" in made.result.interrupted
    assert made.figures.completed > 0, "what was measured before is kept"
    assert made.status == 1 and made.report["root_cause"] == "bench-server-gone"


def test_ready_waits_for_its_start_and_sees_it_gone(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    asking = [str(LOADPATH), "ready", url, "--timeout", "60s", "--json"]
    with subprocess.Popen(asking, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as waiting:
        time.sleep(2)
        with serving(tmp_path, port):
            report, _ = waiting.communicate(timeout=90)
    assert waiting.returncode == 0, report
    found = stages(report)
    assert all(state == "holds" for state, _ in found.values())
    assert (found["port"][1] or 0) > 1, "it was asked two seconds before the server was started"
    status, report = run("ready", url, "--timeout", "2s", "--json")
    assert status == 1 and stages(report)["port"][0] == "fails"
