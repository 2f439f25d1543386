"""What to change where a plan does not fit: changes that were each planned to the end, so that every one suffices.

The rules' remedies for a log are made from the few figures that a log prints. A plan knows the model and the cards, so it
tries the changes instead, with the engine's own arithmetic.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import msgspec

from loadpath.core.plan import Plan
from loadpath.core.report import Remedy, Report
from loadpath.core.units import show_bytes, show_count
from loadpath.engines.registry import flag
from loadpath.forecast.commands import lever
from loadpath.forecast.deploy import with_settings
from loadpath.forecast.planned import planned
from loadpath.forecast.request import PlanRefused
from loadpath.forecast.solve import Change, changed, solutions, weights_changes, words
from loadpath.planning.deployment import Deployment
from loadpath.planning.kv import round_context

MOST = 5
POOL_SIZE = "num-gpu-blocks-override"
LEAST_CONTEXT = 1024
"""Tokens below which a server is of no use to anybody."""


def remedied(report: Report, deployed: Deployment) -> Report:
    """The report of a plan that lacks memory, with changes that suffice in place of its root cause's remedies."""
    root, plan = report.root, report.plan
    if plan is None or plan.fits or root is None or root.boundary != "memory-fit":
        return report
    found = tuple(itertools.islice(_found(deployed, plan), MOST)) or (_nothing(plan),)
    findings = tuple(
        msgspec.structs.replace(f, remedies=found) if f.id == report.root_cause else f for f in report.findings
    )
    return msgspec.structs.replace(report, findings=findings)


def without_remedies(report: Report) -> Report:
    """The report with a root cause whose remedies another table tells (`--solve`)."""
    bare = tuple(msgspec.structs.replace(f, remedies=()) if f.id == report.root_cause else f for f in report.findings)
    return msgspec.structs.replace(report, findings=bare)


def _found(deployed: Deployment, plan: Plan) -> Iterator[Remedy]:
    yield from _uncut(deployed)
    shorter = _shorter(deployed, plan)
    if shorter is not None:
        yield shorter
    solved = list(itertools.islice(solutions(deployed), MOST - 1))
    if shorter is None and not any(len(changes) == 1 and changes[0].weights for changes, _ in solved):
        yield from _smaller_and_shorter(deployed, plan)
    yield from (_remedy(changes, made) for changes, made in solved)
    yield from _fewer_layers(deployed)


def _fitting(deployed: Deployment) -> Plan | None:
    try:
        made = planned(deployed)
    except PlanRefused:
        return None
    return made if made.fits else None


def _contexts(plan: Plan) -> Iterator[int]:
    """Contexts to try, longest first: what the pool holds; where the context sizes the cache, half and half again."""
    if plan.utilisation is not None and plan.longest_context is not None:
        yield round_context(plan.longest_context)
        return
    tokens = plan.max_model_len // 2
    while tokens >= LEAST_CONTEXT:
        yield round_context(tokens)
        tokens //= 2


def _shorter(deployed: Deployment, plan: Plan) -> Remedy | None:
    for tokens in _contexts(plan):
        settings = lever(deployed.engine, "context-length", tokens)
        if tokens < LEAST_CONTEXT or not settings:
            return None
        if made := _fitting(with_settings(deployed, settings)):
            return Remedy(
                f"Lower the context to {show_count(tokens)} tokens", flag(deployed.engine, "context-length", tokens),
                _effect(made), {"tokens": tokens, "kv_bytes": made.kv_bytes}, True,
            )  # fmt: skip
    return None


def _smaller_and_shorter(deployed: Deployment, plan: Plan) -> Iterator[Remedy]:
    """The mildest quantisation under which a shorter context fits."""
    for change in weights_changes(deployed):
        smaller = changed(deployed, (change,))
        try:
            made = planned(smaller)
        except PlanRefused:
            continue
        shorter = _shorter(smaller, made) if not made.fits else None
        if shorter is None:
            continue
        yield msgspec.structs.replace(
            shorter,
            action=f"{_sentence(change.what)}, and a context of {show_count(int(shorter.figures['tokens']))} tokens",
            command=f"{change.command} {shorter.command}".strip(),
        )
        return


def _fewer_layers(deployed: Deployment) -> Iterator[Remedy]:
    """The most layers on the GPU with which llama.cpp starts, where the settings name a number."""
    if deployed.engine != "llama.cpp" or "n-gpu-layers" not in deployed.settings:
        return
    for count in range(len(deployed.shape.layers), -1, -1):
        if made := _fitting(with_settings(deployed, lever(deployed.engine, "gpu-layers", count))):
            yield Remedy(
                f"Put {count} of {len(deployed.shape.layers)} layers on the GPU; the CPU computes the rest, which sets the pace",
                flag(deployed.engine, "gpu-layers", count), f"weights on the GPU {show_bytes(made.weights_bytes)}",
                {"layers": count, "weights_bytes": made.weights_bytes}, True,
            )  # fmt: skip
            return


def _uncut(deployed: Deployment) -> Iterator[Remedy]:
    """A pool size set by hand is the first thing to take back."""
    size = deployed.settings.get(POOL_SIZE)
    if size is None:
        return
    settings = {name: value for name, value in deployed.settings.items() if name != POOL_SIZE}
    made = planned(msgspec.structs.replace(deployed, settings=settings))
    if made.fits:
        figures = {"kv_bytes": made.kv_bytes, "tokens": made.kv_tokens}
        yield Remedy(f"Remove the pool size set by hand (--{POOL_SIZE} {size})", "", _effect(made), figures, True)


def _remedy(changes: tuple[Change, ...], made: Plan) -> Remedy:
    command = " ".join(change.command for change in changes if change.command)
    figures = {"weights_bytes": made.weights_bytes, "kv_bytes": made.kv_bytes, "tokens": made.kv_tokens}
    return Remedy(_sentence(words(changes)), command, _effect(made), figures, True)


def _sentence(what: str) -> str:
    what = re.sub(r"(\d+) cards", r"the model split over \1 such cards", what).replace("; ", ", and ")
    return what[:1].upper() + what[1:]


def _effect(made: Plan) -> str:
    return (
        f"weights {show_bytes(made.weights_bytes)}, KV cache {show_bytes(made.kv_bytes)} for {show_count(made.kv_tokens)} "
        f"tokens: {made.max_concurrency:.2f} requests of {show_count(made.max_model_len)}"
    )


def _nothing(plan: Plan) -> Remedy:
    return Remedy(
        "Take larger cards or a smaller model: no context, share, cache type, 4-bit weights or up to 8 such cards suffice",
        f"loadpath plan {plan.model} --which-gpu", "lists the cards and counts on which it fits",
    )  # fmt: skip
