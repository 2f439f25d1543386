"""SGLang's graph capture failed: out of memory, or a kernel that cannot serve this model.

SGLang prints the same advice about memory for every failure of capture. Whether memory was short is told by the error
text and by what was free when capture began; out of memory itself is judged with the other memory rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import StepMark
from loadpath.core.facts.errors import OutOfMemory, PythonException, Symptom
from loadpath.core.facts.placement import FreeMemory
from loadpath.core.report import Finding
from loadpath.core.units import gib, show_bytes
from loadpath.diagnosis.rule import Rule, finding

KERNEL, FAILED = "sglang-graph-capture-kernel", "sglang-capture-failed"
ENOUGH = gib(1.0)  # free when capture begins: a few batch sizes take some hundred MiB
_UNSUPPORTED = re.compile(
    r"head|dispatch|not support|unsupported|invalid (?:config|shape)|page_size|assert", re.IGNORECASE
)
_NAMES = {"flashinfer": "FlashInfer", "flashinfer_mla": "FlashInfer (MLA)", "fa3": "FlashAttention 3",
          "flashattention": "FlashAttention", "triton": "Triton"}  # fmt: skip


def judge(case: Case) -> Iterator[Finding]:
    frames = case.symptoms(KERNEL)
    failed = case.symptoms(FAILED)
    capturing = [m for m in case.all(StepMark) if m.step == "graph-capture"]
    began = next((m for m in reversed(capturing) if m.event in ("began", "failed")), None)
    ended = began is not None and any(
        m.event == "ended" and m.span.first_line > began.span.first_line for m in capturing
    )
    if (began is None or ended) and not failed:
        return
    if case.has(OutOfMemory) or any("out of memory" in s.groups.get("error", "").lower() for s in failed):
        return
    free = _free_before(case, began)
    inside = [s for s in frames if began is None or s.span.first_line >= began.span.first_line or s.run == began.run]
    if inside and _about_kernel(case, failed):
        yield _kernel(case, inside, failed, free)
    elif failed:
        yield _other(case, failed, free)


def _about_kernel(case: Case, failed: list[Symptom]) -> bool:
    """Whether nothing more telling is known: the exception is not in the paste, or speaks of an unsupported shape."""
    texts = [s.groups["error"] for s in failed if s.groups.get("error")]
    texts += [e.message for e in case.all(PythonException) if "graph failed" not in e.message]
    return not texts or any(_UNSUPPORTED.search(text) for text in texts)


def _free_before(case: Case, began: Fact | None) -> FreeMemory | None:
    """What was free when capture began: on that line, or at the end of the memory pools."""
    line = began.span.first_line if began else 1 << 60
    figures = [f for f in case.all(FreeMemory) if f.when in ("before-graphs", "after-kv-pool")]
    known = [f for f in figures if f.span.first_line <= line]
    return known[-1] if known else None


def _memory(free: FreeMemory | None) -> str:
    if free is None:
        return "No out-of-memory text is here; the advice about memory that SGLang prints for any failed capture is not about it."
    if free.bytes >= ENOUGH:
        return (
            f"{show_bytes(free.bytes)} of GPU memory were still free, so memory is not what is short: the advice to change "
            "memory settings, which SGLang prints for any failed capture, does not help."
        )
    return f"Only {show_bytes(free.bytes)} were free when capture began, so memory may be short as well."


def _kernel(case: Case, frames: list[Symptom], failed: list[Symptom], free: FreeMemory | None) -> Finding:
    last = frames[-1]
    backend = _NAMES.get(last.groups.get("backend", ""), last.groups.get("backend", "the attention backend"))
    function = last.groups.get("function")
    head = next((h for s in frames for h in (s.groups.get("head"), s.groups.get("head2")) if h), None)
    where = f" (in {function})" if function else ""
    size = f"a head size of {head}" if head else "this model's head size (one other than 64, 128 or 256) or data type"
    cause = (
        f"Capture broke off in {backend}'s planning of attention{where}. {_memory(free)} "
        f"Likely {backend} has no kernel for {size}; the exception's own last line is not in this paste."
    )
    if head or failed:
        cause = cause.replace("; the exception's own last line is not in this paste", "")
    if last.groups.get("backend") == "triton":
        cause = f"Capture broke off in Triton's attention kernels{where}. {_memory(free)}"
        cause += " The exception under this traceback names the reason."
    evidence: list[Fact] = [*([free] if free else []), *frames[-2:], *failed[:1]]
    return finding(
        KERNEL, evidence, case=case, cause=cause,
        title=f"CUDA graph capture failed in {backend}, not for want of memory",
    )  # fmt: skip


def _other(case: Case, failed: list[Symptom], free: FreeMemory | None) -> Finding:
    error = next((s.groups["error"] for s in failed if s.groups.get("error")), "")
    raised = next((e for e in case.all(PythonException) if e.run == failed[0].run), None)
    said = error or (f"{raised.exception}: {raised.message}" if raised else "")
    cause = f"{f'It says: {said[:240]}. ' if said else ''}{_memory(free)}"
    return finding(FAILED, [*failed[:2], *([free] if free else [])], case=case, cause=cause)


RULES = (Rule(judge, (Symptom,), (KERNEL, FAILED), uses=(StepMark, FreeMemory, OutOfMemory)),)
