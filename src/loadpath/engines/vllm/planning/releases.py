"""The releases of vLLM at which its memory arithmetic changed (shared facts, vllm.md C and G; checked in the sources)."""

from __future__ import annotations

from loadpath.planning.deployment import Version
from loadpath.planning.kv import GRAPHS_SUBTRACTED_SINCE

NEWEST: Version = (0, 33, 0)
MEASURED_PEAK: Version = (0, 6, 4)
V1_DEFAULT: Version = (0, 8, 0)
V0_REMOVED: Version = (0, 11, 0)
OWN_MEMORY_ONLY: Version = (0, 9, 1)
"""From here a V1 engine charges its own memory only, and checks that its share is free before it loads."""
HYBRID_GROUPS: Version = (0, 9, 2)
NCCL_BEFORE_BASELINE: Version = (0, 11, 0)
"""Communicators are made before the baseline is measured: what they took by then is not charged."""
FULL_GRAPHS: Version = (0, 11, 0)
UNIFORM_TYPE: Version = (0, 11, 0)
"""Layers of one type but of different width make one group with pages of different size."""
PAGE_UNIFICATION: Version = (0, 12, 0)
GROUPED_FIT_CHECK: Version = (0, 14, 0)
STATE_MODES: Version = (0, 16, 0)
TRITON_SAMPLER: Version = (0, 17, 0)
"""Top-k and top-p by a kernel in place; before, by sorting the logits."""
KEPT_WORKSPACE: Version = (0, 13, 0)
"""Workspaces of the experts are kept for all layers and steps."""
LATE_COMMUNICATORS: Version = (0, 17, 0)
"""PyTorch 2.10 with its NCCL, and fused all-reduces by default: more buffers behind NVSwitch."""
GRAPH_ESTIMATE: Version = (0, 18, 0)
FLASHINFER_SAMPLER: Version = (0, 21, 0)
FLASHINFER_EXPERTS: Version = (0, 20, 0)
"""FlashInfer's kernels are preferred for unquantised experts on Blackwell."""
GRAPHS_CHARGED: Version = GRAPHS_SUBTRACTED_SINCE
TOKENS_BY_CONCURRENCY: Version = (0, 20, 1)
IN_FLIGHT_BATCHES: Version = (0, 26, 0)
HYBRID_PREFIX_CACHING: Version = (0, 26, 0)
CONSUMED_BY_DEVICE: Version = (0, 27, 0)
"""Consumption is the fall of the device's free memory over the profiling pass, which ends before graphs are tried."""
LARGE_CARD_TIER: Version = (0, 28, 0)
NULL_BLOCK_RESERVED: Version = (0, 29, 0)
STATE_CHECKPOINTS: Version = (0, 32, 0)
"""With a prefix cache, Mamba 2 layers export the state of a block's end from within a pass: one more state of a request
(a start of 0.32.0: 910.17 requests of 1,024 tokens from 5,461 blocks of 384, six blocks each)."""
SECOND_RUNNER: Version = (0, 29, 0)
"""The second model runner serves every architecture (dense ones from 0.26)."""
SECOND_RUNNER_DENSE: Version = (0, 26, 0)


def full(version: Version | None) -> Version:
    """Three numbers (`0.11` is 0.11.0); the newest known release where none is named."""
    return (*version, 0, 0)[:3] if version else NEWEST


def spelled(version: Version) -> str:
    return ".".join(str(part) for part in version)
