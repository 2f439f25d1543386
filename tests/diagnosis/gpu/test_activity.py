"""dmon and pmon: what their columns mean, and what they do not."""

from __future__ import annotations

from conftest import read_text
from smi_text import EXAMPLES, found, ids

CAP = "index, name, power.limit [W]\n0, NVIDIA L40S, 350.00 W\n"
HEAD = (
    "# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk\n# Idx      W      C      C      %      %    MHz    MHz\n"
)


def rows(*samples: tuple[int, int, int, int, int]) -> str:
    """power, temperature, sm, mem, SM clock."""
    return HEAD + "".join(f"    0   {w}   {c}   -   {sm}   {mem}   9001   {mhz}\n" for w, c, sm, mem, mhz in samples)


def test_walk_through_busy() -> None:
    report = read_text((EXAMPLES / "dmon-busy.txt").read_text())
    assert report.verdict.state == "healthy"
    busy = found(report, "dmon-busy")
    assert "sm 97-98 %" in busy.title and "mem 70-72 %" in busy.title and "412-428 of 600 W" in busy.title
    assert "memory bandwidth" in busy.cause and "not the share of bandwidth" in busy.cause


def test_walk_through_not_filled() -> None:
    report = read_text((EXAMPLES / "dmon-not-filled.txt").read_text())
    root = report.root
    assert root is not None and root.id == "dmon-not-filled"
    assert report.verdict.state == "degraded" and root.certainty == "likely"
    assert "33%" in root.cause and "not occupied SMs" in root.cause
    assert "1002" in root.next_checks[0].command and "--gpm-metrics" in root.next_checks[1].command


def test_without_a_known_limit_low_power_is_not_judged() -> None:
    report = read_text(rows(*[(150, 60, 100, 8, 2500)] * 5))
    assert ids(report) == {"dmon-busy"}
    assert any("power.limit" in check.command for check in found(report, "dmon-busy").next_checks)


def test_gpm_columns_settle_it() -> None:
    text = (
        "# gpu    pwr     sm    mem  smutil\n# Idx      W      %      %   GPM:%\n"
        + "    0    300    100      9      11\n" * 4
    )
    made = found(read_text(text), "dmon-not-filled")
    assert made.certainty == "established" and "11 % SM activity" in made.cause


def test_pauses_between_bursts() -> None:
    report = read_text(CAP + rows(*[(300, 60, 95, 40, 2500), (90, 55, 0, 0, 2500)] * 4))
    assert "idle in 4 of 8 samples" in found(report, "dmon-idle-phases").title


def test_idle() -> None:
    assert read_text(rows(*[(30, 35, 0, 0, 210)] * 5)).verdict.state == "healthy"


def test_the_clock_falls_by_heat_or_by_the_power_limit() -> None:
    hot = read_text(CAP + rows(*[(300, 70, 99, 40, 2500)] * 3, *[(250, 88, 99, 40, 1500)] * 3))
    falls = found(hot, "dmon-clock-falls")
    assert hot.root_cause == "dmon-clock-falls" and "2500 to 1500 MHz" in falls.title and "it is hot" in falls.cause
    capped = read_text(CAP + rows(*[(300, 70, 99, 40, 2500)] * 3, *[(349, 70, 99, 40, 1900)] * 3))
    assert "normal under full load" in found(capped, "dmon-power-capped").cause and capped.root_cause is None


def test_pmon_names_who_works() -> None:
    text = (
        "# gpu         pid   type     sm    mem    command\n# Idx           #    C/G      %      %    name\n"
        "    0        41     C     97     60    VLLM::EngineCor\n    0        42     C      -      -    jupyter\n"
    )
    made = found(read_text(text), "pmon-activity")
    assert "VLLM::EngineCor (pid 41, GPU 0) 97 % sm" in made.title
    assert "jupyter (pid 42)" in made.cause


def test_mig_hides_utilisation() -> None:
    text = "# gpu    pwr     sm    mem\n# Idx      W      %      %\n" + "    0    438      -      -\n" * 3
    assert "438 W tells of the work" in read_text(text).verdict.sentence
