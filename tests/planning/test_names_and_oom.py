"""What names and out-of-memory figures say."""

from __future__ import annotations

import pytest

from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.text import Span
from loadpath.core.units import GIB, gib, mib
from loadpath.planning.names import model_of
from loadpath.planning.oom import holders, shortage

SPAN = Span("log", 1, 1)


@pytest.mark.parametrize(
    ("name", "billions", "bits"),
    [
        ("Qwen/Qwen3-32B", 32, 16),
        ("org/Some-Coder-30B-A3B-Instruct-FP8", 30, 8),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 56, 16),
        ("Some-8B-Instruct-1048k", 8, 16),
        ("org/Model-70B-Instruct-AWQ", 70, 4),
        ("model-0.6b", 0.6, 16),
    ],
)
def test_size_by_name(name: str, billions: float, bits: int) -> None:
    model = model_of(name)
    assert model is not None
    assert model.parameters == pytest.approx(billions * 1e9)
    assert model.stored_bits == bits


def test_names_without_a_size() -> None:
    assert model_of("org/some-model") is None
    assert model_of(None) is None


def oom(**fields: object) -> OutOfMemory:
    return OutOfMemory(span=SPAN, requested_bytes=mib(512), total_bytes=gib(24), free_bytes=mib(100), **fields)  # type: ignore[arg-type]


def test_own_process_under_its_pid_on_the_host_is_no_other_process() -> None:
    seen = oom(allocated_bytes=gib(21), reserved_unallocated_bytes=mib(90), others=((4711, gib(23.5)),))
    assert holders(seen).own_pid == 4711
    assert holders(seen).others == ()
    assert shortage(seen) == "true"


def test_another_process_that_holds_gigabytes() -> None:
    seen = oom(allocated_bytes=gib(8), own_bytes=gib(8.6), others=((99, gib(15)),))
    assert shortage(seen) == "other-process"


def test_somebody_not_named_holds_the_card() -> None:
    seen = oom(allocated_bytes=gib(2), own_bytes=gib(2.5), reserved_unallocated_bytes=mib(20))
    assert shortage(seen) == "unseen-holder"
    unnamed = holders(seen).unnamed
    assert unnamed is not None
    assert unnamed / GIB == pytest.approx(21.4, abs=0.01)


@pytest.mark.parametrize(("idle", "kind"), [(gib(6), "fragmented"), (mib(200), "true")])
def test_pieces_count_when_they_are_more_than_was_asked(idle: int, kind: str) -> None:
    seen = oom(allocated_bytes=gib(23) - idle, own_bytes=gib(23.8), reserved_unallocated_bytes=idle)
    assert shortage(seen) == kind


def test_a_cut_message_tells_nothing_of_who_holds_the_card() -> None:
    assert holders(oom(others=((12, gib(20)),))).others == ()
