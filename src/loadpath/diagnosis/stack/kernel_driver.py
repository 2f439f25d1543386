"""The kernel module: absent, refused, of the wrong flavour or version, or with another driver on its card.

The rows' patterns show each of them; this module adds the figures that stand around the line: which card, which versions,
for which kernels DKMS has built the module, who upgraded the packages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from loadpath.core.case import Case, version_numbers
from loadpath.core.facts.base import Fact
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.gpu import DriverVersions, PciDevice
from loadpath.core.facts.kernel import DkmsModule, DriverPart, GpuRefused, PackagesUpgraded
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Certainty
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge.gpus import by_pci_id, generation_of
from loadpath.knowledge.tables import findings

MISMATCH = "driver-library-mismatch"
_BUILT = ("secure-boot-rejects-module", "module-for-other-kernel", "module-missing-for-kernel", "driver-not-loaded")
_ROW_OF = {
    "open-module": "open-module-cannot-drive-gpu", "proprietary-module": "open-module-required",
    "not-supported": "gpu-not-supported-by-driver", "legacy": "gpu-not-supported-by-driver",
    "owned": "gpu-owned-by-other-driver",
}  # fmt: skip


def judge_module(case: Case) -> Iterator[Finding]:
    """Each row of this module, where a line shows it."""
    shown: dict[str, list[Fact]] = {}
    for symptom in case.all(Symptom):
        if findings()[symptom.finding].judged_by == "stack.kernel_driver":
            shown.setdefault(symptom.finding, []).append(symptom)
    for refused in case.all(GpuRefused):
        shown.setdefault(_ROW_OF[refused.why], []).append(refused)
    for row_id, facts in shown.items():
        values = _common(case) | _groups(facts)
        refusal = next((f for f in facts if isinstance(f, GpuRefused)), None)
        if refusal is not None:
            values |= _refused(case, refusal)
        if row_id == MISMATCH:
            yield _mismatch(case, facts, values)
        else:
            built = [m for m in case.all(DkmsModule) if "installed" in m.state] if row_id in _BUILT else []
            certainty = _by_list(refusal)
            yield finding(row_id, [*facts, *built], case=case, values=values, certainty=certainty)


def _by_list(refused: GpuRefused | None) -> Certainty | None:
    """That nouveau is among the loaded modules only suggests that it has the card."""
    listed = refused is not None and refused.why == "owned" and refused.text.startswith("nouveau")
    return "likely" if refused and listed and not (refused.count or refused.pci) else None


def _common(case: Case) -> dict[str, Any]:
    modules = case.all(DkmsModule)
    built = [f"{m.version} for {m.kernel}" if m.kernel else m.version for m in modules if "installed" in m.state]
    return {"built": ", ".join(built[:3])} if built else {}


def _groups(facts: Sequence[Fact]) -> dict[str, Any]:
    """What the patterns caught; `words2` of a pattern's other branch is `words` too."""
    values: dict[str, Any] = {}
    for fact in facts:
        for name, value in fact.groups.items() if isinstance(fact, Symptom) else ():
            values.setdefault(name.rstrip("0123456789"), value)
    return values


def _refused(case: Case, refused: GpuRefused) -> dict[str, Any]:
    device_id = refused.device_id
    if device_id is None:
        on_bus = {d.device_id for d in case.all(PciDevice) if d.is_gpu and d.device_id}
        device_id = on_bus.pop() if len(on_bus) == 1 else None
    values: dict[str, Any] = {
        "gpu": refused.pci, "release": refused.release, "wanted": refused.wanted, "count": refused.count,
        "owner": refused.owner, "device_id": device_id,
    }  # fmt: skip
    generation = generation_of(device_id)
    board = by_pci_id(device_id) if device_id else None
    if generation is not None:
        name = board.names[0] if board else f"a {generation.architecture} GPU"
        of = f" ({generation.architecture})" if board else ""
        values["card"] = f"{name}{of}, PCI id 10de:{device_id}"
        values |= _branches(refused, generation.min_branch, generation.max_branch)
    elif device_id:
        values["card"] = f"the one with PCI id 10de:{device_id}"
    return {name: value for name, value in values.items() if value is not None}


def _branches(refused: GpuRefused, lowest: int, highest: int | None) -> dict[str, int]:
    """Which end of the range of driver branches the loaded release lies outside of."""
    branch = version_numbers(refused.release)[0] if refused.release else None
    if highest is not None and (branch is None or branch > highest):
        return {"max_branch": highest}
    return {"min_branch": lowest} if branch is not None and branch < lowest else {}


def _mismatch(case: Case, facts: list[Fact], values: dict[str, Any]) -> Finding:
    """Which side is which version, and how they came apart."""
    module, library = _module(case), _library(case)
    upgrades = [p for p in case.all(DriverPart) if p.side == "package" and p.previous]
    by = case.first(PackagesUpgraded)
    more: list[Fact] = []
    if module is not None:
        values["module"] = module[0]
        more.append(module[1])
    if library is not None and (module is None or library[0] != module[0]):
        values["library"] = library[0]
        more.append(library[1])
    if upgrades:
        values |= {"old": upgrades[0].previous, "new": upgrades[0].version, "by": by.by if by else "a package upgrade"}
        more += [upgrades[0], *([by] if by else [])]
    if module and library and "library" in values:
        values["sides"] = f"The loaded kernel module is {module[0]}, the user-space libraries are {library[0]}."
        branches = [version[0].split(".")[0] for version in (module, library)]
        values["branches"] = " and ".join(branches) if branches[0] != branches[1] else None
    elif library:
        values["sides"] = f"The user-space libraries are {library[0]}; the loaded kernel module is of another version."
    elif module:
        values["sides"] = f"The loaded kernel module is {module[0]}; the user-space libraries are of another version."
    return finding(MISMATCH, [*facts, *more], case=case, values=values, figures={
        k: values[k] for k in ("module", "library", "old", "new") if k in values
    })  # fmt: skip


def _module(case: Case) -> tuple[str, Fact] | None:
    part = next((p for p in case.all(DriverPart) if p.side == "module"), None)
    if part is not None:
        return part.version, part
    seen = next((v for v in case.all(DriverVersions) if v.view == "proc" and v.driver), None)
    return (seen.driver, seen) if seen is not None and seen.driver else None


def _library(case: Case) -> tuple[str, Fact] | None:
    part = next((p for p in case.all(DriverPart) if p.side == "library"), None)
    if part is not None:
        return part.version, part
    seen = next((v for v in case.all(DriverVersions) if v.nvml), None)
    if seen is not None and seen.nvml:
        return seen.nvml, seen
    package = next((p for p in case.all(DriverPart) if p.side == "package" and not p.previous), None)
    return (package.version, package) if package is not None else None


_MADE = (
    "driver-not-loaded", "gpu-owned-by-other-driver", "gpu-not-supported-by-driver", "open-module-cannot-drive-gpu",
    "open-module-required", "secure-boot-rejects-module", "module-for-other-kernel", "module-missing-for-kernel", MISMATCH,
)  # fmt: skip
RULES = (Rule(judge_module, (), _MADE, (Symptom, GpuRefused, DkmsModule, DriverPart, PackagesUpgraded)),)
