"""Samples of loadpath's own probes: cut by their header, read into the facts that pasted output gives too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import read_text
from loadpath.core.report import Report
from loadpath.core.sample import Sample, to_bytes
from loadpath.reading.service import read_bytes


def sample(kind: str, text: str, **how: Any) -> str:
    return to_bytes(Sample("x", kind, "cmd", data=text.encode(), **how)).decode()


def facts(report: Report, kind: str) -> list[dict[str, Any]]:
    return [fact for fact in report.facts if fact["type"] == kind]


def test_a_header_says_of_what_kind_its_lines_are() -> None:
    text = sample("kernel-log", "anything at all\n") + sample("text", "GPU 0: NVIDIA L4 (UUID: GPU-1)\n")
    kinds = [c.kind for c in read_text(text).captures]
    assert kinds == ["loadpath-sample", "kernel-log", "loadpath-sample", "nvidia-smi-list"]


def test_a_sample_pasted_below_a_persons_words_is_still_found() -> None:
    text = "Hi, my server does not start, here is what loadpath saved:\n\n" + sample(
        "pci", "PCI bus: 4 devices, 0 of NVIDIA\n"
    )
    assert facts(read_text(text), "PciBus")[0]["devices"] == 4


def test_lines_of_a_sample_are_not_mended_as_pasted_ones_are() -> None:
    long = "kernel-command-line: " + "x" * 300
    text = sample("kernel-module", f"running-kernel: 6.1\n{long}\nlockdown: none\n")
    fact = facts(read_text(text), "KernelModules")[0]
    assert fact["settings"] == ("x" * 300,) and fact["lockdown"] == "none"


def test_how_a_probe_went_is_a_fact() -> None:
    report = read_text(sample("nvidia-smi", "", outcome="timed-out", seconds=10.0, note="no answer in 10 s, state D"))
    ran = facts(report, "ProbeRan")[0]
    assert (ran["outcome"], ran["seconds"]) == ("timed-out", 10.0)
    assert "timed-out after 10.0 s" in ran["text"]


def test_a_damaged_header_is_no_sample() -> None:
    assert not facts(read_text('#loadpath-sample {"name":"x"\nNVRM: Xid (PCI:0000:01:00): 79\n'), "ProbeRan")


def test_words_of_loadpaths_own_are_not_searched_for_errors() -> None:
    text = sample("user-driver", "environment: LD_PRELOAD=/opt/CUDA out of memory/x.so\nlibrary: libcuda.so.1 none\n")
    report = read_text(text)
    assert not facts(report, "Symptom") and not facts(report, "OutOfMemory")


def test_the_inventory_of_nvml_gives_the_facts_of_nvidia_smi() -> None:
    text = sample("nvml", "\n".join((
        '{"system":true,"driver_version":"580.95.05","nvml_version":"13.580.95.05","cuda_version":"13.0","count":1}',
        '{"gpu":0,"name":"NVIDIA L4","uuid":"GPU-1","pci.bus_id":"00000000:3A:00.0","compute_cap":"8.9"}',
        '{"gpu":0,"memory.total":"23034 MiB","memory.used":"512 MiB","utilization.gpu":"40 %"}',
        '{"gpu":0,"power.draw":"71.20 W","temperature.gpu":61}',
        '{"gpu":0,"clocks_event_reasons.active":"0x0000000000000044"}',
        '{"process":77,"gpu":0,"type":"C","name":"python3","used_gpu_memory":"500 MiB"}',
        '{"gpu":0,"nvlink":{"0":25.0,"1":null}}',
        '{"half a line',
    )))  # fmt: skip
    report = read_text(text)
    state = facts(report, "GpuState")[0]
    assert (state["used_bytes"], state["utilisation"], state["power_w"]) == (512 << 20, 0.4, 71.2)
    assert facts(report, "GpuClocks")[0]["reasons"] == ("sw-power-cap", "hw-thermal")
    assert facts(report, "DriverVersions")[0]["nvml"] == "580.95.05"
    assert facts(report, "GpuProcess")[0]["pid"] == 77
    assert facts(report, "NvlinkStatus")[0]["links"] == {0: 25.0, 1: None}
    assert facts(report, "GpuModel")[0]["capability"] == "8.9"


def test_an_open_that_never_came_back_hung() -> None:
    access = facts(read_text(sample("device-access", "open /dev/nvidiactl: ok\nopen /dev/nvidia0: ")), "DeviceAccess")
    assert [a["outcome"] for a in access] == ["ok", "hung"]


LINES = st.sampled_from((
    "PCI bus: x devices", "0000:01:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330]", "\tLnkSta: Speed unknown, Width x",
    "loaded: nvidia", "loaded:", "module-file: kernel=", "dkms: nvidia/580 built-for=",
    "open /dev/nvidia0", "holder: pid=x uid=", "major: a b",
    "library: libcuda.so.1 path= real=", "library: libcuda.so.1 path=/a real=/b version=? size=? via=x taken", "environment: =",
    "cuInit: x", "cuInit: 99999999999", "devices: -1", "device: 0", "libcuda:", '{"gpu":"0"}',
    '{"gpu":0,"name":null}', '{"gpu":0,"memory.used":[]}',
    '{"mig":0}', '{"process":"x"}', '{"p2p":{}}', '{"gpu":0,"nvlink":{}}', '{"system":true,"count":"many"}', "uptime: soon", "asked: all",
    "Failed to initialize NVML: ", "NVRM version: ", "Model: \t x",
))  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["pci", "kernel-module", "device-access", "user-driver", "cuda-init", "nvml", "whereabouts", "proc-driver"]
)
@settings(max_examples=150, deadline=None)
@given(
    data=st.one_of(st.binary(max_size=200), st.lists(LINES, max_size=8).map(lambda lines: "\n".join(lines).encode()))
)
def test_no_bytes_break_a_reader_of_probes(kind: str, data: bytes) -> None:
    read_bytes([("x", to_bytes(Sample("x", kind, "x", data=data)))])
