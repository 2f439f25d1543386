"""dmon and pmon: any columns, in any order."""

from __future__ import annotations

import pytest

from loadpath.core.facts.base import Fact
from loadpath.core.facts.gpu import GpuSeries, ProcessSeries
from loadpath.core.text import Capture
from loadpath.intake.clean import clean
from loadpath.readers.nvidia_smi import dmon


def facts_in(text: str) -> list[Fact]:
    lines = clean(text.encode())
    return list(dmon.read(Capture("dmon", "paste", tuple(lines[: dmon.extent(lines, 0)]))))


@pytest.mark.parametrize(
    "text",
    [
        "# gpu    pwr  gtemp  mtemp     sm    mem\n# Idx      W      C      C      %      %\n    1     71     41      -    100      2\n",
        "#Time     gpu  pwr   sm  mem gtemp\n#HH:MM:SS Idx    W    %    %     C\n 10:00:01   1   71  100    2    41\n",
        "#gpu, sm, mem, pwr, gtemp, smutil\n#Idx, %, %, W, C, GPM:%\n1, 100, 2, 71, 41, 9\n",
    ],
    ids=["plain", "with times", "csv and GPM"],
)
def test_columns_come_from_the_header(text: str) -> None:
    (series,) = facts_in(text)
    assert isinstance(series, GpuSeries)
    assert (series.index, series.columns["pwr"], series.columns["sm"], series.columns["mem"]) == (
        1,
        (71,),
        (100,),
        (2,),
    )
    assert series.columns["gtemp"] == (41,)


def test_repeated_headers_and_two_gpus() -> None:
    head = "# gpu    pwr     sm\n# Idx      W      %\n"
    series = facts_in(
        head + "    0    300     90\n    1     60      0\n" + head + "    0    310     95\n    1     61      0\n"
    )
    assert [(s.index, s.columns["pwr"]) for s in series if isinstance(s, GpuSeries)] == [(0, (300, 310)), (1, (60, 61))]


def test_pmon_with_a_command_of_two_words_and_an_idle_gpu() -> None:
    text = (
        "# gpu         pid   type     sm    mem    command\n# Idx           #    C/G      %      %    name\n"
        "    0      10291     C     97     41    ray::Worker one\n    1          -     -      -      -    -\n"
    )
    (process,) = facts_in(text)
    assert isinstance(process, ProcessSeries)
    assert (process.pid, process.command, process.columns["sm"]) == (10291, "ray::Worker one", (97,))


def test_a_comment_line_is_no_header() -> None:
    assert dmon.extent(clean(b"# gpu memory is full\n"), 0) == 0
