"""Layer 1, the PCI bus: NVIDIA's devices from sysfs, written as `lspci -nnvvk` writes them (no lspci needed, no rights).

PCI bus: 37 devices, 1 of NVIDIA
0000:01:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1)
\tLnkCap: Port #0, Speed 32GT/s, Width x16
\tLnkSta: Speed 16GT/s (downgraded), Width x16
\tRegion 0: Memory at 9c000000 (32-bit, non-prefetchable) [size=16M]
\tAER: corrected 3, nonfatal 0, fatal 0 since boot
\tNUMA node: 0
\tIOMMU group: 12
\tPower state: D0
\tKernel driver in use: nvidia
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.collect.probe import Machine, Probe, Sample

DEVICES = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_KINDS = {"0300": "VGA compatible controller", "0302": "3D controller", "0380": "Display controller",
          "0680": "Bridge", "0403": "Audio device", "0c03": "USB controller", "0c80": "Serial bus controller"}  # fmt: skip
# Bits of a resource's flags (include/linux/ioport.h).
_IO, _MEMORY, _PREFETCH, _64BIT, _UNSET = 0x100, 0x200, 0x2000, 0x100000, 0x20000000
_BARS = 6


def gather(machine: Machine) -> Iterator[Sample]:
    command = f"cat {DEVICES}/*/{{vendor,device,class,resource,*_link_*,aer_*}}"
    if not machine.exists(DEVICES):
        yield machine.told(
            (), name="pci", kind="pci", command=command, outcome="missing", note=f"there is no {DEVICES}"
        )
        return
    slots = machine.listdir(DEVICES)
    ours = [slot for slot in slots if machine.text(f"{DEVICES}/{slot}/vendor") == _NVIDIA]
    lines = [f"PCI bus: {len(slots)} devices, {len(ours)} of NVIDIA"]
    if machine.exists("/dev/dxg"):
        lines.append("WSL: /dev/dxg exists, the GPU belongs to Windows")
    for slot in ours:
        lines += _device(machine, slot)
    yield machine.told(lines, name="pci", kind="pci", command=command)


def _device(machine: Machine, slot: str) -> list[str]:
    here = f"{DEVICES}/{slot}"
    kind = (machine.text(f"{here}/class") or "").removeprefix("0x")[:4]
    number = (machine.text(f"{here}/device") or "").removeprefix("0x")
    # A card that fell off the bus reads all ones; sysfs keeps its ids.
    dead = (machine.read(f"{here}/config", 64) or b"").strip(b"\xff") == b"" and machine.exists(f"{here}/config")
    revision = "ff" if dead else (machine.text(f"{here}/revision") or "0x00").removeprefix("0x")
    lines = [
        f"{slot} {_KINDS.get(kind, 'Device')} [{kind}]: NVIDIA Corporation Device [10de:{number}] (rev {revision})"
    ]
    lines += [f"\t{line}" for line in (*_link(machine, here), *_regions(machine, here), *_rest(machine, here))]
    return lines


def _link(machine: Machine, here: str) -> Iterator[str]:
    most, now = machine.text(f"{here}/max_link_speed"), machine.text(f"{here}/current_link_speed")
    wide, width = machine.text(f"{here}/max_link_width"), machine.text(f"{here}/current_link_width")
    can, runs = _speed(most), _speed(now)
    if not can or not runs or not wide or not width or width == "0":
        return
    yield f"LnkCap: Port #0, Speed {can:g}GT/s, Width x{wide}"
    slower = " (downgraded)" if runs < can else ""
    narrower = " (downgraded)" if int(width) < int(wide) else ""
    yield f"LnkSta: Speed {runs:g}GT/s{slower}, Width x{width}{narrower}"


def _speed(text: str | None) -> float | None:
    found = re.match(r"[\d.]+", text or "")
    return float(found[0]) if found else None


def _regions(machine: Machine, here: str) -> Iterator[str]:
    for number, line in enumerate((machine.text(f"{here}/resource") or "").splitlines()[:_BARS]):
        words = line.split()
        if len(words) != 3:
            continue
        start, end, flags = (int(word, 16) for word in words)
        if not flags & (_MEMORY | _IO):
            continue
        unset = bool(flags & _UNSET) or start == 0
        if flags & _IO:
            yield f"Region {number}: I/O ports at {'<unassigned>' if unset else f'{start:x}'} [size={end - start + 1}]"
            continue
        how = f"{'64' if flags & _64BIT else '32'}-bit, {'' if flags & _PREFETCH else 'non-'}prefetchable"
        yield f"Region {number}: Memory at {'<unassigned>' if unset else f'{start:x}'} ({how}) [size={_size(end - start + 1)}]"


def _size(count: int) -> str:
    """As lspci writes it: `16M`, `128G`."""
    for unit in ("", "K", "M", "G"):
        if count < 1024:
            return f"{count}{unit}"
        count //= 1024
    return f"{count}T"


def _rest(machine: Machine, here: str) -> Iterator[str]:
    counts = {name: _total(machine.text(f"{here}/aer_dev_{name}")) for name in ("correctable", "nonfatal", "fatal")}
    if None not in counts.values():
        yield f"AER: corrected {counts['correctable']}, nonfatal {counts['nonfatal']}, fatal {counts['fatal']} since boot"
    if (node := machine.text(f"{here}/numa_node")) and node != "-1":
        yield f"NUMA node: {node}"
    if group := machine.readlink(f"{here}/iommu_group"):
        yield f"IOMMU group: {group.rpartition('/')[2]}"
    if state := machine.text(f"{here}/power_state"):
        yield f"Power state: {state}"
    if machine.readlink(f"{here}/physfn"):
        yield "SR-IOV: a virtual function (vGPU)"
    elif (functions := machine.text(f"{here}/sriov_numvfs")) and functions != "0":
        yield f"SR-IOV: {functions} virtual functions are enabled (vGPU host)"
    if types := machine.listdir(f"{here}/mdev_supported_types"):
        yield f"vGPU: {len(types)} mediated types offered"
    if driver := machine.readlink(f"{here}/driver"):
        yield f"Kernel driver in use: {driver.rpartition('/')[2]}"


def _total(text: str | None) -> int | None:
    """The total of an AER counter file (its last line), None where the device has none."""
    found = re.search(r"TOTAL_ERR_\w+ (\d+)", text or "")
    return int(found[1]) if found else None


PROBES = (Probe("pci", "pci", "pci", gather),)
