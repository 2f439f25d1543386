"""TGI's memory model: after the warm-up prefill the cache gets what is left of nine tenths of the card.

Source: `flash_causal_lm.py` and `import_utils.py` of TGI 3 (CUDA_MEMORY_FRACTION, TGI_WIGGLE_ROOM = 0.90).
"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.plan import Plan
from loadpath.planning.deployment import Deployment, Version
from loadpath.planning.share import Request, Settings, Sums, activation_bytes, element_bytes, planned

NEWEST: Version = (3, 3, 6)
WIGGLE_ROOM = 0.90
_BLOCKS = {"flashinfer": 1, "flashdecoding": 256, "paged": 16}


def plan(deployment: Deployment) -> Plan:
    """The plan of a text-generation-launcher start."""
    given, shape = Settings(deployment.settings), deployment.shape
    version = deployment.version or NEWEST
    tp = given.whole("num_shard") or 1
    context = given.whole("max_total_tokens") or shape.max_position
    prefill = given.whole("max_batch_prefill_tokens") or min(context, 4096 if version < (3,) else 16_384)
    attention = (given.text("ATTENTION", "attention") or "flashinfer").lower()
    asked = Request(
        engine="tgi", version=".".join(map(str, version)), tp=tp, pp=1, of_total=True,
        share=(given.number("cuda_memory_fraction", "CUDA_MEMORY_FRACTION") or 1.0) * WIGGLE_ROOM, context=context,
        block=_BLOCKS.get(attention, 1), element_bytes=element_bytes(given.text("kv_cache_dtype"), shape),
        activations=activation_bytes(shape, tp, prefill), most_tokens=given.whole("max_batch_total_tokens"),
    )  # fmt: skip

    def lines(sums: Sums) -> Iterator[str]:
        yield f'2026-01-01T00:00:00.000000Z  INFO text_generation_launcher: Args {{ model_id: "{shape.id}", num_shard: Some({tp}) }}'
        yield "2026-01-01T00:00:00.000000Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0"
        if sums.load_error:
            yield f"2026-01-01T00:00:00.000000Z ERROR text_generation_launcher: {sums.load_error}"
            return
        yield f"2026-01-01T00:00:00.000000Z  INFO text_generation_launcher: Using Attention = {attention}"
        yield "2026-01-01T00:00:00.000000Z  INFO text_generation_router_v3: Warming up model"
        if sums.left <= 0:
            yield (
                "2026-01-01T00:00:00.000000Z ERROR warmup{}: text_generation_launcher: Not enough memory to handle "
                f"{prefill} prefill tokens. You need to decrease `--max-batch-prefill-tokens`"
            )
            return
        yield (
            f"2026-01-01T00:00:00.000000Z  INFO text_generation_launcher: KV-cache blocks: {sums.tokens // asked.block}, "
            f"size: {asked.block}"
        )
        yield f"2026-01-01T00:00:00.000000Z  INFO text_generation_router_v3: Setting max batch total tokens to {sums.tokens}"

    notes = ("the tenth of the card that TGI leaves has to hold activations and graphs: its warm-up prefill tries it",)
    return planned(deployment, asked, lines, notes)
