"""Is there code for this card? The compiled architectures against the compute capability."""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.errors import Symptom
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.stack import Stack, groups, stack_of
from loadpath.knowledge import cuda

_FAMILY = {"10.0": "B200 class", "10.3": "B300 class", "12.0": "RTX 50 and RTX PRO Blackwell class", "12.1": "GB10"}
_BLACKWELL_DESKTOP = re.compile(r"RTX (?:50\d\d|PRO)|GB10|DGX Spark")


def no_kernel(case: Case) -> Iterator[Finding]:
    """`no kernel image` and torch's own warning: name the card, what the build has, and which build has more."""
    symptoms = case.symptoms("no-kernel-for-gpu")
    if not symptoms:
        return
    stack, caught = stack_of(case), groups(symptoms)
    capability = caught.get("cc") or cuda.capability_of(caught.get("sm", "")) or stack.capability
    archs = tuple(caught["archs"].split()) if "archs" in caught else stack.archs
    values = stack.values() | caught
    refused = any("no kernel" in s.text or "nvalid device function" in s.text for s in symptoms)
    covered = bool(capability and archs) and cuda.covered(capability, archs)
    if _same_family_warning(symptoms, capability) or (covered and not refused):
        return
    if capability:
        values |= _card(capability, caught.get("gpu") or stack.gpu, archs)
        values |= build_for(capability, stack)
    else:
        values |= _any_build()
    if code := caught.get("arch"):
        capability = capability or f"{code[:-2]}.{code[-2]}"
        built = f", only for {caught['compiled'].replace(',', ', ')}" if "compiled" in caught else ""
        values["comparison"] = (
            f"The kernel that was called has no code for CUDA arch {code} (compute capability {capability}){built}."
        )
    if case.engine in ("llama.cpp", "ollama") or any("ggml" in s.text.lower() for s in symptoms) or _ggml_near(case):
        values |= _llama_build(capability)
    certain = bool(capability and archs) or "arch" in caught or any(s.match < 4 for s in symptoms)
    yield finding(
        "no-kernel-for-gpu", symptoms, case=case, values=values, certainty="established" if certain else "likely"
    )


def _same_family_warning(symptoms: list[Symptom], capability: str) -> bool:
    """Only torch's warning that the card is above its newest target, and code of the same major runs on it (12.1 on 12.0)."""
    warned = all("Found GPU" in s.text for s in symptoms)
    newest = {cuda.numbers(cuda.capability_of(sm) or "")[:1] for w in cuda.table().torch_wheel[-1:] for sm in w.sm}
    return warned and cuda.numbers(capability)[:1] in newest and cuda.numbers(capability)[1:] > (0,)


def _card(capability: str, gpu: str, archs: tuple[str, ...]) -> dict[str, str]:
    """What is compared: the card's architecture and what the build has."""
    sm = "sm_" + capability.replace(".", "")
    card = f"{gpu or 'The GPU'} is {sm} (compute capability {capability})"
    values = {"sm": sm, "arch_list": capability}
    if archs and not cuda.covered(capability, archs):
        newest = max(archs, key=lambda a: cuda.numbers(cuda.capability_of(a) or "0"))
        oldest = min(archs, key=lambda a: cuda.numbers(cuda.capability_of(a) or "99"))
        values["comparison"] = f"{card}, and the build has code only from {oldest} up to {newest}: none for {sm}."
    else:
        values["comparison"] = f"{card}, for which the build has no code."
    return values


def build_for(capability: str, stack: Stack) -> dict[str, str]:
    """Which builds have code for the card; for old cards, the last that had."""
    wheels = cuda.wheels_for(capability)
    generation = cuda.architecture(capability)
    old = generation is not None and bool(generation.last_toolkit)
    values: dict[str, str] = {}
    if old and generation is not None:
        values["window"] = (
            f"{generation.name} GPUs are supported up to CUDA {generation.last_toolkit} and driver branch "
            f"{generation.last_branch}: newer builds leave them out."
        )
    if not wheels:
        return values | {"wheel_action": "Use the last release that supported this GPU", "wheel_command": ""}
    oldest = min(wheels, key=lambda w: (cuda.numbers(w.torch), cuda.numbers(w.cuda)))
    newest = max(wheels, key=lambda w: (cuda.numbers(w.torch), w.default, cuda.numbers(w.cuda)))
    if old:
        return values | {
            "wheel_action": f"Install a PyTorch build that still has this GPU: the {newest.tag} wheels (up to torch "
            f"{newest.torch}), and an engine release that runs on it",
            "wheel_command": f"pip install 'torch=={newest.torch}.*' --index-url "
            f"https://download.pytorch.org/whl/{newest.tag}",
        }
    return values | {
        "needs_cuda": oldest.cuda,
        "wheel_action": f"Install a PyTorch built with CUDA {oldest.cuda} or later (torch {oldest.torch}+{oldest.tag}, "
        f"{newest.torch}+{newest.tag}, …) and extensions built for it",
        "wheel_command": f"pip install -U torch --index-url https://download.pytorch.org/whl/{newest.tag}",
    }


def _any_build() -> dict[str, str]:
    """What to install where the paste does not say which card it is."""
    return {
        "arch_list": "<capability of the GPU>",
        "wheel_action": "Install builds of PyTorch and of the extension that failed which have code for this GPU: CUDA "
        "12.8 or later (cu128, cu130) for Blackwell, cu126 for Maxwell, Pascal and Volta",
        "wheel_command": "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128",
    }


def _ggml_near(case: Case) -> bool:
    return any("ggml" in line.text for capture in case.captures for line in capture.lines[:2000])


