"""Engines on a live machine: what runs, since when, on which memory, and whether it answers."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.gpu import GpuProcess
from loadpath.core.facts.runtime import EndpointAsked, EngineInstalled, EngineLog, EngineProcess
from loadpath.core.report import Finding
from loadpath.core.units import show_bytes, show_seconds
from loadpath.diagnosis.gpu.words import ranges
from loadpath.diagnosis.rule import Rule, finding

NAMES = {"vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp", "ollama": "Ollama", "tensorrt-llm": "TensorRT-LLM",
         "triton": "Triton", "tgi": "TGI", "lmdeploy": "LMDeploy"}  # fmt: skip
START_SECONDS = 30 * 60.0
"""So long a start of a large model may take before anybody wonders."""


def judge_running(case: Case) -> Iterator[Finding]:
    for process in case.all(EngineProcess):
        asked = next((e for e in case.all(EndpointAsked) if e.pid == process.pid), None)
        yield from _wellbeing(case, process, asked)
        if process.stuck:
            values = {"engine": _name(process), "count": len(process.stuck), "first": process.stuck[0]}
            yield finding("engine-process-uninterruptible", [process], case=case, values=values)


def _wellbeing(case: Case, process: EngineProcess, asked: EndpointAsked | None) -> Iterator[Finding]:
    """One finding on each engine: it serves, it starts, or what is wrong with it."""
    age = process.age_seconds
    young = age is not None and age < START_SECONDS
    values = {"engine": _name(process), "pid": process.pid, "port": process.port, "age": show_seconds(age) if age is not None else None,
              "url": asked.url if asked else None, "status": asked.status if asked else None}  # fmt: skip
    shown: list[Fact] = [process, *([asked] if asked else [])]
    listens = process.port in process.ports
    if asked is not None and asked.status is not None and asked.status >= 500:
        # vLLM's server begins to listen when the model is loaded: its 503 is a dead engine at any age.
        if young and asked.status == 503 and process.engine != "vllm":
            yield finding("engine-starting-still", shown, case=case, values=values)
        else:
            yield finding("engine-unhealthy", shown, case=case, values=values, cause=" ".join(_says(process, asked)))
    elif asked is not None and asked.status is None and listens and asked.error in ("timeout", "reset"):
        yield finding(
            "engine-not-answering", shown, case=case, values=values, cause=" ".join(_silence(case, process, asked))
        )
    elif (
        not process.ports and not process.container and (asked is None or asked.error == "refused") and age is not None
    ):
        yield finding("engine-starting-still" if young else "engine-not-listening", shown, case=case, values=values)
    else:
        yield finding("engine-running", shown, case=case, values=values, cause=" ".join(_running(case, process, asked)))


def _says(process: EngineProcess, asked: EndpointAsked) -> Iterator[str]:
    if process.engine == "llama.cpp" and asked.status == 503:
        yield "llama-server answers 503 while it loads the model; so long a load has stalled, or reads from a slow disk."
    elif asked.status == 503:
        yield "The HTTP server is alive and says that the engine behind it is dead or not ready: every request fails."
    else:
        yield f"The HTTP server is alive and its health page fails with {asked.status}."
    if process.age_seconds is not None:
        yield f"It runs since {show_seconds(process.age_seconds)}."


def _silence(case: Case, process: EngineProcess, asked: EndpointAsked) -> Iterator[str]:
    how = "closed the connection" if asked.error == "reset" else "gave no answer within 2 s"
    yield f"It listens on port {process.port}, and {asked.url} {how}: it is blocked, overloaded, or its engine hangs."
    yield from _memory(case, process)


def _running(case: Case, process: EngineProcess, asked: EndpointAsked | None) -> Iterator[str]:
    since = f" since {show_seconds(process.age_seconds)}" if process.age_seconds is not None else ""
    if asked is not None and asked.status is not None:
        yield f"It runs{since} and answers {asked.status} on port {process.port} within {max(asked.seconds, 0.01):.2f} s."
    elif process.port in process.ports:
        yield f"It runs{since} and listens on port {process.port}; it was not asked whether it is well (it is in another network)."
    elif process.ports:
        yield f"It runs{since} and listens on {', '.join(map(str, process.ports[:6]))}, none of which is known as its HTTP port."
    else:
        yield f"It runs{since}; its ports cannot be seen from here{' (it is in a container)' if process.container else ''}."
    yield from _memory(case, process)
    log = next((x for x in case.all(EngineLog) if x.pid == process.pid), None)
    if log is not None and not log.read and log.where:
        yield f"Its output goes to {log.where}, and was not read."


def _memory(case: Case, process: EngineProcess) -> Iterator[str]:
    """What its processes hold on the GPUs; numbers of processes are the same only outside containers."""
    own = {}
    for p in case.all(GpuProcess):
        if p.pid in process.family and p.used_bytes is not None:
            own[p.pid, p.index if p.index is not None else p.uuid] = p
    if not own:
        return
    total = sum(p.used_bytes or 0 for p in own.values())
    indices = sorted({p.index for p in own.values() if p.index is not None})
    where = f" of GPU {ranges(indices)}" if indices else ""
    yield f"Its processes hold {show_bytes(total)}{where}."


def _name(process: EngineProcess) -> str:
    return NAMES.get(process.engine, process.engine)


def judge_installed(case: Case) -> Iterator[Finding]:
    found = case.all(EngineInstalled)
    names = {f"{NAMES.get(e.engine, e.engine)}{f' {e.version}' if e.version else ''}" for e in found}
    yield finding("engines-installed", found[:4], case=case, values={"names": ", ".join(sorted(names))})


RULES = (
    Rule(judge_running, (EngineProcess,), (
        "engine-running", "engine-starting-still", "engine-not-answering", "engine-unhealthy", "engine-not-listening",
        "engine-process-uninterruptible",
    ), uses=(EndpointAsked, EngineLog, GpuProcess)),
    Rule(judge_installed, (EngineInstalled,), ("engines-installed",)),
)  # fmt: skip
