"""Health checks that ask for a generated token."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec
import pytest
import yaml

from loadpath.launching.spec import Launch, Probes
from loadpath.launching.write import written


@pytest.fixture
def gated() -> Launch:
    return Launch(
        name="vllm-m", purpose="serve", engine="vllm", image="vllm/vllm-openai:v0.12.0", program=("vllm", "serve"), arguments=(),
        environment=(), mounts=(), gpus=1, devices=(), port=8000, host="127.0.0.1", shm_bytes=2 << 30,
        probes=Probes("/health", 600, 145, "a cold start", generates=True), memory_bytes=8 << 30,
    )  # fmt: skip


def test_kubernetes_asks_by_exec_and_gives_it_time(gated: Launch) -> None:
    pod: Any = next(yaml.safe_load_all(written(gated, "kubernetes")))["spec"]["template"]["spec"]["containers"][0]
    for name in ("startupProbe", "readinessProbe"):
        assert pod[name]["exec"]["command"][:2] == ["loadpath", "ready"] and pod[name]["timeoutSeconds"] == 30
    assert "httpGet" in pod["livenessProbe"], "a slow token is no reason to restart"


def test_compose_and_docker_run_the_same_command(gated: Launch) -> None:
    service: Any = yaml.safe_load(written(gated, "compose"))["services"]["vllm-m"]
    script = written(gated, "docker").partition("docker run")[2].replace("\\\n", " ")
    words = shlex.split(script)
    assert service["healthcheck"]["test"][1:] == shlex.split(words[words.index("--health-cmd") + 1])


def test_without_it_the_health_page_is_asked(gated: Launch) -> None:
    assert gated.probes is not None
    plain = msgspec.structs.replace(gated, probes=msgspec.structs.replace(gated.probes, generates=False))
    assert all("loadpath ready" not in written(plain, kind) for kind in ("docker", "compose", "kubernetes"))
