"""Cards by the names that people write."""

from __future__ import annotations

import pytest

from loadpath.core.units import GIB, MIB
from loadpath.knowledge.gpus import gpus
from loadpath.planning.cards import CardUnknown, card, card_of, cards_of, near
from loadpath.planning.deployment import Card


@pytest.mark.parametrize(
    ("text", "id", "gib"),
    [
        ("H100 80GB", "h100-sxm-80", 79.19),
        ("H100", "h100-sxm-80", 79.19),
        ("NVIDIA H100 PCIe", "h100-pcie", 79.19),
        ("A100-80GB", "a100-sxm4-80", 79.25),
        ("A100 40GB", "a100-sxm4-40", 39.49),
        ("L4 24GB", "l4", 22.03),
        ("RTX 3090 (NVLink)", "rtx-3090", 23.58),
        ("RTX3090", "rtx-3090", 23.58),
        ("4090", "rtx-4090", 23.55),
        ("RTX 5070 Ti", "rtx-5070-ti", 15.47),
        ("DGX Spark GB10", "gb10", 119.7),
        ("DGX Spark GB10 (121.63 GiB)", "gb10", 121.63),
        ("V100 32GB (suspected)", "v100-sxm2-32", 31.74),
        ("RTX A6000 48GB", "rtx-a6000", 47.53),
        ("RTX PRO 6000", "rtx-pro-6000-ws", 94.97),
        ("h200-sxm", "h200-sxm", 139.81),
    ],
)
def test_a_board_by_its_name(text: str, id: str, gib: float) -> None:
    (found,) = cards_of(text)
    assert found.id == id
    assert found.total_bytes / GIB == pytest.approx(gib, abs=0.01)


def test_every_board_is_found_by_its_id() -> None:
    for gpu in gpus():
        assert card_of(gpu).total_bytes <= gpu.memory_gb * GIB
        assert cards_of(gpu.id)[0].id == gpu.id


def test_several_cards_and_mixtures() -> None:
    assert [one.id for one in cards_of("2x L4")] == ["l4", "l4"]
    assert len(cards_of("H100 80GB HBM3 x8")) == 8
    assert [one.id for one in cards_of("RTX 5070 Ti 16GB + RTX 5090 D 32GB")] == ["rtx-5070-ti", "rtx-5090-d"]


def test_plain_memory_is_a_card_without_a_name() -> None:
    (found,) = cards_of("24GiB")
    assert (found.total_bytes, found.id, found.assumed) == (24 * GIB, "", True)
    assert cards_of("24GB card (23.55 GiB)")[0].total_bytes == round(23.55 * GIB)


def test_a_board_that_was_rebuilt_with_more_memory_has_it() -> None:
    (found,) = cards_of("RTX 4090D 48GB")
    assert (found.id, found.assumed) == ("rtx-4090-d", True)
    assert found.total_bytes == pytest.approx(47.55 * GIB, rel=0.001)
    with pytest.raises(CardUnknown, match="H100"):
        cards_of("H100 48GB")


def test_a_slice_has_the_memory_of_its_slices() -> None:
    (found,) = cards_of("H100 80GB 3g.40gb")
    assert found.total_bytes == pytest.approx(39.5 * GIB, rel=0.01)
    assert found.link_bytes_per_s is None
    with pytest.raises(CardUnknown, match=r"no MIG profile 5g\.40gb; it has 1g\.10gb"):
        cards_of("H100 80GB 5g.40gb")


def test_an_unknown_or_ambiguous_name_is_answered_with_near_ones() -> None:
    with pytest.raises(CardUnknown, match="several sizes"):
        cards_of("V100")
    with pytest.raises(CardUnknown, match="near names: "):
        cards_of("RTX 3095")
    assert "RTX 3090 24GB" in near("RTX 3090 Super")
    assert isinstance(card("L4"), Card)
    assert not isinstance(card("RTX 3095"), Card)


def test_another_makers_card_is_taken_by_its_memory() -> None:
    assert cards_of("MI300X")[0].total_bytes == 192 * GIB


def test_a_total_is_less_than_the_board_prints() -> None:
    for gpu in gpus():
        if gpu.cuda_total_mib and gpu.memory_mib and not gpu.unified_memory:
            assert 0.9 * max(gpu.memory_mib) < gpu.cuda_total_mib < max(gpu.memory_mib), gpu.id
            assert card_of(gpu).total_bytes == gpu.cuda_total_mib * MIB
