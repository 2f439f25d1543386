"""Which cards, and how many, a model fits on: every row of the GPU table is planned."""

from __future__ import annotations

import msgspec

from loadpath.core.plan import Plan
from loadpath.core.report import Verdict
from loadpath.core.table import Column, Table
from loadpath.forecast.deploy import deployment
from loadpath.forecast.planned import planned
from loadpath.forecast.request import PlanRefused, Request
from loadpath.knowledge.gpus import Gpu, gpus

COUNTS = (1, 2, 4, 8)
ALONE = ("soc",)
"""Boards that no second one can be joined to."""
WHOLE = {"llama.cpp": {"n-gpu-layers": "all", "fit": "off"}, "ollama": {"num_gpu": "999"}}
"""Engines that would leave layers on the host where a card is small: a model fits a card when all of it does."""
COLUMNS = (
    Column("GPU"), Column("cards"), Column("memory in all", "bytes"), Column("weights", "bytes"), Column("KV", "tokens"),
    Column("requests at once"), Column("note"),
)  # fmt: skip


def which_gpu(request: Request, concurrency: float = 1.0, most: int = 8) -> tuple[Table, Verdict]:
    """The cards on which `concurrency` full-length requests fit, with the least number of them; least memory first."""
    rows = []
    refused = 0
    for gpu in gpus():
        found = _fewest(request, gpu, concurrency, most)
        if found is None:
            refused += 1
            continue
        count, made = found
        note = "not its native path: " + made.identity.fallback if made.identity and made.identity.fallback else ""
        whole = made.total_bytes * count
        rows.append(
            (gpu.names[0], count, whole, made.weights_bytes, made.kv_tokens, round(made.max_concurrency, 2), note)
        )
    rows.sort(key=lambda row: (row[1], row[2], -row[4]))
    asked = f"{concurrency:g} full-length request{'s' if concurrency != 1 else ''}"
    table = Table(
        "which-gpu", f"Cards on which {request.model} fits with {asked}", COLUMNS, tuple(rows),
        f"{refused} of {len(gpus())} boards in the table do not fit it with up to {most} cards."
        " Sorted by number of cards, then memory: the smallest that does comes first.",
    )  # fmt: skip
    if not rows:
        return table, Verdict("failed", f"{request.model} fits on no board of the table with up to {most} cards.")
    name, count = rows[0][:2]
    return table, Verdict(
        "healthy", f"{request.model} fits on {len(rows)} of {len(gpus())} boards; the smallest: {count} x {name}."
    )


def _fewest(request: Request, gpu: Gpu, concurrency: float, most: int) -> tuple[int, Plan] | None:
    """The least count of this card that fits, with its plan; None where none does."""
    for count in (c for c in COUNTS if c <= most and (c == 1 or gpu.kind not in ALONE)):
        settings = {**WHOLE.get(request.engine, {}), **request.settings}
        asked = msgspec.structs.replace(request, gpus=(gpu.names[0],), count=count, settings=settings)
        try:
            made = planned(deployment(asked))
        except PlanRefused:
            continue  # this count does not divide the heads, or the engine refuses the card
        if made.fits and made.max_concurrency >= concurrency:
            return count, made
    return None
