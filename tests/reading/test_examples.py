"""The walk-through of one card: every bundled example says what it is there to show."""

from __future__ import annotations

from pathlib import Path

import pytest

import loadpath

EXAMPLES = Path(loadpath.__file__).parent / "examples"
SAYS: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "no-driver.txt": ("failed", "hardware-kernel", ("570", "nvidia-driver-580-server-open")),
    "installed-idle.txt": ("healthy", None, ("4 of 97,887 MiB",)),
    "shm-too-small.txt": ("failed", "host-limits", ("64 MiB", "--shm-size", "--ipc=host")),
    "kv-bf16-refused.log": ("failed", "memory-fit", ("26.09 GiB", "0.25x", "4.75 GiB", "do not belong together")),
    "kv-fp8-healthy.log": ("healthy", None, ("5.37", "54.79 GiB", "A restart of this server")),
    "idle-server-smi.txt": ("healthy", None, ("87,920 of 97,887 MiB", "not a leak")),
    "dmon-busy.txt": ("healthy", None, ("412-428 of 600 W",)),
    "dmon-not-filled.txt": ("degraded", "performance", ("dcgmi dmon", "not occupied SMs")),
    "fp8-fallback.log": ("degraded", "arch", ("Marlin", "sm_120")),
    "kv-trap-started.log": ("degraded", "memory-fit", ("0.89x", "until the first long one")),
    "oom-other-process.log": ("failed", "memory-fit", ("27.64 GiB", "31877")),
}


def test_no_example_is_forgotten() -> None:
    assert {p.name for p in EXAMPLES.iterdir() if p.is_file()} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_example(name: str) -> None:
    state, boundary, words = SAYS[name]
    report = loadpath.read(EXAMPLES / name)
    root = report.root
    assert (report.verdict.state, root.boundary if root else None) == (state, boundary)
    shown = [report.verdict.sentence] + [
        text for f in report.findings for text in (f.title, f.cause, *(t for r in f.remedies for t in (r.action, r.command, r.effect)),
                                                   *(c.command for c in f.next_checks))
    ]  # fmt: skip
    for word in words:
        assert any(word in text for text in shown), f"{word!r} is not said: {shown}"


def test_two_starts_of_one_model_that_cannot_belong_together() -> None:
    both = (EXAMPLES / "kv-bf16-refused.log").read_text("utf-8") + (EXAMPLES / "kv-fp8-healthy.log").read_text("utf-8")
    report = loadpath.read_text(both)
    assert report.verdict.state in ("healthy", "degraded"), "the last start decides"
    assert any("1 of 2" in note and "failed" in note for note in report.notes)
    assert any(f.id == "runs-do-not-belong-together" for f in report.findings)
