"""Do the shared libraries of one environment belong together: does the loader find each, in the major that was asked for?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.errors import PythonException, Symptom
from loadpath.core.facts.stack import ComponentVersion
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Severity
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.stack import NOTICES, Stack, groups, stack_of
from loadpath.knowledge import cuda

_WHAT = {
    "libcudart": "runtime library", "libnvrtc": "run-time compiler", "libcublas": "linear algebra library",
    "libcudnn": "deep-learning primitives", "libnccl": "communication library", "libnvJitLink": "JIT linker",
    "libnvinfer": "TensorRT runtime",
}  # fmt: skip
# Headers that are not nvcc's own: (start of the name, what they belong to, how to install it, pip's folder).
_HEADERS = (
    ("Python", "CPython's development files", "apt-get install python3-dev", ""),
    ("curand", "cuRAND's development files", "apt-get install libcurand-dev-12-8", "curand"),
    ("cublas", "cuBLAS's development files", "apt-get install libcublas-dev-12-8", "cublas"),
    ("cusparse", "cuSPARSE's development files", "apt-get install libcusparse-dev-12-8", "cusparse"),
    ("cusolver", "cuSOLVER's development files", "apt-get install libcusolver-dev-12-8", "cusolver"),
    ("cufft", "cuFFT's development files", "apt-get install libcufft-dev-12-8", "cufft"),
    ("cudnn", "cuDNN's development files", "apt-get install libcudnn9-dev-cuda-12", "cudnn"),
    ("nccl", "NCCL's development files", "apt-get install libnccl-dev", "nccl"),
    ("nvrtc", "NVRTC's development files", "apt-get install cuda-nvrtc-dev-12-8", "cuda_nvrtc"),
    ("nvtx", "NVTX's headers", "apt-get install cuda-nvtx-12-8", "nvtx"),
    ("thrust", "CCCL (Thrust, CUB)", "apt-get install cuda-cccl-12-8", "cuda_cccl"),
    ("cub", "CCCL (Thrust, CUB)", "apt-get install cuda-cccl-12-8", "cuda_cccl"),
    ("nv/", "CCCL (libcu++)", "apt-get install cuda-cccl-12-8", "cuda_cccl"),
    ("cuda/std", "CCCL (libcu++)", "apt-get install cuda-cccl-12-8", "cuda_cccl"),
    ("infiniband", "the RDMA headers", "apt-get install libibverbs-dev", ""),
    ("numa", "libnuma's headers", "apt-get install libnuma-dev", ""),
    ("cuda", "the CUDA runtime's headers", "apt-get install cuda-cudart-dev-12-8", "cuda_runtime"),
    ("crt/", "the CUDA compiler's headers", "apt-get install cuda-nvcc-12-8", "cuda_nvcc"),
    ("", "a development package", "apt-file search {header}", "cuda_runtime"),
)


_SELF_NUMBERED = ("libcudnn", "libnccl", "libcusparseLt", "libnvinfer", "libnvshmem")
_NAMES = {"libcudnn": "cuDNN", "libnccl": "NCCL", "libcusparseLt": "cuSPARSELt", "libnvinfer": "TensorRT",
          "libnvshmem": "NVSHMEM"}  # fmt: skip
_SYSTEM = {
    "libGL": "libgl1", "libgthread": "libglib2.0-0", "libglib": "libglib2.0-0", "libnuma": "libnuma1", "libgomp": "libgomp1",
    "libmpi": "libopenmpi3", "libibverbs": "libibverbs1", "librdmacm": "librdmacm1", "libSM": "libsm6", "libXext": "libxext6",
    "libXrender": "libxrender1", "libsndfile": "libsndfile1", "libtbb": "libtbb12", "libpython3": "libpython3-dev",
    "libopenblas": "libopenblas0", "libcurl": "libcurl4", "libssl": "libssl3", "libatomic": "libatomic1",
    "libav": "ffmpeg", "libsw": "ffmpeg",
}  # fmt: skip


def missing_library(case: Case) -> Iterator[Finding]:
    """A CUDA library that the loader did not find: its major against that of the environment."""
    everything = case.symptoms("cuda-library-missing")
    symptoms = [s for s in everything if "loader" not in s.groups]
    if not symptoms:
        if everything and not case.symptoms("torch-abi-mismatch"):
            yield finding("sgl-kernel-not-loadable", everything, case=case, values=stack_of(case).values())
        return
    stack, values = stack_of(case), groups(symptoms)
    lib = values["lib"]
    major = _major(lib, stack)
    values |= stack.values() | {"major": major or "12"} | _packages(lib, major)
    values["what"] = next((w for stem, w in _WHAT.items() if lib.startswith(stem)), "library")
    if native := _native(symptoms):
        values |= _native_advice(major)
    elif not lib.startswith(_SELF_NUMBERED):
        values |= _fitting(major, stack, _asking(case, symptoms))
    if len(symptoms) < len(everything):
        values["distraction"] = "The lines about compute capability and file patterns are a distraction."
    mild = all(s.origin.level in NOTICES or "Could not load dynamic library" in s.text for s in symptoms)
    severity: Severity | None = "warning" if mild else None
    versions = [f for f in case.all(ComponentVersion) if f.name in ("torch", "cuda-toolkit", "cuda-libraries")]
    evidence: list[Fact] = [*symptoms, *versions[:3]]
    if lib.startswith(_SELF_NUMBERED):
        yield finding(
            "cuda-library-missing", evidence, case=case, values=values, severity=severity,
            title=f"{lib} is not found: a package here needs {_NAMES[_stem(lib)]} {_number(lib)}".rstrip(),
            cause=f"The loader looked for {lib} and found none on its path. The number is that library's own, not CUDA's: the "
            "package that asks was built for it. torch brings such libraries in pip packages of its own, which other "
            "programs do not find by themselves.",
        )  # fmt: skip
        return
    title = None if major else f"{lib} is not found: a CUDA library that a package here was built with"
    if not native:
        values |= _mismatch(major, stack)
    yield finding("cuda-library-missing", evidence, case=case, values=values, severity=severity, title=title)


def library_words(lib: str, stack: Stack, asking: str) -> dict[str, str]:
    """Template values of `cuda-library-missing` for one library that `asking` (a package) needs."""
    major = _major(lib, stack)
    values = {"lib": lib, **stack.values(), "major": major or "12"} | _packages(lib, major)
    values["what"] = next((w for stem, w in _WHAT.items() if lib.startswith(stem)), "library")
    if not lib.startswith(_SELF_NUMBERED):
        values |= _fitting(major, stack, asking) | _mismatch(major, stack)
    return values


def system_package(lib: str) -> str:
    """The Debian package of a library of the operating system; a placeholder where it is not known."""
    return next((p for stem, p in _SYSTEM.items() if lib.startswith(stem)), f"<the package that has {lib}>")


def _native(symptoms: list[Symptom]) -> bool:
    """The program that asks is no Python package: an executable, or a backend of llama.cpp."""
    return all("error while loading shared libraries" in s.text or "ggml" in s.text for s in symptoms)


def _native_advice(major: str) -> dict[str, str]:
    """Words for executables: what pip brings does not reach them."""
    return {
        "mismatch": f"The program was linked against CUDA {major or 'of that number'}, whose runtime is not installed here or "
        "not on the loader's path; the driver does not bring it.",
        "fit_action": "Use an image or package of the program that brings its CUDA libraries, or build it with the toolkit here",
        "fit_command": "docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda …   (llama.cpp)",
        "native_major": major or "12",
        "pip_action": "",
    }  # fmt: skip


def _packages(lib: str, major: str) -> dict[str, str]:
    """The pip and system packages that have the library, and its folder below site-packages/nvidia."""
    row = cuda.library(lib)
    if row is None:
        return {}
    package = cuda.package_for(row, major) if major else row.package
    if row.name == "libcudnn" and _number(lib):
        package = f"'{package}=={_number(lib)}.*'"
    own = lib.startswith(_SELF_NUMBERED)
    module, below = f"nvidia.{'cu13' if major == '13' and not own else row.folder}", "/lib"
    system = f"{row.system_package}-{major or '<major>'}-<minor>"
    if row.name == "libnvinfer":
        module, below, system = row.folder, "", row.system_package
    elif row.name == "libcudnn":
        system = f"libcudnn{_number(lib) or 9}-cuda-{major or '12'}"
    elif row.name == "libnccl":
        system = row.system_package
    name = f"{_NAMES[_stem(lib)]} {_number(lib)}".rstrip() if own else ""
    return {
        "package": package, "module": module, "below": below, "system_install": system,
        "pip_action": f"Install {name} from pip, in the version that the package asks for, and let the loader find it" if own
        else f"If torch is itself built for CUDA {major or '12'}: install the runtime library from pip and let the loader find it",
        "system_action": f"Or install {name} in the system" if own else f"Or install CUDA {major or '12'}'s library in the system "
        "(a newer toolkit beside the old one does no harm)",
    }  # fmt: skip


def _number(lib: str) -> str:
    """The number in a library's file name: `libcudnn.so.9.1` → `9`."""
    return lib.rpartition(".so.")[2].partition(".")[0] if ".so." in lib else ""


