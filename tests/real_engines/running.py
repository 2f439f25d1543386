"""Real servers in processes of their own, and `loadpath` used on them as a person would."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from loadpath.core.traffic import BenchResult, Figures
from loadpath.traffic.result_file import from_json

TOP = Path(__file__).resolve().parents[2]
LOADPATH = Path(sys.executable).with_name("loadpath")


@dataclass
class Server:
    """One that answers at `url`, and what it printed until now in `log`."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """It and everything that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def server(command: list[str], port: int, log: Path, limit: float, environment: Mapping[str, str] = {}) -> Iterator[Server]:  # fmt: skip
    """Start it and wait until it lists its model; it is killed at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **environment},
        )  # fmt: skip
    running = Server(f"http://127.0.0.1:{port}", log, process)
    try:
        until = time.monotonic() + limit
        while not _lists_models(running.url):
            assert process.poll() is None, f"it ended with {process.returncode}: {_tail(log)}"
            assert time.monotonic() < until, f"not ready within {limit:g} s: {_tail(log)}"
            time.sleep(0.2)
        yield running
    finally:
        running.kill()


def _lists_models(url: str) -> bool:
    try:
        with urlopen(f"{url}/v1/models", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _tail(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-1500:]


@dataclass
class Measured:
    """What `loadpath bench` left: its exit status, its result, its report."""

    status: int
    result: BenchResult
    report: dict[str, Any]

    @property
    def figures(self) -> Figures:
        found = self.result.levels[-1].figures
        assert found is not None
        return found


def bench(folder: Path, url: str, *arguments: str) -> Measured:
    """Run it to its end."""
    saved = folder / "result.json"
    command = [str(LOADPATH), "bench", url, "--json", "--no-plot", "--save", str(saved), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1, 3), done.stderr
    return Measured(done.returncode, from_json(saved.read_bytes()), json.loads(done.stdout))


def run(*arguments: str, timeout: float = 240) -> tuple[int, str]:
    """`loadpath …`: its exit status and standard output."""
    done = subprocess.run([str(LOADPATH), *arguments], capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout


def stages(report: str) -> dict[str, tuple[str, float | None]]:
    """Of `loadpath ready --json`: stage → (state, seconds that it took)."""
    table = next(table for table in json.loads(report)["tables"] if table["id"] == "readiness")
    return {row[0]: (row[1], row[2]) for row in table["rows"]}
