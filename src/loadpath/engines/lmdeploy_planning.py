"""LMDeploy's memory model: `cache_max_entry_count` (0.8) of what is free after the weights.

TurboMind takes the share as it is; the PyTorch engine takes off what a prefill's logits need before.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.plan import Plan
from loadpath.core.shape import ModelShape
from loadpath.planning.deployment import Deployment, Version
from loadpath.planning.share import Request, Settings, Sums, activation_bytes, planned

NEWEST: Version = (0, 16, 0)
BLOCK = 64
DEFAULT_SHARE, DEFAULT_PREFILL, DEFAULT_BATCH = 0.8, 8192, 128


def plan(deployment: Deployment) -> Plan:
    """The plan of an `lmdeploy serve api_server` start."""
    given, shape = Settings(deployment.settings), deployment.shape
    version = deployment.version or NEWEST
    tp = given.whole("tp") or 1
    prefill = given.whole("max_prefill_token_num") or DEFAULT_PREFILL
    batch = given.whole("max_batch_size") or DEFAULT_BATCH
    pytorch = (given.text("backend") or "turbomind") == "pytorch"
    asked = Request(
        engine="lmdeploy", version=".".join(map(str, version)), tp=tp, pp=1,
        share=given.number("cache_max_entry_count") or (0.5 if version < (0, 2, 4) else DEFAULT_SHARE),
        context=given.whole("session_len") or shape.max_position, block=BLOCK,
        element_bytes=_element_bytes(given.whole("quant_policy") or 0, shape), activations=0,
        reserved=(prefill + 2 * batch) * shape.vocab * 2 if pytorch else 0,
    )  # fmt: skip

    def lines(sums: Sums) -> Iterator[str]:
        name = "PytorchEngineConfig" if pytorch else "TurbomindEngineConfig"
        head = "2026-01-01 00:00:00,000 - lmdeploy - INFO - "
        yield f"{head}async_engine.py:1 - {name}(tp={tp}, session_len={asked.context}, cache_max_entry_count={asked.share})"
        yield f"{head}model_agent.py:1 - Building Model."
        if sums.load_error:
            yield sums.load_error
        elif pytorch and sums.tokens <= 0:
            yield "RuntimeError: No enough gpu memory for kv cache."
        elif pytorch:
            yield (
                f"{head}executor/base.py:1 - Building CacheEngine with config: CacheConfig(num_gpu_blocks="
                f"{sums.tokens // BLOCK}, block_size={BLOCK})"
            )
        else:
            yield f"[TM][INFO] [BlockManager] max_block_count = {sums.tokens // BLOCK}"

    rest = activation_bytes(shape, tp, prefill)
    notes = (
        f"the rest of the free memory has to hold activations: about {rest / 2**30:.1f} GiB for {prefill:,} tokens by a rule of "
        "thumb",
        "LMDeploy logs at WARNING: these lines show with --log-level INFO only",
    )
    return planned(deployment, asked, lines, notes)


def _element_bytes(policy: int, shape: ModelShape) -> float:
    """`--quant-policy` 8 or 4 keeps one scale and one zero point (16 bits each) for a head's row."""
    if policy not in (4, 8):
        return 2
    widths = [mixer.head_dim for layer in shape.layers for mixer in layer.mixers if hasattr(mixer, "head_dim")]
    return policy / 8 + 4 / (widths[0] if widths else 128)
