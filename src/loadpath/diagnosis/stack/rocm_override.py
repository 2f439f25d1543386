"""An AMD card that is driven as another chip: its name and the gfx number behind it do not belong together.

`HSA_OVERRIDE_GFX_VERSION` makes the runtime load code objects of another chip. Between close relatives (gfx1031 as
gfx1030) that works; across generations the first kernel ends in a hardware exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.placement import DeviceFound
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding

ROW = "rocm-gfx-override"
# Product names → the gfx numbers of their chips (AMD's ROCm documentation, GPU hardware specifications).
_CHIPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (r"RX 9070|R9700", "gfx1201", ("gfx1201", "gfx12-generic")),
    (r"RX 9060", "gfx1200", ("gfx1200", "gfx12-generic")),
    (r"RX 79\d\d|W7900|W7800", "gfx1100", ("gfx1100", "gfx11-generic")),
    (r"RX 7[78]00|W7700", "gfx1101", ("gfx1101", "gfx1100", "gfx11-generic")),
    (r"RX 7600|W7600", "gfx1102", ("gfx1102", "gfx1100", "gfx11-generic")),
    (r"RX 6[89]\d\d|W6800", "gfx1030", ("gfx1030", "gfx10-3-generic")),
    (r"RX 6[67]\d\d|W6600", "gfx1031 or gfx1032", ("gfx1031", "gfx1032", "gfx1030", "gfx10-3-generic")),
    (r"RX 5[67]00", "gfx1010", ("gfx1010", "gfx1012", "gfx10-1-generic")),
    (r"MI3\d\dX?", "gfx942 or gfx950", ("gfx942", "gfx940", "gfx941", "gfx950")),
    (r"MI2\d\d", "gfx90a", ("gfx90a",)),
    (r"MI100", "gfx908", ("gfx908",)),
)


def judge(case: Case) -> Iterator[Finding]:
    for device in case.all(DeviceFound):
        shown = device.capability or ""
        if not shown.startswith("gfx"):
            continue
        chip = next(((own, fits) for name, own, fits in _CHIPS if re.search(name, device.name)), None)
        if chip is None or shown in chip[1]:
            continue
        died = case.symptoms(ROW)
        cause = (
            f"{device.name} is a {chip[0]} chip and the runtime shows {shown}: an override (HSA_OVERRIDE_GFX_VERSION) makes "
            "it run code compiled for another chip."
        )
        cause += (
            " The first kernels then end in a hardware exception, as they do here."
            if died
            else " Kernels may fail at any time."
        )
        yield finding(
            ROW, [device, *died[:3]], case=case, cause=cause, severity="error" if died else "warning",
            title=f"{device.name} is driven as {shown}, which it is not", values={"chip": chip[0].split()[0]},
        )  # fmt: skip
        return


RULES = (Rule(judge, (DeviceFound,), (ROW,), uses=(Symptom,)),)
