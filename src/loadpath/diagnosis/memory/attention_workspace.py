"""FlashInfer's workspace: a buffer of fixed size that a batch plan overflows, while GPU memory may be plenty."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.errors import PythonException, Symptom
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import MIB, show_bytes
from loadpath.core.vocabulary import FindingStep
from loadpath.diagnosis.ladder import step_at
from loadpath.diagnosis.memory.fits import engine_of
from loadpath.diagnosis.memory.oom_words import says
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag

WRAPPED_SIZE = 2  # index of the pattern that knows the second line of a wrapped message
ID = "flashinfer-workspace-too-small"
DEFAULTS = {"sglang": 384 * MIB, "vllm": 394 * MIB}
VARIABLES = {"sglang": "SGLANG_FLASHINFER_WORKSPACE_SIZE", "vllm": "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE"}
# Frames that tell the step, outermost first: a start's own passes run the same plan as a request.
_STEPS: tuple[tuple[FindingStep, tuple[str, ...]], ...] = (
    ("memory-profiling", ("profile_run", "determine_available_memory", "determine_num_available_blocks")),
    ("graph-capture", ("capture_model", "cuda_graph_runner", "init_cuda_graphs", "capture cuda graph failed")),
    ("serving", ("event_loop_normal", "event_loop_overlap", "run_busy_loop", "run_batch", "forward_thread_func", "post /")),
)  # fmt: skip


def judge(case: Case) -> Iterator[Finding]:
    shown = case.symptoms(ID)
    if not shown:
        return
    fact, groups = shown[-1], {name: value for s in shown for name, value in s.groups.items()}
    if not any(s.match != WRAPPED_SIZE for s in shown):
        return  # the words of a wrapped line alone are too general
    engine = engine_of(case, fact)
    size, held = _number(groups.get("size")), _number(groups.get("available"))
    values = {
        "asked": f"{show_bytes(size)} ({size} bytes)" if size else "",
        "held": show_bytes(held) if held is not None else "",
        "buffer": groups.get("buffer", ""),
        "default": show_bytes(DEFAULTS[engine]) if engine in DEFAULTS and held is None else "",
    }
    yield finding(
        ID, shown, case=case, values=values, remedies=_remedies(engine, size), step=_step(case, fact),
        figures={"requested_bytes": size, "available_bytes": held},
    )  # fmt: skip


def _step(case: Case, fact: Symptom) -> FindingStep:
    frames = " ".join(frame[2] for e in case.all(PythonException) for frame in e.frames)
    for step, words in _STEPS:
        if any(word in frames for word in words) or says(case, fact, *words, back=150):
            return step
    seen = step_at(case, fact)
    return "serving" if seen == "unseen" else seen


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _remedies(engine: str | None, size: int | None) -> tuple[Remedy, ...]:
    to = 1 << max(29, int((size or 0) * 1.2).bit_length())
    names = [VARIABLES[engine]] if engine in VARIABLES else list(VARIABLES.values())
    larger = Remedy(
        f"Give the workspace {show_bytes(to)}", " or ".join(f"{name}={to}" for name in names),
        "it is taken from the GPU once at the start; the KV cache gives it up",
    )  # fmt: skip
    other = flag(engine, "attention-backend", "triton" if engine == "sglang" else "FLASH_ATTN")
    sequences, tokens = flag(engine, "sequences", 64), flag(engine, "batched-tokens", 4096)
    return (
        larger,
        Remedy("Use another attention backend, which has no such buffer", other or "--attention-backend triton"),
        Remedy("Run smaller batches: fewer requests and tokens in one step", f"{sequences} {tokens}".strip()),
        Remedy("Update the engine: newer releases size the buffer by the model's heads and batch",
               f"pip install -U {engine if engine in VARIABLES else 'flashinfer-python'}"),
    )  # fmt: skip


RULES = (Rule(judge, (Symptom,), (ID,), uses=(PythonException,)),)
