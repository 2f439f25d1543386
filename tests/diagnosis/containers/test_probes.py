"""Probes and Kubernetes: a wrong path, a short patience, a pod that cannot be placed."""

from __future__ import annotations

import pytest

from conftest import read_text

KILLED = "  Normal   Killing    41s                kubelet  Container vllm failed liveness probe, will be restarted\n"


def test_404_is_a_wrong_path_and_no_crash() -> None:
    report = read_text(
        "  Warning  Unhealthy  5m (x3 over 5m)  kubelet  Liveness probe failed: HTTP probe failed with statuscode: 404\n"
        + KILLED
    )
    root = report.root
    assert root is not None and root.id == "probe-path-missing" and root.certainty == "established"
    assert report.verdict.state == "degraded"
    assert "/health" in root.remedies[0].command


def test_refused_is_a_start_that_takes_longer_than_the_probe_waits() -> None:
    root = read_text(
        '  Warning  Unhealthy  41s (x3 over 61s)  kubelet  Liveness probe failed: Get "http://10.0.0.4:8000/health": dial tcp '
        "10.0.0.4:8000: connect: connection refused\n" + KILLED
    ).root
    assert root is not None and root.id == "probe-kills-slow-start"
    assert "3 failures within 61 s" in root.cause and "port 8000" in root.cause
    assert root.remedies[0].command.startswith("startupProbe")


def test_a_probe_that_timed_out_met_a_busy_server() -> None:
    root = read_text(
        '  Warning  Unhealthy  2m (x3 over 3m)  kubelet  Liveness probe failed: Get "http://10.0.0.4:8000/health": context '
        "deadline exceeded (Client.Timeout exceeded while awaiting headers)\n" + KILLED
    ).root
    assert root is not None and root.id == "probe-kills-busy-server"
    assert "timeoutSeconds" in root.remedies[0].command


def test_a_failing_readiness_probe_restarts_nothing() -> None:
    report = read_text(
        '  Warning  Unhealthy  2m (x9 over 3m)  kubelet  Readiness probe failed: Get "http://10.0.0.4:8000/health": dial tcp '
        "10.0.0.4:8000: connect: connection refused\n"
    )
    assert report.root is not None and report.root.id == "readiness-probe-fails" and report.root.severity == "warning"


MANIFEST = (
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: vllm\n    image: vllm/vllm-openai\n    livenessProbe:\n"
    "      httpGet: {path: /health, port: 8000}\n      initialDelaySeconds: 30\n      periodSeconds: 5\n\n"
)


def test_the_manifest_and_the_log_together_show_a_start_that_will_be_cut_off() -> None:
    root = read_text(
        MANIFEST + "INFO 05-06 10:40:24 [api_server.py:1034] vLLM API server version 0.8.4\n"
        "INFO 05-06 10:40:45 [gpu_model_runner.py:1276] Starting to load model org/m...\n"
        "INFO 05-06 10:42:46 [gpu_model_runner.py:1329] Model loading took 15.2 GiB and 119.300000 seconds\n"
    ).root
    assert root is not None and root.id == "probe-will-kill-start"
    assert "45 s" in root.cause and "30 s delay + 3 × 5 s" in root.cause


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available", "k8s-gpu-insufficient"),
        ("0/2 nodes are available: 2 node(s) had untolerated taint {nvidia.com/gpu: true}. preemption: none", "k8s-unschedulable"),
        ((
            'Failed to create pod sandbox: failed to get sandbox runtime: no runtime for '
            '"nvidia" is configured'
        ), "k8s-runtime-not-configured"),
        ('pods "x" is forbidden: pod rejected: RuntimeClass "nvidia" not found', "k8s-runtimeclass-missing"),
        ("E0402 22:17:31.198643       1 factory.go:112] Incompatible strategy detected auto", "device-plugin-without-runtime"),
        ("2022/03/04 10:11:12 Failed to initialize NVML: could not load NVML library.", "device-plugin-without-runtime"),
        ("Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0, which "
         "is unexpected", "k8s-gpu-allocation-failed"),
        ("stat: cannot stat '/run/nvidia/validations/driver-ready': No such file or directory", "gpu-operator-waits-for-driver"),
    ],
)  # fmt: skip
def test_what_kubernetes_says(line: str, finding: str) -> None:
    assert read_text(line + "\n").root_cause == finding


def test_the_first_pod_of_the_operators_chain_is_named() -> None:
    root = read_text(
        "NAME                                   READY   STATUS             RESTARTS   AGE\n"
        "nvidia-device-plugin-daemonset-zzzzz   0/1     Init:0/1           0          40m\n"
        "nvidia-driver-daemonset-xxxxx          0/1     CrashLoopBackOff   12         40m\n"
    ).root
    assert root is not None and root.id == "gpu-operator-pods-stuck"
    assert "the driver's pod, nvidia-driver-daemonset-xxxxx" in root.cause


def test_a_startup_probe_that_ran_out_at_503_gets_more_time_than_it_had() -> None:
    root = read_text(
        "  Warning  Unhealthy  30s (x91 over 15m)  kubelet  Startup probe failed: HTTP probe failed with statuscode: 503\n"
        "  Normal   Killing    30s                 kubelet  Container server failed startup probe, will be restarted\n"
    ).root
    assert root is not None and root.id == "probe-kills-slow-start"
    assert "503" in root.cause
    assert "failureThreshold: 180" in root.remedies[0].command


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("The node was low on resource: memory. Threshold quantity: 200Mi, available: 90Mi.", "k8s-evicted-memory"),
        ("The node was low on resource: ephemeral-storage. Threshold quantity: 9Gi, available: 1Gi.", "k8s-evicted"),
        ('Usage of EmptyDir volume "cache" exceeds the limit "8Gi".', "k8s-emptydir-over-limit"),
        ("Node didn't have enough resource: nvidia.com/gpu, requested: 2, used: 3, capacity: 4", "k8s-node-out-of-resource"),
    ],
)  # fmt: skip
def test_why_the_kubelet_sent_a_pod_away(line: str, finding: str) -> None:
    assert read_text(line + "\n").root_cause == finding
