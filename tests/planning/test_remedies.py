"""Effects of changes, computed from a start's own figures."""

from __future__ import annotations

import pytest

from loadpath.core.units import GIB, gib
from loadpath.planning import remedies as plan
from loadpath.planning.remedies import Effect, Fit

REFUSED = Fit(
    context=32768, tokens=8192, kv_bytes=gib(26.09), total_bytes=gib(95), share=0.9, weights_bytes=gib(54.12),
    activation_bytes=gib(4.38),
)  # fmt: skip


def ratio(effect: Effect | None) -> float:
    assert effect is not None
    assert effect.ratio is not None
    return effect.ratio


def test_greater_share_adds_its_part_of_the_card_and_no_more() -> None:
    effect = plan.raise_share(REFUSED, 0.95)
    assert effect is not None
    assert effect.added_bytes == pytest.approx(gib(4.75))
    assert effect.suffices is False
    assert plan.share_needed(REFUSED) == pytest.approx(1.72, abs=0.01)


def test_only_quantising_suffices_on_one_card() -> None:
    assert ratio(plan.quantise(REFUSED, 8)) < 1
    assert ratio(plan.fp8_kv(REFUSED)) == pytest.approx(0.5)
    assert ratio(plan.quantise(REFUSED, 8, kv_too=True)) == pytest.approx(1.02, abs=0.005)


def test_fp8_cache_holds_exactly_twice_the_tokens() -> None:
    effect = plan.fp8_kv(REFUSED)
    assert effect is not None
    assert effect.tokens == 16384


def test_tensor_parallel_splits_weights_and_cache() -> None:
    effect = plan.least_ranks(REFUSED)
    assert effect is not None
    assert effect.value == 2
    assert effect.kv_bytes == pytest.approx(gib(26.09 + 27.06))


def test_heads_must_divide() -> None:
    odd = Fit(kv_bytes=gib(1), needed_bytes=gib(3), weights_bytes=gib(10), heads=14)
    assert plan.tensor_parallel(odd, 4) is None
    assert plan.tensor_parallel(odd, 2) is not None


def test_kv_heads_are_copied_once_there_are_none_left_to_split() -> None:
    one_head = Fit(kv_bytes=gib(4), needed_bytes=gib(8), weights_bytes=gib(8), kv_heads=1)
    assert ratio(plan.tensor_parallel(one_head, 2)) == pytest.approx(8 / 8)


def test_quantised_weights_cannot_be_quantised_again_to_the_same_bits() -> None:
    assert plan.quantise(Fit(weights_bytes=gib(10), kv_bytes=gib(1), weight_bits=4), 4) is None


def test_fewer_tokens_in_a_step_shrink_the_peak_in_proportion() -> None:
    effect = plan.batched_tokens(REFUSED, now=8192, to=2048)
    assert effect is not None
    assert effect.added_bytes == pytest.approx(gib(4.38 * 0.75))


def test_offload_is_what_is_missing_and_never_more_than_the_weights() -> None:
    small = Fit(kv_bytes=gib(2), needed_bytes=gib(5), weights_bytes=gib(14))
    effect = plan.offload(small)
    assert effect is not None
    assert effect.value / GIB == pytest.approx(3)
    assert plan.offload(REFUSED) is None
