"""Remedies of a plan that does not fit: each was planned, so each suffices."""

from __future__ import annotations

import msgspec
import pytest

from loadpath.core.report import Finding
from loadpath.forecast.commands import from_flags
from loadpath.forecast.request import PlanRefused, Request
from loadpath.forecast.service import plan


def _root(request: Request) -> Finding:
    root = plan(request).root
    assert root is not None
    return root


@pytest.mark.parametrize(("engine", "settings"), [
    ("vllm", {}), ("sglang", {}), ("tgi", {}), ("llama.cpp", {"n-gpu-layers": "99", "ctx-size": "32768"}),
])  # fmt: skip
def test_every_remedy_suffices_with_the_flags_that_it_names(engine: str, settings: dict[str, str]) -> None:
    request = Request("Qwen/Qwen3-32B", gpus=("RTX 4090",), engine=engine, settings=settings)
    root = _root(request)
    assert root.remedies
    for remedy in root.remedies:
        assert remedy.suffices
        if "weights" in remedy.action.lower() or "checkpoint" in remedy.action:
            continue  # another checkpoint: the same command with it
        changed = dict(from_flags(engine, ("model", *remedy.command.split()))[1])
        count = max(
            (int(v) for k, v in changed.items() if k in ("tensor-parallel-size", "tp-size", "num-shard")), default=1
        )
        count = remedy.command.count(",") + 1 if "-ts" in remedy.command else count
        again = plan(msgspec.structs.replace(request, settings={**settings, **changed}, count=count))
        assert again.plan is not None
        assert again.plan.fits, remedy


def test_what_frees_too_little_is_not_offered() -> None:
    """61 GiB of weights on 44 GiB: neither a share of 0.95 nor doing without graphs gives 22 GiB."""
    root = _root(Request("Qwen/Qwen3-32B", gpus=("L40S",)))
    assert not any("eager" in r.command or "utilization" in r.command for r in root.remedies)


def test_where_nothing_suffices_larger_cards_are_named() -> None:
    (only,) = _root(Request("deepseek-ai/DeepSeek-V3", gpus=("L4",))).remedies
    assert "--which-gpu" in only.command


def test_slices_of_a_card_are_not_joined() -> None:
    root = _root(Request("Qwen/Qwen3-32B", gpus=("H100 80GB 3g.40gb",)))
    assert not any("tensor-parallel" in remedy.command for remedy in root.remedies)


def test_a_plan_asks_for_no_checks_on_a_machine() -> None:
    assert _root(Request("Qwen/Qwen3-32B", gpus=("L40S",))).next_checks == ()


def test_a_card_that_the_engine_does_not_start_on_is_refused() -> None:
    with pytest.raises(PlanRefused, match=r"compute capability 6\.1"):
        plan(Request("Qwen/Qwen3-8B", gpus=("Tesla P40",)))
    assert plan(Request("Qwen/Qwen3-8B", gpus=("Tesla P40",), engine="llama.cpp")).plan
