"""What people do to a log before it reaches us: quoted, indented, fenced, wrapped, prefixed, put beside other things.

The root cause stays the same, or becomes less certain; it never becomes another one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import loadpath
from conftest import read_text, shared_file

EXAMPLES = Path(loadpath.__file__).parent / "examples"
IDLE_SMI = (EXAMPLES / "idle-server-smi.txt").read_text("utf-8")


def wrapped(text: str, width: int = 80) -> str:
    return "\n".join(line[i : i + width] for line in text.split("\n") for i in range(0, max(1, len(line)), width))


def each_line(prefix: str) -> Callable[[str], str]:
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


WAYS: dict[str, Callable[[str], str]] = {
    "quoted": each_line("> "),
    "indented": each_line("    "),
    "fenced": lambda text: f"Hi, I get this when I start my server:\n\n```\n{text}\n```\n\nAny idea? Thanks!\n",
    "wrapped": wrapped,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "compose": each_line("server-1  | "),
    "kubectl": each_line("[pod/server-0/main] "),
    "docker-t": each_line("2026-03-14T09:13:42.123456789Z "),
    "utf-16": lambda text: text,  # encoded below
    "idle-smi-after": lambda text: f"{text}\n\n{IDLE_SMI}",
    "idle-smi-before": lambda text: f"{IDLE_SMI}\n\n{text}",
    "last-two-thirds": lambda text: "\n".join(text.split("\n")[-max(3, len(text.split("\n")) * 2 // 3) :]),
}
LOGS = [
    *(("examples", name) for name in ("kv-bf16-refused.log", "oom-other-process.log", "kv-trap-started.log")),
    *(("vllm", f"bad-{name}.log") for name in ("kv-too-small-fat", "port-in-use", "truncated-weights", "tool-parser")),
    *(("sglang", f"bad-{name}.log") for name in ("mem-fraction", "no-tokenizer")),
    *(("llama-cpp", f"bad-{name}.log") for name in ("truncated", "kv-over-ram")),
]


@pytest.mark.parametrize("log", LOGS, ids="/".join)
def test_the_cause_stays(log: tuple[str, str]) -> None:
    folder, name = log
    path = EXAMPLES / name if folder == "examples" else shared_file("captures", folder, name)
    text = path.read_text("utf-8", "replace")
    plain = read_text(text).root
    assert plain is not None
    for way, change in WAYS.items():
        report = loadpath.read_text(change(text)) if way != "utf-16" else utf16(text)
        root = report.root
        if root is None or root.certainty == "possible":
            continue  # less certain is honest
        assert root.boundary == plain.boundary, f"{way}: {root.id} instead of {plain.id}"


def utf16(text: str) -> loadpath.Report:
    from loadpath.reading.service import read_bytes

    return read_bytes([("paste", text.encode("utf-16"))])


def test_a_few_lines_cut_at_a_terminals_edge() -> None:
    text = (
        "docker: Error response from daemon: could not select device driver \"\" with capabil\n"
        "ities: [[gpu]].\n"
    )  # fmt: skip
    root = read_text(text).root
    assert root is not None and root.boundary == "container-injection"
