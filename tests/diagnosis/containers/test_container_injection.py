"""From the host's driver into the container: each cut link has a name of its own."""

from __future__ import annotations

import pytest

from conftest import read_text, shared_file
from loadpath.core.report import Finding, Report
from loadpath.reading.service import read_bytes

HEAD = "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |\n"
TABLE = (
    "+-----------------------------------------------------------------------------------------+\n"
    + HEAD
    + "|-----------------------------------------+------------------------+----------------------+\n"
    "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
    "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
    "|                                         |                        |               MIG M. |\n"
    "|=========================================+========================+======================|\n"
    "|   0  NVIDIA L4                      On  |   00000000:00:03.0 Off |                    0 |\n"
    "| N/A   45C    P8             13W /   72W |       1MiB /  23034MiB |      0%      Default |\n"
    "|                                         |                        |                  N/A |\n"
    "+-----------------------------------------+------------------------+----------------------+\n"
)


def root_of(text: str) -> Finding:
    root = read_text(text).root
    assert root is not None
    return root


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ('could not select device driver "" with capabilities: [[gpu]].', "docker-without-nvidia-toolkit"),
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "docker-without-nvidia-toolkit"),
        ('could not select device driver "cdi" with capabilities: [].', "cdi-disabled"),
        ("failed to discover GPU vendor from CDI: no known GPU vendor found", "docker-cdi-no-vendor"),
        ("unknown or invalid runtime name: nvidia.", "container-runtime-unknown"),
        ("Unknown runtime specified nvidia.", "container-runtime-unknown"),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all", "cdi-device-unresolvable"),
        ('exec: "nvidia-container-runtime-hook": executable file not found in $PATH: unknown.', "container-runtime-binary-missing"),
        ("nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: "
         "no such file or directory: unknown.", "nvc-lib-missing"),
        ("nvidia-container-cli: device error: 3: unknown device: unknown.", "nvc-device-unknown"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.6, please update your driver to a newer "
         "version, or use an earlier cuda container: unknown.", "nvc-requirement"),
        ("nvidia-container-cli: ldcache error: process /sbin/ldconfig.real failed with error code: 1: unknown.", "nvc-ldcache"),
        ('OCI runtime create failed: exec: "--model": executable file not found in $PATH: unknown.', "container-command-not-found"),
        ('error gathering device information while adding custom device "/dev/nvidia9": no such file or directory',
         "docker-device-node-missing"),
    ],
)  # fmt: skip
def test_similar_words_different_links(line: str, finding: str) -> None:
    root = root_of(f"docker: Error response from daemon: {line}\n")
    assert (root.id, root.step) == (finding, "launch")


def test_a_working_host_driver_is_said_and_not_advised_upon() -> None:
    root = root_of(
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n' + TABLE
    )
    assert "550.54.15" in root.cause and "NVIDIA L4" in root.cause
    assert not any("driver" in remedy.action.lower() for remedy in root.remedies)
    assert any("systemctl restart docker" in remedy.command for remedy in root.remedies)


def test_access_lost_while_running_is_told_from_never_had() -> None:
    lost = root_of(
        "root@0123456789ab:/# nvidia-smi\n"
        + TABLE
        + "root@0123456789ab:/# nvidia-smi\nFailed to initialize NVML: Unknown Error\n"
    )
    never = root_of("root@0123456789ab:/# nvidia-smi\nFailed to initialize NVML: Unknown Error\n")
    assert lost.id == never.id == "container-lost-gpu-access"
    assert (lost.certainty, never.certainty) == ("established", "likely")
    assert "daemon-reload" in lost.cause
    assert "Recreate the container" in lost.remedies[0].action


def test_no_gpu_was_asked_for() -> None:
    root = root_of(
        "$ docker run -p 8000:8000 vllm/vllm-openai:latest --model org/m\nRuntimeError: No CUDA GPUs are available\n"
    )
    assert root.id == "gpu-not-requested"
    assert "--gpus all" in root.remedies[0].command
    assert "t-no-gpus" in root.consequences


def test_a_compose_file_without_reservation_asks_for_none_and_one_with_it_does() -> None:
    service = "services:\n  llm:\n    image: vllm/vllm-openai\n    command: --model org/m\n"
    gpu = (
        "    deploy:\n      resources:\n        reservations:\n          devices:\n  "
        "          - {driver: nvidia, count: 1, capabilities: [gpu]}\n"
    )
    error = "\nllm  | RuntimeError: No CUDA GPUs are available\n"
    assert root_of(service + error).id == "gpu-not-requested"
    assert root_of(service + gpu + error).id == "t-no-gpus"


