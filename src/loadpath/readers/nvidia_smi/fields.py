"""The fields of `nvidia-smi -q`, its XML and its CSV queries: one figure, three names, one place in a fact.

Readers of the three formats bring their figures as records, a path with its value and line; this makes the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import GpuClocks, GpuHealth, GpuState, LinkState, View
from loadpath.core.text import Capture, Line
from loadpath.core.units import mib

Style = Literal["query", "xml", "csv"]


class Record(NamedTuple):
    value: str
    line: Line


Records = Mapping[str, Record]
"""Values by path: `FB Memory Usage > Used` (-q: last section and key), `fb_memory_usage/used`, `memory.used`."""

ABSENT = ("", "n/a", "not supported", "none", "not available", "requested functionality has been deprecated")
UNREADABLE = ("err!", "unknown error", "gpu is lost", "gpu requires reset", "insufficient permissions", "error")


def plain(value: str) -> str | None:
    """The value without brackets and without what follows it (`[Deprecated; …]`); None where it says nothing."""
    value = value.split(" [Deprecated")[0].strip().strip("[]").strip()
    low = value.lower()
    return None if low in ABSENT or low in UNREADABLE or low.startswith("deprecated, see") else value


def number(value: str) -> float | None:
    head = (plain(value) or "").split(" ")[0].rstrip("%xWMHzC")
    try:
        return float(head)
    except ValueError:
        return None


def whole(value: str) -> int | None:
    figure = number(value)
    return None if figure is None else int(figure)


def share(value: str) -> float | None:
    figure = number(value)
    return None if figure is None else figure / 100


def memory(value: str) -> int | None:
    """Bytes of `32362 MiB`; without a unit (`nounits`) it is MiB as well."""
    figure = number(value)
    return None if figure is None else mib(figure)


def yes(value: str) -> bool | None:
    word = (plain(value) or "").lower()
    return {"yes": True, "enabled": True, "active": True, "no": False, "disabled": False, "not active": False}.get(word)


def device_id(value: str) -> str | None:
    """`0x233010DE`, `233010DE` or `0x2330` → `2330`."""
    digits = (plain(value) or "").lower().removeprefix("0x")
    return digits[:4] if len(digits) in (4, 8) else None


def compute_mode(value: str) -> str | None:
    word = plain(value)
    return {"Exclusive_Process": "E. Process", "Exclusive_Thread": "E. Thread"}.get(word or "", word)


class Field(NamedTuple):
    """`paths`: where the figure stands, by style; the first that is there counts (`sum`: all of them together)."""

    fact: type[Fact]
    name: str
    read: Callable[[str], Any]
    query: str = ""
    xml: str = ""
    csv: str = ""
    sum: bool = False

    def paths(self, style: Style) -> list[str]:
        return [path for path in getattr(self, style).split("|") if path]


_STATE = (
    Field(GpuState, "name", plain, "Product Name", "product_name", "name|gpu_name"),
    Field(GpuState, "uuid", plain, "GPU UUID", "uuid", "uuid|gpu_uuid"),
    Field(GpuState, "device_id", device_id, "PCI > Device Id", "pci/pci_device_id", "pci.device_id"),
    Field(GpuState, "persistence", yes, "Persistence Mode", "persistence_mode", "persistence_mode"),
    Field(GpuState, "driver_model", plain, "Driver Model > Current", "driver_model/current_dm", "driver_model.current"),
    Field(GpuState, "display_active", yes, "Display Active", "display_active", "display_active"),
    Field(GpuState, "fan", share, "Fan Speed", "fan_speed", "fan.speed"),
    Field(GpuState, "temperature_c", number, "Temperature > GPU Current Temp", "temperature/gpu_temp", "temperature.gpu"),
    Field(GpuState, "temperature_margin_c", number, "Temperature > GPU T.Limit Temp", "temperature/gpu_temp_tlimit",
          "temperature.gpu.tlimit"),
    Field(GpuState, "memory_temperature_c", number, "Temperature > Memory Current Temp", "temperature/memory_temp",
          "temperature.memory"),
    Field(GpuState, "performance_state", plain, "Performance State", "performance_state", "pstate"),
    Field(GpuState, "power_w", number,
          "GPU Power Readings > Average Power Draw|GPU Power Readings > Power Draw|Power Readings > Power Draw",
          "gpu_power_readings/average_power_draw|gpu_power_readings/power_draw|power_readings/power_draw",
          "power.draw|power.draw.average|power.draw.instant"),
    Field(GpuState, "power_cap_w", number,
          "GPU Power Readings > Current Power Limit|Power Readings > Enforced Power Limit|Power Readings > Power Limit",
          "gpu_power_readings/current_power_limit|power_readings/enforced_power_limit|power_readings/power_limit",
          "enforced.power.limit|power.limit"),
    Field(GpuState, "power_default_w", number,
          "GPU Power Readings > Default Power Limit|Power Readings > Default Power Limit",
          "gpu_power_readings/default_power_limit|power_readings/default_power_limit", "power.default_limit"),
    Field(GpuState, "total_bytes", memory, "FB Memory Usage > Total", "fb_memory_usage/total", "memory.total"),
    Field(GpuState, "reserved_bytes", memory, "FB Memory Usage > Reserved", "fb_memory_usage/reserved", "memory.reserved"),
    Field(GpuState, "used_bytes", memory, "FB Memory Usage > Used", "fb_memory_usage/used", "memory.used"),
    Field(GpuState, "free_bytes", memory, "FB Memory Usage > Free", "fb_memory_usage/free", "memory.free"),
    Field(GpuState, "utilisation", share, "Utilization > GPU|Utilization > Gpu", "utilization/gpu_util", "utilization.gpu"),
    Field(GpuState, "memory_activity", share, "Utilization > Memory", "utilization/memory_util", "utilization.memory"),
    Field(GpuState, "compute_mode", compute_mode, "Compute Mode", "compute_mode", "compute_mode"),
    Field(GpuState, "mig", plain, "MIG Mode > Current", "mig_mode/current_mig", "mig.mode.current"),
    Field(GpuState, "virtualisation", plain, "GPU Virtualization Mode > Virtualization Mode",
          "gpu_virtualization_mode/virtualization_mode", "virtualization_mode"),
)  # fmt: skip

_CLOCKS = (
    Field(GpuClocks, "sm_mhz", number, "Clocks > SM", "clocks/sm_clock", "clocks.current.sm|clocks.sm|clocks.gr"),
    Field(GpuClocks, "memory_mhz", number, "Clocks > Memory", "clocks/mem_clock", "clocks.current.memory|clocks.mem"),
    Field(GpuClocks, "max_sm_mhz", number, "Max Clocks > SM", "max_clocks/sm_clock", "clocks.max.sm"),
    Field(GpuClocks, "max_memory_mhz", number, "Max Clocks > Memory", "max_clocks/mem_clock", "clocks.max.memory|clocks.max.mem"),
)  # fmt: skip

_UNCORRECTED = ("SRAM Uncorrectable", "SRAM Uncorrectable Parity", "SRAM Uncorrectable SEC-DED", "DRAM Uncorrectable")
_UNCORRECTED_XML = (
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "dram_uncorrectable",
)


def _ecc(when: str) -> str:
    return "|".join((*(f"{when} > {key}" for key in _UNCORRECTED), f"{when}/Double Bit > Total"))


def _ecc_xml(when: str) -> str:
    return "|".join((*(f"ecc_errors/{when}/{key}" for key in _UNCORRECTED_XML), f"ecc_errors/{when}/double_bit/total"))


_HEALTH = (
    Field(GpuHealth, "recovery_action", lambda v: v.strip().strip("[]") if v.strip().lower() == "none" else plain(v),
          "GPU Recovery Action", "gpu_recovery_action", "gpu_recovery_action"),
    Field(GpuHealth, "reset_required", yes, "GPU Reset Status > Reset Required", "gpu_reset_status/reset_required",
          "reset_status.reset_required"),
    Field(GpuHealth, "drain_and_reset", yes, "GPU Reset Status > Drain and Reset Recommended",
          "gpu_reset_status/drain_and_reset_recommended", "reset_status.drain_and_reset_recommended"),
    Field(GpuHealth, "uncorrected_volatile", whole, _ecc("Volatile"), _ecc_xml("volatile"),
          "ecc.errors.uncorrected.volatile.total", sum=True),
    Field(GpuHealth, "uncorrected_aggregate", whole, _ecc("Aggregate"), _ecc_xml("aggregate"),
          "ecc.errors.uncorrected.aggregate.total", sum=True),
    Field(GpuHealth, "corrected_volatile", whole, "Volatile > SRAM Correctable|Volatile > DRAM Correctable",
          "ecc_errors/volatile/sram_correctable|ecc_errors/volatile/dram_correctable",
          "ecc.errors.corrected.volatile.total", sum=True),
    Field(GpuHealth, "sram_threshold_exceeded", yes, "Aggregate > SRAM Threshold Exceeded",
          "ecc_errors/aggregate/sram_threshold_exceeded", "ecc.errors.sram.threshold_exceeded"),
    Field(GpuHealth, "repair_pending", yes, "Channel Repair Pending|TPC Repair Pending",
          "ecc_errors/channel_repair_pending|ecc_errors/tpc_repair_pending", "repair.pending", sum=True),
    Field(GpuHealth, "remapped_corrected", whole, "Remapped Rows > Correctable Error", "remapped_rows/remapped_row_corr",
          "remapped_rows.correctable"),
    Field(GpuHealth, "remapped_uncorrected", whole, "Remapped Rows > Uncorrectable Error",
          "remapped_rows/remapped_row_unc", "remapped_rows.uncorrectable"),
    Field(GpuHealth, "remap_pending", yes, "Remapped Rows > Pending", "remapped_rows/remapped_row_pending",
          "remapped_rows.pending"),
    Field(GpuHealth, "remap_failed", yes, "Remapped Rows > Remapping Failure Occurred",
          "remapped_rows/remapped_row_failure", "remapped_rows.failure"),
    Field(GpuHealth, "banks_without_spare", whole, "Bank Remap Availability Histogram > None",
          "remapped_rows/row_remapper_histogram/row_remapper_histogram_none", "remapped_rows.histogram.none"),
    Field(GpuHealth, "retired_single", whole, "Retired Pages > Single Bit ECC",
          "retired_pages/multiple_single_bit_retirement/retired_count", "retired_pages.single_bit_ecc.count|retired_pages.sbe"),
    Field(GpuHealth, "retired_double", whole, "Retired Pages > Double Bit ECC",
          "retired_pages/double_bit_retirement/retired_count", "retired_pages.double_bit.count|retired_pages.dbe"),
    Field(GpuHealth, "retirement_pending", yes, "Retired Pages > Pending Page Blacklist|Retired Pages > Pending",
          "retired_pages/pending_blacklist|retired_pages/pending_retirement", "retired_pages.pending"),
    Field(GpuHealth, "fabric_state", plain, "Fabric > State", "fabric/state", "fabric.state"),
    Field(GpuHealth, "fabric_status", plain, "Fabric > Status", "fabric/status", "fabric.status"),
    Field(GpuHealth, "fabric_health", plain, "Health > Summary", "fabric/health/summary", "fabric.health.summary"),
)  # fmt: skip

_LINK = (
    Field(LinkState, "generation", whole, "PCIe Generation > Device Current|PCIe Generation > Current",
          "pci/pci_gpu_link_info/pcie_gen/device_current_link_gen|pci/pci_gpu_link_info/pcie_gen/current_link_gen",
          "pcie.link.gen.gpucurrent|pcie.link.gen.current"),
    Field(LinkState, "max_generation", whole, "PCIe Generation > Max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
          "pcie.link.gen.max"),
    Field(LinkState, "device_generation", whole, "PCIe Generation > Device Max",
          "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen", "pcie.link.gen.gpumax"),
    Field(LinkState, "host_generation", whole, "PCIe Generation > Host Max",
          "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen", "pcie.link.gen.hostmax"),
    Field(LinkState, "width", whole, "Link Width > Current", "pci/pci_gpu_link_info/link_widths/current_link_width",
          "pcie.link.width.current"),
    Field(LinkState, "max_width", whole, "Link Width > Max", "pci/pci_gpu_link_info/link_widths/max_link_width",
          "pcie.link.width.max"),
    Field(LinkState, "replays", whole, "Replays Since Reset", "pci/replay_counter", "pcie.replays"),
)  # fmt: skip

FIELDS = (*_STATE, *_CLOCKS, *_HEALTH, *_LINK)

# Every clock event reason: bit, its name in our facts, and the words of -q (from 530 "Clocks Event Reasons"), XML and CSV.
REASONS = (
    (0x1, "idle", "idle|gpu idle", "gpu_idle"),
    (0x2, "applications-clocks", "applications clocks setting", "applications_clocks_setting"),
    (0x4, "sw-power-cap", "sw power cap", "sw_power_cap"),
    (0x8, "hw-slowdown", "hw slowdown", "hw_slowdown"),
    (0x10, "sync-boost", "sync boost", "sync_boost"),
    (0x20, "sw-thermal", "sw thermal slowdown", "sw_thermal_slowdown"),
    (0x40, "hw-thermal", "hw thermal slowdown", "hw_thermal_slowdown"),
    (0x80, "power-brake", "hw power brake slowdown|hw power brake", "hw_power_brake_slowdown"),
    (0x100, "display", "display clock setting", "display_clocks_setting"),
    (0x200, "board-limit", "board limit", "board_limit"),
    (0x400, "reliability", "reliability", "reliability"),
)
_REASON_SECTIONS = ("clocks event reasons", "clocks throttle reasons")


def facts_of(
    records: Records, style: Style, capture: Capture, *, view: View, index: int | None, bus_id: str | None = None
) -> Iterator[Fact]:
    """The facts of one GPU. Each stands on the line that tells most of it."""
    found: dict[type[Fact], dict[str, tuple[Any, Line]]] = {}
    for field in FIELDS:
        if (hit := _value(field, records, style)) is not None:
            found.setdefault(field.fact, {})[field.name] = hit
    bus_id = bus_id or _bus_id(records, style)
    name = found.get(GpuState, {}).get("name", (None,))[0]
    common: dict[str, Any] = {"index": index, "bus_id": bus_id}
    if GpuState in found or failed_cells(records, style):
        yield _state(found.get(GpuState, {}), records, style, capture, view, common)
    reasons, telling = _reasons(records, style)
    if reasons is not None or GpuClocks in found:
        figures = {key: value for key, (value, _) in found.get(GpuClocks, {}).items()}
        line = telling or _first_line(found.get(GpuClocks, {}))
        if line is not None:
            yield GpuClocks(**at(capture, line), **common, name=name, reasons=reasons, **figures)
    if GpuHealth in found:
        yield GpuHealth(**at(capture, _worst_line(found[GpuHealth])), **common, name=name, **_figures(found[GpuHealth]))
    if LinkState in found:
        busy = found.get(GpuState, {}).get("utilisation", (None,))[0]
        yield LinkState(
            **at(capture, next(iter(found[LinkState].values()))[1]), **common, name=name,
            busy=None if busy is None else busy > 0.2, **_figures(found[LinkState]),
        )  # fmt: skip


def _state(
    found: dict[str, tuple[Any, Line]],
    records: Records,
    style: Style,
    capture: Capture,
    view: View,
    common: dict[str, Any],
) -> GpuState:
    figures = _figures(found)
    pending_path = {"query": "MIG Mode > Pending", "xml": "mig_mode/pending_mig", "csv": "mig.mode.pending"}[style]
    pending = plain(records[pending_path].value) if pending_path in records else None
    line = found["used_bytes"][1] if "used_bytes" in found and style != "csv" else _first_line(found)
    return GpuState(
        **at(capture, line or next(iter(records.values())).line), **common, view=view,
        mig_pending=pending is not None and pending != figures.get("mig"), failed_cells=failed_cells(records, style), **figures,
    )  # fmt: skip


def _value(field: Field, records: Records, style: Style) -> tuple[Any, Line] | None:
    hits = [(field.read(records[path].value), records[path].line) for path in field.paths(style) if path in records]
    hits = [hit for hit in hits if hit[0] is not None]
    if not hits:
        return None
    if field.sum:
        telling = max(hits, key=lambda hit: hit[0])
        total = sum(hit[0] for hit in hits)
        return (bool(total) if isinstance(hits[0][0], bool) else total), telling[1]
    return hits[0]


def _figures(found: dict[str, tuple[Any, Line]]) -> dict[str, Any]:
    return {name: value for name, (value, _) in found.items()}


def _first_line(found: dict[str, tuple[Any, Line]]) -> Line | None:
    return min((line for _, line in found.values()), key=lambda line: line.number, default=None)


def _worst_line(found: dict[str, tuple[Any, Line]]) -> Line:
    """The line of the gravest figure of a health block, else its first."""
    order = (
        "remap_failed", "sram_threshold_exceeded", "remap_pending", "retirement_pending", "uncorrected_volatile",
        "banks_without_spare", "reset_required", "repair_pending",
    )  # fmt: skip
    action = found.get("recovery_action")
    if action and action[0] != "None":
        return action[1]
    bad = [found[name][1] for name in order if name in found and found[name][0]]
    fabric = [found[n][1] for n in ("fabric_state",) if n in found and found[n][0] not in ("Completed", None)]
    return (bad or fabric or [next(iter(found.values()))[1]])[0]


def _bus_id(records: Records, style: Style) -> str | None:
    paths = {"query": ("PCI > Bus Id",), "xml": ("pci/pci_bus_id",), "csv": ("pci.bus_id", "gpu_bus_id")}[style]
    return next((plain(records[path].value) for path in paths if path in records), None)


def failed_cells(records: Records, style: Style) -> tuple[str, ...]:
    """Names of the fields that the tool tried to read and could not."""
    failed = []
    for field in FIELDS:
        for path in field.paths(style):
            if path in records and records[path].value.strip().strip("[]").lower() in UNREADABLE:
                failed.append(field.name.removesuffix("_w").removesuffix("_c").removesuffix("_bytes").replace("_", " "))
    return tuple(dict.fromkeys(failed))


@cache
def _reason_names() -> dict[str, str]:
    names = {}
    for _, name, words, tag in REASONS:
        for word in words.split("|"):
            names[word] = name
        names[tag] = name
    return names


def _reasons(records: Records, style: Style) -> tuple[tuple[str, ...] | None, Line | None]:
    """The active clock event reasons, and the line of the gravest (else of the first that was printed)."""
    seen: dict[str, tuple[bool, Line]] = {}
    for path, record in records.items():
        name = _reason_of(path, style)
        if name == "mask" and (bits := _mask(record.value)) is not None:
            return tuple(n for bit, n, _, _ in REASONS if bits & bit), record.line
        if name in _reason_names().values() and (active := yes(record.value)) is not None:
            seen[name] = (active, record.line)
    if not seen:
        return None, None
    active_names = tuple(name for _, name, _, _ in REASONS if seen.get(name, (False,))[0])
    grave = [n for n in ("power-brake", "hw-thermal", "hw-slowdown", "sw-thermal", *active_names) if n in active_names]
    return active_names, seen[grave[0]][1] if grave else next(iter(seen.values()))[1]


def _reason_of(path: str, style: Style) -> str:
    if style == "query":
        section, _, key = path.lower().partition(" > ")
        return _reason_names().get(key, "") if section in _REASON_SECTIONS else ""
    if style == "xml":
        section, _, key = path.rpartition("/")
        if section not in ("clocks_event_reasons", "clocks_throttle_reasons"):
            return ""
        return _reason_names().get(key.removeprefix("clocks_event_reason_").removeprefix("clocks_throttle_reason_"), "")
    section, _, key = path.partition(".")
    if section not in ("clocks_event_reasons", "clocks_throttle_reasons"):
        return ""
    return "mask" if key == "active" else _reason_names().get(key, "")


def _mask(value: str) -> int | None:
    try:
        return int(value.strip(), 16)
    except ValueError:
        return None
