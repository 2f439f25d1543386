"""`[sgl_kernel] CRITICAL: Could not load any common_ops library!`: which of the reasons that it lists is the true one.

The block prints the GPU's capability and the files that it tried. The reason stands in the ImportError of an attempt:
a CUDA library that the wheel was linked against and that is not there, or a torch of another ABI.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.errors import Symptom
from loadpath.core.report import Finding, Remedy
from loadpath.diagnosis.rule import Rule, finding

ROW = "sgl-kernel-not-loadable"
_WHEELS = {"11": "cu118", "12": "cu128", "13": "cu130"}  # a wheel index of each CUDA generation
_CUDA = re.compile(r"lib(?:cudart|nvrtc|cublas|cublasLt|cusparse|cusolver|cufft|curand|nvJitLink|cudnn)\S*\.so\.(\d+)")


def judge(case: Case) -> Iterator[Finding]:
    symptoms = [s for s in case.all(Symptom) if s.finding == ROW]
    if not any("CRITICAL" in s.text for s in symptoms):
        return
    groups: dict[str, str] = {}
    for symptom in symptoms:
        for name, value in symptom.groups.items():
            groups.setdefault(name, value)
    if library := groups.get("library"):
        yield _library(case, symptoms, library, groups.get("installed"))
    elif symbol := groups.get("symbol"):
        yield _symbol(case, symptoms, symbol)
    elif glibc := groups.get("glibc"):
        yield _glibc(case, symptoms, glibc)
    else:
        cause = (
            "None of the three places holds a file that loads. If `found files: []` stands for every one, the wheel has no "
            "build for this card's generation; else the ImportError of each attempt names the reason."
        )
        yield finding(ROW, symptoms, case=case, cause=cause, certainty="possible")


def _library(case: Case, symptoms: list[Symptom], library: str, installed: str | None) -> Finding:
    match = _CUDA.search(library)
    wanted = match[1] if match else None
    cause = [f"Its compiled file needs {library}, which the loader does not find."]
    remedies: list[Remedy] = []
    if wanted:
        beside = (
            f"; this environment holds CUDA {installed} libraries instead" if installed and installed != wanted else ""
        )
        cause = [f"The sgl-kernel wheel was built for CUDA {wanted}: it needs {library}, which is not found{beside}."]
        if installed and installed != wanted:
            ours, theirs = _WHEELS.get(installed, f"cu{installed}0"), _WHEELS.get(wanted, f"cu{wanted}0")
            remedies.append(Remedy(
                f"Install the sgl-kernel build for CUDA {installed} ({ours}), the one that matches this torch",
                f"pip install --force-reinstall sgl-kernel --index-url https://docs.sglang.ai/whl/{ours}",
            ))  # fmt: skip
            remedies.append(Remedy(
                f"Or install a torch built for CUDA {wanted}, so that its libraries come along",
                f"pip install torch --index-url https://download.pytorch.org/whl/{theirs}",
            ))  # fmt: skip
        else:
            remedies.append(Remedy(
                f"Put the CUDA {wanted} library of the pip packages on the loader's path",
                "export LD_LIBRARY_PATH=$(python -c \"import nvidia,glob; "
                "print(':'.join(glob.glob(list(nvidia.__path__)[0]+'/*/lib')))\"):$LD_LIBRARY_PATH",
            ))  # fmt: skip
            remedies.append(Remedy(
                "Or install the sgl-kernel wheel for the CUDA version of this torch",
                "python -c \"import torch; print(torch.version.cuda)\"; pip install --force-reinstall sgl-kernel",
            ))  # fmt: skip
    cause.append("The compute capability in the message only says where it looked first: it is not the cause.")
    return finding(
        ROW, symptoms, case=case, cause=" ".join(cause), title=f"sgl-kernel cannot load: {library} is missing",
        remedies=remedies or None, figures={"library": library},
    )  # fmt: skip


def _symbol(case: Case, symptoms: list[Symptom], symbol: str) -> Finding:
    cause = (
        f"The file was compiled against another torch: the symbol {symbol[:80]} is not in the installed one. "
        "The compute capability in the message is not the cause."
    )
    remedies = (
        Remedy(
            "Install torch and sgl-kernel as the pair that this SGLang pins",
            "uv pip install --force-reinstall 'sglang[all]'",
        ),
        Remedy("Or start from the project's image", "docker run --gpus all lmsysorg/sglang:latest"),
    )
    title = "sgl-kernel cannot load: it was built for another torch"
    return finding(ROW, symptoms, case=case, cause=cause, title=title, remedies=remedies)


def _glibc(case: Case, symptoms: list[Symptom], version: str) -> Finding:
    cause = f"The file needs {version}, which this system's C or C++ library lacks: the distribution is older than the wheel's."
    remedies = (
        Remedy("Run in a container with a newer distribution", "docker run --gpus all lmsysorg/sglang:latest"),
        Remedy("Or move to a distribution that has it (GLIBC 2.35: Ubuntu 22.04; 2.39: Ubuntu 24.04)", "ldd --version"),
    )
    title = f"sgl-kernel cannot load: {version} is missing"
    return finding(ROW, symptoms, case=case, cause=cause, title=title, remedies=remedies)


RULES = (Rule(judge, (Symptom,), (ROW,)),)
