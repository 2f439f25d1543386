"""What to change so that a deployment fits: a search over the levers, cheapest change first.

Each combination is planned with the engine's own arithmetic; nothing is guessed. A change costs what it takes away:
a share of the card next to nothing, quality of weights more, further cards most.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from loadpath.core.plan import Plan
from loadpath.core.shape import ModelShape, Quantisation
from loadpath.core.table import Cell, Column, Table
from loadpath.engines.registry import flag
from loadpath.forecast.commands import lever
from loadpath.forecast.deploy import with_settings
from loadpath.forecast.planned import planned
from loadpath.forecast.request import PlanRefused
from loadpath.knowledge.schemes import LINEAR
from loadpath.planning.deployment import Deployment

MOST_SHOWN = 8
HIGH_SHARE = 0.95
"""The greatest share of a card that leaves room for what engines take outside their budget (about 2 GiB on 48 GiB)."""
HIGH_STATIC = 0.88
"""The same for SGLang, whose share leaves out activations and graphs: they need the rest."""
SMALL_PASS = 2048
FP8 = Quantisation("fp8", 8, "float", strategy="tensor", activation_bits=8, modules=LINEAR, online=True)
INT4 = Quantisation("awq", 4, "int", group_size=128, zero_point=True, strategy="group", modules=LINEAR)


class Change(msgspec.Struct, frozen=True):
    """One lever pulled: what it is called, the flag for it, what it costs (a rank, not a quantity)."""

    what: str
    command: str
    cost: int
    settings: dict[str, str] = {}
    weights: Quantisation | None = None
    cards: int = 0
    includes: frozenset[str] = frozenset()
    """Lesser changes that this one goes beyond (4 cards: 2 cards)."""


Solution = tuple[tuple[Change, ...], Plan]


def solve(deployed: Deployment, concurrency: float = 1.0, length: int | None = None) -> Table:
    """The cheapest sets of changes under which `concurrency` requests of `length` tokens fit at once.

    Raises PlanRefused where the engine has no lever for the length.
    """
    if length is not None:
        wanted = lever(deployed.engine, "context-length", length)
        if not wanted:
            raise PlanRefused(f"{deployed.engine} has no flag for the context length")
        deployed = with_settings(deployed, wanted)
    found = list(itertools.islice(solutions(deployed, concurrency), MOST_SHOWN))
    rows = tuple(_row(changes, made) for changes, made in found)
    asked = f"{concurrency:g} x {length:,} tokens" if length else f"{concurrency:g} full-length requests"
    note = (
        "Each row alone does it; the first takes least away. Smaller weights or cache cost some accuracy: measure yours."
        if rows
        else "No combination of these levers fits on so many cards: take more or larger cards (--which-gpu), or a smaller model."
    )
    columns = (
        Column("change"), Column("flags"), Column("weights", "bytes"), Column("KV cache", "bytes"), Column("KV", "tokens"),
        Column("requests at once"),
    )  # fmt: skip
    return Table("solve", f"What fits {asked}", columns, rows, note)


def _row(changes: tuple[Change, ...], made: Plan) -> tuple[Cell, ...]:
    flags = " ".join(c.command for c in changes if c.command)
    return (words(changes), flags, made.weights_bytes, made.kv_bytes, made.kv_tokens, round(made.max_concurrency, 2))


def words(changes: tuple[Change, ...]) -> str:
    """The changes in a phrase."""
    return "; ".join(c.what for c in changes) or "nothing: it fits as it is"


def solutions(deployed: Deployment, concurrency: float = 1.0) -> Iterator[Solution]:
    """Solutions by cost, without those that only add a change to one that fits already."""
    taken: list[frozenset[str]] = []
    for changes in sorted(_combinations(deployed), key=lambda cs: (sum(c.cost for c in cs), len(cs))):
        pulled = frozenset(what for change in changes for what in (change.what, *change.includes))
        if any(kept <= pulled for kept in taken):
            continue
        try:
            made = planned(changed(deployed, changes))
        except PlanRefused:
            continue  # this engine refuses the combination (heads not divisible, no FP8 on the card, …)
        if made.fits and made.max_concurrency >= concurrency:
            taken.append(pulled)
            yield changes, made


def _combinations(deployed: Deployment) -> Iterator[tuple[Change, ...]]:
    choices = [_shares(deployed), _passes(deployed), _caches(deployed), weights_changes(deployed), _parallel(deployed)]
    for picked in itertools.product(*((None, *changes) for changes in choices)):
        yield tuple(change for change in picked if change is not None)


def _of(deployed: Deployment, what: str, lever_name: str, value: object, cost: int) -> Iterator[Change]:
    """A change by a lever, where the engine has it and it is not set so already."""
    settings = lever(deployed.engine, lever_name, value)
    if settings and any(deployed.settings.get(name) != v for name, v in settings.items()):
        yield Change(what, flag(deployed.engine, lever_name, value), cost, settings)


def _shares(deployed: Deployment) -> list[Change]:
    high = HIGH_STATIC if deployed.engine == "sglang" else HIGH_SHARE
    now = planned(deployed).utilisation
    if now is not None and now >= high:
        return []
    return list(_of(deployed, f"use {high:.0%} of the card", "memory-share", high, 1))


def _passes(deployed: Deployment) -> list[Change]:
    what = f"at most {SMALL_PASS:,} tokens a step (slower prefill)"
    return list(_of(deployed, what, "batched-tokens", SMALL_PASS, 3))


def _caches(deployed: Deployment) -> list[Change]:
    value = "q8_0" if deployed.engine in ("llama.cpp", "ollama") else "fp8"
    return list(_of(deployed, "8-bit KV cache", "kv-dtype", value, 4))


def weights_changes(deployed: Deployment) -> list[Change]:
    """Smaller weights than the stored ones."""
    stored = deployed.shape.quantisation
    bits = stored.bits if stored else 16
    if deployed.engine in ("llama.cpp", "ollama"):
        return []  # there the file itself is the choice
    made = []
    if bits > 8:
        made.append(Change("FP8 weights", flag(deployed.engine, "quantisation", "fp8"), 6, weights=FP8))
    if bits > 4:
        made.append(Change("a 4-bit checkpoint (AWQ, GPTQ)", "", 9, weights=INT4))
    return made


def _parallel(deployed: Deployment) -> list[Change]:
    """More cards of the same kind, by tensor parallelism."""
    have = len(deployed.cards)
    made: list[Change] = []
    if len({card.name for card in deployed.cards}) > 1 or " MIG " in deployed.cards[0].name:
        return []  # mixed cards have no "more of the same"; MIG slices cannot be joined
    for count in (2, 4, 8):
        if count > have:
            for change in _of(deployed, f"{count} cards", "tensor-parallel", count, 12 * (count // have)):
                lesser = frozenset(c.what for c in made)
                made.append(msgspec.structs.replace(change, cards=count, includes=lesser))
    return made


def changed(deployed: Deployment, changes: tuple[Change, ...]) -> Deployment:
    """The deployment with these changes made."""
    for change in changes:
        deployed = with_settings(deployed, change.settings)
        if change.weights is not None:
            shape = _stored_as(deployed.shape, change.weights)
            deployed = msgspec.structs.replace(deployed, shape=shape, checkpoint=None)
        if change.cards:
            deployed = msgspec.structs.replace(deployed, cards=deployed.cards[:1] * change.cards)
    return deployed


def _stored_as(shape: ModelShape, scheme: Quantisation) -> ModelShape:
    return msgspec.structs.replace(shape, quantisation=scheme, id=f"{shape.id} ({scheme.method} {scheme.bits}-bit)")
