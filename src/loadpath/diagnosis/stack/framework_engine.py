"""CUDA errors and crashes of running code: what the code means, and that the place shown is not the place."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.errors import Symptom
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.stack import groups
from loadpath.knowledge import cuda

_KERNEL_FAULTS = (700, 714, 715, 716, 717, 718)
_ASSERTS = (
    (
        "srcIndex < srcSelectDimSize",
        "An index was not below the size of the table that it selects from (an embedding).",
    ),
    ("index out of bounds", "An index was outside the tensor that it addresses."),
    ("ind >= 0 && ind < ind_dim_size", "An index was outside the dimension that it addresses."),
    ("t >= 0 && t < n_classes", "A label was outside the number of classes."),
    ("probability tensor", "The probabilities to sample from contained NaN, infinity or a negative value."),
    ("cur_target >= 0", "A label was outside the number of classes."),
    ("input_val >= zero && input_val <= one", "A value outside 0..1 was given to a loss that needs probabilities."),
)
_CUBLAS = {
    "NOT_INITIALIZED": "cuBLAS could not make its handle: mostly no GPU memory was free for it at that moment.",
    "ALLOC_FAILED": "cuBLAS got no GPU memory for its workspace.",
    "ARCH_MISMATCH": "This cuBLAS has no kernel for the GPU's architecture or that data type on it.",
    "INVALID_VALUE": "cuBLAS refused an argument: mostly two cuBLAS versions are mixed (LD_LIBRARY_PATH), or shapes are bad.",
    "NOT_SUPPORTED": "cuBLAS has no such operation for these types, shapes or this GPU (FP8 needs 8.9 or later).",
    "EXECUTION_FAILED": "The kernel failed on the GPU; often the real error is an earlier, asynchronous one.",
    "INTERNAL_ERROR": "cuBLAS failed inside: mostly an earlier asynchronous error, or too little GPU memory.",
    "MAPPING_ERROR": "GPU memory could not be reached: an earlier error of the process.",
}
_CUBLAS_CODES = {"1": "NOT_INITIALIZED", "3": "ALLOC_FAILED", "7": "INVALID_VALUE", "8": "ARCH_MISMATCH",
                 "11": "MAPPING_ERROR", "13": "EXECUTION_FAILED", "14": "INTERNAL_ERROR", "15": "NOT_SUPPORTED"}  # fmt: skip


def kernel_fault(case: Case) -> Iterator[Finding]:
    symptoms = case.symptoms("gpu-kernel-fault")
    if not symptoms:
        return
    text = " ".join(s.text for s in symptoms).lower()
    known = [cuda.error(code) for code in _KERNEL_FAULTS]
    error = next((e for e in known if e and (e.text in text or e.runtime.lower() in text)), None)
    error = error or next((e for e in known if e and str(e.code) in text), cuda.error(700))
    assert error is not None
    values = {"what": error.text, "meaning": f"Error {error.code}: {error.meaning}."}
    yield finding("gpu-kernel-fault", symptoms, case=case, values=values)


def device_assert(case: Case) -> Iterator[Finding]:
    symptoms = case.symptoms("device-side-assert")
    if not symptoms:
        return
    values = groups(symptoms)
    text = " ".join([values.get("assert", ""), *(s.text for s in symptoms)])
    values["assert_words"] = next((words for mark, words in _ASSERTS if mark in text), "")
    if not values["assert_words"] and values.get("assert"):
        values["assert_words"] = f"The condition `{values['assert']}` was false."
    yield finding("device-side-assert", symptoms, case=case, values=values)


def library_status(case: Case) -> Iterator[Finding]:
    symptoms = case.symptoms("cublas-failed")
    if not symptoms:
        return
    values = groups(symptoms)
    status = values.setdefault("s", _CUBLAS_CODES.get(values.get("n", ""), "EXECUTION_FAILED"))
    values["meaning"] = _CUBLAS.get(status, "")
    yield finding("cublas-failed", symptoms, case=case, values=values)


def crash(case: Case) -> Iterator[Finding]:
    """Ends without a Python traceback: signals, aborts, panics."""
    defaults = {
        "process-crashed": {"how": "Segmentation fault"},
        "cpp-terminate": {"e": "std::exception"},
        "rust-panic": {"e": "no text"},
    }
    for row_id, default in defaults.items():
        if symptoms := case.symptoms(row_id):
            yield finding(row_id, symptoms, case=case, values=default | groups(symptoms))


RULES = (
    Rule(kernel_fault, (Symptom,), ("gpu-kernel-fault",)),
    Rule(device_assert, (Symptom,), ("device-side-assert",)),
    Rule(library_status, (Symptom,), ("cublas-failed",)),
    Rule(crash, (Symptom,), ("process-crashed", "cpp-terminate", "rust-panic")),
)
