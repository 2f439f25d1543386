"""CUDA's compatibility rules as the table gives them."""

from __future__ import annotations

import pytest

from loadpath.knowledge import cuda


def test_found_version_is_decoded() -> None:
    assert [cuda.decoded(n) for n in (11040, 12020, 13000)] == ["11.4", "12.2", "13.0"]


@pytest.mark.parametrize(
    ("program", "driver", "verdict"),
    [
        ("11.8", "13.0", "full"),
        ("12.8", "12.2", "minor"),
        ("13.0", "12.9", "older-driver"),
        ("12.1", "11.4", "older-driver"),
    ],
)
def test_compatibility_is_backward_and_within_a_major(program: str, driver: str, verdict: str) -> None:
    assert cuda.runs(program, driver) == verdict


def test_branches_and_floors() -> None:
    assert cuda.branch_for("12.8") == "570"
    assert cuda.floor_of(12) == "525.60.13"
    branch = cuda.branch_of("550.163.01")
    assert branch is not None and branch.cuda == "12.4"


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ("8.9", ("sm_80",), True),
        ("12.0", ("sm_90", "sm_100"), False),
        ("12.1", ("sm_120",), True),
        ("9.0", ("sm_80", "compute_80"), True),
        ("10.3", ("sm_100a",), False),
        ("7.5", ("sm_80",), False),
    ],
)
def test_cubins_and_ptx(capability: str, archs: tuple[str, ...], runs: bool) -> None:
    assert cuda.covered(capability, archs) is runs


def test_first_toolkit_of_a_target() -> None:
    assert cuda.toolkits_with("sm_121a")[0] == "12.9"
    assert cuda.toolkits_with("sm_70")[-1] == "12.9"


def test_wheels_for_a_card() -> None:
    assert {w.tag for w in cuda.wheels_for("6.1") if w.torch == "2.11"} == {"cu126"}
    assert min(cuda.numbers(w.cuda) for w in cuda.wheels_for("12.0")) == (12, 8)


def test_packages_of_a_library() -> None:
    row = cuda.library("libcudart.so.12")
    assert row is not None
    assert (cuda.package_for(row, "12"), cuda.package_for(row, "13")) == (
        "nvidia-cuda-runtime-cu12",
        "nvidia-cuda-runtime",
    )


def test_every_error_names_a_code_once() -> None:
    codes = [e.code for e in cuda.table().error]
    assert len(codes) == len(set(codes))
    found = cuda.error(803)
    assert found is not None and found.boundary == "runtime-driver"
