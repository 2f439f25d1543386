"""What kubectl prints, whole or in fragments."""

from __future__ import annotations

from typing import TypeVar

from loadpath.core.facts.base import Fact
from loadpath.core.facts.container import (
    ContainerState,
    EventListed,
    PodListed,
    ProbeConfigured,
    ProbeFailed,
    ProbeKilled,
)
from loadpath.core.facts.engine import Setting
from loadpath.core.text import Capture
from loadpath.intake.clean import clean
from loadpath.readers.containers import kubectl_describe, kubernetes

F = TypeVar("F", bound=Fact)
DESCRIBE = """Name:             llm-0
Namespace:        prod
Node:             gpu-1/10.0.0.1
Containers:
  vllm:
    Container ID:  containerd://aaaa
    Image:         vllm/vllm-openai:v0.10.0
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Tue, 06 May 2025 10:00:00 +0000
    Ready:          False
    Restart Count:  5
    Limits:
      memory:          16Gi
      nvidia.com/gpu:  1
    Liveness:   http-get http://:8000/health delay=60s timeout=1s period=10s #success=1 #failure=3
    Mounts:
      /dev/shm from shm (rw)
Events:
  Type     Reason     Age                From     Message
  ----     ------     ----               ----     -------
  Normal   Pulled     9m                 kubelet  Successfully pulled image
  Warning  Unhealthy  2m (x15 over 9m)   kubelet  Liveness probe failed: Get "http://10.0.0.9:8000/health": dial tcp 10.0.0.9:8000: connect: connection refused
  Normal   Killing    2m (x5 over 8m)    kubelet  Container vllm failed liveness probe, will be restarted
"""  # noqa: E501


def facts(text: str) -> list[Fact]:
    return list(kubernetes.read(Capture("kubectl", "paste", tuple(clean(text.encode())))))


def only(kind: type[F], found: list[Fact]) -> list[F]:
    return [fact for fact in found if isinstance(fact, kind)]


def test_a_described_pod() -> None:
    found = facts(DESCRIBE)
    waiting, ended, restarts = only(ContainerState, found)
    assert (waiting.name, waiting.reason) == ("vllm", "CrashLoopBackOff")
    assert (ended.exit_code, ended.oom_killed, ended.previous) == (137, True, True)
    assert restarts.restarts == 5
    settings = {s.name: s.value for s in only(Setting, found)}
    assert settings["k8s:limits.memory"] == "16Gi" and settings["k8s:shm-mounted"] == "True"
    (probe,) = only(ProbeConfigured, found)
    assert (probe.path, probe.port, probe.patience_seconds) == ("/health", "8000", 90)


def test_events_of_a_pod() -> None:
    found = facts(DESCRIBE)
    (failed,) = only(ProbeFailed, found)
    assert (failed.probe, failed.how, failed.port, failed.times, failed.over_seconds) == (
        "liveness",
        "refused",
        "8000",
        15,
        540,
    )
    (killed,) = only(ProbeKilled, found)
    assert (killed.container, killed.times) == ("vllm", 5)
    assert [event.reason for event in only(EventListed, found)] == ["Pulled", "Unhealthy", "Killing"]


def test_rows_of_get_pods_in_both_forms() -> None:
    rows = only(PodListed, facts(
        "pod/vllm-57c8d4996c-qtr8b   0/1     Running   6 (118s ago)   20m\n"
        "gpu-operator   nvidia-driver-daemonset-klj5s   1/1     Init:0/1   0   14m\n"
    ))  # fmt: skip
    assert [(r.name, r.ready, r.containers, r.status, r.restarts) for r in rows] == [
        ("vllm-57c8d4996c-qtr8b", 0, 1, "Running", 6),
        ("nvidia-driver-daemonset-klj5s", 1, 1, "Init:0/1", 0),
    ]


def test_a_whole_description_is_one_capture() -> None:
    lines = clean((DESCRIBE + "\nINFO next log line\n").encode())
    assert kubectl_describe.extent(lines, 0) == len(DESCRIBE.splitlines())
    assert kubectl_describe.extent(lines, 3) == 3, "a block begins at its head"
