"""The activation peak: the tensors that the engine's code holds at once, by version."""

from __future__ import annotations

import pytest

from loadpath.core.units import GIB, MIB
from loadpath.engines.vllm.planning import experts, profile
from loadpath.engines.vllm.planning.options import options
from loadpath.knowledge.models import model
from loadpath.planning.cards import cards_of
from loadpath.planning.deployment import Deployment

HOPPER = profile.Device((9, 0), 132)


def peak(name: str, version: tuple[int, ...], gpu: str = "H100 80GB", **given: str) -> profile.Activation:
    shape = model(name)
    assert shape is not None
    settings = {key.replace("_", "-"): value for key, value in given.items()}
    device = profile.Device(cards_of(gpu)[0].capability, 132 if gpu.startswith("H") else 58)
    return profile.activation(
        shape, options(Deployment(shape, cards_of(gpu), version=version, settings=settings)), device
    )


def test_the_sampler_is_the_fullest_moment_of_a_large_vocabulary() -> None:
    shape = model("Qwen/Qwen3-14B")
    assert shape is not None
    logits = 1024 * shape.vocab
    hidden = 2 * shape.hidden * (8192 + 2 * 1024)
    # Sorting: 38 bytes a logit; in place: 14, and one 32-bit row for each of the 132 multiprocessors.
    assert peak("Qwen/Qwen3-14B", (0, 16, 0)).peak == 32 * MIB + hidden + 38 * logits
    assert peak("Qwen/Qwen3-14B", (0, 17, 0)).peak == 32 * MIB + hidden + 14 * logits + 132 * 4 * shape.vocab


def test_tensor_parallelism_does_not_divide_the_logits() -> None:
    one = peak("meta-llama/Llama-3.3-70B-Instruct", (0, 19, 0))
    four = peak("meta-llama/Llama-3.3-70B-Instruct", (0, 19, 0), tensor_parallel_size="4")
    assert one.sampler == four.sampler


def test_without_requests_to_sample_for_the_feed_forward_block_decides() -> None:
    found = peak("meta-llama/Llama-2-7b-hf", (0, 6, 6), "A100 80GB", max_num_seqs="1", max_model_len="4096")
    # Eager: residual, input and output of the block beside gate, up and their product.
    assert found.forward == 2 * 4096 * (3 * 4096 + 3 * 11008)


def test_workspaces_of_experts_stay_allocated_while_sampling() -> None:
    found = peak("mistralai/Mixtral-8x7B-Instruct-v0.1", (0, 19, 0), tensor_parallel_size="2")
    routed = 2 * 8192
    workspace = 2 * routed * (7168 + 2 * 7168)
    assert found.peak == workspace + 32 * MIB + found.sampler
    assert found.peak / GIB == pytest.approx(1.21, rel=0.01)


def test_fewer_batched_tokens_and_requests_shrink_the_peak() -> None:
    wide = peak("google/gemma-3-27b-it", (0, 19, 0))
    assert peak("google/gemma-3-27b-it", (0, 19, 0), max_num_seqs="64").peak < wide.peak
    assert peak("google/gemma-3-27b-it", (0, 19, 0), max_num_batched_tokens="2048").peak < wide.peak


def test_the_encoder_can_be_left_out() -> None:
    seen = peak("Qwen/Qwen2.5-VL-7B-Instruct", (0, 19, 0)).peak
    assert peak("Qwen/Qwen2.5-VL-7B-Instruct", (0, 19, 0), skip_mm_profiling="true").peak < seen
    limits = '{"image": 0, "video": 0}'
    assert peak("Qwen/Qwen2.5-VL-7B-Instruct", (0, 19, 0), limit_mm_per_prompt=limits).peak < seen


def test_the_second_runner_samples_from_16_bit_logits() -> None:
    first, second = peak("Qwen/Qwen3-14B", (0, 21, 0)), peak("Qwen/Qwen3-14B", (0, 29, 0))
    assert second.sampler < first.sampler / 4
    assert second.peak == second.kept + second.forward


def test_only_the_last_pipeline_stage_samples() -> None:
    shape = model("Qwen/Qwen3-14B")
    assert shape is not None
    o = options(Deployment(shape, cards_of("2x H100 80GB"), settings={"pipeline-parallel-size": "2"}))
    assert profile.activation(shape, o, HOPPER, last_stage=False).sampler == 0


@pytest.mark.parametrize(
    ("name", "gpu", "version", "given", "kept"),
    [
        ("Qwen/Qwen3-30B-A3B", "H100 80GB", (0, 19, 0), {}, "routed"),
        ("Qwen/Qwen3-30B-A3B", "B200", (0, 30, 0), {}, "none"),
        ("Qwen/Qwen3-30B-A3B", "RTX PRO 6000", (0, 30, 0), {}, "outputs"),
        ("Qwen/Qwen3-30B-A3B-FP8", "H100 80GB", (0, 19, 0), {}, "routed"),
        ("Qwen/Qwen3-30B-A3B-FP8", "H100 80GB", (0, 19, 0), {"enable_expert_parallel": "true"}, "outputs"),
        ("openai/gpt-oss-20b", "H100 80GB", (0, 19, 0), {}, "none"),
        ("openai/gpt-oss-20b", "A100 80GB", (0, 19, 0), {}, "routed"),
    ],
)
def test_the_experts_kernel_decides_what_is_kept(
    name: str, gpu: str, version: tuple[int, ...], given: dict[str, str], kept: str
) -> None:
    shape = model(name)
    assert shape is not None
    settings = {key.replace("_", "-"): value for key, value in given.items()}
    o = options(Deployment(shape, cards_of(gpu), version=version, settings=settings))
    assert experts.buffers(shape, experts.routing(o), cards_of(gpu)[0].capability or (0, 0)) == kept


def test_the_first_engine_samples_nothing_where_prompts_are_divided() -> None:
    # A context of 131,072 tokens divides prompts by default: 512 tokens a step in 0.6.4, 2,048 from 0.6.5 on.
    early, late = (peak("meta-llama/Llama-3.1-8B-Instruct", version, "A10") for version in ((0, 6, 4), (0, 7, 3)))
    assert early.sampler == late.sampler == 0
    assert late.forward == 4 * early.forward
    assert late.peak == pytest.approx(0.22 * GIB, rel=0.02)
    assert peak("meta-llama/Llama-3.1-8B-Instruct", (0, 7, 3), "A10", max_model_len="8192").sampler > late.peak
