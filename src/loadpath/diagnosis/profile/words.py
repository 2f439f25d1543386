"""What the rules on profiles share: which launch stands for its kernel, the commands of the next step, shares in words."""

from __future__ import annotations

import re

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.profile import GpuTimeline, KernelTime
from loadpath.core.report import Check, Remedy

_COMMUNICATION = re.compile(r"nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|nvshmem", re.I)


def percent(share: float) -> str:
    """`"41 %"`, `"0.6 %"`."""
    return f"{share * 100:.0f} %" if share >= 0.095 or share == 0 else f"{share * 100:.1f} %"


def of_span(timeline: GpuTimeline, *causes: str) -> float:
    """The part of a GPU's recorded time that gaps of these causes took."""
    return sum(timeline.gap_seconds.get(cause, 0.0) for cause in causes) / (timeline.span_seconds or 1.0)


def uses_graphs(timeline: GpuTimeline) -> bool:
    """Whether most of the GPU's work came from graphs."""
    return bool(timeline.graph_launches) or 2 * timeline.graph_kernels > timeline.kernels


def communicates(kernel: KernelTime) -> bool:
    return bool(_COMMUNICATION.search(kernel.name))


def beside(timeline: GpuTimeline, fact: Fact) -> bool:
    """Whether a fact is of the same recording: each rank's file numbers its GPUs for itself."""
    return fact.span.source == timeline.span.source


def kernels_of(timeline: GpuTimeline, case: Case) -> list[KernelTime]:
    """The kernels of a GPU, the longest in sum first."""
    own = [k for k in case.all(KernelTime) if k.gpu == timeline.gpu and beside(timeline, k)]
    return sorted(own, key=lambda kernel: -kernel.seconds)


def look_inside(name: str) -> Check:
    """How one kernel is measured from the inside."""
    word = max(re.findall(r"\w+", name), key=len, default=name)
    return Check(
        f"What holds {name} back inside: Nsight Compute on a few of its launches after the warm-up.",
        f"ncu --set full --kernel-name regex:{word} --launch-skip 50 --launch-count 5 --csv --page raw COMMAND > kernels.csv",
    )


def graph_remedies(case: Case, effect: str) -> list[Remedy]:
    """How CUDA graphs are switched on in the engine at hand."""
    by_engine = {
        "vllm": Remedy("Let vLLM capture CUDA graphs: start it without --enforce-eager", "", effect),
        "sglang": Remedy("Let SGLang capture CUDA graphs: start it without --disable-cuda-graph, and with a capture size "
                         "for the batch", "--cuda-graph-max-bs N", effect),
        "llama.cpp": Remedy("Build llama.cpp with CUDA graphs, and do not set GGML_CUDA_DISABLE_GRAPHS",
                            "cmake -B build -DGGML_CUDA=ON -DGGML_CUDA_GRAPHS=ON", effect),
    }  # fmt: skip
    if case.engine in by_engine:
        return [by_engine[case.engine]]
    return [
        Remedy("Replay the step as a CUDA graph: an engine without its eager option (vLLM --enforce-eager, SGLang "
               "--disable-cuda-graph)", "", effect),
        Remedy("In PyTorch of your own: fixed shapes and torch.compile with graphs", 'torch.compile(model, mode="reduce-overhead")',
               effect),
    ]  # fmt: skip
