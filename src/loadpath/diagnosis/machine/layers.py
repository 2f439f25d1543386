"""The layers of a checked machine: what proves that one holds, what breaks it, and what would show what was not seen.

A layer holds only where a fact proves it; it is broken where an error of its own stands, or follows from a deeper one;
else it is not seen, with the command or the right that would show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from importlib import import_module

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.machine import ProbeRan, Whereabouts
from loadpath.core.facts.runtime import InsideSeen
from loadpath.core.layers import LAYERS, Layer
from loadpath.core.report import Finding, LayerReport, Verdict
from loadpath.core.vocabulary import Boundary, State
from loadpath.diagnosis.rule import evidence
from loadpath.knowledge.tables import findings


class Proof(msgspec.Struct, frozen=True):
    """What shows that a layer holds: a clause with its figures, and the facts."""

    why: str
    facts: tuple[Fact, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """How one layer is judged. `proof`: None where nothing proves it; `missing`: what was not seen, and what shows it."""

    proof: Callable[[Case], Proof | None]
    missing: Callable[[Case], str]


MODULES = ("machine.layer_proofs", "stack.software_proofs", "containers.stack_proofs")
"""Modules with `PROOFS: dict[Layer, Seen]`."""

# Which layer an error belongs to: by its id where its boundary spans several, else by the boundary.
_BY_ID: tuple[tuple[Layer, tuple[str, ...]], ...] = (
    ("pci", ("no-gpu-on-bus", "gpu-bars-*", "gpu-config-space-dead", "gpu-bound-to-vfio", "pcie-*", "gpu-without-interrupt",
             "gpu-stuck-in-power-state")),
    ("device-nodes", ("device-node-*", "gpu-no-device-files", "gpu-uvm-file-missing", "nvidia-uvm-node-missing", "gpu-access-*",
                      "container-lost-gpu-access", "gpu-not-requested", "selinux-denies-gpu", "gpu-open-fails")),
    ("user-driver", ("libcuda-*", "stub-libcuda", "forward-compat-unsupported", "no-cuda-device", "cuda-init-failed",
                     "driver-capability-missing", "driver-not-injected", "fabric-*", "cuda-integrity-check", "gpu-busy-or-unavailable")),
    ("engine", ("engine-not-answering", "engine-unhealthy", "engine-not-listening", "engine-process-*")),
    ("compiled-kernels", ("gpu-code-*",)),
)  # fmt: skip
_BY_BOUNDARY: dict[Boundary, Layer] = {
    "hardware-kernel": "kernel-module", "device-fault": "pci", "kernel-usermode": "user-driver",
    "container-injection": "container-runtime", "runtime-driver": "cuda-runtime", "arch": "compiled-kernels",
    "library-set": "library-set", "framework-engine": "framework", "model-config": "engine", "memory-fit": "engine",
    "interconnect": "pci", "host-limits": "host",
}  # fmt: skip


def layer_of(row_id: str, boundary: Boundary) -> Layer | None:
    """The layer that an error belongs to; None for what belongs to none (performance)."""
    for layer, patterns in _BY_ID:
        if any(fnmatchcase(row_id, pattern) for pattern in patterns):
            return layer
    return _BY_BOUNDARY.get(boundary)


def layers(case: Case, made: Sequence[Finding]) -> tuple[LayerReport, ...]:
    """A report on each layer, from the ground up; none where no probe ran."""
    if not case.has(ProbeRan):
        return ()
    broken = _broken(made)
    judged: dict[Layer, Seen] = {}
    for name in MODULES:
        judged |= import_module(f"loadpath.diagnosis.{name}").PROOFS
    where = case.last(Whereabouts)
    # A few samples by themselves (pasted) say nothing of the layers that they are not about.
    asked = () if where is None else where.asked or LAYERS
    if case.has(InsideSeen):
        asked = (*asked, "container-runtime")
    reports = []
    for layer in LAYERS:
        if layer in broken:
            reports.append(broken[layer])
        elif layer in judged and (proof := judged[layer].proof(case)) is not None:
            reports.append(LayerReport(layer, "holds", proof.why, evidence(proof.facts, 2)))
        elif layer in asked:
            why = judged[layer].missing(case) if layer in judged else "no probe of loadpath looks at it yet"
            reports.append(LayerReport(layer, "not-seen", why))
    return tuple(reports)


def _broken(made: Sequence[Finding]) -> dict[Layer, LayerReport]:
    """The first error of each layer; what folded under another says what it follows from."""
    found: dict[Layer, LayerReport] = {}
    errors = [f for f in made if f.severity == "error"]
    for f in errors:
        if (layer := layer_of(f.id, f.boundary)) is not None and layer not in found:
            found[layer] = LayerReport(layer, "broken", f.title, f.evidence[:2])
    rows = findings()
    for f in errors:
        for row in (rows[name] for name in f.consequences if name in rows):
            layer = layer_of(row.id, row.boundary)
            if row.severity == "error" and layer is not None and layer not in found:
                found[layer] = LayerReport(layer, "broken", f"follows from: {f.title}", f.evidence[:1])
    return found


def verdict_of(found: Verdict, reports: Sequence[LayerReport]) -> Verdict:
    """The verdict on a checked machine without a fault: which layers hold, and how many were not seen."""
    if not reports or found.state not in ("healthy", "unknown", "starting"):
        return found
    stack = [r for r in reports if r.layer != "host"]
    holds = [r.layer for r in stack if r.state == "holds"]
    unseen = sum(r.state == "not-seen" for r in stack)
    if not holds:
        return Verdict("unknown", "No fault found, and no layer could be shown to hold: not enough to judge.")
    rest = f"; {unseen} of {len(stack)} were not seen" if unseen else ""
    state: State = "healthy" if "user-driver" in holds else "unknown"
    return Verdict(state, f"No fault found: {', '.join(holds)} hold{'s' if len(holds) == 1 else ''}{rest}.")
