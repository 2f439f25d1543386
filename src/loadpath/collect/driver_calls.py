"""Layer 4, the driver asked through its two libraries, each in a child process: NVML's inventory, and `cuInit`.

A child may hang or crash inside the driver's library; both are then what the sample says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from loadpath.collect.probe import Machine, Probe, Sample

NO_PYNVML = 3
"""Exit status of the child where nvidia-ml-py is not installed."""


def gather_nvml(machine: Machine) -> Iterator[Sample]:
    sample = machine.ask_driver([sys.executable, "-m", "loadpath.collect.nvml_child"], name="nvml", kind="nvml")
    if sample.status == NO_PYNVML:
        sample = machine.ask_driver(["nvidia-smi", "-q"], name="nvml", kind="nvidia-smi-q")
    yield sample


def gather_cuda(machine: Machine) -> Iterator[Sample]:
    yield machine.ask_driver([sys.executable, "-m", "loadpath.collect.cuda_child"], name="cuda-init", kind="cuda-init")


PROBES = (
    Probe("nvml", "nvml", "user-driver", gather_nvml),
    Probe("cuda-init", "cuda-init", "user-driver", gather_cuda),
)
