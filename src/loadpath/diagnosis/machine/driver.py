"""Layer 4 of a live machine: which driver libraries the loader takes, against the loaded module, and what cuInit said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loadpath.core.case import Case, version_numbers
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.gpu import DeviceNode
from loadpath.core.facts.machine import CudaCalled, DriverLibrary, NvmlFailed
from loadpath.core.facts.stack import EnvironmentVariable
from loadpath.core.report import Finding, Remedy
from loadpath.core.vocabulary import Certainty, Severity
from loadpath.diagnosis.machine.module import loaded_version
from loadpath.diagnosis.machine.nodes import inside_container
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.stack import stack_of

CUDA, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
SYSTEM_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                  "/lib64", "/usr/lib64", "/lib", "/usr/lib")  # fmt: skip
STUB = 34
OF_LIBRARIES = (803, 804, 35, STUB)
"""cuInit's answers that a wrong libcuda gives."""


def taken(case: Case, soname: str) -> DriverLibrary | None:
    """The file of that name that the loader takes."""
    return next((lib for lib in case.all(DriverLibrary) if lib.soname == soname and lib.taken), None)


def judge_libcuda(case: Case) -> Iterator[Finding]:
    """The toolkit's stub, or a libcuda of another version than the module's."""
    library, module, called = taken(case, CUDA), loaded_version(case), case.last(CudaCalled)
    if library is None:
        return
    if library.stub or (called is not None and called.code == STUB):
        cause = (
            f"The loader takes {library.path} ({library.via}): the toolkit's stub, which is for linking only and hides the driver's "
            f"libcuda.{_answer(called)}"
        )
        sure = called is not None and called.code == STUB
        yield finding("stub-libcuda", [library, *([called] if called else [])], case=case, cause=cause,
                      certainty="established" if sure else "likely")  # fmt: skip
    elif library.version and module not in (None, "?", library.version):
        nvml = taken(case, NVML)
        if nvml is not None and nvml.version == library.version and library.via != "LD_LIBRARY_PATH":
            yield _updated(case, library, nvml, str(module), called)
        else:
            yield _of_other_version(case, library, str(module), called)


def _updated(
    case: Case, library: DriverLibrary, nvml: DriverLibrary, module: str, called: CudaCalled | None
) -> Finding:
    """Both libraries are of one version and the module is of another: the packages were changed under it."""
    have = library.version or ""
    branches = [version.partition(".")[0] for version in (module, have)]
    values = {
        "sides": f"The loaded kernel module is {module}, the user-space libraries are {have}.",
        "branches": " and ".join(branches) if branches[0] != branches[1] else None, "module": module, "library": have,
    }  # fmt: skip
    failed = (called is not None and bool(called.code)) or case.has(NvmlFailed)
    return finding(
        "driver-library-mismatch", [library, nvml, *([called] if called and called.code else [])], case=case, values=values,
        certainty="established" if failed else "likely", figures={"module": module, "library": have},
    )  # fmt: skip


def _answer(called: CudaCalled | None) -> str:
    if called is None or called.code is None:
        return ""
    return f" cuInit answers {called.code}{f' ({called.error})' if called.error else ''}."


def _of_other_version(case: Case, library: DriverLibrary, module: str, called: CudaCalled | None) -> Finding:
    right = next((lib for lib in case.all(DriverLibrary) if lib.soname == CUDA and lib.version == module), None)
    works = called is not None and called.code == 0
    older = version_numbers(library.version or "") < version_numbers(module)
    values: dict[str, Any] = {
        "have": library.version, "module": module, "path": library.path, "via": _via(library),
        "right": right.path if right else None, "wanted": None if right or works else module,
        "meaning": _meaning(works=works, older=older),
    }  # fmt: skip
    if called is not None and called.code:
        values |= {"code": called.code, "error": called.error or "no name"}
    certainty: Certainty = "established" if works or (called is not None and called.code in OF_LIBRARIES) else "likely"
    severity: Severity = "info" if works else "error" if called is not None and called.code else "warning"
    return finding(
        "libcuda-of-other-version", [library, *([right] if right else []), *([called] if called else [])],
        case=case, values=values, severity=severity, certainty=certainty,
        remedies=() if works else _remedies(case, library, right), figures={"libcuda": library.version, "module": module},
    )  # fmt: skip


def _meaning(*, works: bool, older: bool) -> str:
    if works:
        return "cuInit works with it all the same: this is forward compatibility, which data-centre GPUs allow."
    if older:
        return "It is older than the module, and no libcuda works on a newer module than itself."
    return "A newer libcuda on an older module is forward compatibility, which only data-centre GPUs allow."


def _via(library: DriverLibrary) -> str:
    return {"ld.so.cache": "The loader's cache", "default": "The loader's default folder"}.get(library.via, library.via)


