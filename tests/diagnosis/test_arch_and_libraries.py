"""Architectures, libraries, kernels and model settings: what leads, and the words an engineer needs from it."""

from __future__ import annotations

import re

import pytest

from conftest import read_text
from loadpath.core.report import Finding


def words(root: Finding) -> str:
    advice = [w for r in root.remedies for w in (r.action, r.command, r.effect)]
    checks = [w for c in root.next_checks for w in (c.why, c.command)]
    return "\n".join([root.title, root.cause, *advice, *checks])


ARCH = [
    ("NVIDIA RTX PRO 6000 Blackwell with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
     "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.",
     "no-kernel-for-gpu", ["sm_120", "sm_90", "12.8", "cu130"]),
    ("Found GPU0 Tesla P100-PCIE-16GB which is of cuda capability 6.0.\n"
     "CUDA error: no kernel image is available for execution on the device", "no-kernel-for-gpu", ["Pascal", "cu126"]),
    ("CUDA error (/src/third_party/flash-attention/hopper/flash_fwd_launch_template.h:167): no kernel image is available "
     "for execution on the device", "no-kernel-for-gpu", ["compute capability"]),
    ("ptxas fatal   : Value 'sm_103a' is not defined for option 'gpu-name'", "ptxas-too-old", ["12.9", "TRITON_PTXAS_PATH"]),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_70'", "nvcc-does-not-know-arch", ["12.9"]),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_120'\nCuda compilation tools, release 12.4, V12.4.131",
     "nvcc-does-not-know-arch", ["12.8", "12.4"]),
    ("RuntimeError: [FP4 gemm Runner] Failed to run cutlass FP4 gemm on sm121. Error: Error Internal",
     "fp4-kernel-not-for-gpu", ["sm_121", "marlin"]),
    ("BackendSupportedError: mm_fp4 does not support backend 'cute-dsl' with capability 120", "fp4-kernel-not-for-gpu",
     ["sm_120", "sm_100"]),
    ("This kernel only supports sm120.\nCUDA error: unspecified launch failure", "kernel-needs-other-arch", ["sm120"]),
    ("ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla V100-SXM2-32GB "
     "GPU has compute capability 7.0. You can use float16 instead", "bf16-not-on-gpu", ["7.0", "--dtype half"]),
    ("ValueError: The quantization method awq_marlin is not supported for the current GPU. Minimum capability: 80. "
     "Current capability: 75.", "quantisation-needs-newer-gpu", ["8.0", "7.5"]),
    ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "attention-needs-newer-gpu", ["TRITON_ATTN"]),
    ("ValueError(\"type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e5',)\")",
     "fp8-not-on-gpu", ["8.9"]),
    ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
     "kernel-too-big-for-gpu", ["131072", "101376"]),
    ("The engine plan file is generated on an incompatible device, expecting compute 9.0 got compute 8.9, please rebuild.",
     "trt-engine-other-gpu", ["9.0", "8.9"]),
]  # fmt: skip

ARCH += [
    ("RuntimeError: FlashInfer-CUTLASS MoE kernel does not support current device sm_120", "kernel-needs-other-arch",
     ["sm_120", "--moe-backend"]),
    ("ValueError: Failed to find a kernel that can implement the WNA16 linear layer. Reasons: MarlinLinearKernel requires "
     "capability 80, current compute capability is 75", "kernel-needs-other-arch", ["8.0", "7.5"]),
    ("  File \"/v/triton/backends/nvidia/compiler.py\", line 216, in make_llir\nIndexError: map::at",
     "triton-cannot-compile-for-gpu", ["Turing"]),
    ("[TensorRT-LLM][ERROR] Assertion failed: Unsupported architecture (/src/fmhaRunner.cpp:89)",
     "kernel-needs-other-arch", ["GPU"]),
]  # fmt: skip

