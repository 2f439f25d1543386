"""What is said of a running engine: its memory on the GPUs is that of its whole family."""

from __future__ import annotations

from typing import Literal

from loadpath.core.case import Case
from loadpath.core.facts.gpu import GpuProcess
from loadpath.core.facts.runtime import EndpointAsked, EngineLog, EngineProcess
from loadpath.core.report import Finding
from loadpath.core.text import Span
from loadpath.core.units import GIB
from loadpath.diagnosis.machine.engines_seen import judge_running

HERE = Span("sample", 1, 1)
HOUR = 3600.0


def engine(**changes: object) -> EngineProcess:
    given = {
        "engine": "vllm",
        "pid": 100,
        "family": (100, 101, 102),
        "age_seconds": 3 * HOUR,
        "ports": (8000,),
        "port": 8000,
    }
    return EngineProcess(span=HERE, text="vllm", **{**given, **changes})  # type: ignore[arg-type]


def judged(*facts: object) -> Finding:
    (found,) = judge_running(Case(facts))  # type: ignore[arg-type]
    return found


def asked(
    status: int | None, error: Literal["", "refused", "timeout", "reset", "no-http", "other"] = "", name: str = "vllm"
) -> EndpointAsked:
    return EndpointAsked(
        span=HERE, text="GET", engine=name, pid=100, url="http://127.0.0.1:8000/health", status=status, error=error
    )


def test_memory_of_its_workers_is_its_own() -> None:
    workers = [
        GpuProcess(span=HERE, pid=pid, index=index, used_bytes=70 * GIB) for index, pid in enumerate((101, 102, 999))
    ]
    found = judged(engine(), asked(200), *workers)
    assert found.id == "engine-running"
    assert "140.00 GiB of GPU 0 and 1" in found.cause or "140.00 GiB of GPU 0-1" in found.cause
    assert "3 h" in found.cause


def test_503_is_a_dead_engine_for_vllm_and_a_load_for_llama_cpp() -> None:
    young = {"age_seconds": 60.0}
    assert judged(engine(**young), asked(503)).id == "engine-unhealthy"
    assert judged(engine(**young, engine="llama.cpp"), asked(503)).id == "engine-starting-still"
    assert "slow disk" in judged(engine(engine="llama.cpp"), asked(503)).cause


def test_a_start_is_left_its_time() -> None:
    assert judged(engine(ports=(), age_seconds=600.0), asked(None, "refused")).id == "engine-starting-still"
    found = judged(engine(ports=()), asked(None, "refused"))
    assert (found.id, found.severity, found.certainty) == ("engine-not-listening", "warning", "likely")


def test_a_log_that_was_not_read_is_said() -> None:
    log = EngineLog(
        span=HERE, engine="vllm", pid=100, how="terminal", where="the terminal /dev/pts/3, which keeps nothing"
    )
    assert "/dev/pts/3" in judged(engine(), asked(200), log).cause


def test_no_port_to_be_seen_is_no_fault_of_a_container() -> None:
    assert judged(engine(ports=(), container="0123456789ab")).id == "engine-running"
