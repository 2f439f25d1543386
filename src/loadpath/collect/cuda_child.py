"""Run as a child: the driver API's first calls through ctypes, a line each. No context is made.

libcuda: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15
cuInit: 0
driver-cuda: 12.4
devices: 1
device: 0 capability=9.0 memory=85017493504 name=NVIDIA H100 80GB HBM3
"""

from __future__ import annotations

import ctypes
from pathlib import Path

_NAMES = {1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 3: "CUDA_ERROR_NOT_INITIALIZED",
          34: "CUDA_ERROR_STUB_LIBRARY", 46: "CUDA_ERROR_DEVICE_UNAVAILABLE", 100: "CUDA_ERROR_NO_DEVICE",
          101: "CUDA_ERROR_INVALID_DEVICE", 103: "CUDA_ERROR_INTEGRITY", 304: "CUDA_ERROR_OPERATING_SYSTEM",
          800: "CUDA_ERROR_NOT_PERMITTED", 802: "CUDA_ERROR_SYSTEM_NOT_READY", 803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
          804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", 805: "CUDA_ERROR_MPS_CONNECTION_FAILED",
          999: "CUDA_ERROR_UNKNOWN"}  # fmt: skip
_MAJOR, _MINOR = 75, 76  # CUdevice_attribute: compute capability


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        say(f"libcuda: none ({error})")
        return
    say(f"libcuda: {_loaded_path()}")
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        say(f"driver-cuda: {version.value // 1000}.{version.value % 1000 // 10}")
    say("cuInit: called")  # what hangs or crashes is then known
    code = cuda.cuInit(0)
    say(f"cuInit: {code}{f' ({_NAMES[code]})' if code in _NAMES else ''}")
    if code == 0:
        _devices(cuda)


def _devices(cuda: ctypes.CDLL) -> None:
    count = ctypes.c_int()
    if code := cuda.cuDeviceGetCount(ctypes.byref(count)):
        say(f"cuDeviceGetCount: {code}{f' ({_NAMES[code]})' if code in _NAMES else ''}")
        return
    say(f"devices: {count.value}")
    for index in range(count.value):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        if code := cuda.cuDeviceGet(ctypes.byref(device), index):
            say(f"device: {index} error={code}")
            continue
        name, size = ctypes.create_string_buffer(128), ctypes.c_size_t()
        cuda.cuDeviceGetName(name, 128, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
        called = name.value.decode("utf-8", "replace")
        say(f"device: {index} capability={major.value}.{minor.value} memory={size.value} name={called}")


def _loaded_path() -> str:
    """The file that the loader took, from this process's own map."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8", "replace")
    except OSError:
        return "loaded"
    return next((line.split()[-1] for line in maps.splitlines() if "libcuda.so" in line.rpartition("/")[2]), "loaded")


if __name__ == "__main__":
    main()
