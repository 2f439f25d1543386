"""A report reads well in every form: verdict first, remedies with their effects, nothing lost, nothing unescaped."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from loadpath.core.report import (
    CaptureReport,
    Check,
    Evidence,
    Finding,
    MemoryLedger,
    MemoryPart,
    Remedy,
    Report,
    Skipped,
    StepReport,
    Verdict,
)
from loadpath.core.units import GIB
from loadpath.rendering.html import to_html
from loadpath.rendering.machine import schema, to_json
from loadpath.rendering.markdown import to_markdown
from loadpath.rendering.terminal import console, show

ROOT = Finding(
    id="kv-cache-below-one-request", severity="error", certainty="established", step="kv-pool", boundary="memory-fit",
    title="The KV cache holds less than one request", cause="It holds 8,192 tokens; 32,768 were asked for <here>.",
    evidence=(Evidence("start.log", 41, "Available KV cache memory: 3.5 GiB"),),
    remedies=(Remedy("Lower the context", "--max-model-len 8000", "one request fits", suffices=True),
              Remedy("Raise the share", "--gpu-memory-utilization 0.95", "adds 4.75 GiB", suffices=False)),
    next_checks=(Check("Is the card free", "nvidia-smi"),), operator_action="change-settings", blast_radius="process",
    consequences=("engine-core-failed",),
)  # fmt: skip
NOTE = msgspec.structs.replace(
    ROOT, id="custom-all-reduce-off", severity="info", title="Custom all-reduce is off: harmless", remedies=()
)
REPORT = Report(
    verdict=Verdict("failed", "The KV cache holds less than one request."), root_cause=ROOT.id, findings=(ROOT, NOTE),
    steps=(StepReport("weight-load", "done", 12.3), StepReport("kv-pool", "failed"), StepReport("serving", "unseen")),
    memory=(MemoryLedger(0, 95 * GIB, (MemoryPart("weights", 54 * GIB), MemoryPart("kv_pool", 26 * GIB, "computed")), 85 * GIB, 0.9),),
    holds=("hardware-kernel",), captures=(CaptureReport("vllm-log", "start.log", 1, 60),),
    skipped=(Skipped("gpu_state.owners", "needs GpuState, not in this input"),), notes=("Start 1 of 2 came up.",),
)  # fmt: skip


def terminal(report: Report, width: int = 80) -> str:
    out = io.StringIO()
    show(report, console(color=False, width=width, file=out))
    return out.getvalue()


def test_terminal_says_the_verdict_first_and_everything_after() -> None:
    text = terminal(REPORT)
    assert text.splitlines()[0].strip().startswith("FAILED")
    for said in ("start.log:41", "--max-model-len 8000", "suffices alone", "adds 4.75 GiB", "$ nvidia-smi", "12 s",
                 "engine-core-failed", "54.00 GiB", "computed", "hardware-kernel", "Start 1 of 2", "not seen here: serving"):  # fmt: skip
        assert said in text, f"{said!r} is missing from:\n{text}"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_terminal_keeps_to_its_width(width: int) -> None:
    text = terminal(REPORT, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert not re.search(r" +$", text, re.M), "no blanks at the ends of lines"


def test_no_colour_in_a_pipe() -> None:
    assert "\x1b" not in terminal(REPORT)


def test_markdown_has_fences_and_commands() -> None:
    text = to_markdown(REPORT)
    assert text.startswith("## Failed: ")
    assert "```text\nstart.log:41: Available KV cache memory: 3.5 GiB\n```" in text
    assert "`--max-model-len 8000`" in text and "| weights | 54.00 GiB | read |" in text


class Balanced(HTMLParser):
    """Checks that every tag is closed, and keeps what is shown."""

    VOID = ("br", "meta")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said += data


def test_html_is_whole_escaped_and_asks_for_nothing() -> None:
    page = to_html(REPORT)
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "32,768 were asked for <here>." in parser.said, "text is escaped, not lost"
    assert not re.search(r"<script|src=|https?://", page), "one file, no script, no network"


def test_json_keeps_the_contract() -> None:
    made = json.loads(to_json(REPORT))
    assert made["schema"] == "loadpath.report/1" and made["root_cause"] == ROOT.id
    assert msgspec.convert(made, Report) == REPORT
    assert set(made) <= set(schema()["$defs"]["Report"]["properties"])
