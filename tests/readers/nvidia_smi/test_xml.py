"""`nvidia-smi -q -x`: whole, cut, broken."""

from __future__ import annotations

from typing import TypeVar

from conftest import shared_file
from loadpath.core.facts.base import Fact
from loadpath.core.facts.gpu import DriverVersions, GpuClocks, GpuProcess, GpuState, MigInstance
from loadpath.core.text import Capture
from loadpath.core.units import mib
from loadpath.intake.clean import clean
from loadpath.readers.nvidia_smi import xml

TEXT = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>570.133.20</driver_version>
  <cuda_version>12.8</cuda_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:41:00.0">
    <product_name>NVIDIA RTX 6000 Ada Generation</product_name>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_sw_thermal_slowdown>Active</clocks_event_reason_sw_thermal_slowdown>
    </clocks_event_reasons>
    <fb_memory_usage><total>49140 MiB</total><used>40001 MiB</used><free>8600 MiB</free></fb_memory_usage>
    <utilization><gpu_util>99 %</gpu_util></utilization>
    <processes>
      <process_info><pid>77</pid><type>C</type><process_name>python & co</process_name><used_memory>39990 MiB</used_memory></process_info>
    </processes>
  </gpu>
</nvidia_smi_log>
"""


F = TypeVar("F", bound=Fact)


def facts_in(text: str) -> list[Fact]:
    lines = clean(text.encode())
    return list(xml.read(Capture("nvidia-smi-xml", "paste", tuple(lines[: xml.extent(lines, 0)]))))


def one(facts: list[Fact], kind: type[F]) -> F:
    return next(fact for fact in facts if isinstance(fact, kind))


def test_figures_and_the_line_they_stand_on() -> None:
    facts = facts_in(TEXT)
    gpu = one(facts, GpuState)
    assert (gpu.bus_id, gpu.used_bytes, gpu.total_bytes, gpu.utilisation) == (
        "00000000:41:00.0",
        mib(40001),
        mib(49140),
        0.99,
    )
    assert gpu.span.first_line == 13
    assert one(facts, GpuClocks).reasons == ("sw-thermal",)
    assert one(facts, GpuProcess).name == "python & co"
    assert one(facts, DriverVersions).cuda == "12.8"


def test_what_stands_before_the_break_is_read() -> None:
    """A stray bracket is no XML; nor is a file that was cut."""
    assert one(facts_in(TEXT.replace("<utilization>", "<utilization")), GpuState).used_bytes == mib(40001)
    cut = TEXT[: TEXT.index("<utilization>")]
    assert one(facts_in(cut), GpuState).used_bytes == mib(40001)


def test_entities_are_not_expanded() -> None:
    bomb = TEXT.replace('"nvsmi_device_v12.dtd">', '"x" [<!ENTITY a "aaaaaaaaaa">]>').replace("570.133.20", "&a;&a;")
    assert all(getattr(fact, "driver", None) != "aaaaaaaaaa" * 2 for fact in facts_in(bomb))


def test_shared_samples_cut_and_without_version() -> None:
    folder = ("captures", "nvidia", "smi-xml")
    cut = facts_in(shared_file(*folder, "driver-535-rtx4090.xml").read_text())
    assert one(cut, GpuState).used_bytes == mib(2)
    short = facts_in(shared_file(*folder, "driver-unknown-gtx1070ti-short.xml").read_text())
    assert one(short, GpuState).used_bytes == mib(42)
    assert not any(isinstance(fact, DriverVersions) for fact in short)
    mig = facts_in(shared_file(*folder, "driver-510-a100-40-mig.xml").read_text())
    assert [m.total_bytes for m in mig if isinstance(m, MigInstance)] == [mib(19968), mib(19968)]
