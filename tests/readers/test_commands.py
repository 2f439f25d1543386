"""Command lines become settings, whatever stands before them and however they are broken over lines."""

from __future__ import annotations

from loadpath.core.facts.engine import Setting
from loadpath.core.text import Capture
from loadpath.intake.clean import clean
from loadpath.readers import commands
from loadpath.readers.containers import compose, k8s_manifest


def settings(text: str) -> dict[str, str]:
    return {s.name: s.value for s in commands.read(_capture(text))}


def _capture(text: str) -> Capture:
    return Capture("log", "paste", tuple(clean(text.encode())))


def test_docker_options_and_the_servers_flags_are_told_apart() -> None:
    found = settings(
        "$ docker run -itd --rm --gpus all -e HF_TOKEN=hf_x -v /a:/b --shm-size=1g -p8000:8000 vllm/vllm-openai:v0.10 "
        "--model org/m --max_model_len=8192 -tp 2 --enforce-eager\n"
    )
    assert found["docker:run"] == "docker" and found["docker:gpus"] == "all" and found["docker:shm-size"] == "1g"
    assert found["docker:image"] == "vllm/vllm-openai:v0.10"
    assert (found["model"], found["max-model-len"], found["tensor-parallel-size"]) == ("org/m", "8192", "2")
    assert found["enforce-eager"] == "True"
    assert found["HF_TOKEN"] == "***", "secrets never leave the reader"


def test_prompts_variables_and_continuations() -> None:
    found = settings(
        "root@gpu1:~# CUDA_VISIBLE_DEVICES=0,1 vllm serve org/model --max-model-len 8192 \\\n"
        "    --gpu-memory-utilization 0.95 \\\n"
        "    -q fp8 --no-enable-prefix-caching --served-model-name a b\n"
        "INFO something else --max-model-len 1\n"
    )
    assert found["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert (found["model"], found["max-model-len"], found["gpu-memory-utilization"]) == ("org/model", "8192", "0.95")
    assert (found["quantization"], found["enable-prefix-caching"]) == ("fp8", "False")
    assert found["served-model-name"] == "a b"


def test_flags_alone_name_their_engine() -> None:
    facts = list(commands.read(_capture("--gpu-memory-utilization=0.95 --tensor-parallel-size 2\n")))
    assert {(f.name, f.value, f.engine) for f in facts} == {
        ("gpu-memory-utilization", "0.95", "vllm"),
        ("tensor-parallel-size", "2", "vllm"),
    }
    assert settings("- disabled because of --trust-remote-code in the past\n") == {}


def test_short_flags_of_each_engine() -> None:
    assert settings("./llama-server -m x.gguf -c 32768 -ngl 99 -fa -ctk q8_0\n") == {
        "model": "x.gguf", "ctx-size": "32768", "n-gpu-layers": "99", "flash-attn": "True", "cache-type-k": "q8_0",
    }  # fmt: skip
    assert settings("(base) me@host:~/x$ python3 -m sglang.launch_server --model-path m --tp 8 2>&1 | tee log\n") == {
        "model-path": "m", "tp-size": "8",
    }  # fmt: skip


def test_a_launcher_keeps_its_own_options() -> None:
    found = settings(
        "torchrun --nproc_per_node=8 train.py --bf16 --deepspeed ds_z3.json --per_device_train_batch_size 1\n"
    )
    assert found["torchrun:nproc-per-node"] == "8" and found["torchrun:script"] == "train.py"
    assert found["deepspeed"] == "ds_z3.json" and found["per-device-train-batch-size"] == "1"


def test_a_shell_inside_the_container_is_followed() -> None:
    found = settings(
        "docker run --runtime nvidia --entrypoint bash lmsysorg/sglang -c 'python3 -m sglang.launch_server --model-path q --tp 4'\n"
    )
    assert found["docker:runtime"] == "nvidia" and found["tp-size"] == "4"


def test_a_compose_service_says_what_docker_run_would() -> None:
    text = (
        "services:\n  vllm:\n    image: vllm/vllm-openai:latest\n    shm_size: 16gb\n    environment: [HF_TOKEN=x, A=1]\n"
        "    command: --model org/m --max-model-len 8192\n    deploy:\n      resources:\n        reservations:\n"
        "          devices:\n            - {driver: nvidia, count: all, capabilities: [gpu]}\n"
    )
    found = {s.name: s.value for s in compose.read(_capture(text)) if isinstance(s, Setting)}
    assert found["docker:gpus"] == "all" and found["docker:shm-size"] == "16gb"
    assert found["max-model-len"] == "8192" and found["HF_TOKEN"] == "***"


def test_a_service_without_its_head_is_known_by_its_keys() -> None:
    text = "    image: vllm/vllm-openai\n    container_name: llm\n    restart: always\n    shm_size: 8gb\nINFO next\n"
    lines = clean(text.encode())
    assert compose.extent(lines, 0) == 4
    found = {s.name: s.value for s in compose.read(Capture("compose", "paste", tuple(lines[:4])))}  # type: ignore[attr-defined]
    assert found["docker:run"] == "compose service llm" and found["docker:shm-size"] == "8gb"


def test_a_manifest_gives_limits_probes_and_arguments() -> None:
    text = (
        "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      runtimeClassName: nvidia\n"
        "      containers:\n      - name: vllm\n        image: vllm/vllm-openai\n        args: [--model, org/m, -tp, '2']\n"
        "        resources: {limits: {nvidia.com/gpu: 2, memory: 64Gi}}\n"
        "        volumeMounts: [{name: shm, mountPath: /dev/shm}]\n"
        "        startupProbe: {httpGet: {path: /health, port: 8000}, failureThreshold: 60}\n"
        "      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]\n"
    )
    lines = clean(text.encode())
    assert k8s_manifest.extent(lines, 0) == len(lines)
    facts = list(k8s_manifest.read(_capture(text)))
    found = {s.name: s.value for s in facts if isinstance(s, Setting)}
    assert found["k8s:limits.nvidia.com/gpu"] == "2" and found["k8s:limits.memory"] == "64Gi"
    assert found["k8s:runtime-class"] == "nvidia" and found["k8s:shm-size"] == "8Gi"
    assert found["tensor-parallel-size"] == "2"
    probe = next(f for f in facts if type(f).__name__ == "ProbeConfigured")
    assert probe.patience_seconds == 600  # type: ignore[attr-defined]
