"""How much load one client makes: requests and chunks a second of one core, beside other clients on the same server.

What a client costs is the CPU time of a long run less that of a short one, so that its start and its imports do not
count; its report does. With streams that are paced, what it adds to the gaps between tokens.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.request import urlopen

import sse_stub
from environments import CannotMake
from rivals import RIVALS, Client, Work, write_tokenizer

GOAL_RATIO = 3  # times the best of the others, per core
GOAL_ADDED = 1.0  # ms, at p99, with so many streams:
PACED_STREAMS, PACED_REQUESTS, STEP = 200, 800, 0.020
PACED_TOKENS = "50:150"  # lengths differ, so that streams end and begin all the time, as they do in an engine
TOKENS = 256  # of a long answer
LIMIT = 150  # seconds of a run


def loadpath_bench(work: Work, *further: str) -> list[str]:
    return [
        str(Path(sys.executable).with_name("loadpath")), "bench", work.url, "--requests", str(work.requests),
        "--concurrency", str(work.streams), "--input-tokens", str(work.inputs), "--output-tokens", str(work.tokens),
        "--warmup", "0", "--no-metrics", "--no-plot", "--json", *further,
    ]  # fmt: skip


OURS = Client("loadpath bench", loadpath_bench, (1000, 21_000), (64, 2064))


@contextlib.contextmanager
def stub(step: float = 0.0) -> Iterator[str]:
    """The server, on the first core; its URL."""
    with subprocess.Popen([sys.executable, sse_stub.__file__, str(step)], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
            if step:
                first_of_all(server.pid)
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def first_of_all(process: int) -> None:
    """Real-time priority where the system grants it: other work on the machine would show as milliseconds of ours."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(process, os.SCHED_FIFO, os.sched_param(1))


def cpu_seconds(command: list[str], environment: dict[str, str], *, first: bool = False) -> float:
    """CPU time of a command and the processes that it started, on the last core. Raises CannotMake where it fails."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}),
        )  # fmt: skip
        if first:
            first_of_all(child.pid)
        until = time.monotonic() + LIMIT
        while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > until:
                os.killpg(child.pid, 9)
                child.wait()
                raise CannotMake(f"no end within {LIMIT} s")
            time.sleep(0.05)
        child.returncode = os.waitstatus_to_exitcode(ended[1])
        if child.returncode:
            output.seek(0)
            words = output.read().decode("utf-8", "replace").strip()
            raise CannotMake(f"exit status {child.returncode}: {' '.join(words.split())[-200:]}")
        return ended[2].ru_utime + ended[2].ru_stime


def per_core(client: Client, url: str, folder: Path, environment: dict[str, str], tokens: int) -> float:
    """Requests that a core's second is enough for."""
    counts = client.requests if tokens == 1 else client.streams
    environment = {**environment, **client.environment}
    costs = [cpu_seconds(client.command(Work(url, n, tokens, folder)), environment) for n in counts]
    if costs[1] <= costs[0]:
        raise CannotMake("a longer run took no more CPU time: too noisy to tell")
    return (counts[1] - counts[0]) / (costs[1] - costs[0])


def added_to_gaps(folder: Path, environment: dict[str, str]) -> list[float]:
    """Milliseconds by which each gap between tokens was measured longer than it was sent (paced streams), sorted."""
    saved = folder / "paced.json"
    with stub(STEP) as url:
        work = Work(url, PACED_REQUESTS, 0, folder, streams=PACED_STREAMS)
        cpu_seconds(
            loadpath_bench(work, "--output-tokens", PACED_TOKENS, "--save", str(saved)), environment, first=True
        )
        with urlopen(f"{url}/truth") as answer:
            truth = json.load(answer)
    found = []
    for exchange in json.loads(saved.read_bytes())["exchanges"]:
        sent = truth[str(exchange["cached_tokens"])]  # the stub numbers its answers so
        if exchange.get("phase", "measured") == "measured" and len(sent) == len(exchange["chunk_times"]):
            gaps = zip(pairwise(exchange["chunk_times"]), pairwise(sent), strict=True)
            found += [1e3 * ((b - a) - (y - x)) for (a, b), (x, y) in gaps]
    return sorted(found)


def clients(folder: Path, environment: dict[str, str]) -> None:
    """Print the figures. `LOADPATH_BENCH_RIVALS=0` leaves the others out."""
    write_tokenizer(folder / "tokenizer")
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1",
             "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "1"}  # fmt: skip
    environment = {**environment, **quiet}
    print(f"clients of one server, {RIVALS[0].name} and others in environments of their own; per second of a core")
    others = RIVALS if os.environ.get("LOADPATH_BENCH_RIVALS", "1") != "0" else ()
    best = [0.0, 0.0]
    own = [0.0, 0.0]
    with stub() as url:
        for client in (*others, OURS):
            try:
                rates = [per_core(client, url, folder, environment, tokens) for tokens in (1, TOKENS)]
            except CannotMake as why:
                print(f"  {client.name:18} skipped: {why}")
                continue
            rates[1] *= TOKENS
            print(f"  {client.name:18} {rates[0]:10,.0f} requests/s  {rates[1]:12,.0f} chunks/s")
            if client is OURS:
                own = rates
            else:
                best = [max(pair) for pair in zip(best, rates, strict=True)]
    if all(best):
        ratios = [mine / theirs for mine, theirs in zip(own, best, strict=True)]
        print(f"  {ratios[0]:.1f} times the requests and {ratios[1]:.1f} times the chunks of the best other; "
              f"goal {GOAL_RATIO}: {_met(min(ratios) >= GOAL_RATIO)}")  # fmt: skip
    added = added_to_gaps(folder, environment)
    p99 = statistics.quantiles(added, n=100)[98]
    print(f"  {PACED_STREAMS} streams, a chunk each every {STEP * 1e3:.0f} ms: {p99:.2f} ms added to a gap at p99 of {len(added):,}; "
          f"goal below {GOAL_ADDED:g} ms: {_met(p99 < GOAL_ADDED)}")  # fmt: skip


def _met(yes: bool) -> str:
    return "met" if yes else "MISSED"


if __name__ == "__main__":
    scratch = Path(tempfile.mkdtemp(prefix="loadpath-clients-"))
    try:
        clients(scratch, dict(os.environ))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
