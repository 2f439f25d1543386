"""Kernels measured by Nsight Compute, judged; a kernel's own limits are not those of the next one."""

from __future__ import annotations

from typing import Any

from loadpath.core.case import Case
from loadpath.core.facts.profile import KernelProfile
from loadpath.core.report import Finding
from loadpath.core.text import Span
from loadpath.diagnosis.profile.inside import judge

FIGURES = {"seconds": 800e-6, "memory": 0.31, "compute": 0.28, "dram": 0.14}


def launch(name: str = "my_kernel", line: int = 1, **more: Any) -> KernelProfile:
    fields: dict[str, Any] = {
        "figures": FIGURES,
        "blocks": 4096,
        "threads": 256,
        "capability": "8.9",
        "number": 0,
    } | more
    return KernelProfile(span=Span("k.csv", line, line), text=f"launch of {name}", name=name, **fields)


def found(*launches: KernelProfile) -> dict[str, Finding]:
    return {f.id: f for f in judge(Case(launches))}


def test_a_kernel_at_its_roof_is_well_and_needs_fewer_bytes() -> None:
    at_roof = found(
        launch(figures={"seconds": 45e-6, "memory": 0.92, "dram": 0.92, "compute": 0.08, "dram_rate": 271e9})
    )
    assert set(at_roof) == {"ncu-near-roof"}
    assert "Only fewer bytes" in at_roof["ncu-near-roof"].cause and "271 GB/s (92 %" in at_roof["ncu-near-roof"].cause


def test_the_floor_of_a_known_card_is_computed() -> None:
    figures = {"seconds": 20e-3, "memory": 0.85, "dram": 0.85, "compute": 0.1, "dram_bytes": 27.31 * 2**30}
    cause = found(launch(figures=figures, gpu="NVIDIA GeForce RTX 5090"))["ncu-near-roof"].cause
    assert "27.31 GiB at 1,792 GB/s" in cause and "16.4 ms, 82 % of the time" in cause


def test_a_waiting_kernel_names_its_stall_and_what_shortens_it() -> None:
    stalls = {"long_scoreboard": 8.4, "barrier": 1.1}
    waits = found(launch(stalls=stalls, figures=FIGURES | {"issue_cycles": 12.0}))["ncu-latency-bound"]
    assert "8.4 cycles between two instructions, 70 %" in waits.cause and waits.certainty == "likely"
    assert "loads in flight" in waits.remedies[0].action


def test_an_occupancy_limiter_comes_with_the_registers_that_would_let_in_more() -> None:
    figures = FIGURES | {"occupancy_theoretical": 1 / 3, "limit_registers": 2, "limit_warps": 6, "registers": 128}
    limited = found(launch(figures=figures))["ncu-occupancy"]
    assert limited.severity == "info" and "limited by registers" in limited.title
    assert limited.remedies[0].command == "__launch_bounds__(256, 3) or nvcc -maxrregcount 80"


def test_low_occupancy_of_a_kernel_at_its_roof_is_not_mentioned() -> None:
    figures = {"memory": 0.9, "compute": 0.5, "occupancy_theoretical": 0.25, "limit_registers": 1, "limit_warps": 6}
    assert "ncu-occupancy" not in found(launch(figures=figures))


def test_a_small_grid_speaks_for_its_own_kernel_alone() -> None:
    small = launch("tail", 2, blocks=4, figures=FIGURES | {"sms": 58.0, "seconds": 3e-6})
    both = found(launch("wide", figures=FIGURES | {"sms": 58.0}), small)
    assert both["ncu-small-grid"].title.startswith("tail has 4 blocks for 58 SMs")
    assert both["ncu-latency-bound"].title.startswith("wide ")
    assert set(found(small)) == {"ncu-small-grid"}


def test_wide_loads_have_many_sectors_and_are_coalesced_all_the_same() -> None:
    assert "ncu-uncoalesced" not in found(launch(figures=FIGURES | {"sectors_per_request_ld": 16.0}))
    strided = found(launch(figures=FIGURES | {"sectors_per_request_ld": 31.5}))["ncu-uncoalesced"]
    assert "at most 51 %" in strided.title
    measured = found(launch(figures=FIGURES | {"sectors_per_request_st": 8.0, "store_efficiency": 0.125}))
    assert measured["ncu-uncoalesced"].title == "my_kernel uses 12 % of the bytes that its global stores move"


def test_tensor_cores_are_missed_only_where_they_were_counted_and_matrices_multiplied() -> None:
    none = FIGURES | {"tensor_instructions": 0.0}
    assert "ncu-no-tensor-cores" in found(launch("ampere_sgemm_128x64_tn", figures=none))
    assert "ncu-no-tensor-cores" not in found(launch("ampere_s16816gemm_bf16_128x64", figures=none))
    assert "ncu-no-tensor-cores" not in found(launch("ampere_sgemm_128x64_tn"))
    assert "ncu-no-tensor-cores" not in found(launch("gemv2T_kernel_val", figures=none))
    assert "ncu-no-tensor-cores" not in found(launch("rms_norm_kernel", figures=none))
    assert "ncu-no-tensor-cores" not in found(launch("ampere_bf16_gemm", figures=none | {"tensor": 0.4}))


def test_conflicts_divergence_and_spills_have_their_figures() -> None:
    figures = FIGURES | {
        "bank_conflicts_ld": 1.2e6, "wavefronts_ld": 3e6, "threads_per_warp": 9.5, "spills": 4096.0, "registers": 255.0,
    }  # fmt: skip
    made = found(launch(figures=figures))
    assert "40 %" in made["ncu-bank-conflicts"].title
    assert "9.5 of 32 threads" in made["ncu-divergence"].title and "70 %" in made["ncu-divergence"].cause
    assert "4,096 requests" in made["ncu-spills"].title
    quiet = FIGURES | {"bank_conflicts_ld": 1e5, "wavefronts_ld": 3e6, "threads_per_warp": 31.0, "spills": 0.0}
    assert set(found(launch(figures=quiet))) == {"ncu-latency-bound"}


def test_the_longest_launch_stands_for_its_kernel() -> None:
    quick = launch(line=1, figures={"seconds": 1e-6, "memory": 0.01, "compute": 0.01})
    slow = launch(line=2, figures={"seconds": 9e-6, "memory": 0.9, "compute": 0.2})
    assert set(found(quick, slow)) == {"ncu-near-roof"}


def test_a_counter_that_may_not_hold_the_newest_instructions_makes_it_likely_only() -> None:
    none = FIGURES | {"tensor_instructions": 0.0}
    assert found(launch("naive_sgemm", figures=none))["ncu-no-tensor-cores"].certainty == "established"
    assert found(launch("naive_sgemm", figures=none, capability="9.0"))["ncu-no-tensor-cores"].certainty == "likely"
    assert "ncu-no-tensor-cores" not in found(launch("sm90_xmma_gemm_bf16", figures=none, capability="9.0"))
