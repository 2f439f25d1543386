"""`nvidia-smi -q`: sections decide, colons move, pieces are enough."""

from __future__ import annotations

from typing import TypeVar

from conftest import shared_file
from loadpath.core.facts.base import Fact
from loadpath.core.facts.gpu import (
    DriverVersions,
    GpuClocks,
    GpuHealth,
    GpuProcess,
    GpuState,
    LinkState,
    MigInstance,
    SmiSnapshot,
)
from loadpath.core.text import Capture
from loadpath.core.units import mib
from loadpath.intake.clean import clean
from loadpath.readers.nvidia_smi import query

F = TypeVar("F", bound=Fact)


def facts_in(text: str) -> list[Fact]:
    lines = clean(text.encode())
    start = next(i for i in range(len(lines)) if query.extent(lines, i) > i)
    return list(query.read(Capture("nvidia-smi-q", "paste", tuple(lines[start : query.extent(lines, start)]))))


def one(facts: list[Fact], kind: type[F]) -> F:
    return next(fact for fact in facts if isinstance(fact, kind))


WHOLE = """\
==============NVSMI LOG==============

Timestamp                                              : Thu Nov 12 10:11:12 2026
Driver Version                                         : 610.43.02 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]
KMD Version                                            : 610.43.02
CUDA UMD Version                                       : 13.3

Attached GPUs                                          : 2
GPU 00000000:3A:00.0
    Product Name                                       : NVIDIA L4
    MIG Mode
        Current                                        : N/A
        Pending                                        : N/A
    GPU Recovery Action                                : None
    PCI
        Device Id                                      : 0x27B810DE
        GPU Link Info
            PCIe Generation
                Max                                    : 4
                Current                                : 1
                Device Current                         : 1
                Device Max                             : 4
                Host Max                               : 5
            Link Width
                Max                                    : 16x
                Current                                : 16x
    Clocks Event Reasons
        Idle                                           : Not Active
        SW Power Cap                                   : Active
        HW Slowdown                                    : Not Active
            HW Thermal Slowdown                        : Not Active
    Clocks Event Reasons Counters
        SW Power Capping                               : 812345 us
        HW Thermal Slowdown                            : 99 us
    FB Memory Usage
        Total                                          : 23034 MiB
        Reserved                                       : 457 MiB
        Used                                           : 9214 MiB
        Free                                           : 13363 MiB
    BAR1 Memory Usage
        Used                                           : 1 MiB
    Utilization
        GPU                                            : 100 %
        Memory                                         : 61 %
    Processes
        GPU instance ID                                : N/A
        Compute instance ID                            : N/A
        Process ID                                     : 4711
            Type                                       : C
            Name                                       : llama-server
            Used GPU Memory                            : 9206 MiB
"""

PIECE = """\
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 3
        Pending                           : Yes
        Remapping Failure Occurred        : No
        Bank Remap Availability Histogram
            Max                           : 637 bank(s)
            None                          : 1 bank(s)
"""


def test_whole_output() -> None:
    facts = facts_in(WHOLE)
    assert one(facts, DriverVersions).driver == "610.43.02"
    gpu = one(facts, GpuState)
    assert (gpu.device_id, gpu.used_bytes, gpu.total_bytes, gpu.utilisation) == ("27b8", mib(9214), mib(23034), 1.0)
    assert one(facts, GpuClocks).reasons == ("sw-power-cap",), "the counters are no reasons"
    assert one(facts, GpuHealth).recovery_action == "None"
    link = one(facts, LinkState)
    assert (link.generation, link.device_generation, link.host_generation, link.width, link.busy) == (1, 4, 5, 16, True)
    process = one(facts, GpuProcess)
    assert (process.pid, process.name, process.used_bytes, process.index) == (4711, "llama-server", mib(9206), 0)
    snapshot = one(facts, SmiSnapshot)
    assert (snapshot.attached, snapshot.shown, snapshot.processes) == (2, 1, "rows")


def test_a_lone_section_is_read() -> None:
    health = one(facts_in(PIECE), GpuHealth)
    assert (health.remap_pending, health.remap_failed, health.remapped_uncorrected, health.banks_without_spare) == (
        True,
        False,
        3,
        1,
    )
    assert health.text.startswith("Pending"), "quotes the line that matters"


def test_without_indentation_the_last_heading_is_the_section() -> None:
    flat = "\n".join(line.strip() for line in WHOLE.splitlines())
    facts = facts_in(flat)
    assert one(facts, GpuState).used_bytes == mib(9214)
    assert one(facts, GpuClocks).reasons == ("sw-power-cap",)


def test_mig_devices_of_a_shared_sample() -> None:
    facts = facts_in(shared_file("captures", "nvidia", "smi-q", "driver-590-mig-h100-load.txt").read_text())
    instances = [fact for fact in facts if isinstance(fact, MigInstance)]
    assert [(m.gpu_instance, m.total_bytes, m.sms) for m in instances] == [
        (2, mib(40448), 60), (3, mib(20096), 32), (9, mib(9984), 16), (10, mib(9984), 16),
    ]  # fmt: skip
    assert one(facts, GpuState).used_bytes == mib(11125)


def test_edited_keys_do_not_break_it() -> None:
    facts = facts_in(shared_file("captures", "nvidia", "smi-q", "driver-535-broken-key-names.txt").read_text())
    assert one(facts, LinkState).replays == 120
    assert one(facts, SmiSnapshot).attached == 8
