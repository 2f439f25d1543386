"""The layers that a live machine is checked by, from the ground up."""

from __future__ import annotations

from typing import Literal, get_args

Layer = Literal[
    "pci", "kernel-module", "device-nodes", "user-driver", "container-runtime", "cuda-runtime", "compiled-kernels",
    "library-set", "framework", "engine", "host",
]  # fmt: skip
"""`host` stands beside the stack: limits, memory, disks, where loadpath itself runs."""
LAYERS: tuple[Layer, ...] = get_args(Layer)
LayerState = Literal["holds", "broken", "not-seen"]