def _stem(lib: str) -> str:
    return next(stem for stem in _SELF_NUMBERED if lib.startswith(stem))


def _major(lib: str, stack: Stack) -> str:
    """The CUDA major that a file name asks for; "" where neither the name nor torch tells.

    cuDNN and others have numbers of their own; cuFFT, cuRAND, cuSOLVER and cuSPARSE count apart from CUDA too.
    """
    number = _number(lib)
    counts_apart = lib.startswith((*_SELF_NUMBERED, "libcufft", "libcusolver", "libcurand", "libcusparse"))
    if number in ("10", "11", "12", "13") and not counts_apart:
        return number
    return stack.torch_cuda.partition(".")[0]


def _mismatch(major: str, stack: Stack) -> dict[str, str]:
    here = stack.torch_cuda.partition(".")[0] or stack.libraries_major
    if major and here and here != major:
        told = (
            f"torch here is built with CUDA {stack.torch_cuda}"
            if stack.torch_cuda
            else f"CUDA {here} libraries lie here"
        )
        return {"mismatch": f"{told}, the package that asks is built for CUDA {major}: the two do not match."}
    if major and stack.toolkit and stack.toolkit.partition(".")[0] != major:
        own = f" and torch brings CUDA {stack.torch_cuda} of its own" if here == major else ""
        return {"mismatch": f"The system's toolkit is CUDA {stack.toolkit}{own}: its folders have no .so.{major}, and "
                "pip's library folder is not on the loader's path."}  # fmt: skip
    if major:
        return {"mismatch": f"Usual: the environment's torch is of another CUDA major (13 beside a CUDA {major} wheel), or "
                "pip's library folder is not on the loader's path."}  # fmt: skip
    return {}


