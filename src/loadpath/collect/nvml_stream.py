"""Run as a child: clocks, power and use of every card, one JSON line a card and second, until standard input ends.

{"gpu":0,"name":"NVIDIA H200","sm_mhz":1980,"memory_mhz":3201,"watts":412.5,"limit_watts":700.0,"busy":0.98,…}
"""

from __future__ import annotations

import json
import select
import sys
from importlib import import_module
from typing import Any

from loadpath.collect.nvml_child import Asked

EVERY = 0.5
"""Seconds between two rounds."""


def seen(ask: Asked, gpu: int, name: str, handle: Any) -> dict[str, Any]:
    """One card now; what it does not support is left out."""
    nvml = ask.nvml
    throttle = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if throttle is None:
        throttle = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    found = {
        "sm_mhz": ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
        "memory_mhz": ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
        "watts": ask("nvmlDeviceGetPowerUsage", handle, show=lambda milliwatts: milliwatts / 1000),
        "limit_watts": ask("nvmlDeviceGetEnforcedPowerLimit", handle, show=lambda milliwatts: milliwatts / 1000),
        "celsius": ask("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle": throttle,
        "busy": ask("nvmlDeviceGetUtilizationRates", handle, show=lambda rates: rates.gpu / 100),
        "memory_busy": ask("nvmlDeviceGetUtilizationRates", handle, show=lambda rates: rates.memory / 100),
        "used_bytes": ask("nvmlDeviceGetMemoryInfo", handle, show=lambda memory: memory.used),
    }
    return {"gpu": gpu, "name": name, **{k: v for k, v in found.items() if v is not None and not isinstance(v, str)}}


def main() -> int:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return 3
    try:
        nvml.nvmlInit()
        ask = Asked(nvml)
        handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        names = [str(ask("nvmlDeviceGetName", handle) or "") for handle in handles]
    except nvml.NVMLError:
        return 1
    while handles:
        for gpu, handle in enumerate(handles):
            print(json.dumps(seen(ask, gpu, names[gpu], handle), separators=(",", ":")), flush=True)
        if select.select([sys.stdin], [], [], EVERY)[0]:  # the parent closed it, or is gone
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
