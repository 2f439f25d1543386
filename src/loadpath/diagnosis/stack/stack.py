"""What a case says of its software stack, put together: the driver, the CUDA of each part, the card."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.gpu import GpuState
from loadpath.core.facts.stack import ArchsCompiled, ComponentVersion, GpuModel
from loadpath.knowledge import cuda, gpus
from loadpath.knowledge.tables import findings

NOTICES = ("WARNING", "WARN", "INFO", "DEBUG", "W", "I", "D")  # levels of records that report no failure
MEANT = 40  # rows of less depth are symptoms of something else
# Product names of data-centre GPUs; GeForce, RTX, Quadro and Titan are others.
_DATA_CENTRE = re.compile(r"\b(?:Tesla|DGX|[ABHLPTV]\d{1,3}[A-Z]?|G[BH]\d{3}|A800|H800|H20|HGX)\b")
_DESKTOP = re.compile(r"GeForce|RTX|Quadro|TITAN|GTX")


class Stack(msgspec.Struct, frozen=True):
    """Versions as printed, "" where the case does not say. `driver_cuda`: the highest CUDA that the driver offers."""

    driver: str = ""
    driver_cuda: str = ""
    torch: str = ""
    torch_cuda: str = ""
    toolkit: str = ""
    libraries_major: str = ""
    python: str = ""
    gpu: str = ""
    capability: str = ""
    archs: tuple[str, ...] = ()
    archs_of: str = ""

    @property
    def data_centre(self) -> bool | None:
        """Whether the card is a data-centre GPU; None where the case names none."""
        if not self.gpu:
            return None
        if board := gpus.by_name(self.gpu):
            return board.kind in ("datacenter", "soc")
        return bool(_DATA_CENTRE.search(self.gpu)) and not _DESKTOP.search(self.gpu)

    def values(self) -> dict[str, str]:
        """The known versions by name, for a row's templates."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if isinstance(value, str) and value}


def stack_of(case: Case) -> Stack:
    versions = case.all(ComponentVersion)
    driver = _first(versions, "driver")
    branch = cuda.branch_of(driver) if driver else None
    models = case.all(GpuModel)
    named = [*(g.name for g in models), *(g.name or "" for g in case.all(GpuState))]
    gpu = next((name for name in named if name), "")
    board = gpus.by_name(gpu) if gpu else None
    archs = case.first(ArchsCompiled)
    torch = _first(versions, "torch")
    return Stack(
        driver=driver,
        driver_cuda=_first(versions, "driver-cuda") or (branch.cuda if branch else ""),
        torch=torch,
        torch_cuda=_first(versions, "torch-cuda"),
        toolkit=_first(versions, "cuda-toolkit"),
        libraries_major=_first(versions, "cuda-libraries"),
        python=_first(versions, "python"),
        gpu=gpu,
        capability=next((g.capability for g in models if g.capability), "") or (board.capability if board else ""),
        archs=archs.archs if archs else (),
        archs_of=archs.who if archs else "",
    )


def _first(versions: Iterable[ComponentVersion], name: str) -> str:
    return next((v.version for v in versions if v.name == name), "")


def installed(case: Case, package: str) -> str:
    """The version of `package` that the case shows; "" where none."""
    return _first(case.all(ComponentVersion), package.lower().replace("_", "-"))


def unclaimed(case: Case, row_id: str) -> list[Symptom]:
    """The lines of a general row that no other row (of one engine, say) knows more exactly."""
    rows = findings()
    taken = {
        (s.span.source, s.span.first_line)
        for s in case.all(Symptom)
        if s.finding != row_id and rows[s.finding].severity != "info" and not rows[s.finding].consequence
        and (rows[s.finding].judged_by != rows[row_id].judged_by or rows[row_id].depth < MEANT)
        and rows[s.finding].depth >= MEANT
    }  # fmt: skip
    return [s for s in case.symptoms(row_id) if (s.span.source, s.span.first_line) not in taken]


def groups(symptoms: Iterable[Symptom]) -> dict[str, str]:
    """What the patterns caught, the first value of each name; `name2` counts as `name`."""
    values: dict[str, str] = {}
    for symptom in symptoms:
        for name, value in symptom.groups.items():
            values.setdefault(name.rstrip("0123456789"), value.strip())
    return values