def _fitting(major: str, stack: Stack, asking: str) -> dict[str, str]:
    """The first remedy: make the majors equal, or (where they are) show the loader the library."""
    here = stack.torch_cuda.partition(".")[0] or stack.libraries_major
    if here and major and here == major:
        return {}
    tag = {"13": "cu130", "12": "cu128", "11": "cu118"}
    if here and major:
        return {
            "fit_action": f"Install the {asking} build for CUDA {here} ({tag.get(here, 'cu' + here)}), to match torch; or a "
            f"torch built for CUDA {major} ({tag.get(major, 'cu' + major)})",
            "fit_command": f"pip install --force-reinstall {asking} --extra-index-url "
            f"https://download.pytorch.org/whl/{tag.get(here, '')}",
        }
    return {
        "fit_action": f"Make torch and {asking} of one CUDA major: reinstall {asking} for torch's CUDA, or a torch for CUDA "
        f"{major or '12'} ({tag.get(major, 'cu128')})",
        "fit_command": f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{tag.get(major, 'cu128')}",
    }


def _asking(case: Case, symptoms: list[Symptom]) -> str:
    """The package whose library could not be loaded, as the lines around show it."""
    first = min(s.span.first_line for s in symptoms)
    near = [e for e in case.all(PythonException) if abs(e.span.first_line - first) < 40]
    frames = " ".join(file for e in near for file, _, _ in e.frames[-4:])
    text = " ".join([*(s.text for s in case.all(Symptom)), frames]).lower()
    for mark, name in (("sgl_kernel", "sgl-kernel"), ("sgl-kernel", "sgl-kernel"), ("flash_attn", "flash-attn"),
                       ("xformers", "xformers"), ("flashinfer", "flashinfer"), ("bitsandbytes", "bitsandbytes"),
                       ("vllm", "vllm"), ("sglang", "sglang"), ("onnxruntime", "onnxruntime-gpu"), ("tensorrt", "tensorrt")):  # fmt: skip
        if mark in text:
            return name
    return case.engine if case.engine in ("vllm", "sglang") else "the compiled package"


