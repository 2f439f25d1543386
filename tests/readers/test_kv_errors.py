"""Refusals for want of KV memory and free memory → figures, each alone in a paste."""

from __future__ import annotations

from typing import TypeVar

import pytest

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import Concurrency, KvShortfall, ModelNamed, Setting
from loadpath.core.facts.errors import FreeBelowDesired, MemoryChangedWhileProfiling
from loadpath.core.facts.memory import BrokenOff, MemoryUnbalanced, NoRoomForKv, ProfiledItems, WarmUpShortage
from loadpath.core.text import Capture
from loadpath.core.units import gib
from loadpath.intake.clean import clean
from loadpath.readers import kv_errors
from loadpath.readers.python import broken_traceback, python_calls

F = TypeVar("F", bound=Fact)


def capture(text: str) -> Capture:
    return Capture("log", "paste", tuple(clean(text.encode())))


def only(kind: type[F], text: str) -> F:
    facts = list(kv_errors.read(capture(text)))
    assert len(facts) == 1, facts
    assert isinstance(facts[0], kind)
    return facts[0]


@pytest.mark.parametrize("unit", ["GB", "GiB"])
@pytest.mark.parametrize("possessive", ["models's", "model's"])
def test_shortfall_in_bytes_of_every_wording(unit: str, possessive: str) -> None:
    fact = only(KvShortfall, f"ValueError: To serve at least one request with the {possessive} max seq len (65536), (8.00 {unit} KV "
                f"cache is needed, which is larger than the available KV cache memory (5.10 {unit}). Based on the available memory, "
                "the estimated maximum model length is 41776. Try increasing")  # fmt: skip
    assert (fact.asked_tokens, fact.needed_bytes, fact.available_bytes, fact.estimated_tokens) == (
        65536, gib(8), gib(5.1), 41776,
    )  # fmt: skip


def test_shortfall_in_tokens_even_when_the_end_is_cut() -> None:
    fact = only(KvShortfall, "ValueError: The model's max seq len (16384) is larger than the maximum number of tokens that can be "
                "stored in KV cache (12064). Try increasing gpu_memory")  # fmt: skip
    assert (fact.asked_tokens, fact.held_tokens) == (16384, 12064)


def test_wrapped_over_lines() -> None:
    fact = only(KvShortfall, "ValueError: The model's max seq len (16384) is larger than the maximum number of\n"
                "tokens that can be stored in KV cache (12064).")  # fmt: skip
    assert fact.held_tokens == 12064


@pytest.mark.parametrize(
    ("text", "engine", "pool"),
    [
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "vllm", "kv"),
        ("ValueError: Cannot auto-fit max_model_len: not enough GPU memory available", "vllm", "kv"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "sglang", "kv"),
        ("Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed max_mamba_cache_size=0", "sglang", "state"),
        ("maxTokensInPagedKvCache must be large enough to process at least 1 sequence to completion", "tensorrt-llm", "kv"),
        ("Executor creation failed due to insufficient GPU memory.", "tensorrt-llm", "kv"),
        ("RuntimeError: No enough gpu memory for kv cache.", "lmdeploy", "kv"),
        ("RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease", "tgi", "prefill"),
    ],
)  # fmt: skip
def test_no_room_in_every_engines_words(text: str, engine: str, pool: str) -> None:
    fact = only(NoRoomForKv, text)
    assert (fact.engine, fact.pool) == (engine, pool)


def test_sglang_says_the_least_fraction() -> None:
    fact = only(NoRoomForKv, "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.55. "
                "Raise --mem-fraction-static above 0.612 (minimum viable")  # fmt: skip
    assert (fact.fraction, fact.least_fraction) == (0.55, 0.612)


def test_triton_config_beside_the_message_gives_the_fraction() -> None:
    fact = only(NoRoomForKv, "maxTokensInPagedKvCache must be large enough to process at least 1 sequence to completion\n"
                "kv_cache_free_gpu_mem_fraction:0.1,enable_trt_overlap:false")  # fmt: skip
    assert fact.fraction == 0.1


@pytest.mark.parametrize("device", ["", " cuda:3"])
def test_free_below_desired(device: str) -> None:
    fact = only(FreeBelowDesired, f"ValueError: Free memory on device{device} (28.10/31.36 GiB) on startup is less than desired GPU "
                "memory utilization (0.9, 28.23 GiB). Decrease GPU memory utilization")  # fmt: skip
    assert (fact.free_bytes, fact.desired_bytes, fact.utilisation) == (gib(28.1), gib(28.23), 0.9)
    assert fact.device == (3 if device else None)


@pytest.mark.parametrize(
    ("text", "first", "now"),
    [
        ("Error in memory profiling. Initial free memory 40.00 GiB, current free memory 44.10 GiB.", gib(40), gib(44.1)),
        ("Error in memory profiling. Initial free memory 23471128576, current free memory 24561123328.", 23471128576, 24561123328),
        ("Error in memory profiling. Initial used memory 1073741824, currently used memory 536870912.", 1 << 30, 1 << 29),
    ],
)  # fmt: skip
def test_memory_that_changed_while_profiling(text: str, first: int, now: int) -> None:
    fact = only(MemoryChangedWhileProfiling, f"AssertionError: {text}")
    assert (fact.initial_bytes, fact.current_bytes) == (first, now)


def test_other_memory_lines() -> None:
    assert (
        only(WarmUpShortage, "CUDA out of memory occurred when warming up sampler with 512 dummy requests.").requests
        == 512
    )
    items = only(ProfiledItems, "(max_num_batched_tokens / max_num_seqs = 8192) is too short to hold the multi-modal embeddings in "
                 "the worst case (24576 tokens in total, out of which {'image': 16384, 'video': 8192} are reserved")  # fmt: skip
    assert items.items == (("image", 16384), ("video", 8192))
    budget = only(
        ProfiledItems,
        "Encoder cache will be initialized with a budget of 16384 tokens, and profiled with 3 image items",
    )
    assert budget.counts == (("image", 3),)
    assert only(MemoryUnbalanced, "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
                "pre_model_load_memory=22.5, local_gpu_memory=78.5, x").least_bytes == gib(22.5)  # fmt: skip
    trap = only(
        Concurrency, "KV pool holds 1024 tokens, fewer than --context-length 4096. One full-length request cannot fit"
    )
    assert trap.ratio == 0.25


def test_traceback_without_its_exception() -> None:
    cut = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/v/llm_engine.py", line 3, in determine_num_available_blocks'
    fact = next(iter(broken_traceback.read(capture(cut))))
    assert isinstance(fact, BrokenOff)
    assert fact.phase == "profiling"
    whole = cut + "\nValueError: something"
    assert list(broken_traceback.read(capture(whole))) == []


@pytest.mark.parametrize(
    "text",
    ["pipe = pipeline('/models/Some-40B', backend_config=x)", "AutoModel.from_pretrained('/models/Some-40B')",
     "python deploy.py --model_type /models/Some-40B"],
)  # fmt: skip
def test_model_named_in_code(text: str) -> None:
    named = [f for f in python_calls.read(capture(text)) if isinstance(f, ModelNamed)]
    assert named[0].name == "/models/Some-40B"


def test_settings_of_a_python_call_over_several_lines() -> None:
    text = 'llm = LLM(\n    model="org/model-14b",\n    gpu_memory_utilization=0.95,\n    max_model_len=32768,\n    enforce_eager=True)\n'
    settings = {f.name: f.value for f in python_calls.read(capture(text)) if isinstance(f, Setting)}
    assert settings == {"gpu-memory-utilization": "0.95", "max-model-len": "32768", "enforce-eager": "True"}
