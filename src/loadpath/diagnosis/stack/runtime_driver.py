"""Does the loaded driver offer what the program was built for? CUDA's own compatibility rules, applied to the paste."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.stack import ComponentVersion, CudaAvailable, EnvironmentVariable
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Certainty
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.stack import Stack, groups, stack_of
from loadpath.knowledge import cuda

LONG_TERM = "580"  # the long-term branch: CUDA 13.0, the last for Maxwell, Pascal and Volta
# The PyTorch wheels that still run on a driver of that CUDA major: index tag, and the last torch that has it.
_WHEELS = {"12": ("cu126 or cu128", "cu128", ""), "11": ("cu118, torch up to 2.7", "cu118", "<2.8"),
           "10": ("cu102, torch up to 1.12", "cu102", "<1.13")}  # fmt: skip
_CONTAINER_SIGNS = ("docker", "container", "/app/", "kube", "podman", "/workspace", "entrypoint")


def too_old(case: Case) -> Iterator[Finding]:
    """The driver's CUDA against the program's. Error 35 alone may also mean that no libcuda was found."""
    symptoms = case.symptoms("driver-too-old")
    if not symptoms:
        return
    stack, caught = stack_of(case), groups(symptoms)
    values = stack.values() | caught
    if found := caught.get("found", ""):
        values["found_cuda"] = cuda.decoded(int(found))
        values.pop("driver_cuda", None)
    values |= _symbol(caught)
    offers = values.get("found_cuda") or values.get("driver_cuda", "")
    wanted = _program_cuda(stack, offers, symptoms)
    if not offers:
        values["plain"] = "The loaded driver offers an older CUDA than the program was built for."
        if all(s.match < 2 for s in symptoms):
            values["unseen"] = (
                "Error 35 is also printed where no driver library can be seen at all, as in a container started without "
                "the GPU: these lines do not tell the two apart."
            )
            values["pass_gpu"] = "docker run --gpus all …; then inside: nvidia-smi"
    if wanted:
        values["program_cuda"] = wanted
        values["needed_driver"] = cuda.floor_of(int(cuda.numbers(wanted)[0])) or ""
    values |= driver_advice(wanted, stack) | wheel_advice(offers)
    if case.symptoms("forward-compat-unsupported"):
        values.pop("compat", None)
        values["no_compat"] = (
            "The forward-compatibility library was tried and refused (error 804): it is for data-centre GPUs."
        )
    if _falls_back_to_cpu(case, symptoms):
        values |= {"wheel": "a build of the engine for a CUDA that the driver offers", "wheel_command": ""}
        if not any("GGML_ASSERT" in s.text or "CUDA error" in s.text for s in symptoms):
            values["consequence"] = "GPUs that the driver cannot serve are left out, and the model runs on the CPU."
    if case.symptoms("wrong-elf-class"):
        values["harmless"] = "The skipped 32-bit library in the lines above is harmless."
    only_35 = all(s.match < 2 for s in symptoms)
    if only_35 and stack.torch_cuda and cuda.runs(stack.torch_cuda, offers) in ("full", "minor"):
        yield finding("insufficient-driver-despite-version", symptoms, case=case, values=values)
        return
    certainty = _certainty(symptoms, stack, offers, wanted)
    yield finding("driver-too-old", symptoms, case=case, values=values, certainty=certainty)


def _symbol(caught: dict[str, str]) -> dict[str, str]:
    symbol = caught.get("symbol", "")
    since = next((s.since for s in cuda.table().driver_symbol if s.symbol == symbol), "")
    if symbol and not since:
        return {"plain_symbol": f"The loaded libcuda has no `{symbol}`, which the program needs."}
    return {"symbol_cuda": since} if since else {}


def _program_cuda(stack: Stack, offers: str, symptoms: list[Symptom]) -> str:
    """The CUDA that the program was built for: as said, else the next major above the driver's ("13.0 or later")."""
    if stack.torch_cuda:
        return stack.torch_cuda
    if offers and any("found" in s.groups for s in symptoms):
        return f"{max(11, cuda.numbers(offers)[0] + 1)}.x"
    return ""


def driver_advice(wanted: str, stack: Stack) -> dict[str, str]:
    """Template values: which driver branch to install for CUDA `wanted`, and the compatibility package where one helps."""
    branch = cuda.branch_for(wanted) or LONG_TERM
    branch = max(branch, LONG_TERM, key=cuda.numbers)
    offered = next((b.cuda for b in cuda.table().driver_branch if b.branch == branch), "")
    values = {"branch": branch, "branch_cuda": offered, "install": f"apt-get install nvidia-driver-{branch}-server"}
    if stack.data_centre is not False:
        minor = wanted.replace(".x", ".0").replace(".", "-") or "<major>-<minor>"
        values["compat"] = f"apt-get install cuda-compat-{minor}"
    return values