def torch_abi(case: Case) -> Iterator[Finding]:
    """An undefined C++ symbol of torch: which extension, and which torch is here."""
    symptoms = case.symptoms("torch-abi-mismatch")
    if not symptoms:
        return
    stack, values = stack_of(case), groups(symptoms)
    path = values.get("ext", "")
    values["ext"] = path.rpartition("/")[2] or "A compiled extension"
    values["pkg"] = owner_of(path)
    values["engine"] = case.engine if case.engine in ("vllm", "sglang") else values["pkg"]
    symbol = values.get("symbol", "")
    if own := re.match(r"_Z(\d+)([a-zA-Z_]\w*)", symbol):
        # No namespace of torch's in front: the function is the extension's own, only its arguments are torch's.
        values |= {"function": own[2][: int(own[1])]}
        yield finding("extension-incomplete", symptoms, case=case, values=stack.values() | values)
        return
    if "cxx11" not in symbol and re.search(r"RKSs|ESs|Ss(?:[A-Za-z]?$|[A-Z])", symbol):
        values["old_abi"] = "pre-cxx11"
    only_notice = all("built for" in s.text or "you have" in s.text or "can't load" in s.text for s in symptoms)
    yield finding("torch-abi-mismatch", symptoms, case=case, values=stack.values() | values,
                  severity="warning" if only_notice else None)  # fmt: skip


def owner_of(path: str) -> str:
    """The pip package of an extension's file."""
    for mark, package in (("flash_attn", "flash-attn"), ("sgl_kernel", "sgl-kernel"), ("xformers", "xformers"), ("vllm", "vllm"),
                          ("torchvision", "torchvision"), ("torchaudio", "torchaudio"), ("exllama", "exllamav2"),
                          ("awq", "autoawq"), ("mamba", "mamba-ssm"), ("causal_conv1d", "causal-conv1d"),
                          ("deep_gemm", "deep-gemm"), ("transformer_engine", "transformer-engine"), ("apex", "apex"),
                          ("flashinfer", "flashinfer-python"), ("bitsandbytes", "bitsandbytes")):  # fmt: skip
        if mark in path.lower():
            return package
    return "<the package>"


def header(case: Case) -> Iterator[Finding]:
    """A header that a build at run time did not find: whose it is and how to get it."""
    symptoms = case.symptoms("build-header-missing")
    if not symptoms:
        return
    values = groups(symptoms)
    name = values["header"]
    _, whose, install, folder = next(row for row in _HEADERS if name.startswith(row[0]))
    stack = stack_of(case)
    version = stack.torch_cuda or stack.toolkit
    if version and "-12-8" in install:
        install = install.replace("-12-8", "-" + "-".join(version.split(".")[:2]))
    if stack.python and name == "Python.h":
        install = f"apt-get install python{'.'.join(stack.python.split('.')[:2])}-dev"
    values |= {
        "whose": f"it belongs to {whose}",
        "install_action": f"Install {whose}",
        "install_command": install.replace("{header}", name),
        "header_name": name.rpartition("/")[2],
    }
    if folder:
        values["include_folder"] = "cu13" if version.startswith("13") else folder
    yield finding("build-header-missing", symptoms, case=case, values=stack.values() | values)


def system_library(case: Case) -> Iterator[Finding]:
    """A library of the operating system that slim images leave out."""
    symptoms = case.symptoms("system-library-missing")
    if not symptoms:
        return
    values = groups(symptoms)
    lib = values["lib"]
    values["install"] = f"apt-get update && apt-get install -y {system_package(lib)}"
    if lib.startswith(("libGL", "libg", "libSM", "libX")):
        values["headless"] = "pip uninstall -y opencv-python && pip install opencv-python-headless"
    yield finding("system-library-missing", symptoms, case=case, values=values)


RULES = (
    Rule(missing_library, (Symptom,), ("cuda-library-missing", "sgl-kernel-not-loadable")),
    Rule(torch_abi, (Symptom,), ("torch-abi-mismatch", "extension-incomplete")),
    Rule(header, (Symptom,), ("build-header-missing",)),
    Rule(system_library, (Symptom,), ("system-library-missing",)),
)
