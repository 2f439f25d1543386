"""Memory that was not free at the start, or that changed under the engine."""

from __future__ import annotations

from conftest import read_text
from loadpath.core.report import Finding


def root(text: str) -> Finding:
    report = read_text(text)
    assert report.root is not None
    return report.root


def refused(free: float, total: float, share: float) -> str:
    return (
        f"ValueError: Free memory on device cuda:0 ({free}/{total} GiB) on startup is less than desired GPU memory utilization "
        f"({share}, {total * share:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n"
    )


def test_a_little_short_asks_for_what_is_free() -> None:
    found = root(refused(28.10, 31.36, 0.9))
    assert "3.26 GiB is in use already" in found.cause
    assert found.remedies[0].command == "--gpu-memory-utilization 0.89"


def test_held_by_another_process_is_freed_first() -> None:
    found = root(refused(50.20, 79.10, 0.9))
    assert "28.90 GiB" in found.remedies[0].action
    assert found.remedies[-1].command == "--gpu-memory-utilization 0.63"


def test_a_full_card_is_no_place_to_share() -> None:
    found = root(refused(1.20, 139.80, 0.5))
    assert not any("memory-utilization" in r.command for r in found.remedies)


def test_launcher_with_stages() -> None:
    found = root(
        "CUDA_VISIBLE_DEVICES=0 vllm serve org/Some-Omni-30B --omni --port 8000\n" + refused(1.20, 139.80, 0.5)
    )
    assert "stage" in found.remedies[0].action


def test_memory_released_by_others_is_no_shortage() -> None:
    found = root(
        "AssertionError: Error in memory profiling. Initial free memory 40.00 GiB, current free memory 44.10 GiB. This happens when "
        "other processes sharing the same container release GPU memory while vLLM is profiling during initialization.\n"
    )
    assert found.id == "gpu-memory-changed-while-profiling"
    assert "released" in found.title
    assert "4.10 GiB more" in found.cause
