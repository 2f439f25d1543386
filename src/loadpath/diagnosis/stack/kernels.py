"""Kernels that are not the card's own: fallbacks that the log names, and weights wider than their format."""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import KernelChoice, RankAssigned, ServerReady, WeightsLoaded
from loadpath.core.facts.stack import GpuModel
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import show_bytes
from loadpath.diagnosis.memory.fits import model_name, named_model, weight_bits
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge.gpus import by_name

FALLBACK = "kernel-fallback"
# First compute capability with arithmetic of its own for a format, and the kernels that use it.
NATIVE: dict[str, tuple[float, str]] = {
    "FP8": (8.9, "CUTLASS, DeepGEMM or FlashInfer FP8 kernels"),
    "NVFP4": (10.0, "CUTLASS or FlashInfer FP4 kernels"),
    "FP4": (10.0, "CUTLASS or FlashInfer FP4 kernels"),
    "MXFP4": (10.0, "CUTLASS, Triton or FlashInfer MXFP4 kernels"),
    "MXFP8": (10.0, "CUTLASS or FlashInfer MXFP8 kernels"),
}
FLASH_FROM = 8.0  # first compute capability of FlashAttention 2
SLOW_ATTENTION = ("XFORMERS", "TORCH_SDPA", "FLEX_ATTENTION")
# Scales, 16-bit embeddings, heads and vision towers add to a quantised model; small ones are half embeddings.
TOO_LARGE = {8: 1.5, 4: 2.2}


def fallback(case: Case) -> Iterator[Finding]:
    """The log says, or the card's generation shows, that the format runs on a fallback kernel."""
    told = [k for k in case.all(KernelChoice) if k.fallback]
    shown: list[Fact] = [*case.symptoms(FALLBACK), *told]
    capability = _capability(case, told)
    chosen = next((k for k in case.all(KernelChoice) if k.area in ("linear", "moe") and _emulates(k)), None)
    method = _method(told[0].method if told else chosen.method if chosen else None)
    if not told:
        if chosen is None or method is None or capability is None or capability < NATIVE[method][0]:
            return
        shown = [chosen]
    name = method or "quantised"
    actual = _actual(told, chosen)
    hardware = (
        told[0].hardware if told and told[0].hardware else f"compute capability {capability}" if capability else ""
    )
    has_own = method in NATIVE and capability is not None and capability >= NATIVE[method][0]
    # "Your GPU does not have native support" is what cards without it print; on an unknown card it may well be so.
    better = has_own or (capability is None and not any("does not have native" in k.text for k in told))
    cause = [f"The {name} layers run on {actual}" + (f" on {hardware}." if hardware else ".")]
    if has_own and method:
        cause.append(f"The card has {method} arithmetic (from compute capability {NATIVE[method][0]:g}); expected are "
                     f"{NATIVE[method][1]}, which this build does not have for it.")  # fmt: skip
    elif method in NATIVE and capability is not None and method:
        cause.append(
            f"The card has no {method} arithmetic (that begins at {NATIVE[method][0]:g}), so this is the right path."
        )
    cause.append("Weights stay small and answers right, but they are widened to 16 bit in each kernel: prefill and large "
                 "batches are slower than the card can be.")  # fmt: skip
    yield finding(
        FALLBACK, shown, case=case, cause=" ".join(cause),
        title=f"{name} runs on a fallback kernel ({_short(actual)}){f' on {hardware}' if hardware else ''}",
        certainty="established" if told else "likely",
        severity="warning" if better else "info",
        remedies=_remedies(better, name),
        next_checks=(Check("Which card and which build is it?",
                           "nvidia-smi --query-gpu=name,compute_cap --format=csv; vllm --version; python -c \"import torch;"
                           " print(torch.version.cuda, torch.cuda.get_arch_list())\""),
                     Check("Did another kernel get chosen after the change?", "grep -E 'Using .*(Kernel|backend)|fallback' SERVER.log")),
    )  # fmt: skip


def _remedies(better: bool, name: str) -> list[Remedy]:
    if not better:
        return []
    return [
        Remedy("Install a vLLM build with kernels for this card: a current release with the wheel for CUDA 12.8 or later",
               "pip install -U vllm --extra-index-url https://download.pytorch.org/whl/cu129"),
        Remedy("Or run the current official image", "docker run --gpus all vllm/vllm-openai:latest …"),
        Remedy("If a variable or flag forces the kernel, drop it",
               "unset VLLM_TEST_FORCE_FP8_MARLIN VLLM_NVFP4_GEMM_BACKEND; remove --linear-backend, --moe-backend"),
    ]  # fmt: skip


