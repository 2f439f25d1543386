"""The weights that one SGLang rank holds."""

from __future__ import annotations

import msgspec

from loadpath.core.plan import Basis
from loadpath.engines.sglang.planning.options import Options
from loadpath.planning.deployment import Deployment


class Resident(msgspec.Struct, frozen=True):
    """Bytes of weights on a rank and how sure they are."""

    bytes: int
    basis: Basis
    error: float | None = None
    note: str = ""


def resident(deployment: Deployment, options: Options) -> Resident:
    parameters = deployment.shape.parameters or 0
    return Resident(round(parameters * 2 / (options.tp * options.pp)), "assumed")