def _remedies(case: Case, library: DriverLibrary, right: DriverLibrary | None) -> tuple[Remedy, ...]:
    folder = (library.path or "").rpartition("/")[0]
    if library.via == "LD_LIBRARY_PATH":
        value = next((v.value for v in reversed(case.all(EnvironmentVariable)) if v.name == "LD_LIBRARY_PATH"), "")
        left = ":".join(part for part in value.split(":") if part and part.rstrip("/") != folder)
        first = Remedy(
            f"Take {folder} off LD_LIBRARY_PATH", f"export LD_LIBRARY_PATH={left}" if left else "unset LD_LIBRARY_PATH",
            f"the loader then takes {right.path} ({right.version})" if right else "", suffices=True if right else None,
        )  # fmt: skip
    elif folder in SYSTEM_FOLDERS:
        first = Remedy(
            "Find out which package brought that libcuda, and remove or replace it",
            f"dpkg -S {library.real} || rpm -qf {library.real}",
        )
    else:
        first = Remedy(
            f"Take {folder} out of the loader's configuration and write its cache anew",
            f"grep -rl {folder} /etc/ld.so.conf.d   # remove that line or file, then: sudo ldconfig",
        )
    same = Remedy(
        "Or install the driver's libraries of exactly the module's version (after an update: reboot, so that the module follows)",
        "dpkg -l | grep -E 'libnvidia-compute|cuda-compat'",
    )
    image = Remedy(
        "In a container: use an image without a compat folder, or of a CUDA version that the driver itself offers"
    )
    return (first, same, image) if library.compat else (first, same)


def judge_parts(case: Case) -> Iterator[Finding]:
    """In a container that was given the GPU: one of the two driver libraries was not mounted."""
    sign = inside_container(case)
    nodes = [n for n in case.all(DeviceNode) if not n.missing]
    libraries = case.all(DriverLibrary)
    if sign is None or not nodes or not libraries:
        return
    absent = [lib for lib in libraries if lib.path is None]
    if len(absent) != 1:
        return
    part, brings, has = (
        ("utility", "libnvidia-ml and nvidia-smi", "libcuda")
        if absent[0].soname == NVML
        else ("compute", "libcuda", "libnvidia-ml")
    )
    asked = next((v for v in case.all(EnvironmentVariable) if v.name == "NVIDIA_DRIVER_CAPABILITIES"), None)
    given = [word.strip() for word in asked.value.split(",")] if asked else []
    if "all" in given or part in given:
        return  # it was asked for: the host lacks the library, or the loader's cache is stale
    said = f"is `{asked.value}`, without `{part}`" if asked else "is not set here"
    cause = (
        f"This container has the GPU's device files and {has}, and no {absent[0].soname}: the `{part}` part of the driver, which "
        f"brings {brings}, was not mounted. NVIDIA_DRIVER_CAPABILITIES {said}."
    )
    yield finding(
        "driver-capability-missing", [absent[0], *([asked] if asked else []), *nodes[:1]], case=case, cause=cause,
        certainty="established" if asked else "likely",
    )  # fmt: skip


_ROW_OF_CODE = {
    3: "cuda-init-failed", STUB: "stub-libcuda", 46: "gpu-busy-or-unavailable", 100: "no-cuda-device", 103: "cuda-integrity-check",
    304: "cuda-init-failed", 802: "fabric-not-ready", 803: "libcuda-kernel-mismatch", 804: "forward-compat-unsupported",
    805: "mps-no-server", 999: "cuda-init-failed",
}  # fmt: skip


def judge_cuda(case: Case) -> Iterator[Finding]:
    """What cuInit answered, called by loadpath itself: no library, or a code."""
    called = case.last(CudaCalled)
    if called is None:
        return
    if called.library is None:
        inside = inside_container(case)
        changes: dict[str, Any] = {"boundary": "container-injection"} if inside else {}
        yield finding("libcuda-missing", [called], case=case, certainty="established", **changes)
    elif called.code:
        stack = stack_of(case)
        values = {**stack.values(), "code": called.code, "text": called.error or "a code that has no name here"}
        if stack.data_centre is not False:
            values.pop("gpu", None)
        if (hidden := _hidden(case)) is not None:
            values["cvd"] = hidden or "(empty)"
        yield finding(
            _ROW_OF_CODE.get(called.code, "cuda-init-failed"),
            [called],
            case=case,
            values=values,
            certainty="established",
        )


def _hidden(case: Case) -> str | None:
    """The value of CUDA_VISIBLE_DEVICES where it hides every GPU."""
    value = next((v.value for v in reversed(case.all(EnvironmentVariable)) if v.name == "CUDA_VISIBLE_DEVICES"), None)
    return value if value in ("", "-1", "none", "NoDevFiles") else None


def judge_nvml(case: Case) -> Iterator[Finding]:
    """NVML does not start, for a reason that no row of its own knows."""
    known = {(s.span.source, s.span.first_line) for s in case.all(Symptom)}
    for failed in case.all(NvmlFailed)[:1]:
        if (failed.span.source, failed.span.first_line) not in known:
            yield finding("nvml-fails", [failed], case=case, values={"words": failed.words})


RULES = (
    Rule(
        judge_libcuda,
        (DriverLibrary,),
        ("stub-libcuda", "libcuda-of-other-version", "driver-library-mismatch"),
        (CudaCalled,),
    ),
    Rule(judge_parts, (DriverLibrary, DeviceNode), ("driver-capability-missing",), (EnvironmentVariable,)),
    Rule(judge_cuda, (CudaCalled,), ("libcuda-missing", *dict.fromkeys(_ROW_OF_CODE.values())), (EnvironmentVariable,)),
    Rule(judge_nvml, (NvmlFailed,), ("nvml-fails",)),
)