def _llama_build(capability: str) -> dict[str, str]:
    number = capability.replace(".", "") or "<capability without the point, 89>"
    return {
        "wheel_action": "Build llama.cpp for this card (or take an Ollama release whose CUDA libraries have it)",
        "wheel_command": f"cmake -B build -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES={number} && cmake --build build -j",
    }


def compilers(case: Case) -> Iterator[Finding]:
    """ptxas and nvcc that do not know a target: which toolkit first has it, or last had it."""
    stack = stack_of(case)
    for row_id, name in (("ptxas-too-old", "sm"), ("nvcc-does-not-know-arch", "a")):
        symptoms = case.symptoms(row_id)
        if not any(name in s.groups or name + "2" in s.groups for s in symptoms):
            continue
        values = stack.values() | groups(symptoms)
        target = values[name]
        sm = target if "_" in target else "sm_" + target.replace(".", "")
        known = cuda.toolkits_with(sm.replace("compute_", "sm_"))
        values["first_cuda"] = known[0] if known else "13.0"
        values["use_cuda"] = known[-1] if known and known[-1].startswith("12") else values["first_cuda"]
        values["reason"] = _why_unknown(target, known)
        yield finding(row_id, symptoms, case=case, values=values)


def _why_unknown(target: str, known: tuple[str, ...]) -> str:
    if not known:
        return f"The toolkit does not know {target}: it is older than that GPU, or the target is misspelt."
    newest = max((t.cuda for t in cuda.table().toolkit if t.sm), key=cuda.numbers)
    if known[-1] != newest:
        return f"The toolkit does not know {target}: support for that GPU ended with CUDA {known[-1]}."
    return f"The toolkit does not know {target}: CUDA {known[0]} is the first that does."


def fp4(case: Case) -> Iterator[Finding]:
    """FP4 kernels that are made for another family of Blackwell, or for Blackwell at all."""
    symptoms = case.symptoms("fp4-kernel-not-for-gpu")
    if not symptoms:
        return
    stack, values = stack_of(case), groups(symptoms)
    capability = cuda.capability_of(values.get("cap", "")) or stack.capability
    if not capability and _BLACKWELL_DESKTOP.search(stack.gpu):
        capability = "12.1" if "GB10" in stack.gpu or "Spark" in stack.gpu else "12.0"
    family = _FAMILY.get(capability, "")
    sm = "sm_" + capability.replace(".", "")
    values["card"] = (f"{sm} ({family})" if family else sm) if capability else "this GPU"
    yield finding("fp4-kernel-not-for-gpu", symptoms, case=case, values=stack.values() | values)


def other_generation(case: Case) -> Iterator[Finding]:
    """A kernel that names the generation it is for, and Triton's compiler breaking on an older card."""
    for row_id in ("kernel-needs-other-arch", "triton-cannot-compile-for-gpu"):
        symptoms = case.symptoms(row_id)
        if not symptoms or (row_id == "triton-cannot-compile-for-gpu" and case.symptoms("ptxas-too-old")):
            continue
        values = groups(symptoms)
        have, need = values.get("have"), values.get("need", "")
        if have and values.get("way") == "too new":
            values["what"] = (
                f"It is made for cards up to compute capability {_dotted(need)}; this card has {_dotted(have)}."
            )
        elif have and need[:1].isdigit():
            values["what"] = f"It needs compute capability {_dotted(values['need'])}; this card has {_dotted(have)}."
        elif row_id == "kernel-needs-other-arch" and need:
            only = any("only" in s.text or "equire" in s.text for s in symptoms)
            values["what"] = (
                f"It is made for {need.rstrip('.')}, and this card is of another generation."
                if only
                else (f"The kernel names `{need.rstrip('.')}` as the hardware it is made for or does not run on.")
            )
        elif operation := values.get("op"):
            card = f"this card's compute capability, {_dotted(values['dev'])}" if "dev" in values else "this card"
            wanted = (
                f"; it is made for {' or '.join(map(_dotted, values['wanted'].split(' or ')))}"
                if "wanted" in values
                else ""
            )
            values["what"] = f"The build has no `{operation}` for {card}{wanted}."
        elif row_id == "kernel-needs-other-arch":
            values["what"] = (
                "A check in the kernel's library failed: this card's generation is none that it was written for."
            )
        yield finding(row_id, symptoms, case=case, values=stack_of(case).values() | values)


def _dotted(capability: str) -> str:
    capability = capability.replace(", ", ".")
    return capability if "." in capability else f"{capability[:-1]}.{capability[-1]}"


def quantisation(case: Case) -> Iterator[Finding]:
    """`Minimum capability: 89. Current capability: 75.`: figures without their point."""
    symptoms = case.symptoms("quantisation-needs-newer-gpu")
    if not symptoms:
        return
    values = groups(symptoms)
    for name, told in (("m", "need"), ("c", "have")):
        if value := values.get(name):
            values[told] = _dotted(value)
    yield finding("quantisation-needs-newer-gpu", symptoms, case=case, values=values)


RULES = (
    Rule(no_kernel, (Symptom,), ("no-kernel-for-gpu",)),
    Rule(compilers, (Symptom,), ("ptxas-too-old", "nvcc-does-not-know-arch")),
    Rule(fp4, (Symptom,), ("fp4-kernel-not-for-gpu",)),
    Rule(other_generation, (Symptom,), ("kernel-needs-other-arch", "triton-cannot-compile-for-gpu")),
    Rule(quantisation, (Symptom,), ("quantisation-needs-newer-gpu",)),
)
