"""Run probes side by side; one that breaks is a sample that says so."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from loadpath.collect.probe import Machine, Probe, Sample, now

Progress = Callable[[Sample], None]
AT_ONCE = 6


def collect(machine: Machine, probes: Sequence[Probe], progress: Progress | None = None) -> tuple[Sample, ...]:
    """The samples of `probes`, in their order. `progress` is told each sample as it comes, from several threads."""

    def gather(probe: Probe) -> list[Sample]:
        samples: list[Sample] = []
        try:
            for sample in probe.gather(machine):
                samples.append(sample)
                if progress is not None:
                    progress(sample)
        except Exception as error:
            if os.environ.get("LOADPATH_STRICT"):
                raise
            note = f"{type(error).__name__}: {error}; this is a fault of loadpath"
            samples.append(Sample(probe.name, "text", probe.name, None, 0.0, now(), "failed", note=note))
        return samples

    if not probes:
        return ()
    with ThreadPoolExecutor(min(AT_ONCE, len(probes)), thread_name_prefix="probe") as pool:
        return tuple(sample for samples in pool.map(gather, probes) for sample in samples)
