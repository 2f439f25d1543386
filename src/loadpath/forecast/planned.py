"""One deployment planned by its engine: arithmetic, nothing judged."""

from __future__ import annotations

from typing import cast

import msgspec

from loadpath.core.plan import Plan
from loadpath.engines.registry import by_engine, load
from loadpath.forecast.deploy import planners
from loadpath.forecast.request import PlanRefused
from loadpath.planning.deployment import Deployment


def planned(deployed: Deployment) -> Plan:
    """The plan alone: arithmetic, nothing judged. Raises PlanRefused for an engine without a memory model."""
    entry = by_engine(deployed.engine)
    model = load(entry) if entry else None
    if model is None or not hasattr(model, "plan"):
        raise PlanRefused(f"no memory model of {deployed.engine}; there is one of {', '.join(planners())}")
    try:
        made = cast(Plan, model.plan(deployed))
    except ValueError as error:  # a setting that the engine itself would refuse, in its planner's words
        raise PlanRefused(str(error)) from error
    names = [card.name for card in deployed.cards]
    if len(set(names)) == 1:
        return made
    mixed = " + ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return msgspec.structs.replace(made, gpu=mixed)
