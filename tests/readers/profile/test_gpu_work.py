"""Intervals: unions and what they cover, against counting moments one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadpath.readers.profile.cuda_names import plain_call, role_of, short_kernel
from loadpath.readers.profile.gpu_work import Cover, gaps, length, union

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def moments(intervals: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in intervals for moment in range(start, end)}


@given(INTERVALS, st.integers(0, 50), st.integers(0, 20))
def test_a_union_covers_the_moments_of_its_intervals(intervals: list[tuple[int, int]], start: int, wide: int) -> None:
    merged = union(sorted(intervals))
    assert length(merged) == len(moments(intervals))
    window = set(range(start, start + wide))
    assert Cover(merged).within(start, start + wide) == len(moments(intervals) & window)
    assert Cover(merged).holds(start) == (start in moments(intervals))


@given(INTERVALS)
def test_gaps_and_union_fill_the_span(intervals: list[tuple[int, int]]) -> None:
    merged = union(sorted(intervals))
    if merged:
        assert length(gaps(merged)) + length(merged) == merged[-1][1] - merged[0][0]


def test_calls_are_known_by_what_they_do_to_the_order_of_work() -> None:
    assert plain_call("cudaLaunchKernelExC_v11060_ptsz") == "cudaLaunchKernelExC"
    roles = {"cudaLaunchKernel_v7000": "launch", "cuLaunchKernelEx": "launch", "cudaGraphLaunch_v10000": "graph-launch",
             "cudaStreamSynchronize": "sync", "cudaMemcpy": "sync", "cudaMemcpyAsync": "copy", "cudaFree": "allocation",
             "cuMemCreate": "allocation", "cudaEventQuery": "other", "cudaMemsetAsync": "copy", "hipModuleLaunchKernel": "launch",
             "hipMemcpyWithStream": "sync", "hipFree": "allocation"}  # fmt: skip
    assert {call: role_of(call) for call in roles} == roles


def test_a_kernel_is_called_by_its_own_name() -> None:
    assert short_kernel("void gemvx::kernel<int, __nv_bfloat16, float>(T1, T2)") == "gemvx::kernel"
    assert short_kernel("sm90_xmma_gemm_bf16bf16_bf16f32_tn_n") == "sm90_xmma_gemm_bf16bf16_bf16f32_tn_n"
    assert short_kernel("void at::native::(anonymous namespace)::fill<int>(int*)") == "at::native::anonymous::fill"
    assert (
        short_kernel("void at::native::vectorized_elementwise_kernel<(int)4, at::nat…")
        == "at::native::vectorized_elementwise_kernel"
    )
