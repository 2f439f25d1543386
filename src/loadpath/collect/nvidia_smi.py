"""Layer 4, nvidia-smi itself: its own answer is evidence that everyone knows; that it hangs is a finding."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.collect.probe import Machine, Probe, Sample

_ASKED = ((["nvidia-smi"], "nvidia-smi", "nvidia-smi"), (["nvidia-smi", "topo", "-m"], "gpu-topology", "text"))


def gather(machine: Machine) -> Iterator[Sample]:
    """The table first; where that does not come, nothing more is asked."""
    for argv, name, kind in _ASKED:
        sample = machine.ask_driver(argv, name=name, kind=kind)
        yield sample
        if sample.outcome != "ok":
            return
        if b"|   1  " not in sample.data and name == "nvidia-smi":
            return  # one GPU has no links to another


PROBES = (Probe("nvidia-smi", "nvidia-smi", "user-driver", gather),)
