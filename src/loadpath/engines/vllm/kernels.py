"""Which kernels vLLM chose, and where its own line says that they are a fallback."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import KernelChoice
from loadpath.engines.vllm.pattern import Pattern, Seen


def _choice(area: str, fallback: bool = False) -> Callable[[Seen], Iterator[Fact]]:
    """A KernelChoice of the groups `kernel`, `method`, `hardware`; each different one once."""

    def make(seen: Seen) -> Iterator[Fact]:
        groups = seen.match.groupdict()
        kernel = (groups.get("kernel") or "NCCL").strip("'\" ")
        method, hardware = groups.get("method"), groups.get("hardware")
        if seen.run.once(area, kernel, method, fallback):
            yield KernelChoice(
                **seen.common, area=area, kernel=kernel, method=method, fallback=fallback, hardware=hardware
            )

    return make


def _fallback(seen: Seen) -> Iterator[Fact]:
    """`Native FP8 kernels unavailable for sm_120; using Marlin` and its relatives."""
    text = seen.message
    hardware = re.search(r"\b(sm_?\d+[af]?)\b", text)
    used = re.search(r"(?:[Uu]sing|[Ff]alling back to|fallback to)\s+(?:the\s+)?([\w-]+)", text)
    method = re.search(r"\b(NVFP4|FP4|MXFP4|MXFP8|FP8|INT8|W8A8|W4A8)\b", text, re.IGNORECASE)
    if seen.run.once("fallback", text[:60]):
        yield KernelChoice(
            **seen.common, area="linear", kernel=used[1] if used else "Marlin", fallback=True,
            method=method[1].upper() if method else None, hardware=hardware[1] if hardware else None,
        )  # fmt: skip


PATTERNS = (
    Pattern("ative", r"[Nn]ative \w+ kernels? (?:are |is )?(?:unavailable|not available)", _fallback),
    Pattern("native support for", r"does not have native support for \w+ computation", _fallback),
    Pattern(" backend", r"Using (?P<kernel>[A-Z][\w ]*?) (?:backend on V1 engine|backend\.)", _choice("attention")),
    Pattern(" attention backend", r"Using (?P<kernel>\w+) (?:MLA )?attention backend", _choice("attention")),
    Pattern("AttentionBackendEnum", r"Using AttentionBackendEnum\.(?P<kernel>\w+) backend", _choice("attention")),
    Pattern("MLA prefill backend", r"Using (?P<kernel>\w+) MLA prefill backend", _choice("attention")),
    Pattern("Using ", r"Using (?P<kernel>\w+LinearKernel\w*|\w+ScaledMM\w*) for (?P<method>\w+)", _choice("linear")),
    Pattern(" GEMM", r"Using (?P<kernel>[\w ]+?) for (?P<method>NVFP4|MXFP8|MXFP4) GEMM", _choice("linear")),
    Pattern(" MoE", r"Using (?P<kernel>'?[\w ]+'?) (?P<method>\w+) MoE backend", _choice("moe")),
    Pattern(" MoE", r"Using (?P<kernel>[\w ]+?) backend for (?P<method>\w+) MoE", _choice("moe")),
    Pattern("all-reduce backends", r"Using \[(?P<kernel>[^\]]*)\] all-reduce backends", _choice("all-reduce")),
    Pattern(
        "Custom allreduce is disabled",
        r"Custom allreduce is disabled because (?P<method>[^.]*)",
        _choice("all-reduce"),
    ),
)
