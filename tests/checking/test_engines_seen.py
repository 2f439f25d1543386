"""Layer 10: engines that run here (real processes that play one), and those of a saved machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from loadpath.checking.service import report_on
from loadpath.collect.engine_names import engine_of, port_of
from loadpath.collect.engines import gather_running
from loadpath.collect.probe import Machine
from loadpath.core.report import Report
from loadpath.core.sample import Sample
from machines import Tree

SERVER = """
import http.server, os, sys, time
print("HEAD of the log", flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if MODE == "hang":
            time.sleep(30)
        self.send_response(int(MODE))
        self.end_headers()
        self.wfile.write(b"# TYPE vllm:num_requests_running gauge\\nvllm:num_requests_running{model_name=\\"m\\"} 3.0\\n")
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[0] + ".tmp", "w") as file:
    file.write(str(server.server_port))
os.rename(sys.argv[0] + ".tmp", sys.argv[0] + ".port")
server.serve_forever()
"""
Start = Callable[[str], tuple[subprocess.Popen[bytes], Path]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process that looks like `vllm serve` and answers with a status (or not at all)."""
    begun: list[subprocess.Popen[bytes]] = []

    def started(mode: str) -> tuple[subprocess.Popen[bytes], Path]:
        program, log = tmp_path / "vllm", tmp_path / "server.log"
        program.write_text(f"MODE = {mode!r}\n{SERVER}")
        with log.open("wb") as out:
            process = subprocess.Popen([sys.executable, str(program), "serve", "org/model", "--api-key", "s3cretvalue"],
                                       stdout=out, stderr=subprocess.STDOUT)  # fmt: skip
        begun.append(process)
        for _ in range(100):
            if Path(f"{program}.port").exists() and b"HEAD" in log.read_bytes():
                break
            time.sleep(0.05)
        return process, log

    yield started
    for process in begun:
        process.kill()
        process.wait()


def look(process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, port: int) -> tuple[list[Sample], Report]:
    """What the probe sees of this one process, whatever else runs here."""
    monkeypatch.setattr("loadpath.collect.processes.process_ids", lambda _: [process.pid])
    monkeypatch.setattr("loadpath.collect.engines.port_of", lambda *_: port)
    samples = list(gather_running(Machine()))
    return samples, report_on(samples)


def port_in(log: Path) -> int:
    return int((log.parent / "vllm.port").read_text())


def test_a_running_engine_is_shown_with_flags_port_health_metrics_and_log(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, log = start("200")
    samples, report = look(process, monkeypatch, port_in(log))
    running = next(f for f in report.findings if f.id == "engine-running")
    assert f"answers 200 on port {port_in(log)}" in running.cause
    told = b"".join(sample.data for sample in samples)
    assert b"HEAD of the log" in told
    assert b"vllm:num_requests_running" in told
    assert b"s3cretvalue" not in told
    assert any(f["type"] == "ServingStats" and f["running"] == 3 for f in report.facts)
    assert any(f["type"] == "Setting" for f in report.facts), "its command line is read like any other"
    assert process.poll() is None, "looking changes nothing"


def test_an_engine_that_says_it_is_dead(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process, log = start("503")
    _, report = look(process, monkeypatch, port_in(log))
    assert report.root_cause == "engine-unhealthy"
    assert next(layer.state for layer in report.layers if layer.layer == "engine") == "broken"


def test_an_engine_that_does_not_answer(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process, log = start("hang")
    began = time.monotonic()
    _, report = look(process, monkeypatch, port_in(log))
    assert time.monotonic() - began < 6
    found = next(f for f in report.findings if f.id == "engine-not-answering")
    assert "no answer within 2 s" in found.cause
    with pytest.raises(OSError, match="timed out"):
        urlopen(f"http://127.0.0.1:{port_in(log)}/", timeout=0.2)


@pytest.mark.parametrize(
    ("line", "engine", "port"),
    [
        ("/opt/venv/bin/python3 /opt/venv/bin/vllm serve org/m --port 9000", "vllm", 9000),
        ("python3 -m vllm.entrypoints.openai.api_server --model org/m", "vllm", 8000),
        ("python -m sglang.launch_server --model-path m", "sglang", 30000),
        ("/app/llama-server -m x.gguf --port=8081", "llama.cpp", 8081),
        ("/usr/bin/ollama serve", "ollama", 11434),
        ("trtllm-serve org/m --host 0.0.0.0", "tensorrt-llm", 8000),
        ("bash -c vllm serve org/m", None, 0),
        ("grep vllm serve", None, 0),
        ("vim vllm serve.log", None, 0),
        ("docker run vllm/vllm-openai --model m", None, 0),
    ],
)
def test_engines_are_known_by_their_command_lines(line: str, engine: str | None, port: int) -> None:
    argv = ["bash", "-c", "vllm serve org/m"] if line.startswith("bash") else line.split()
    signs = engine_of(argv)
    assert (signs.engine if signs else None) == engine
    if signs:
        assert port_of(argv, signs) == port


def process(tree: Tree, pid: int, argv: list[str], parent: int = 1, state: str = "S") -> None:
    tree.file(f"/proc/{pid}/cmdline", "\0".join(argv) + "\0")
    fields = [state, str(parent), *["0"] * 17, "50000", "0", "1000", *["0"] * 10]
    tree.file(f"/proc/{pid}/stat", f"{pid} (python3) {' '.join(fields)}")


def test_workers_belong_to_the_engine_that_started_them(tmp_path: Path) -> None:
    tree = Tree.healthy(tmp_path / "machine")
    tree.file("/proc/uptime", "8100.00 100.0")
    process(tree, 100, ["/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve", "org/m", "-tp", "2"])
    process(tree, 101, ["VLLM::EngineCore"], parent=100)
    process(tree, 102, ["VLLM::Worker_TP0"], parent=101, state="D")
    process(tree, 200, ["bash"])
    report = tree.check()
    found = [f for f in report.facts if f["type"] == "EngineProcess"]
    assert len(found) == 1
    assert list(found[0]["family"]) == [100, 101, 102]
    assert found[0]["age_seconds"] == 7600.0
    assert any(f.id == "engine-process-uninterruptible" for f in report.findings)


def test_of_an_engines_environment_only_what_gpu_programs_heed_is_taken(tmp_path: Path) -> None:
    tree = Tree.healthy(tmp_path / "machine")
    process(tree, 100, ["/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve", "org/m"])
    tree.file("/proc/100/environ", "CUDA_VISIBLE_DEVICES=0,1\0VLLM_API_KEY=secretsecret\0HF_TOKEN=hf_x\0MY_PRIVATE=1\0")
    text = next(s for s in gather_running(tree.machine()) if s.name == "engine-environment").data.decode()
    assert text == "CUDA_VISIBLE_DEVICES=0,1\n"


def test_an_engines_own_control_group_is_looked_at(tmp_path: Path) -> None:
    tree = Tree.healthy(tmp_path / "machine")
    process(tree, 100, ["/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve", "org/m"])
    tree.file("/proc/100/cgroup", "0::/system.slice/vllm.service\n")
    tree.file("/sys/fs/cgroup/cgroup.controllers", "memory")
    for name, text in (("memory.max", "1000000"), ("memory.current", "999000"), ("memory.events", "oom_kill 4\n")):
        tree.file(f"/sys/fs/cgroup/system.slice/vllm.service/{name}", text)
    causes = {f.id: f"{f.title} {f.cause}" for f in tree.check().findings}
    assert "vllm.service" in causes["cgroup-memory-nearly-full"]
    assert "4 times" in causes["cgroup-oom-kills"]
