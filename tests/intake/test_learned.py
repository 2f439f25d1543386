"""Prefixes that only a whole source gives away."""

from __future__ import annotations

from loadpath.core.text import Line
from loadpath.intake.clean import clean

HEADER = "INFO 12-24 08:50:35 [core.py:866] "


def lines(text: str) -> list[Line]:
    return clean(text.encode())


def test_compose_names_come_off_a_table_once_they_are_known() -> None:
    rows = [f"server-1  | {HEADER}up", "server-1  | |   0  NVIDIA H100  Off |   00000000:2A:00.0 Off |"]
    table = lines("\n".join(rows))[1]
    assert table.text == "|   0  NVIDIA H100  Off |   00000000:2A:00.0 Off |"
    assert table.origin.container == "server-1"


def test_srun_labels_are_ranks_where_all_lines_bear_one() -> None:
    found = lines(f"0: {HEADER}a\n1: {HEADER}b\n0: plain words\n1: more\n")
    assert [(line.text, line.origin.rank) for line in found] == [("a", 0), ("b", 1), ("plain words", 0), ("more", 1)]


def test_two_numbered_devices_are_content() -> None:
    assert lines("0: NVIDIA RTX 5090 32607MiB\n1: NVIDIA RTX 5090 32607MiB\n")[1].text.startswith("1: NVIDIA")


def test_running_numbers_come_off() -> None:
    assert [line.text for line in lines("7:first\n9:second words\n12:third\n40:last\n")] == [
        "first", "second words", "third", "last",
    ]  # fmt: skip


def test_a_notebooks_clock_and_counter_come_off() -> None:
    found = lines("3.2s 17 loading weights\n3.9s 18   shard 1\n10.0s 19 done\n")
    assert [line.text for line in found] == ["loading weights", "  shard 1", "done"]


def test_a_host_is_known_by_one_sure_line() -> None:
    found = lines("gpu-q-13:     ret = f(x)\ngpu-q-13: torch.cuda.OutOfMemoryError: CUDA out of memory.\nNVRM: x\n")
    assert [(line.text, line.origin.host) for line in found] == [
        ("    ret = f(x)", "gpu-q-13"), ("torch.cuda.OutOfMemoryError: CUDA out of memory.", "gpu-q-13"), ("NVRM: x", None),
    ]  # fmt: skip
