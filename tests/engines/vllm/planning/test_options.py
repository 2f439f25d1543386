"""Settings with the defaults of each vLLM version and card."""

from __future__ import annotations

import pytest

from loadpath.core.units import GIB
from loadpath.engines.vllm.planning.graphs import capture_sizes, graph_counts
from loadpath.engines.vllm.planning.options import BadSetting, Options, options
from loadpath.knowledge.models import model
from loadpath.planning.cards import cards_of
from loadpath.planning.deployment import Deployment


def opts(version: tuple[int, ...] | None, gpu: str = "H100 80GB", name: str = "Qwen/Qwen3-8B", **given: str) -> Options:
    shape = model(name)
    assert shape is not None
    settings = {key.replace("_", "-"): value for key, value in given.items()}
    return options(Deployment(shape, cards_of(gpu), version=version, settings=settings))


@pytest.mark.parametrize(
    ("gpu", "version", "tokens", "seqs"),
    [
        ("H100 80GB", (0, 19, 0), 8192, 1024),
        ("A100 80GB", (0, 19, 0), 2048, 256),
        ("A100 80GB", (0, 8, 5), 8192, 1024),
        ("L4 24GB", (0, 19, 0), 2048, 256),
        ("L4 24GB", (0, 8, 2), 2048, 1024),
        ("GB10", (0, 30, 0), 2048, 256),
        ("B200", (0, 27, 0), 8192, 1024),
        ("B200", (0, 28, 0), 16384, 1024),
        ("L4 24GB", (0, 6, 4), 40960, 256),
    ],
)
def test_the_batch_follows_card_and_version(gpu: str, version: tuple[int, ...], tokens: int, seqs: int) -> None:
    found = opts(version, gpu, enable_chunked_prefill="false") if version < (0, 8) else opts(version, gpu)
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, seqs)


def test_a_short_context_caps_the_batch() -> None:
    found = opts((0, 22, 0), "L4 24GB", max_model_len="4096", max_num_seqs="1")
    assert found.max_num_batched_tokens == 2048
    assert opts((0, 22, 0), "H100", max_model_len="4096", max_num_seqs="1").max_num_batched_tokens == 4096


def test_the_share_of_the_card_changed_with_0_20() -> None:
    assert (opts((0, 19, 1)).utilisation, opts((0, 20, 0)).utilisation, opts(None).utilisation) == (0.9, 0.92, 0.92)


def test_a_short_version_means_its_first_release() -> None:
    assert opts((0, 11)).version == (0, 11, 0)


@pytest.mark.parametrize(("text", "tokens"), [("8192", 8192), ("32k", 32000), ("32K", 32768), ("1.5k", 1500)])
def test_lengths_as_people_write_them(text: str, tokens: int) -> None:
    assert opts((0, 19, 0), max_model_len=text).max_model_len == tokens


def test_what_the_engine_would_refuse_is_refused_with_the_flag_named() -> None:
    with pytest.raises(BadSetting, match="max-num-seqs"):
        opts((0, 19, 0), max_num_seqs="many")
    with pytest.raises(BadSetting, match="speculative-config"):
        opts((0, 19, 0), speculative_config="{not json")


def test_speculation_is_read_from_its_json() -> None:
    found = opts((0, 24, 0), speculative_config='{"method": "eagle3", "model": "x", "num_speculative_tokens": 3}')
    assert (found.speculation.method, found.speculation.tokens, found.speculation.layers) == ("eagle3", 3, 1)
    assert (
        opts((0, 24, 0), speculative_config='{"method": "ngram", "num_speculative_tokens": 4}').speculation.layers == 0
    )


def test_in_flight_batches_double_with_asynchronous_scheduling_from_0_26() -> None:
    assert opts((0, 25, 0)).in_flight_tokens == 8192
    assert opts((0, 26, 0)).in_flight_tokens == 16384
    assert opts((0, 26, 0), async_scheduling="false").in_flight_tokens == 8192
    assert opts((0, 30, 0), pipeline_parallel_size="2").in_flight_tokens == 3 * 8192


@pytest.mark.parametrize(
    ("version", "gpu", "given", "graphs"),
    [
        ((0, 6, 4), "L4 24GB", {"max_num_seqs": "256"}, (0, 35)),
        ((0, 9, 2), "A100 80GB", {}, (67, 0)),
        ((0, 13, 0), "A100 80GB", {}, (51, 35)),
        ((0, 19, 0), "H100 80GB", {}, (51, 51)),
        ((0, 28, 0), "B200", {}, (83, 83)),
        ((0, 19, 0), "H100 80GB", {"enforce_eager": "true"}, (0, 0)),
        ((0, 19, 0), "A100 80GB", {"max_num_seqs": "16"}, (7, 5)),
    ],
)
def test_graphs_are_counted_as_the_bars_count_them(
    version: tuple[int, ...], gpu: str, given: dict[str, str], graphs: tuple[int, int]
) -> None:
    found, shape = opts(version, gpu, **given), model("Qwen/Qwen3-8B")
    assert shape is not None
    assert graph_counts(found, capture_sizes(shape, found, cards_of(gpu)[0].capability)) == graphs


def test_recurrent_models_cache_no_prefixes_before_late_releases() -> None:
    assert opts((0, 19, 0), name="Qwen/Qwen3.5-27B").state_mode == "none"
    assert opts((0, 28, 0), name="Qwen/Qwen3.5-27B").state_mode == "align"
    assert opts((0, 19, 0), name="Qwen/Qwen3.5-27B", enable_prefix_caching="true").state_mode == "align"


def test_plain_sizes_in_gib_are_bytes() -> None:
    assert opts((0, 24, 0), kv_cache_memory_bytes="4GiB").kv_bytes == 4 * GIB
    assert opts((0, 24, 0), cpu_offload_gb="2.5").offload_bytes == round(2.5 * GIB)


@pytest.mark.parametrize(
    ("gpu", "version", "first"),
    [("T4", (0, 8, 5), True), ("T4", (0, 11, 0), False), ("A10", (0, 8, 5), False), ("A10", (0, 7, 3), True)],
)
def test_cards_before_ampere_kept_the_first_engine_until_it_was_removed(
    gpu: str, version: tuple[int, ...], first: bool
) -> None:
    found = opts(version, gpu, max_model_len="10000", max_num_seqs="1")
    assert found.v0 is first
    assert found.max_num_batched_tokens == (10000 if first else 2048)
    assert found.prefix_caching is not first
