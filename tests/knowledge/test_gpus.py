"""The GPU table: whole, and found by what tools print."""

from __future__ import annotations

import pytest

from loadpath.knowledge.gpus import by_id, by_name, by_pci_id, generation_of, generations, gpus


def test_ids_are_unique_and_figures_sane() -> None:
    ids = [gpu.id for gpu in gpus()]
    assert len(ids) == len(set(ids)) and len(ids) > 90
    for gpu in gpus():
        assert gpu.bandwidth_gbs > 0 and gpu.tdp_w > 0 and gpu.memory_gb > 0 and gpu.source, gpu.id
        assert all(0.8 * gpu.memory_gb * 1024 < mib < 1.05 * gpu.memory_gb * 1024 for mib in gpu.memory_mib), gpu.id
        if gpu.bandwidth_gbs and gpu.pci_ids:
            assert generation_of(gpu.pci_ids[0]) is not None, f"{gpu.id}: no generation for {gpu.pci_ids[0]}"


def test_pci_ids_lie_in_their_generation() -> None:
    for gpu in gpus():
        for device in gpu.pci_ids:
            found = generation_of(device)
            assert found is not None and gpu.architecture.startswith(found.architecture), (gpu.id, device)
            assert (
                gpu.min_branch is None
                or gpu.min_branch >= found.min_branch
                or found.architecture in ("Hopper", "Ada Lovelace")
            )


@pytest.mark.parametrize(
    ("name", "mib", "id"),
    [
        ("NVIDIA H100 80GB HBM3", None, "h100-sxm-80"),
        ("A100-SXM4-40GB", None, "a100-sxm4-40"),
        ("NVIDIA A100-SXM...", 81920, "a100-sxm4-80"),
        ("NVIDIA A100-SXM...", None, None),
        ("GeForce RTX 3090", None, "rtx-3090"),
        ("NVIDIA RTX PRO 6000 Blac...", 97887, None),
        ("RTX PRO 6000 Blackwell Workstation Edition", None, "rtx-pro-6000-ws"),
        ("NVIDIA vGPU-48GB", 49140, None),
    ],
)
def test_by_name_whole_cut_and_unknown(name: str, mib: int | None, id: str | None) -> None:
    found = by_name(name, mib)
    assert (found.id if found else None) == id


def test_by_id_pci_id_and_memory() -> None:
    board = by_pci_id("0x2BB1")
    assert board is not None and board.id == "rtx-pro-6000-ws" and board.min_branch == 570
    assert by_id("l40s") is by_name("NVIDIA L40S")


def test_generations() -> None:
    blackwell = generation_of("2bb1")
    assert blackwell is not None and (blackwell.architecture, blackwell.min_branch, blackwell.modules) == (
        "Blackwell",
        570,
        "open",
    )
    laptop = generation_of(None, "AD103M / GN21-X11 [GeForce RTX 4090 Laptop GPU]")
    assert laptop is not None and laptop.architecture == "Ada Lovelace"
    assert generation_of("ffff") is None and generation_of() is None
    assert {row.architecture for row in generations()} >= {"Pascal", "Volta", "Turing", "Ampere", "Hopper", "Blackwell"}
