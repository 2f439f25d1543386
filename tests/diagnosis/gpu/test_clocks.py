"""Throttle reasons, a lowered power limit, one GPU hotter than its peers."""

from __future__ import annotations

from conftest import read_text
from smi_text import NONE, found, gpu, ids, table

QUERY = """\
Attached GPUs                             : 1
GPU 00000000:3A:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    {section}
        Idle                              : Not Active
        SW Power Cap                      : {cap}
        HW Slowdown                       : {slow}
            HW Thermal Slowdown           : {heat}
            HW Power Brake Slowdown       : {brake}
    Clocks Event Reasons Counters
        HW Thermal Slowdown               : 123456 us
    Temperature
        GPU Current Temp                  : 88 C
    GPU Power Readings
        Power Draw                        : 67.74 W
        Current Power Limit               : {limit}.00 W
        Default Power Limit               : 700.00 W
    Clocks
        SM                                : 86 MHz
    Max Clocks
        SM                                : 1980 MHz
"""


def query(**active: str) -> str:
    values = {"cap": "Not Active", "slow": "Not Active", "heat": "Not Active", "brake": "Not Active", "limit": "700"}
    return QUERY.format(**values | {"section": "Clocks Event Reasons"} | active)


def test_power_brake_is_the_chassis() -> None:
    report = read_text(query(slow="Active", brake="Active"))
    root = report.root
    assert root is not None and root.id == "gpu-power-brake" and report.verdict.state == "degraded"
    assert "86 of 1,980 MHz" in root.cause and "68 of 700 W" in root.cause
    assert "gpu-hardware-slowdown" not in ids(report), "one incident, one finding"


def test_heat_in_the_old_section_name() -> None:
    report = read_text(query(section="Clocks Throttle Reasons", slow="Active", heat="Active"))
    root = report.root
    assert root is not None and root.id == "gpu-thermal-slowdown"
    assert "88 °C" in root.cause and "hardware itself" in root.cause


def test_counters_and_the_power_cap_alone_are_no_fault() -> None:
    assert read_text(query(cap="Active")).root_cause is None


def test_a_lowered_power_limit_is_noted() -> None:
    lowered = found(read_text(query(limit="400")), "gpu-power-limit-lowered")
    assert "400 W, 700 W is its default" in lowered.title and lowered.severity == "info"


def test_the_one_that_does_not_get_rid_of_its_heat() -> None:
    rows = [
        gpu(i, used=60000, total=81559, util="100%", power="345W / 700W", name="NVIDIA H100 80GB HBM3")
        for i in range(4)
    ]
    rows[2] = gpu(
        2, used=60000, total=81559, util="100%", power="226W / 700W", temp="87C", name="NVIDIA H100 80GB HBM3"
    )
    report = table(*rows, NONE)
    root = report.root
    assert root is not None and root.id == "gpu-hotter-than-peers"
    assert "GPU 2" in root.title and "87 °C" in root.title and "226 W" in root.title and "345 W" in root.cause
