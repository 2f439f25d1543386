"""A machine → samples → the report that the same samples would give when read from files."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from loadpath.collect.probe import Machine
from loadpath.collect.registry import probes
from loadpath.collect.run import Progress, collect
from loadpath.core.layers import Layer
from loadpath.core.report import Report
from loadpath.core.sample import Sample, to_bytes
from loadpath.reading.service import read_bytes


def check(machine: Machine, layers: Collection[Layer] = (), progress: Progress | None = None) -> Report:
    """The report on a machine; `layers` limits it to some of them."""
    return report_on(gathered(machine, layers, progress))


def gathered(machine: Machine, layers: Collection[Layer] = (), progress: Progress | None = None) -> tuple[Sample, ...]:
    """What the probes of `layers` (all, without any) saw."""
    machine.options["layers"] = " ".join(layers)
    return collect(machine, probes(layers), progress)


def report_on(samples: Sequence[Sample]) -> Report:
    """The report on samples; each is a source named after its probe, as `saved` names its files."""
    return read_bytes((name, data) for name, data in saved(samples))


def saved(samples: Sequence[Sample]) -> list[tuple[str, bytes]]:
    """File name and text form of each sample; names that come twice are numbered."""
    files: list[tuple[str, bytes]] = []
    used: dict[str, int] = {}
    for sample in samples:
        used[sample.name] = number = used.get(sample.name, 0) + 1
        files.append((f"{sample.name}{f'-{number}' if number > 1 else ''}.txt", to_bytes(sample)))
    return files
