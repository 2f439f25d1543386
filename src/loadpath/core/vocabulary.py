"""The closed word lists: steps, boundaries, severities, certainties, states, operator actions."""

from __future__ import annotations

from typing import Literal, get_args

Step = Literal[
    "launch", "process-start", "device-enumeration", "context-creation", "weight-load", "memory-profiling",
    "kv-pool", "graph-capture", "http-server", "warm-up", "serving", "shutdown",
]  # fmt: skip
STEPS: tuple[Step, ...] = get_args(Step)
FindingStep = Literal[Step, "unseen"]

Boundary = Literal[
    "hardware-kernel", "kernel-usermode", "container-injection", "runtime-driver", "arch", "library-set",
    "framework-engine", "model-config", "memory-fit", "host-limits", "interconnect", "device-fault",
    "performance", "none",
]  # fmt: skip
BOUNDARIES: tuple[Boundary, ...] = get_args(Boundary)
# The stack, from the ground up; the other boundaries stand beside it.
STACK: tuple[Boundary, ...] = BOUNDARIES[:7]

Severity = Literal["error", "warning", "info"]
Certainty = Literal["established", "likely", "possible"]
State = Literal["failed", "degraded", "healthy", "starting", "unknown"]
StepState = Literal["done", "failed", "stalled", "running", "skipped", "unseen"]
OperatorAction = Literal[
    "none", "change-settings", "restart-process", "replace-group", "drain", "reset-gpu", "reboot", "service"
]
BlastRadius = Literal["request", "process", "serving-group", "gpu", "node", "fabric"]

ENGINE_NAMES = {
    "vllm": "vLLM", "sglang": "SGLang", "ollama": "Ollama", "tensorrt-llm": "TensorRT-LLM", "tgi": "TGI", "lmdeploy": "LMDeploy",
    "triton-server": "Triton",
}  # fmt: skip
"""Engines as their makers write them; those that are missing are written as they are."""