LIBRARIES = [
    ("torch 2.9.1+cu130\nImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
     "cuda-library-missing", ["CUDA 12", "13.0", "cu130"]),
    ("Name: torch\nVersion: 2.11.0+cu126\ntorch==2.11.0+cu126\nImportError: libcudart.so.13: cannot open shared object "
     "file: No such file or directory", "cuda-library-missing", ["CUDA 13", "12.6"]),
    ("OSError: libcublas.so.12: cannot open shared object file: No such file or directory", "cuda-library-missing",
     ["nvidia-cublas-cu12", "LD_LIBRARY_PATH"]),
    ("Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9, libcudnn_ops.so}",
     "cuda-library-missing", ["cudnn"]),
    ("ImportError: /opt/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommShrink",
     "nccl-library-too-old", ["ncclCommShrink"]),
    ("ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkCreate_12_8, version libnvJitLink.so.12",
     "nvjitlink-mismatch", ["LD_LIBRARY_PATH"]),
    ("WARNING 06-13 11:42:20 _custom_ops.py:11] Failed to import from vllm._C with ImportError('/srv/vllm/_C.abi3.so: "
     "undefined symbol: _ZN5torch7LibraryC1ENS0_4KindESsSt8optionalIN3c1011DispatchKeyEEPKcj')",
     "torch-abi-mismatch", ["vllm", "torch"]),
    ("ImportError: /opt/conda/bin/../lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by x.so)",
     "glibc-too-old", ["libstdcxx"]),
    ("/bin/sh: 1: :/usr/local/cuda-12.8/bin/nvcc: not found\nninja: build stopped: subcommand failed.",
     "cuda-compiler-missing", ["nvcc"]),
    ("/tmp/main.c:5:10: fatal error: Python.h: No such file or directory\n"
     "torch._inductor.exc.InductorError: CalledProcessError: Command '['gcc'", "build-header-missing", ["python3-dev"]),
    ("fatal error: cusparse.h: No such file or directory\nRuntimeError: Error building extension 'x'",
     "build-header-missing", ["libcusparse-dev"]),
    ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "build-linker-missing", ["-lcuda"]),
    ("RuntimeError: The detected CUDA version (12.1) mismatches the version that was used to compile\nPyTorch (13.0).",
     "toolkit-differs-from-torch", ["12.1"]),
    ("ImportError: cannot import name 'PILImageResampling' from 'transformers.image_utils' (/v/transformers/x.py)\n"
     "transformers==5.0.0", "python-api-moved", ["transformers", "PILImageResampling", "5.0.0"]),
    ("ValueError: 'aimv2' is already used by a Transformers config, pick another name.", "python-api-moved", ["aimv2"]),
    ("ModuleNotFoundError: No module named 'flash_attn'", "module-missing", ["flash-attn"]),
    ("RuntimeError: operator torchvision::nms does not exist", "torchvision-mismatch", ["torchvision"]),
    ("AssertionError: Torch not compiled with CUDA enabled", "torch-without-cuda", ["cu128"]),
    ("vllm 0.11.0 requires torch==2.8.0, but you have torch 2.9.1 which is incompatible.", "package-versions-conflict",
     ["torch==2.8.0", "2.9.1"]),
    ("ImportError: numpy.core.multiarray failed to import", "numpy-abi-mismatch", ["numpy<2"]),
    ("ERROR registry.py:272] Error in inspecting model architecture 'Qwen2ForCausalLM'\n"
     "  File \"/opt/a/lib/python3.12/site-packages/vllm/registry.py\", line 4, in run\n"
     "subprocess.CalledProcessError: Command '['/opt/b/bin/python', '-m', 'vllm.model_executor.models.registry']'\n"
     "ValueError: Model architectures ['Qwen2ForCausalLM'] failed to be inspected. Please check the logs for more details.",
     "model-inspection-failed", ["Qwen2ForCausalLM", "/opt/a", "/opt/b"]),
    ("The engine plan file is not compatible with this version of TensorRT, expecting library version 10.9.0 got 10.4.0",
     "trt-version-mismatch", ["10.9.0"]),
]  # fmt: skip

LIBRARIES += [
    ("ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory", "cuda-library-missing",
     ["cuDNN 8", "8.*"]),
    ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "system-library-missing",
     ["libgl1", "opencv-python-headless"]),
    ("ImportError: \n[sgl_kernel] CRITICAL: Could not load any common_ops library!\n- ModuleNotFoundError: No module named "
     "'common_ops'", "sgl-kernel-not-loadable", ["sgl-kernel"]),
]  # fmt: skip

RUNNING = [
    ("RuntimeError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously "
     "reported at some other API call", "gpu-kernel-fault", ["CUDA_LAUNCH_BLOCKING=1", "compute-sanitizer"]),
    ("/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: x: block: [1,0,0], thread: [2,0,0] Assertion `srcIndex < "
     "srcSelectDimSize` failed.\nRuntimeError: CUDA error: device-side assert triggered", "device-side-assert",
     ["index", "CUDA_LAUNCH_BLOCKING"]),
    ("RuntimeError: CUDA error: misaligned address", "gpu-kernel-fault", ["misaligned"]),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", "cublas-failed",
     ["memory"]),
    ("RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing", "cuda-fork",
     ["spawn"]),
    ("Fatal Python error: Segmentation fault", "process-crashed", ["dmesg"]),
    ("thread 'main' panicked at router/src/main.rs:42:9:", "rust-panic", ["router/src/main.rs:42:9"]),
    ("ValueError: World size (8) is larger than the number of available GPUs (4) in this node.",
     "gpu-number-not-visible", ["4", "8"]),
]  # fmt: skip

