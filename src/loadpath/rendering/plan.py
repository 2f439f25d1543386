"""What every rendering says of a plan: headline, figures, and the numerical identity, as label and text."""

from __future__ import annotations

from loadpath.core.plan import Identity, Plan
from loadpath.core.units import show_bytes, show_count
from loadpath.core.vocabulary import ENGINE_NAMES

ASKED_FOR = ("solve", "against", "beside", "sharing", "ways-to-share")
"""Tables that answer an option of `plan`: they stand before the plan itself."""


def headline(plan: Plan) -> str:
    """ "Qwen3-14B on 2 x H100 80GB, vLLM 0.33.0"."""
    cards = _cards(plan)
    return f"{plan.model} on {cards}, {ENGINE_NAMES.get(plan.engine, plan.engine)} {plan.engine_version}".rstrip()


def _cards(plan: Plan) -> str:
    """ "2 x L4"; mixed cards are named with their counts already."""
    return f"{plan.gpus} x {plan.gpu}" if plan.gpus > 1 and " + " not in plan.gpu else plan.gpu


def figures(plan: Plan) -> list[tuple[str, str]]:
    """The figures that people ask for first."""
    room = f"{show_bytes(plan.kv_bytes)}, {show_count(plan.kv_tokens)} tokens"
    told = [("KV cache", room if plan.kv_bytes >= 0 else f"none: {show_bytes(-plan.kv_bytes)} short")]
    if plan.kv_bytes_per_token:
        told.append(("a token takes", show_bytes(plan.kv_bytes_per_token)))
    asked = f"requests of {show_count(plan.max_model_len)} tokens"
    told.append(("room for", f"{plan.max_concurrency:.2f} {asked}"))
    if plan.longest_context is not None and plan.longest_context < plan.max_model_len:
        told.append(("longest request", f"{show_count(plan.longest_context)} tokens"))
    if plan.host_bytes:
        told.append(("host memory", show_bytes(plan.host_bytes)))
    return told


def identity(said: Identity) -> list[tuple[str, str]]:
    """What the numbers are made of, and which kernel multiplies them."""
    rows = [
        ("weights", said.weights), ("activations", said.activations), ("KV cache", said.kv_cache),
        ("multiply", said.multiply), ("accumulate", said.accumulate), ("kernel", said.kernel),
        ("not the native path", said.fallback),
    ]  # fmt: skip
    return [(label, text) for label, text in rows if text]