def _emulates(k: KernelChoice) -> bool:
    return "marlin" in k.kernel.lower() and _method(k.method) is not None


def _method(text: str | None) -> str | None:
    """The number format in a scheme's name: `CompressedTensorsW8A8Fp8` → FP8."""
    found = re.search(r"(NVFP4|MXFP4|MXFP8|FP8|FP4)", text or "", re.IGNORECASE)
    return found[1].upper() if found else None


def _actual(told: list[KernelChoice], chosen: KernelChoice | None) -> str:
    kernel = chosen.kernel if chosen else next((k.kernel for k in told if k.kernel not in ("", "NCCL")), "Marlin")
    return "Marlin (weight-only)" if "marlin" in kernel.lower() else kernel


def _short(actual: str) -> str:
    return actual.partition(" (")[0]


def _capability(case: Case, told: list[KernelChoice]) -> float | None:
    """The card's compute capability: from the line itself, a dump, or the card's name."""
    for k in told:
        if k.hardware and (digits := re.search(r"(\d+)(\d)", k.hardware)):
            return float(f"{digits[1]}.{digits[2]}")
    for gpu in case.all(GpuModel):
        if gpu.capability:
            return float(gpu.capability)
        if known := by_name(gpu.name):
            return float(known.capability)
    return None


def attention(case: Case) -> Iterator[Finding]:
    """A slow attention backend on a card that FlashAttention or FlashInfer would serve."""
    chosen = next((k for k in case.all(KernelChoice) if k.area == "attention"), None)
    capability = _capability(case, [])
    if chosen is None or capability is None or capability < FLASH_FROM:
        return
    if not any(name in chosen.kernel.upper().replace(" ", "_") for name in SLOW_ATTENTION):
        return
    if case.setting("attention-backend", "VLLM_ATTENTION_BACKEND"):
        return
    yield finding(
        "attention-backend-slow", [chosen], case=case,
        severity="info" if case.has(ServerReady) else None,
        title=f"Attention runs on {chosen.kernel}, a slow path on this card",
        cause=f"The card has compute capability {capability}, which FlashAttention and FlashInfer serve; {chosen.kernel} was chosen "
              "instead, because their package is missing or the model's settings rule them out. Results are right, long "
              "prompts are slower.",
    )  # fmt: skip


def memory_test(case: Case) -> Iterator[Finding]:
    """Weights in memory far above parameters × stored bytes: the format was not kept."""
    model, bits = named_model(case), weight_bits(case)
    loaded = [w for w in case.all(WeightsLoaded) if w.bytes]
    if model is None or not loaded or bits >= 16 or _adds_weights(case):
        return
    ranks = max((r.world_size for r in case.all(RankAssigned)), default=_size(case))
    held = max(w.bytes or 0 for w in loaded) * ranks
    expected = model.parameters * bits / 8
    if held < TOO_LARGE.get(bits, 2.2) * expected or held < 1.1 * expected + (2 << 30):
        return
    yield finding(
        "weights-larger-than-format", loaded[-1:], case=case,
        severity="info" if case.has(ServerReady) and not any(k.fallback for k in case.all(KernelChoice)) else None,
        title=f"The weights take {show_bytes(held)} where {bits}-bit should need about {show_bytes(expected)}",
        cause=f"{model_name(case)} has about {model.parameters / 1e9:.0f} billion parameters by its name; at {bits} bits that "
              f"is {show_bytes(expected)}, and {show_bytes(held)} were loaded, {held / expected:.1f} times as much. "
              "The weights were probably widened at load (no kernel for the format) or are not quantised at all.",
        next_checks=(Check("What does the checkpoint declare, and how large are its files?",
                           "grep -A8 quantization_config MODEL/config.json; du -shL MODEL"),
                     Check("Which kernel was chosen?", "grep -E 'Using .*(Kernel|backend)|quantization' SERVER.log")),
        figures={"held_bytes": round(held), "expected_bytes": round(expected)},
    )  # fmt: skip


def _adds_weights(case: Case) -> bool:
    """Whether a drafter or adapter slots are loaded beside the model."""
    values = (case.setting("speculative-config"), case.setting("enable-lora"))
    return any(value not in (None, "None", "False", "{}") for value in values)


def _size(case: Case) -> int:
    size = 1
    for name in ("tensor-parallel-size", "pipeline-parallel-size"):
        value = case.setting(name)
        size *= int(value) if value and value.isdigit() else 1
    return size


RULES = (
    Rule(fallback, (KernelChoice,), (FALLBACK,), (GpuModel,)),
    Rule(attention, (KernelChoice,), ("attention-backend-slow",), (GpuModel,)),
    Rule(memory_test, (WeightsLoaded,), ("weights-larger-than-format",)),
)
