"""Every module of probes, by name, in the order of the layers. Each has `PROBES: tuple[Probe, ...]`."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

import msgspec

from loadpath.collect.probe import Probe
from loadpath.core.layers import Layer


class ProbeEntry(msgspec.Struct, frozen=True):
    module: str
    package: str = "loadpath.collect"


PROBES: tuple[ProbeEntry, ...] = (
    ProbeEntry("whereabouts"),
    ProbeEntry("pci"),
    ProbeEntry("kernel_module"),
    ProbeEntry("device_nodes"),
    ProbeEntry("user_driver"),
    ProbeEntry("driver_calls"),
    ProbeEntry("nvidia_smi"),
    ProbeEntry("container_runtime"),
    ProbeEntry("cuda_libraries"),
    ProbeEntry("fat_binaries"),
    ProbeEntry("libraries"),
    ProbeEntry("python_packages"),
    ProbeEntry("frameworks"),
    ProbeEntry("engines"),
    ProbeEntry("host_limits"),
)  # fmt: skip


def probes(layers: Collection[Layer] = ()) -> tuple[Probe, ...]:
    """The probes of these layers (all, without any), in order. `host`'s first one, where we are, is always there."""
    every = [probe for entry in PROBES for probe in import_module(f"{entry.package}.{entry.module}").PROBES]
    return tuple(p for p in every if not layers or p.layer in layers or p.name == "whereabouts")
