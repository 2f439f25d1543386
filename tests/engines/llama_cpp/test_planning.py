"""llama.cpp's memory model: files by their mix, caches to the byte, and what a real llama.cpp prints on this machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loadpath
from loadpath.core.shape import Attention, Dense, Experts, GatedDelta, LatentAttention, Layer, ModelShape
from loadpath.core.units import GIB, MIB
from loadpath.engines.llama_cpp import plan
from loadpath.engines.llama_cpp.planning.compute import Graph, device_bytes, widths
from loadpath.engines.llama_cpp.planning.kv import caches, rows
from loadpath.engines.llama_cpp.planning.sizes import sizes
from loadpath.knowledge.models import model
from loadpath.planning.deployment import Card, Deployment, Version
from tiny_gguf import write_tiny_gguf

LLAMA_8B = ModelShape(
    "llama-8b", "llama", "LlamaForCausalLM", hidden=4096, vocab=128256, tied=False, max_position=131072,
    dtype="bfloat16", layers=(Layer((Attention(32, 8, 128),), (Dense(14336),)),) * 32,
)  # fmt: skip
MIXTURE = msgspec.structs.replace(
    LLAMA_8B, id="mixture", family="qwen3_moe", hidden=2048, vocab=151936, max_position=40960,
    layers=(Layer((Attention(32, 4, 128, qk_norm="head"),), (Experts(128, 8, 768),)),) * 48,
)  # fmt: skip
RTX_4090 = Card("NVIDIA GeForce RTX 4090", round(23.55 * GIB), capability=(8, 9))
SMALL = Card("NVIDIA GeForce RTX 4060 Ti", round(15.57 * GIB), capability=(8, 9))


def deployed(
    shape: ModelShape = LLAMA_8B, card: Card = RTX_4090, gpus: int = 1, version: Version | None = None, **settings: Any
) -> Deployment:
    named = {name.replace("_", "-"): str(value) for name, value in settings.items()}
    return Deployment(shape, (card,) * gpus, "llama.cpp", version, named)


@pytest.mark.parametrize(
    ("name", "file_type", "gigabytes"),
    [("Llama-3.1-8B-Instruct", "Q4_K_M", 4.92), ("Llama-3.1-8B-Instruct", "Q8_0", 8.54),
     ("Llama-3.1-8B-Instruct", "Q2_K", 3.18), ("Llama-3.1-8B-Instruct", "Q3_K_L", 4.32),
     ("Llama-3.1-8B-Instruct", "Q5_K_M", 5.73), ("Llama-3.1-8B-Instruct", "Q6_K", 6.60),
     ("Llama-3.3-70B-Instruct", "Q4_K_M", 42.52), ("Qwen3-30B-A3B", "Q4_K_M", 18.56),
     ("gemma-3-27b-it", "Q4_K_M", 16.55), ("gpt-oss-20b", "MXFP4_MOE", 12.11)],
)  # fmt: skip
def test_files_of_a_mix_have_the_size_that_hubs_list(name: str, file_type: str, gigabytes: float) -> None:
    """Published sizes have two decimals and hold the vocabulary's text too (some MB)."""
    shape = model(name)
    assert shape is not None
    assert sizes(shape, None, file_type).file_bytes / 1e9 == pytest.approx(gigabytes, rel=0.005)


