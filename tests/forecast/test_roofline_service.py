"""The services behind `loadpath roofline` and `loadpath occupancy`: names, notes, refusals, JSON."""

from __future__ import annotations

import json

import msgspec
import pytest

from loadpath.forecast.occupancy import OccupancyRefused, answer
from loadpath.forecast.occupancy import to_document as occupancy_document
from loadpath.forecast.roofline import RooflineRefused, board, given_roof, roofline, roofs_of, to_document
from loadpath.planning.occupancy import Kernel
from loadpath.planning.roofline import Work

DECODE = Work(name="decode", flops=29e9, bytes=29.3e9)


def test_a_cards_roofs_say_where_they_come_from() -> None:
    roofs, notes = roofs_of(board("rtx-5090"), ("bf16", "fp8"))
    assert [roof.name for roof in roofs] == ["GeForce RTX 5090 bf16", "GeForce RTX 5090 fp8"]
    assert roofs[0].ridge_flops_per_byte == pytest.approx(116.9, abs=0.1)
    assert roofs[0].source and roofs[0].confidence
    assert "sparse" in notes[-1]


@pytest.mark.parametrize(
    ("card", "dtype", "says"),
    [
        ("a100-sxm4-80", "fp8", "from 8.9 on. It has: bf16, fp16, int8"),
        ("a100-sxm4-80", "awq", "multiplied in 16 bits"),
        ("no-such-card", "bf16", "no-such-card"),
        ("24GiB", "bf16", "one card of the GPU table"),
        ("A100 80GB 3g.40gb", "bf16", "no rates of slices"),
    ],
)
def test_what_cannot_be_drawn_is_refused(card: str, dtype: str, says: str) -> None:
    with pytest.raises(RooflineRefused, match=says):
        roofs_of(board(card), (dtype,))


def test_cards_by_the_names_that_people_write() -> None:
    assert board("H100 80GB").id == "h100-sxm-80"
    assert board("RTX 5090").capability == "12.0"


def test_energy_is_of_the_floor_at_the_boards_limit_and_says_so() -> None:
    gpu = board("rtx-5090")
    roofs, _ = roofs_of(gpu, ("bf16",))
    made = roofline(roofs, (DECODE,), gpu=gpu)
    assert made.energy["decode"].basis == "limit"
    assert made.energy["decode"].joules_per_run == pytest.approx(575 * 29.3e9 / 1792e9)
    assert any("--watts" in note for note in made.notes)
    batch = roofline(roofs, (DECODE,), gpu=gpu, tokens=64).energy["decode"]
    assert batch.joules_per_token == pytest.approx(made.energy["decode"].joules_per_run / 64)
    measured = roofline(roofs, (DECODE,), gpu=gpu, watts=400)
    assert (measured.energy["decode"].basis, measured.notes) == ("given", ())


def test_a_power_limit_slows_by_what_was_published() -> None:
    gpu = board("rtx-5090")
    roofs, _ = roofs_of(gpu, ("bf16",))
    gemm = Work(name="gemm", flops=100e12, bytes=1e9)
    made = roofline(roofs, (DECODE, gemm), gpu=gpu, power_limit=450)
    decode, compute = made.capped
    assert 1 <= decode.most_seconds / decode.seconds < 1.1
    assert compute.most_seconds / compute.seconds > decode.most_seconds / decode.seconds
    below = roofline(roofs, (DECODE,), gpu=gpu, power_limit=450, watts=300)
    assert below.capped == ()
    assert "changes nothing" in below.notes[-1]
    with pytest.raises(RooflineRefused, match="needs --gpu"):
        roofline((given_roof(90e12, 4e12),), (DECODE,), power_limit=300)


def test_the_document_names_its_units() -> None:
    made = roofline((given_roof(90e12, 4e12),), (Work(name="kernel", flops=60e12, bytes=6e12),))
    body = json.loads(msgspec.json.encode(to_document(made)))["roofline"]
    assert body["roofs"][0]["ridge_flops_per_byte"] == 22.5
    (work,) = body["work"]
    assert (work["attainable_flops_per_s"], work["bound"]) == (40e12, "bandwidth-bound")
    assert work["intensity_flops_per_byte"] == 10


def test_occupancy_of_a_card_a_capability_or_all() -> None:
    kernel = Kernel(threads=256, registers=64)
    card = answer(kernel, gpu="h100-sxm-80", capability=None, grid=1000)
    assert card.waves is not None
    assert (card.waves.blocks_at_once, card.waves.count) == (528, 2)
    assert card.waves.busy_share == pytest.approx(1000 / 1056)
    assert answer(kernel, gpu=None, capability="sm_90", grid=None).found == card.found
    assert len(answer(kernel, gpu=None, capability=None).found) > 10
    assert occupancy_document(card)["occupancy"]["found"][0]["warps_per_sm"] == 32


@pytest.mark.parametrize(
    ("gpu", "capability", "grid", "says"),
    [
        ("h100-sxm-80", "9.0", None, "give one"),
        (None, "9.0", 5, "needs --gpu"),
        (None, "5.0", None, "no limits are known"),
    ],
)
def test_occupancy_refuses_what_makes_no_sense(
    gpu: str | None, capability: str | None, grid: int | None, says: str
) -> None:
    with pytest.raises(OccupancyRefused, match=says):
        answer(Kernel(threads=32, registers=32), gpu=gpu, capability=capability, grid=grid)
