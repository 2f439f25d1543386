"""Occupancy: known values, NVIDIA's own header where a toolkit is here, and what the advised changes really give."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadpath.knowledge.sm import Sm, sm_of, sms
from loadpath.planning.occupancy import Kernel, changes, fitting_registers, fitting_shared, occupancy

HEADERS = Path("/usr/local/cuda/include")


def on(capability: str) -> Sm:
    found = sm_of(capability)
    assert found is not None
    return found


kernels = st.builds(
    Kernel,
    threads=st.integers(1, 1024),
    registers=st.integers(1, 255),
    static_shared_bytes=st.integers(0, 48 * 1024),
    dynamic_shared_bytes=st.integers(0, 200 * 1024),
)


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "percent", "limiters"),
    [
        # Registers: 256 threads of 64 need 16,384 of 65,536.
        ("8.0", 256, 64, 0, 4, 50, ("registers",)),
        ("8.0", 256, 32, 0, 8, 100, ("warps", "registers")),
        ("9.0", 128, 168, 0, 3, 19, ("registers",)),
        # Registers are given in units of 256 to a warp: 33 cost as much as 40.
        ("8.0", 256, 33, 0, 6, 75, ("registers",)),
        ("8.0", 256, 40, 0, 6, 75, ("registers",)),
        # Warps: 1,536 threads on 8.6, 1,024 on 7.5, 2,048 on 9.0.
        ("8.6", 1024, 32, 0, 1, 67, ("warps",)),
        ("8.6", 512, 32, 0, 3, 100, ("warps",)),
        ("7.5", 512, 32, 0, 2, 100, ("warps",)),
        # Blocks: 16 on 8.6, 24 on 8.9 and 12.0, 32 on 9.0.
        ("8.6", 32, 16, 0, 16, 33, ("blocks",)),
        ("12.0", 32, 16, 0, 24, 50, ("blocks",)),
        ("9.0", 32, 16, 0, 32, 50, ("blocks",)),
        # Shared memory: 1 KiB of every block is the system's from 8.0 on; 7.0 takes none.
        ("8.0", 128, 32, 40_960, 4, 25, ("shared-memory",)),
        ("7.0", 128, 32, 49_152, 2, 12, ("shared-memory",)),
        ("9.0", 128, 32, 227 * 1024, 1, 6, ("shared-memory",)),
        ("9.0", 128, 32, 113 * 1024, 2, 12, ("shared-memory",)),
    ],
)
def test_known_kernels(
    capability: str, threads: int, registers: int, shared: int, blocks: int, percent: int, limiters: tuple[str, ...]
) -> None:
    found = occupancy(Kernel(threads=threads, registers=registers, dynamic_shared_bytes=shared), on(capability))
    assert (found.blocks_per_sm, round(100 * found.occupancy), found.limiters) == (blocks, percent, limiters)


@pytest.mark.parametrize(
    ("kernel", "capability", "says"),
    [
        (Kernel(threads=1024, registers=72), "9.0", "error 701"),
        (Kernel(threads=1056, registers=16), "9.0", "threads"),
        (Kernel(threads=128, registers=256), "9.0", "255"),
        (Kernel(threads=128, registers=32, dynamic_shared_bytes=100 * 1024), "8.6", "99 KiB"),
        (Kernel(threads=128, registers=32, static_shared_bytes=50 * 1024), "8.6", "must be dynamic"),
    ],
)
def test_a_launch_that_fails_says_why(kernel: Kernel, capability: str, says: str) -> None:
    found = occupancy(kernel, on(capability))
    assert found.blocks_per_sm == 0
    assert says in found.refused


def test_capabilities_are_found_by_every_spelling() -> None:
    assert {sm_of(name) for name in ("9.0", "sm_90", "sm_90a", "90", "compute_90")} == {on("9.0")}
    assert on("sm_120f").capability == "12.0"
    assert sm_of("5.2") is None
    assert sm_of("") is None


def test_more_than_48_kib_needs_opting_in() -> None:
    found = occupancy(Kernel(threads=128, registers=32, dynamic_shared_bytes=60_000), on("9.0"))
    assert any("opt in" in note for note in found.notes)


@given(kernels, st.sampled_from(sms()))
def test_fewer_registers_or_less_shared_memory_never_lets_in_fewer(kernel: Kernel, sm: Sm) -> None:
    now = occupancy(kernel, sm)
    leaner = Kernel(
        threads=kernel.threads,
        registers=max(1, kernel.registers - 8),
        static_shared_bytes=kernel.static_shared_bytes,
        dynamic_shared_bytes=kernel.dynamic_shared_bytes // 2,
    )
    assert occupancy(leaner, sm).blocks_per_sm >= now.blocks_per_sm
    assert now.warps_per_sm <= sm.warps


@given(st.integers(1, 32), st.integers(1, 8), st.sampled_from(sms()))
def test_the_fitting_amounts_fit_and_one_more_does_not(warps: int, blocks: int, sm: Sm) -> None:
    kernel = Kernel(threads=32 * warps, registers=16)
    most = fitting_registers(kernel, blocks)
    if 16 <= most < 255:
        fits = occupancy(Kernel(threads=kernel.threads, registers=most), sm).limits["registers"]
        over = occupancy(Kernel(threads=kernel.threads, registers=most + 1), sm).limits["registers"]
        assert fits >= blocks > over
    shared = fitting_shared(blocks, sm)
    if 0 < shared < sm.block_shared_bytes:
        fits = occupancy(Kernel(threads=32, registers=16, dynamic_shared_bytes=shared), sm).limits["shared-memory"]
        over = occupancy(Kernel(threads=32, registers=16, dynamic_shared_bytes=shared + 1), sm).limits["shared-memory"]
        assert fits >= blocks > over


@given(kernels, st.sampled_from(sms()))
def test_every_advised_change_lets_in_more_warps(kernel: Kernel, sm: Sm) -> None:
    now = occupancy(kernel, sm)
    for change in changes(kernel, sm):
        assert change.warps > now.warps_per_sm
        assert change.occupancy <= 1


def test_two_limiters_are_relieved_together() -> None:
    kernel = Kernel(threads=256, registers=128, dynamic_shared_bytes=80 * 1024)
    assert occupancy(kernel, on("8.0")).limiters == ("registers", "shared-memory")
    advice = changes(kernel, on("8.0"))
    assert len(advice) == 1
    assert "registers" in advice[0].action and "shared memory" in advice[0].action
    assert "__launch_bounds__(256, 3)" in advice[0].command


def test_a_block_size_that_wastes_warps_is_replaced() -> None:
    advice = changes(Kernel(threads=1024, registers=32), on("8.6"))
    assert advice[0].occupancy == 1.0
    assert advice[0].action.startswith("blocks of ")


def test_blocks_agree_with_nvidias_header(tmp_path: Path) -> None:
    if not (HEADERS / "cuda_occupancy.h").exists() or not shutil.which("gcc"):
        pytest.skip("needs gcc and a CUDA toolkit's cuda_occupancy.h: this test compares with NVIDIA's arithmetic")
    program = tmp_path / "reference"
    source = Path(__file__).parent / "occupancy_reference.c"
    subprocess.run(["gcc", "-w", f"-I{HEADERS}", "-o", program, source], check=True)
    draw = random.Random(1)
    cases = [(sm, drawn(draw)) for sm in sms() for _ in range(400)]
    asked = "".join(
        f"{sm.capability.replace('.', ' ')} {sm.threads} {sm.shared_bytes} {sm.block_shared_bytes} {sm.reserved_bytes}"
        f" {k.threads} {k.registers} {k.static_shared_bytes} {k.dynamic_shared_bytes}\n"
        for sm, k in cases
    )
    answers = subprocess.run([program], input=asked, capture_output=True, text=True, check=True).stdout.split()
    wrong = [
        (sm.capability, kernel, blocks, answer)
        for (sm, kernel), answer in zip(cases, answers, strict=True)
        if int(answer) != (blocks := occupancy(kernel, sm).blocks_per_sm)
    ]
    assert wrong == []


def drawn(draw: random.Random) -> Kernel:
    return Kernel(
        threads=draw.choice([32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1000, 1024]),
        registers=draw.randint(1, 255),
        static_shared_bytes=draw.choice([0, draw.randint(0, 48 * 1024)]),
        dynamic_shared_bytes=draw.choice([0, draw.randint(0, 240_000)]),
    )