def test_a_cache_holds_every_layer_in_whole_blocks_of_its_type() -> None:
    kept = rows(LLAMA_8B.layers, 11549)
    f16 = caches(kept, 8192, 1, False, 512, ("f16", "f16"))
    q8 = caches(kept, 8192, 1, False, 512, ("q8_0", "q4_0"))
    assert f16.bytes == 32 * 8192 * 2 * 1024 * 2
    assert q8.bytes == 32 * 8192 * (1024 // 32 * 34 + 1024 // 32 * 18)


def test_slots_divide_a_context_unless_they_share_it() -> None:
    kept = rows(LLAMA_8B.layers, 11549)
    apart = caches(kept, 10_000, 3, False, 512, ("f16", "f16"))
    shared = caches(kept, 10_000, 3, True, 512, ("f16", "f16"))
    assert (apart.slot_context, apart.context) == (3584, 10_752)
    assert (shared.slot_context, shared.context) == (10_240, 10_240)


def test_window_layers_keep_their_window_and_one_batch() -> None:
    layers = (Layer((Attention(8, 4, 256, window=1024),), ()),) * 5 + (Layer((Attention(8, 4, 256),), ()),)
    now, before = rows(layers, 11549), rows(layers, 5000)
    assert caches(now, 32_768, 1, False, 512, ("f16", "f16")).window == (1536, 5, 15_728_640, 15_728_640)
    assert caches(now, 32_768, 1, False, 512, ("f16", "f16"), True).window is not None
    assert caches(before, 32_768, 1, False, 512, ("f16", "f16")).window is None


def test_a_latent_has_no_values_and_states_do_not_grow_with_the_context() -> None:
    latent = rows((Layer((LatentAttention(128, 512, 128, 64, 128),), ()),), 11549)
    assert caches(latent, 4096, 1, False, 512, ("f16", "f16")).bytes == 4096 * 576 * 2
    delta = rows((Layer((GatedDelta("gdn", 16, 32, 128, 128),), ()),), 11549)
    short, long = (caches(delta, context, 2, False, 512, ("f16", "f16")) for context in (4096, 65536))
    assert short.states == long.states == 2 * 4 * (3 * 8192 + 32 * 128 * 128)


@pytest.mark.parametrize(
    ("flash", "batch", "context", "expected"),
    [(True, 512, 4096, 128.02), (True, 512, 32768, 156.02), (True, 2048, 4096, 512.07), (True, 128, 4096, 32.00),
     (False, 512, 4096, 316.01), (False, 512, 32768, 2164.01)],
)  # fmt: skip
def test_compute_buffers_as_ggml_lays_them_out(flash: bool, batch: int, context: int, expected: float) -> None:
    """Measured with llama.cpp b11549 on a file of this shape (MiB)."""
    wide = widths(LLAMA_8B.layers, LLAMA_8B.hidden, LLAMA_8B.vocab)
    assert device_bytes(wide, Graph(batch, context, 0, 1, flash, 11549)) / MIB == pytest.approx(expected, rel=0.005)


def test_a_mixture_computes_every_expert_that_a_token_visits() -> None:
    wide = widths(MIXTURE.layers, MIXTURE.hidden, MIXTURE.vocab)
    assert device_bytes(wide, Graph(512, 4096, 0, 1, True, 11549)) / MIB == pytest.approx(92.02, rel=0.005)


def test_older_builds_reserve_logits_for_the_whole_batch() -> None:
    """Logged for Llama 3.1 8B of 2025: 258.50 MiB, logits of 512 tokens and one hidden state of each."""
    made = plan(deployed(version=(5000,), ngl=99, c=4096, flash_attn="on"))
    assert made.activation_peak_bytes / MIB == pytest.approx(258.5, abs=0.01)


def test_defaults_before_the_fit_step_leave_the_gpu_unused() -> None:
    old = plan(deployed(version=(6000,)))
    assert old.settings["n-gpu-layers"] == "0" and old.max_model_len == 4096
    new = plan(deployed())
    assert new.settings["n-gpu-layers"] == "33" and new.settings["parallel"] == "4"


def test_the_fit_step_shortens_the_context_first() -> None:
    made = plan(deployed(msgspec.structs.replace(LLAMA_8B, layers=LLAMA_8B.layers * 4)))
    assert made.fits and made.settings["n-gpu-layers"] == "129"
    assert 4096 <= made.max_model_len < 131_072 and made.max_model_len % 256 == 0
    assert any("context size reduced from 131072" in line for line in made.lines)


def test_the_fit_step_then_moves_experts_to_the_host_and_keeps_a_margin() -> None:
    made = plan(deployed(MIXTURE, SMALL))
    used = sum(part.bytes for part in made.gpus_planned[0].parts if part.name != "context and libraries")
    assert made.fits and any("experts of" in note for note in made.notes)
    assert made.gpus_planned[0].budget_bytes - used >= 1024 * MIB


def test_layers_are_divided_by_the_split_that_is_given() -> None:
    made = plan(deployed(gpus=2, ngl=99, tensor_split="3,1"))
    first, second = (next(p.bytes for p in gpu.parts if p.name == "KV cache") for gpu in made.gpus_planned)
    assert first / second == pytest.approx(25 / 7, rel=0.01)


def test_experts_of_the_first_layers_stay_on_the_host_when_asked() -> None:
    all_there = plan(deployed(MIXTURE, ngl=99, c=4096))
    away = plan(deployed(MIXTURE, ngl=99, c=4096, n_cpu_moe=24))
    moved = all_there.weights_bytes - away.weights_bytes
    assert away.host_bytes - all_there.host_bytes == pytest.approx(moved, rel=0.01)
    assert moved / all_there.weights_bytes == pytest.approx(0.47, abs=0.03)
    assert away.activation_peak_bytes > all_there.activation_peak_bytes  # their matrices are copied for long batches


@pytest.mark.parametrize(
    ("settings", "part"),
    [({"version": (8000,), "ngl": "all", "fit": "off", "c": 4096}, "weights"), ({"version": (9300,), "ngl": 99, "c": 131072}, "kv")],
)  # fmt: skip
def test_buffers_without_room_are_refused_as_the_allocator_does(settings: dict[str, Any], part: str) -> None:
    shape = LLAMA_8B if part == "kv" else msgspec.structs.replace(LLAMA_8B, layers=LLAMA_8B.layers * 8)
    card = SMALL if part == "kv" else RTX_4090
    made = plan(deployed(shape, card, **settings))
    report = loadpath.read_text("\n".join(made.lines), "planned.log")
    assert not made.fits and report.verdict.state == "failed"
    refused = next(fact for fact in report.facts if fact["type"] == "BufferRefused")
    assert refused["part"] == part


@pytest.mark.parametrize("build", [6000, 8000, 11549])
@pytest.mark.parametrize("shape", [LLAMA_8B, MIXTURE], ids=lambda shape: shape.id)
def test_its_own_reader_reads_the_planned_lines_back(shape: ModelShape, build: int) -> None:
    made = plan(deployed(shape, version=(build,), ngl=99, c=16384))
    report = loadpath.read_text("\n".join(made.lines), "planned.log")
    assert not [f.id for f in report.findings if f.severity == "error"]
    placed = {(f["part"], f["device"]): f["bytes"] for f in report.facts if f["type"] == "BufferPlaced"}
    assert placed["weights", "CUDA0"] == pytest.approx(made.weights_bytes, abs=0.006 * MIB)
    assert placed["kv", "CUDA0"] == pytest.approx(made.kv_bytes, abs=0.006 * MIB)
    assert placed["compute", "CUDA0"] == pytest.approx(made.activation_peak_bytes, abs=0.006 * MIB)
    pool = next(fact for fact in report.facts if fact["type"] == "KvPool")
    assert pool["tokens"] == made.kv_tokens


@given(
    context=st.integers(512, 200_000),
    slots=st.integers(1, 8),
    unified=st.booleans(),
    shape=st.sampled_from([LLAMA_8B, MIXTURE]),
)
def test_more_context_never_frees_memory(context: int, slots: int, unified: bool, shape: ModelShape) -> None:
    settings: dict[str, Any] = {"ngl": 99, "parallel": slots, "kv_unified": str(unified).lower(), "fit": "off"}
    less, more = (plan(deployed(shape, c=length, **settings)) for length in (context, context + 4096))
    assert more.kv_bytes >= less.kv_bytes and more.activation_peak_bytes >= less.activation_peak_bytes


def test_ollama_leaves_the_layers_behind_that_its_estimate_of_the_graph_has_no_room_for() -> None:
    """A load by Ollama 0.19 on an RTX 3090 logged 49/65 layers, 13613.88 MiB of weights, 6272 MiB of cache on the card and
    1920 on the host, and 916.08 MiB for the graph, which copies the output layer from the host."""
    from loadpath.engines.llama_cpp.ollama import plan as ollama

    card, shape = Card("NVIDIA GeForce RTX 3090", round(23.56 * GIB), capability=(8, 6)), model("Qwen2.5-32B-Instruct")
    assert shape is not None
    made = ollama(Deployment(shape, (card,), "ollama", (0, 19, 0), {"OLLAMA_CONTEXT_LENGTH": "32768"}))
    text = "\n".join(made.lines)
    assert "offloaded 49/65 layers to GPU" in text and "CPU KV buffer size =  1920.00 MiB" in text
    assert made.weights_bytes / MIB == pytest.approx(13613.88, abs=0.01)
    assert made.kv_bytes / MIB == 6272
    assert made.activation_peak_bytes / MIB == pytest.approx(916.08, abs=0.1)


def test_two_slots_of_a_window_model_on_a_t4() -> None:
    """gemma-4-26B-A4B with `-c 32768 -np 2` at b8854: 640 MiB for its full layers, 600 for its window layers."""
    card, shape = Card("Tesla T4", round(14.56 * GIB), capability=(7, 5)), model("gemma-4-26B-A4B-it")
    assert shape is not None
    made = plan(deployed(shape, card, version=(8854,), ctx_size=32768, parallel=2))
    sizes_told = [float(x) for x in re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", "\n".join(made.lines))]
    assert sizes_told == [640, 600]


def test_ollama_takes_its_context_from_its_version_and_its_cards() -> None:
    from loadpath.engines.llama_cpp.ollama import plan as ollama

    def context(version: Version, **settings: str) -> int:
        return ollama(Deployment(LLAMA_8B, (RTX_4090,), "ollama", version, settings)).max_model_len

    assert [context(v) for v in ((0, 6, 5), (0, 9, 7), (0, 15, 5))] == [2048, 4096, 32_768]
    assert context((0, 15, 5), OLLAMA_CONTEXT_LENGTH="8192") == 8192
    two = ollama(Deployment(LLAMA_8B, (RTX_4090,), "ollama", (0, 9, 7), {"OLLAMA_NUM_PARALLEL": "2"}))
    assert two.kv_tokens == 8192


SERVE = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.kv_unified, params.cache_type_k, params.cache_type_v = sys.argv[4] == "true", int(sys.argv[5]), int(sys.argv[6])
params.hostnames, params.port, params.verbosity, params.cpuparams.n_threads = ["127.0.0.1"], 0, 4, 1
params.warmup, params.no_extra_bufts = False, True
server = xllamacpp.Server(params)
time.sleep(60)
"""
_NUMBERS = {"f16": 1, "q4_0": 2, "q8_0": 8}
_SIZE = re.compile(r"(?:model buffer|KV buffer) size =\s*[\d.]+ MiB|llama_kv_cache: size = .*")


def _until_it_listens(command: list[str]) -> str:
    """What it prints: a thread of its own writes the log, so an exit right after the load may cut it."""
    told: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace") as server:
        assert server.stdout is not None
        for line in server.stdout:
            told.append(line)
            if "listening on" in line:
                break
        server.kill()
    return "".join(told)


@pytest.mark.parametrize(
    ("context", "slots", "unified", "key", "value"),
    [(1024, 1, "false", "f16", "f16"), (3000, 3, "false", "f16", "f16"), (3000, 4, "true", "q8_0", "q8_0"),
     (2048, 2, "false", "q8_0", "q4_0")],
)  # fmt: skip
def test_a_real_llama_cpp_prints_the_planned_lines(
    tmp_path: Path, context: int, slots: int, unified: str, key: str, value: str
) -> None:
    pytest.importorskip("xllamacpp", reason="the embedded llama.cpp server is not installed for this Python or machine")
    pytest.importorskip("gguf")
    from loadpath.checkpoints.source import open_model

    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    command = [
        sys.executable,
        "-c",
        SERVE,
        str(path),
        str(context),
        str(slots),
        unified,
        str(_NUMBERS[key]),
        str(_NUMBERS[value]),
    ]
    text = _until_it_listens(command)
    opened = open_model(str(path))
    settings = {
        "ctx-size": str(context),
        "parallel": str(slots),
        "kv-unified": unified,
        "cache-type-k": key,
        "cache-type-v": value,
    }
    made = plan(Deployment(opened.shape, (), "llama.cpp", None, settings, checkpoint=opened.checkpoint))
    logged = _SIZE.findall(text)
    planned = _SIZE.findall("\n".join(made.lines))
    assert planned and logged[-len(planned) :] == planned
