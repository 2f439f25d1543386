"""The CUDA graphs' part in a KV share that is too small: an estimate that vLLM takes off it before any graph exists."""

from __future__ import annotations

from loadpath.core.case import Case
from loadpath.core.report import Remedy
from loadpath.core.units import GIB, show_bytes
from loadpath.diagnosis.memory.memory_remedies import made
from loadpath.engines.registry import flag
from loadpath.planning import remedies as plan
from loadpath.planning.kv import GRAPHS_SUBTRACTED_SINCE
from loadpath.planning.remedies import Fit

ESTIMATE_OFF = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0"
LIKELY_MOST = 8 * GIB  # graphs that starts really took stay below; an estimate from here on is not to be believed
LARGE = 0.02  # of the card: a smaller estimate decides little
SIZES = "[1,2,4,8,16,32,64]"


def taken(case: Case, fit: Fit) -> bool:
    """Whether the estimate that was printed came off the share (from 0.20 on; before only where it was asked for)."""
    return case.version is None or case.version >= GRAPHS_SUBTRACTED_SINCE


def graph_words(case: Case, fit: Fit) -> str:
    """What the estimate takes, in a sentence or two; "" where it is small or not printed."""
    size = fit.graph_bytes
    if not size or size <= 0 or not taken(case, fit):
        return ""
    if size > LIKELY_MOST:
        return (
            f"The log estimates {show_bytes(size)} for CUDA graphs and takes that off the KV share before any graph is "
            "captured: implausibly much (real graphs take a few GiB), and by itself enough to leave nothing for the KV cache."
        )
    if fit.total_bytes and size < LARGE * fit.total_bytes:
        return ""
    return f"An estimate of {show_bytes(size)} for CUDA graphs is taken off the KV share as well."


def graph_remedies(engine: str | None, fit: Fit, case: Case) -> list[Remedy]:
    """Where the estimate is what takes the room: without it, or with fewer graphs to estimate. Else nothing."""
    if engine not in (None, "vllm") or not graph_words(case, fit):
        return []
    size = fit.graph_bytes or 0
    fewer = Remedy(
        "Capture fewer and smaller CUDA graphs, so that the estimate shrinks",
        flag("vllm", "graph-sizes", SIZES) + " (or --max-num-seqs 64)", "graph memory grows with the number and size of graphs",
    )  # fmt: skip
    if size > LIKELY_MOST:
        off = made(
            "Do not take the estimate off the KV share, and leave room for the real graphs by a lower memory share", None,
            f"{ESTIMATE_OFF} {flag('vllm', 'memory-share', 0.85)}", f"gives {show_bytes(size)} back to the share",
        )  # fmt: skip
        return [
            off,
            fewer,
            Remedy("Do without CUDA graphs", "--enforce-eager", "no estimate at all; decoding is slower"),
        ]
    return [made("Do without CUDA graphs", plan.without_graphs(fit), flag("vllm", "eager", True), "decoding is slower")]
