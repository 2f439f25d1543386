"""The kernel table: rows are sound, and cards get the kernel that the engine's selector picks."""

from __future__ import annotations

import pytest

from loadpath.knowledge.kernels import kernel_for, kernels


def test_rows_are_sound() -> None:
    for row in kernels():
        low, high = (tuple(map(int, text.split("."))) for text in row.capability)
        assert low <= high and row.schemes and row.engines
        assert bool(row.kernel) == bool(row.multiply and row.activations and row.accumulate), row
        assert row.kernel or row.fallback, "a refused combination says why"


@pytest.mark.parametrize(
    ("scheme", "card", "version", "kernel", "native"),
    [
        ("gptq", (9, 0), (0, 19, 0), "Machete", True),
        ("gptq", (8, 6), (0, 19, 0), "Marlin", True),
        ("gptq", (9, 0), (0, 6, 2), "Marlin", True),
        ("gptq", (7, 0), (0, 10, 0), "ExLlama", False),
        ("awq", (7, 5), (0, 10, 0), "AWQ", False),
        ("fp8", (8, 9), (0, 10, 0), "CUTLASS", True),
        ("fp8", (8, 0), (0, 10, 0), "Marlin", False),
        ("fp8-block", (9, 0), (0, 19, 0), "DeepGEMM", True),
        ("fp8-block", (8, 6), (0, 19, 0), "Marlin", False),
        ("nvfp4", (12, 0), (0, 19, 0), "CUTLASS", True),
        ("nvfp4", (9, 0), (0, 19, 0), "Marlin", False),
        ("int8", (8, 0), (0, 19, 0), "CUTLASS", True),
    ],
)
def test_linear_kernels_of_vllm(
    scheme: str, card: tuple[int, int], version: tuple[int, ...], kernel: str, native: bool
) -> None:
    row = kernel_for("vllm", scheme, "linear", card, version)
    assert row is not None and row.kernel.startswith(kernel) and (not row.fallback) == native


@pytest.mark.parametrize(("scheme", "card"), [("awq", (7, 0)), ("fp8", (7, 5)), ("int8", (7, 0)), ("nvfp4", (7, 5))])
def test_refused_combinations_have_no_kernel(scheme: str, card: tuple[int, int]) -> None:
    row = kernel_for("vllm", scheme, "linear", card, None)
    assert row is not None and row.kernel == "" and row.fallback


def test_what_the_table_does_not_know_is_none() -> None:
    assert kernel_for("vllm", "exl3", "linear", (9, 0), None) is None
    assert kernel_for("no-engine", "fp8", "linear", (9, 0), None) is None
