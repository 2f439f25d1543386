"""`make bench`: how fast `loadpath read` is beside grep and plain reading, what memory it takes, how fast it starts; how
much load `loadpath bench` makes beside other clients.

All figures are of one run on one machine, so compare the ratios. `LOADPATH_BENCH_MIB` sets the log's size.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import gpu_library
import serving_log
from bench_clients import clients

from planning import planning

LOADPATH = Path(sys.executable).with_name("loadpath")
GOAL_SPEED, GOAL_SHARE = 300, 1 / 3  # MB/s, or this share of grep's speed
GOAL_MEMORY = 200  # MiB
GOAL_VERSION, GOAL_READ = 80, 250  # ms
GOAL_KERNELS = 2  # s, for a library of 1 GB
STARTS = 9  # cold starts of which the median counts


@dataclass(frozen=True)
class Cost:
    """What one command took: seconds by the clock, and its largest resident memory in MiB."""

    seconds: float
    peak_mib: float


def cost(command: Sequence[str], environment: dict[str, str], stdin: IO[bytes] | None = None) -> Cost:
    """Run a command to its end. Its output goes to a file: grep stops early where it is thrown away."""
    with tempfile.TemporaryFile() as output:
        begun = time.perf_counter()
        child = subprocess.Popen(command, stdin=stdin, stdout=output, stderr=subprocess.STDOUT, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 1, 3):
            output.seek(0)
            raise SystemExit(f"{' '.join(command[:3])} … failed: {output.read(2000).decode('utf-8', 'replace')}")
    return Cost(seconds, usage.ru_maxrss / 1024)


def read_through(log: Path) -> float:
    """Seconds that plain reading takes, 1 MiB at a time."""
    begun = time.perf_counter()
    with log.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass
    return time.perf_counter() - begun


def piped(log: Path, environment: dict[str, str]) -> Cost:
    """`cat log | loadpath read -`."""
    with subprocess.Popen(["cat", str(log)], stdout=subprocess.PIPE) as source:
        return cost([str(LOADPATH), "read", "--json", "-"], environment, source.stdout)


def literals_file(folder: Path) -> tuple[Path, int]:
    """The literals that `read` looks for, one a line, escaped for grep -E."""
    import re

    from loadpath.reading.signs import signs

    literals = sorted(sign.literal for sign in signs())
    path = folder / "literals"
    path.write_text("".join(re.sub(r"([\\.^$*+?()\[\]{}|])", r"\\\1", literal) + "\n" for literal in literals))
    return path, len(literals)


def median_start(command: Sequence[str], environment: dict[str, str]) -> float:
    """Milliseconds of a command's cold start: a new process each time, files in the page cache, compiled once."""
    cost(command, environment)
    return 1000 * statistics.median(cost(command, environment).seconds for _ in range(STARTS))


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def main() -> None:
    size = int(os.environ.get("LOADPATH_BENCH_MIB", "1024")) << 20
    folder = Path(tempfile.mkdtemp(prefix="loadpath-bench-"))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"LC_ALL": "C", "PYTHONPYCACHEPREFIX": str(folder / "pyc"), "LOADPATH_CACHE": str(folder / "cache")}
    try:
        throughput(folder, size, environment)
        starts(folder, environment)
        planning(folder, LOADPATH, lambda command: median_start(command, environment))
        compiled_kernels(folder, environment)
        clients(folder, environment)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def throughput(folder: Path, size: int, environment: dict[str, str]) -> None:
    log = folder / "serving.log"
    # In a process of its own: a child's peak memory counts what its parent held when it was forked.
    subprocess.run([sys.executable, serving_log.__file__, str(log), str(size)], check=True)
    megabytes = log.stat().st_size / 1e6
    patterns, count = literals_file(folder)
    cost([str(LOADPATH), "--version"], environment)
    read_through(log)  # into the page cache
    plain = Cost(read_through(log), 0)
    grep = cost(["grep", "-cE", "-f", str(patterns), str(log)], environment)
    read = cost([str(LOADPATH), "read", "--json", str(log)], environment)
    pipe = piped(log, environment)
    speed = {
        name: megabytes / c.seconds for name, c in (("plain", plain), ("grep", grep), ("read", read), ("pipe", pipe))
    }
    print(f"serving log of {megabytes:,.0f} MB, one line in {serving_log.EVERY} matters, {count:,} literals")
    print(f"  reading it              {speed['plain']:8,.0f} MB/s")
    print(
        f"  grep -cE, same literals {speed['grep']:8,.0f} MB/s   read is {speed['read'] / speed['grep']:.2f} times as fast"
    )
    met = speed["read"] >= GOAL_SPEED or speed["read"] >= GOAL_SHARE * speed["grep"]
    print(f"  loadpath read FILE      {speed['read']:8,.0f} MB/s   {speed['read'] / speed['plain']:.3f} of reading it; "
          f"goal {GOAL_SPEED} MB/s or a third of grep: {verdict(met)}")  # fmt: skip
    print(f"  loadpath read - (pipe)  {speed['pipe']:8,.0f} MB/s")
    peak = max(read.peak_mib, pipe.peak_mib)
    print(f"  peak memory {read.peak_mib:.0f} MiB from a file, {pipe.peak_mib:.0f} MiB from a pipe; "
          f"goal below {GOAL_MEMORY} MiB: {verdict(peak < GOAL_MEMORY)}")  # fmt: skip


def starts(folder: Path, environment: dict[str, str]) -> None:
    log = folder / "short.log"
    log.write_text("\n".join(line for _, line in zip(range(300), serving_log.lines(1 << 20), strict=False)) + "\n")
    version = median_start([str(LOADPATH), "--version"], environment)
    read = median_start([str(LOADPATH), "read", str(log)], environment)
    print(f"cold start (median of {STARTS})")
    print(
        f"  loadpath --version      {version:8.0f} ms     goal below {GOAL_VERSION} ms: {verdict(version < GOAL_VERSION)}"
    )
    print(f"  read of 300 lines       {read:8.0f} ms     goal below {GOAL_READ} ms: {verdict(read < GOAL_READ)}")


def compiled_kernels(folder: Path, environment: dict[str, str]) -> None:
    """Listing the architectures in a library of 1 GiB; in a real one too, beside cuobjdump, where
    `LOADPATH_BENCH_LIBRARY` names one."""
    library = folder / "libkernels.so"
    gpu_library.write(library)
    real = os.environ.get("LOADPATH_BENCH_LIBRARY")
    print("architectures in a library with GPU code")
    for path in (str(library), *([real] if real else [])):
        listed = [sys.executable, gpu_library.__file__, path]
        cost(listed, environment)
        ours = cost(listed, environment)
        print(f"  {Path(path).name:24} {Path(path).stat().st_size / 1e6:8,.0f} MB in {ours.seconds:.2f} s, peak "
              f"{ours.peak_mib:.0f} MiB; goal below {GOAL_KERNELS} s: {verdict(ours.seconds < GOAL_KERNELS)}")  # fmt: skip
    if real and (tool := shutil.which("cuobjdump")):
        theirs = cost([tool, "-all", "--list-elf", "--list-ptx", real], environment)
        print(f"  cuobjdump --list-elf --list-ptx {theirs.seconds:.2f} s, peak {theirs.peak_mib:.0f} MiB")


if __name__ == "__main__":
    main()