def test_a_pod_without_a_gpu_limit_has_no_gpu() -> None:
    pod = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: llm\n    image: vllm/vllm-openai\n"
    limit = "    resources: {limits: {nvidia.com/gpu: 1}}\n"
    error = "\nRuntimeError: No CUDA GPUs are available\n"
    root = root_of(pod + error)
    assert root.id == "gpu-not-requested" and "nvidia.com/gpu: 1" in root.remedies[0].command
    assert root_of(pod + limit + error).id == "t-no-gpus"


def test_a_capability_that_is_left_out() -> None:
    root = root_of(
        "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute img nvidia-smi\nbash: nvidia-smi: command not found\n"
    )
    assert root.id == "driver-capability-missing" and "`utility`" in root.cause


def test_host_works_container_does_not() -> None:
    root = root_of(
        "$ nvidia-smi\n" + TABLE + "$ docker run --rm --gpus all app python3 -c 'import torch; torch.zeros(1).cuda()'\n"
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver\n"
    )
    assert root.id == "gpu-lost-between-host-and-container"
    assert "550.54.15" in root.cause


SPEC = (
    "cdiVersion: {version}\nkind: nvidia.com/gpu\ndevices:\n  - name: \"0\"\n    containerEdits:\n      deviceNodes:\n"
    "        - path: /dev/nvidia0\n  - name: all\n    containerEdits:\n      deviceNodes:\n        - path: /dev/nvidia0\n"
)  # fmt: skip
OWN = SPEC.format(version="0.5.0")
ASKED = "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu={name}\n"


@pytest.mark.parametrize(
    ("paste", "words"),
    [
        (SPEC.format(version="0.5.0") + ASKED.format(name="7"), "names 0, all, but not `7`"),
        (SPEC.format(version="0.8.0") + ASKED.format(name="all"), "cdiVersion 0.8.0"),
        (OWN + "$ cat /etc/cdi/second.yaml\n" + OWN + ASKED.format(name="0"), "Two specifications"),
        (ASKED.format(name="all"), "/var/run/cdi"),
        ("INFO[0000] Found 1 CDI devices\nnvidia.com/gpu=0\n" + ASKED.format(name="0"), "nvidia-ctk lists this name"),
    ],
)  # fmt: skip
def test_one_text_of_podman_five_causes(paste: str, words: str) -> None:
    root = root_of(paste)
    assert root.id == "cdi-device-unresolvable"
    assert words in root.cause


def test_a_specification_of_another_driver() -> None:
    spec = SPEC.format(version="0.5.0") + (
        "containerEdits:\n  mounts:\n    - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.54.03\n"
        "      containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.54.03\n"
    )
    report = read_text(TABLE + spec)
    assert report.root_cause == "cdi-spec-outdated"
    assert report.root is not None and "535.54.03" in report.root.cause and "550.54.15" in report.root.cause


def _capture(*parts: str) -> Report:
    path = shared_file("captures", *parts)
    return read_bytes([(path.name, path.read_bytes())])


@pytest.mark.parametrize(
    ("parts", "state", "root"),
    [
        (("containers", "docker-gpus-no-toolkit.log"), "failed", "docker-without-nvidia-toolkit"),
        (("containers", "docker-runtime-nvidia-missing.log"), "failed", "container-runtime-unknown"),
        (("containers", "docker-device-missing.log"), "failed", "docker-device-node-missing"),
        (("containers", "podman-cdi.log"), "failed", "cdi-host-path-missing"),
        (("containers", "docker-info.txt"), "unknown", None),
        (("containers", "cdi-fake-gpu.yaml"), "unknown", None),
        (("nvidia", "container", "cdi-nvidia-default.yaml"), "unknown", None),
        (("nvidia", "container", "nvidia-container-cli-info-gtx1070.txt"), "healthy", None),
        (("nvidia", "container", "nvidia-container-cli-info-xavier-null.txt"), "healthy", None),
        (("nvidia", "k8s", "events-device-plugin-restart.txt"), "healthy", None),
        (("nvidia", "k8s", "get-pods-gpu-operator-ready.txt"), "healthy", None),
        (("nvidia", "k8s", "get-pods-driver-terminating.txt"), "degraded", "gpu-operator-driver-leaving"),
        (("nvidia", "k8s", "node-labels-mig-mixed-h100.json"), "unknown", None),
    ],
)
def test_shared_captures(parts: tuple[str, ...], state: str, root: str | None) -> None:
    report = _capture(*parts)
    assert (report.verdict.state, report.root_cause) == (state, root)


def test_a_driver_library_without_its_name_is_still_one_of_the_host() -> None:
    root = read_text(
        "nvidia-container-cli: initialization error: cannot open shared object file: no such file or directory: unknown.\n"
    ).root
    assert root is not None and root.id == "nvc-lib-missing"
    assert "does not name it" in root.cause