def wheel_advice(offers: str) -> dict[str, str]:
    """Template values: which PyTorch wheels run on a driver that offers CUDA `offers`."""
    major = offers.partition(".")[0]
    if major not in _WHEELS:
        return {"wheel": "one whose CUDA the driver offers", "wheel_command": "pip install torch --index-url "
                "https://download.pytorch.org/whl/cu118"}  # fmt: skip
    words, tag, limit = _WHEELS[major]
    package = f"'torch{limit}'" if limit else "torch"
    return {
        "wheel": words,
        "wheel_command": f"pip install {package} --index-url https://download.pytorch.org/whl/{tag}",
    }


def _falls_back_to_cpu(case: Case, symptoms: list[Symptom]) -> bool:
    signs = ("msg=", "cuda_compat", "source=", "nvcuda", "ggml_cuda_init")
    return case.engine in ("ollama", "llama.cpp") or any(sign in s.text for s in symptoms for sign in signs)


def _certainty(symptoms: list[Symptom], stack: Stack, offers: str, wanted: str) -> Certainty:
    if any(s.match >= 2 for s in symptoms) or (stack.torch_cuda and offers and wanted):
        # Match 0 and 1 are error 35; the others name the driver themselves.
        return "established" if cuda.runs(wanted, offers) != "full" else "likely"
    return "likely"


_LIBCUDA = (
    "libcuda-kernel-mismatch",
    "forward-compat-unsupported",
    "ptx-newer-than-driver",
    "api-newer-than-driver",
)


def libcuda(case: Case) -> Iterator[Finding]:
    """Errors 803, 804, 222 and 36: which libcuda, on which card, and whose PTX."""
    stack = stack_of(case)
    for row_id in _LIBCUDA:
        symptoms = case.symptoms(row_id)
        if not symptoms:
            continue
        values = stack.values() | groups(symptoms)
        if row_id == "forward-compat-unsupported" and stack.data_centre is not False:
            values.pop("gpu", None)
        values["program"] = _who_compiles(symptoms)
        yield finding(row_id, symptoms, case=case, values=values)


def _who_compiles(symptoms: list[Symptom]) -> str:
    text = " ".join(s.text for s in symptoms).lower()
    for name, shown_as in (("flashinfer", "FlashInfer"), ("triton", "Triton"), ("flash_attn", "flash-attn"),
                           ("marlin", "The Marlin kernel"), ("ggml", "llama.cpp"), ("deep_gemm", "DeepGEMM")):  # fmt: skip
        if name in text:
            return shown_as
    return "The binary"


def initialisation(case: Case) -> Iterator[Finding]:
    """CUDA fails at its first call, or sees nothing: what the code says, and what in the paste explains it."""
    stack = stack_of(case)
    if (contradiction := _beyond_driver(case, stack)) is not None:
        yield contradiction
        return
    for row_id in ("no-cuda-device", "cuda-init-failed", "libcuda-missing"):
        symptoms = case.symptoms(row_id)
        if not symptoms:
            continue
        values = stack.values() | groups(symptoms)
        hidden = _hiding(case)
        if hidden is not None:
            values["cvd"] = hidden or "(empty)"
        inside = any(sign in line for line in _lines(case) for sign in _CONTAINER_SIGNS)
        changes: dict[str, Any] = {"boundary": "container-injection"} if inside and row_id != "cuda-init-failed" else {}
        yield finding(row_id, symptoms, case=case, values=values, **changes)


def _beyond_driver(case: Case, stack: Stack) -> Finding | None:
    """CUDA does not start, and the versions in the paste say why: torch's CUDA major is beyond the driver's."""
    if cuda.runs(stack.torch_cuda, stack.driver_cuda) != "older-driver" or case.symptoms("driver-too-old"):
        return None
    failed: list[Fact] = [*case.symptoms("cuda-init-failed"), *(f for f in case.all(CudaAvailable) if not f.available)]
    if not failed:
        return None
    versions = [f for f in case.all(ComponentVersion) if f.name in ("driver", "torch-cuda")]
    values = stack.values() | driver_advice(stack.torch_cuda, stack) | wheel_advice(stack.driver_cuda)
    values["program_cuda"] = stack.torch_cuda
    values["needed_driver"] = cuda.floor_of(int(cuda.numbers(stack.torch_cuda)[0])) or ""
    return finding("driver-too-old", [*failed, *versions[:3]], case=case, values=values, certainty="likely")


def _hiding(case: Case) -> str | None:
    """The value of CUDA_VISIBLE_DEVICES where it hides every GPU."""
    for variable in case.all(EnvironmentVariable):
        if variable.name == "CUDA_VISIBLE_DEVICES" and variable.value in ("", "-1", "none", "NoDevFiles"):
            return variable.value
    return None


def _lines(case: Case) -> Iterator[str]:
    return (line.text.lower() for capture in case.captures for line in capture.lines[:400])


RULES = (
    Rule(too_old, (Symptom,), ("driver-too-old", "insufficient-driver-despite-version")),
    Rule(libcuda, (Symptom,), _LIBCUDA),
    Rule(
        initialisation,
        (),
        ("no-cuda-device", "cuda-init-failed", "libcuda-missing", "driver-too-old"),
        (Symptom, ComponentVersion, CudaAvailable),
    ),
)
