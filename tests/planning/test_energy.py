"""Energy of a token, and what published sweeps say of a power limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadpath.knowledge.gpus import Gpu, by_id
from loadpath.knowledge.power import Kind, sweeps
from loadpath.planning.energy import cap, cap_effect, decode_draws, energy

KINDS: tuple[Kind, ...] = ("decode", "speculative", "compute")


def card(id: str) -> Gpu:
    found = by_id(id)
    assert found is not None
    return found


def test_watts_times_time() -> None:
    made = energy(tokens_per_s=61.0, watts=575, basis="limit")
    assert made.joules_per_token == pytest.approx(9.43, abs=0.01)
    assert made.tokens_per_kwh == pytest.approx(381_913, rel=1e-3)


def test_a_cap_hardly_touches_decode_and_costs_compute_more() -> None:
    made = cap(card("rtx-5090"), 460)
    decode, compute = made.effect("decode"), made.effect("compute")
    assert made.share == pytest.approx(0.8)
    assert decode is not None and compute is not None
    assert decode.least > compute.least
    assert compute.cards == ("RTX 3090",)
    fast, slow = decode.slowed(0.0164)
    assert 0.0164 <= fast <= slow < 0.0164 / 0.9


def test_nobody_measured_so_low() -> None:
    assert cap_effect(0.2, "decode") is None
    assert cap_effect(0.5, "speculative") is None


def test_a_limit_that_the_board_does_not_take_is_refused() -> None:
    assert "400 to 600 W" in cap(card("rtx-5090"), 300).refused
    assert cap(card("rtx-5090"), 450).refused == ""


def test_a_limit_above_the_boards_changes_nothing() -> None:
    made = cap(card("h100-sxm-80"), 900)
    assert made.share == 1
    assert all(effect.least == effect.most == 1 for effect in made.effects)


@given(st.floats(0.3, 1.0), st.floats(0, 0.5), st.sampled_from(KINDS))
def test_a_lower_limit_is_never_faster(share: float, less: float, work: Kind) -> None:
    higher, lower = cap_effect(share, work), cap_effect(share * (1 - less), work)
    if higher and lower:
        assert lower.least <= higher.least + 1e-9


def test_the_sweeps_are_sane() -> None:
    for sweep in sweeps():
        assert all(watts < sweep.full_w and 0 < speed <= 1 for watts, speed in sweep.points), sweep.source
        speeds = [speed for _, speed in sorted(sweep.points)]
        assert speeds == sorted(speeds), sweep.source
    assert all(0 < least <= most <= 1.01 for _, least, most in decode_draws())
