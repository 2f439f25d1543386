"""Do the Python packages of one environment belong together: names that moved, packages and extensions that are not there?"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.stack import PythonHome
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.stack import NOTICES, groups, installed, unclaimed

# The pip name of a package where it differs from the name of its module.
_PIP = {
    "cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml", "flash_attn": "flash-attn",
    "sgl_kernel": "sgl-kernel", "google": "protobuf", "pynvml": "nvidia-ml-py", "deep_gemm": "deep-gemm", "flashinfer":
    "flashinfer-python", "tensorrt_llm": "tensorrt-llm", "qwen_vl_utils": "qwen-vl-utils", "pkg_resources": "setuptools<81",
}  # fmt: skip


def extension(case: Case) -> Iterator[Finding]:
    """Compiled operators that are missing; where only a warning says so, the engine may do without them."""
    symptoms = case.symptoms("extension-not-loaded")
    if not symptoms:
        return
    values = groups(symptoms)
    warned = all(s.origin.level in NOTICES or "Failed to import" in s.text for s in symptoms)
    yield finding("extension-not-loaded", symptoms, case=case, values=values, severity="warning" if warned else None)


def packages(case: Case) -> Iterator[Finding]:
    """Names that are not in a package, and packages that are not there."""
    if symptoms := _said_as_error(case.symptoms("python-api-moved")):
        values = groups(symptoms)
        values.setdefault("module", "the called function")
        top = values["module"].partition(".")[0].lower()
        is_class = values["module"][:1].isupper()
        values["top"] = top if top.isidentifier() and not is_class else "transformers"
        if version := installed(case, values["top"]):
            values["installed"] = f"{values['top']} {version}"
        values["engine"] = case.engine or "<the engine>"
        yield finding("python-api-moved", symptoms, case=case, values=values)
    if symptoms := _said_as_error(unclaimed(case, "module-missing")):
        values = groups(symptoms)
        top = values.get("name", "").partition(".")[0]
        values["pip_name"] = _PIP.get(top, top.replace("_", "-"))
        values["python"] = _interpreter(case) or "python"
        yield finding("module-missing", symptoms, case=case, values=values)


def _said_as_error(symptoms: list[Symptom]) -> list[Symptom]:
    """Without those that are printed as a notice: an optional package that is not there."""
    return [s for s in symptoms if s.origin.level not in NOTICES]


def inspection(case: Case) -> Iterator[Finding]:
    """The model's class could not be imported: look for two environments in one traceback."""
    symptoms = case.symptoms("model-inspection-failed")
    values = groups(symptoms)
    if not symptoms:
        refused = case.symptoms("sglang-architecture-unsupported") + case.symptoms("model-class-unknown")
        skipped = case.symptoms("model-import-skipped")
        if not refused or not skipped:
            return
        symptoms, values = [*skipped[:2], *refused[:1]], groups(skipped)
    values["a"] = values.get("a", "").strip("'")
    values["python"] = _interpreter(case) or "python"
    homes = _environments(case)
    if len(homes) > 1:
        values["mixed"] = (
            f"Two environments are mixed: packages of {homes[0]} run under the interpreter of {homes[1]}, or the reverse."
        )
    yield finding("model-inspection-failed", symptoms, case=case, values=values)


def _interpreter(case: Case) -> str:
    return next((home.interpreter for home in case.all(PythonHome) if home.interpreter), "")


def _environments(case: Case) -> list[str]:
    """The prefixes of the environments that file names and interpreters of the case show, each once."""
    return list(dict.fromkeys(home.prefix for home in case.all(PythonHome)))


RULES = (
    Rule(extension, (Symptom,), ("extension-not-loaded",)),
    Rule(packages, (Symptom,), ("python-api-moved", "module-missing")),
    Rule(inspection, (Symptom,), ("model-inspection-failed",)),
)