SETTINGS = [
    ("ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).",
     "heads-not-divisible", ["1, 2, 4, 7", "--pipeline-parallel-size 8", "--tensor-parallel-size 7"]),
    ("ValueError: `num_heads` must be divisible by `num_shards` (got `num_heads`: 71 and `num_shards`: 2)",
     "heads-not-divisible", ["71"]),
    ("--tensor-parallel-size 8\nValueError: Weight input_size_per_partition = 3424 is not divisible by min_thread_k = 128.",
     "quantised-shard-not-aligned", ["3424", "128", "Marlin"]),
    ("ValueError: The output size is not aligned with the quantized weight shape. This can be caused by too large tensor "
     "parallel size.", "quantised-shard-not-aligned", ["tensor-parallel"]),
    ("ValueError: Quantization method specified in the model config (fp8) does not match the quantization method "
     "specified in the `quantization` argument (awq).", "quantisation-mismatch", ["fp8", "awq", "--quantization"]),
    ("ValueError: Model architectures ['Qwen3Model'] are not supported for now. Supported architectures: ['Llama']",
     "model-class-unknown", ["backbone", "--runner pooling"]),
    ("ValueError: Model architectures ['NovelForCausalLM'] are not supported for now. Supported architectures: ['Llama']",
     "model-class-unknown", ["NovelForCausalLM", "Upgrade"]),
    ("ValueError: The checkpoint you are trying to load has model type `novel9` but Transformers does not recognize this",
     "model-class-unknown", ["novel9", "transformers"]),
    ("huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo for url https://huggingface.co/a/b",
     "hub-access-denied", ["HF_TOKEN"]),
    ("OSError: /models/m does not appear to have a file named config.json. Checkout 'https://x' for available files.",
     "config-missing", ["/models/m"]),
    ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "weights-damaged", ["pointer"]),
    ("ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len "
     "(max_position_embeddings=32768 or model_max_length=None in model's config.json).", "context-over-model",
     ["--max-model-len 32768"]),
    ("ValueError: LoRA rank 128 is greater than max_lora_rank 16.", "lora-does-not-fit", ["--max-lora-rank 128"]),
    ("ValueError: As of transformers v4.44, default chat template is no longer allowed", "chat-template-missing",
     ["--chat-template"]),
    ("ValueError: This model does not support the 'generate' task. Supported tasks: {'embed'}",
     "runner-does-not-fit-model", ["--runner pooling"]),
]  # fmt: skip

SETTINGS += [
    ("KeyError: 'layers.0.mlp.gate.qweight'", "weights-do-not-fit-model", ["qweight", "quantised"]),
    ("ValueError: BitAndBytes quantization with TP or PP is not supported yet.", "combination-not-supported",
     ["BitAndBytes"]),
    ("ValueError: The given huggingface model architecture NovelForCausalLM is not supported in TRT-LLM yet",
     "model-class-unknown", ["NovelForCausalLM"]),
    ("ValueError: Converting from SentencePiece and Tiktoken failed, if a converter for SentencePiece is available",
     "tokenizer-not-loadable", ["tokenizer"]),
]  # fmt: skip

CASES = [*ARCH, *LIBRARIES, *RUNNING, *SETTINGS]


@pytest.mark.parametrize(("text", "root", "said"), CASES, ids=[f"{c[1]}-{i}" for i, c in enumerate(CASES)])
def test_leads_with_and_says(text: str, root: str, said: list[str]) -> None:
    report = read_text(text)
    assert report.root is not None
    assert report.root.id == root, (report.root.title, [f.id for f in report.findings])
    missing = [word for word in said if word not in words(report.root)]
    assert not missing, words(report.root)
    assert not re.search(r"\{\w+\}", words(report.root))
    assert len(report.root.title) < 140 and len(report.root.cause) < 760


@pytest.mark.parametrize(
    "text",
    [
        "Found GPU0 NVIDIA GB10 which is of cuda capability 12.1. Minimum and Maximum cuda capability supported by this "
        "version of PyTorch is (8.0) - (12.0)",
        "Ignore import error when loading sglang.srt.models.novel: No module named 'transformers.models.novel'",
        "/usr/lib/libcuda.so.1: wrong ELF class: ELFCLASS32",
        "INFO selector.py:217] Cannot use FlashAttention-2 backend for Volta and Turing GPUs.",
        "WARNING custom_all_reduce.py:137] Custom allreduce is disabled because it's not supported on more than two "
        "PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True explicitly.",
    ],
)
def test_is_no_error(text: str) -> None:
    assert [f.id for f in read_text(text).findings if f.severity == "error"] == []


def test_no_kernel_proves_that_driver_and_injection_work() -> None:
    report = read_text("RuntimeError: CUDA error: no kernel image is available for execution on the device")
    assert {"kernel-usermode", "container-injection", "runtime-driver"} <= set(report.holds)
