"""GGUF files: shapes read off their tensors, types and sizes as the file has them, and broken files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.checkpoints import gguf
from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.source import open_model
from loadpath.core.shape import Attention, Dense, Experts, GatedDelta, LatentAttention, Mamba, ModelShape
from loadpath.planning.parameters import parameters
from tiny_checkpoints import write_gguf
from tiny_gguf import write_tiny_gguf

F32, F16, Q4_K, Q6_K, BF16 = 0, 1, 12, 14, 30
Tensors = dict[str, tuple[int, tuple[int, ...]]]


def metadata(architecture: str, layers: int = 2, **more: Any) -> dict[str, Any]:
    base = {"block_count": layers, "embedding_length": 256, "context_length": 4096, "attention.head_count": 4,
            "attention.head_count_kv": 2, "rope.dimension_count": 64}  # fmt: skip
    return {"general.architecture": architecture, "general.name": "tiny"} | {
        key if key.startswith("general") else f"{architecture}.{key.replace('__', '.')}": value
        for key, value in (base | more).items()
    }


def outside(kind: int = F16, *, tied: bool = False) -> Tensors:
    found: Tensors = {"token_embd.weight": (kind, (512, 256)), "output_norm.weight": (F32, (256,))}
    return found if tied else found | {"output.weight": (Q6_K, (512, 256))}


def attention(kind: int = F16) -> Tensors:
    return {"attn_norm.weight": (F32, (256,)), "attn_q.weight": (kind, (256, 256)), "attn_k.weight": (kind, (128, 256)),
            "attn_v.weight": (kind, (128, 256)), "attn_output.weight": (kind, (256, 256)), "ffn_norm.weight": (F32, (256,))}  # fmt: skip


def dense(kind: int = F16, width: int = 512) -> Tensors:
    return {
        "ffn_gate.weight": (kind, (width, 256)),
        "ffn_up.weight": (kind, (width, 256)),
        "ffn_down.weight": (kind, (256, width)),
    }


def blocks(*each: Tensors) -> Tensors:
    return {f"blk.{index}.{name}": value for index, block in enumerate(each) for name, value in block.items()}


def shape_of(path: Path, facts: dict[str, Any], tensors: Tensors, **how: Any) -> ModelShape:
    write_gguf(path / "m.gguf", facts, tensors, **how)
    shape = open_model(str(path / "m.gguf")).shape
    assert parameters(shape).total == shape.parameters
    return shape


def test_the_tensors_are_those_that_the_maker_of_the_format_reads(tmp_path: Path) -> None:
    library: Any = pytest.importorskip("gguf")
    write_tiny_gguf(tmp_path / "tiny.gguf")
    theirs = {
        t.name: (int(t.n_bytes), int(t.n_elements)) for t in library.GGUFReader(str(tmp_path / "tiny.gguf")).tensors
    }
    file = gguf.read(tmp_path / "tiny.gguf")
    assert {tensor.name: (tensor.bytes, tensor.elements) for tensor in file.tensors} == theirs
    assert parameters(gguf.shape_of(file)).total == sum(elements for _, elements in theirs.values())


@pytest.mark.parametrize("how", [{"version": 2}, {"version": 3}, {"order": ">"}])
def test_both_versions_and_both_byte_orders(tmp_path: Path, how: dict[str, Any]) -> None:
    shape = shape_of(tmp_path, metadata("llama"), outside() | blocks(*[attention() | dense()] * 2), **how)
    assert (shape.id, shape.hidden, shape.vocab, shape.max_position, len(shape.layers)) == ("tiny", 256, 512, 4096, 2)


def test_biases_norms_and_tying_are_read_off_the_tensors(tmp_path: Path) -> None:
    bias: Tensors = {"attn_q.bias": (F32, (256,)), "attn_k.bias": (F32, (128,)), "attn_v.bias": (F32, (128,)),
                     "attn_q_norm.weight": (F32, (64,)), "attn_k_norm.weight": (F32, (64,))}  # fmt: skip
    shape = shape_of(tmp_path, metadata("qwen3", 1), outside(tied=True) | blocks(attention() | bias | dense()))
    assert shape.tied
    assert shape.layers[0].mixers == (Attention(4, 2, 64, qkv_bias=True, qk_norm="head"),)
    assert shape.layers[0].feeds == (Dense(512),)


def test_types_make_the_bytes_and_the_scheme(tmp_path: Path) -> None:
    tensors = outside(Q4_K) | blocks(*[attention(Q4_K) | dense(Q4_K)] * 2)
    shape = shape_of(tmp_path, metadata("llama") | {"general.file_type": 15}, tensors)
    assert shape.quantisation is not None
    assert (shape.quantisation.method, shape.quantisation.bits, shape.quantisation.format) == ("gguf", 4, "Q4_K_M")
    checkpoint = open_model(str(tmp_path / "m.gguf")).checkpoint
    assert checkpoint is not None
    sizes = {tensor.name: (tensor.dtype, tensor.bytes) for tensor in checkpoint.tensors}
    assert sizes["token_embd.weight"] == ("Q4_K", 512 * 256 // 256 * 144)
    assert sizes["output.weight"] == ("Q6_K", 512 * 256 // 256 * 210)
    assert checkpoint.file_type == "Q4_K_M"


def test_a_mixture_with_a_shared_expert_after_a_dense_layer(tmp_path: Path) -> None:
    mixture: Tensors = {
        "ffn_gate_inp.weight": (F32, (8, 256)), "ffn_gate_exps.weight": (F16, (8, 128, 256)),
        "ffn_up_exps.weight": (F16, (8, 128, 256)), "ffn_down_exps.weight": (F16, (8, 256, 128)),
        "ffn_gate_shexp.weight": (F16, (64, 256)), "ffn_up_shexp.weight": (F16, (64, 256)),
        "ffn_down_shexp.weight": (F16, (256, 64)), "exp_probs_b.bias": (F32, (8,)),
    }  # fmt: skip
    facts = metadata("glm4moe", expert_used_count=2)
    first, second = shape_of(tmp_path, facts, outside() | blocks(attention() | dense(), attention() | mixture)).layers
    assert first.feeds == (Dense(512),)
    assert second.feeds == (Experts(8, 2, 128, shared_width=64, router_bias=True),)


def test_latent_attention(tmp_path: Path) -> None:
    latent: Tensors = {
        "attn_norm.weight": (F32, (256,)), "attn_q.weight": (F16, (4 * 48, 256)), "attn_kv_a_mqa.weight": (F16, (64 + 16, 256)),
        "attn_kv_a_norm.weight": (F32, (64,)), "attn_kv_b.weight": (F16, (4 * 64, 64)), "attn_output.weight": (F16, (256, 128)),
        "ffn_norm.weight": (F32, (256,)),
    }  # fmt: skip
    facts = metadata("deepseek2", 1, attention__kv_lora_rank=64, attention__key_length=48, attention__value_length=32,
                     rope__dimension_count=16)  # fmt: skip
    facts["deepseek2.rope.dimension_count"] = 16
    shape = shape_of(tmp_path, facts, outside() | blocks(latent | dense()))
    assert shape.layers[0].mixers == (LatentAttention(4, 64, 32, 16, 32),)


def test_windows_by_the_architectures_own_pattern(tmp_path: Path) -> None:
    def windows(architecture: str, **more: Any) -> list[int]:
        facts = metadata(architecture, 6, attention__sliding_window=128, **more)
        write_gguf(tmp_path / "m.gguf", facts, outside() | blocks(*[attention() | dense()] * 6))
        layers = open_model(str(tmp_path / "m.gguf")).shape.layers
        return [mixer.window for layer in layers for mixer in layer.mixers if isinstance(mixer, Attention)]

    assert windows("gemma3") == [128] * 5 + [0]
    assert windows("gpt-oss") == [128, 0] * 3
    assert windows("phi3") == [128] * 6
    assert windows("qwen2") == [0] * 6
    assert windows("gemma3n", attention__sliding_window_pattern=[True, False] * 3) == [128, 0] * 3


def test_recurrent_layers(tmp_path: Path) -> None:
    mamba: Tensors = {
        "attn_norm.weight": (F32, (256,)), "ssm_in.weight": (F16, (2 * 512 + 2 * 32 + 8, 256)), "ssm_conv1d.weight": (F32, (576, 4)),
        "ssm_conv1d.bias": (F32, (576,)), "ssm_dt.bias": (F32, (8,)), "ssm_a": (F32, (8, 1)), "ssm_d": (F32, (8, 1)),
        "ssm_norm.weight": (F32, (1, 512)), "ssm_out.weight": (F16, (256, 512)),
    }  # fmt: skip
    facts = metadata("mamba2", 1, ssm__conv_kernel=4, ssm__state_size=32, ssm__inner_size=512, ssm__time_step_rank=8,
                     ssm__group_count=1)  # fmt: skip
    shape = shape_of(tmp_path, facts, outside() | blocks(mamba))
    assert shape.layers[0].mixers == (Mamba(2, 32, heads=8, head_dim=64),)
    assert shape.state_dtype == "float32"
    delta: Tensors = {"attn_norm.weight": (F32, (256,)), "attn_qkv.weight": (F16, (1024, 256)), "ssm_a": (F32, (8,)),
                      "ssm_ba.weight": (F16, (16, 256)), "ssm_out.weight": (F16, (256, 512))}  # fmt: skip
    facts = metadata("qwen3next", 1, ssm__conv_kernel=4, ssm__state_size=64, ssm__inner_size=512, ssm__time_step_rank=8,
                     ssm__group_count=4)  # fmt: skip
    write_gguf(tmp_path / "d.gguf", facts, outside() | blocks(delta))
    assert open_model(str(tmp_path / "d.gguf")).shape.layers[0].mixers == (GatedDelta("gdn", 4, 8, 64, 64),)


def test_a_drafters_layers_are_apart(tmp_path: Path) -> None:
    facts = metadata("glm4moe", 3, nextn_predict_layers=1)
    write_gguf(tmp_path / "m.gguf", facts, outside() | blocks(*[attention() | dense()] * 3))
    shape = open_model(str(tmp_path / "m.gguf")).shape
    assert len(shape.layers) == 2
    assert shape.drafter is not None
    assert shape.parameters == parameters(shape).total


def test_parts_of_a_split_file_are_one_model(tmp_path: Path) -> None:
    facts = metadata("llama") | {"split.count": 2}
    first = outside() | {f"blk.0.{name}": value for name, value in (attention() | dense()).items()}
    second = {f"blk.1.{name}": value for name, value in (attention() | dense()).items()}
    write_gguf(tmp_path / "m-00001-of-00002.gguf", facts, first)
    part = open_model(str(tmp_path / "m-00001-of-00002.gguf"))
    assert part.checkpoint is not None
    assert not part.checkpoint.complete
    assert "parts of the split file are missing" in part.shape.note
    write_gguf(tmp_path / "m-00002-of-00002.gguf", {"general.architecture": "llama", "split.count": 2}, second)
    whole = open_model(str(tmp_path / "m-00002-of-00002.gguf"))
    assert whole.checkpoint is not None
    assert whole.checkpoint.complete
    assert parameters(whole.shape).total == whole.shape.parameters
    (tmp_path / "m-00001-of-00002.gguf").unlink()
    with pytest.raises(ModelError, match="the first of 2 parts, is missing"):
        open_model(str(tmp_path / "m-00002-of-00002.gguf"))


def test_a_cut_file_says_how_much_is_there(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    write_gguf(file, metadata("llama"), outside() | blocks(*[attention() | dense()] * 2))
    whole = file.stat().st_size
    with file.open("r+b") as handle:
        handle.truncate(whole - 100_000)
    with pytest.raises(ModelError, match=r"m\.gguf is cut off: its tensors take [\d,]+ bytes, [\d,]+ are there"):
        open_model(str(file))
    with file.open("r+b") as handle:
        handle.truncate(300)
    with pytest.raises(ModelError, match="cut off or damaged in its header"):
        open_model(str(file))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no GGUF file: it has 0 bytes"),
        (b"ggml" + bytes(40), "it begins with b'ggml'"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"GGUF\x01\x00\x00\x00" + bytes(40), "GGUF version 1"),
    ],
)
def test_other_files_are_told_apart(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        open_model(str(tmp_path / "m.gguf"))


def test_a_projector_is_no_model(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", {"general.architecture": "clip"}, {"v.patch_embd.weight": (F16, (64, 64))})
    with pytest.raises(ModelError, match="image projector"):
        open_model(str(tmp_path / "m.gguf"))


def test_a_type_that_is_not_known_takes_the_room_up_to_the_next(tmp_path: Path) -> None:
    write_gguf(
        tmp_path / "m.gguf", metadata("llama", 1), {"blk.0.ffn_up.weight": (99, (4, 256)), "blk.0.x": (F32, (8,))}
    )
    first, second = gguf.read(tmp_path / "m.gguf").tensors
    assert (first.dtype, first.bytes, second.bytes) == ("type 99", 1024, 32)


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 1200), byte=st.integers(0, 255), cut=st.one_of(st.none(), st.integers(0, 2000)))
def test_damaged_files_are_read_or_refused(
    at: int, byte: int, cut: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "damaged.gguf"
    write_gguf(file, metadata("llama"), outside() | blocks(*[attention() | dense()] * 2))
    with file.open("r+b") as handle:
        handle.seek(at)
        handle.write(bytes([byte]))
        if cut is not None:
            handle.truncate(cut)
    try:
        open_model(str(file))
    except ModelError as error:
        assert "damaged.gguf" in str(error)


def test_layers_of_convolutions_are_counted_and_their_state_is_said_to_be_left_out(tmp_path: Path) -> None:
    convolution: Tensors = {
        "attn_norm.weight": (F32, (256,)), "shortconv.conv.weight": (F32, (256, 3)), "shortconv.in_proj.weight": (F16, (768, 256)),
        "shortconv.out_proj.weight": (F16, (256, 256)), "ffn_norm.weight": (F32, (256,)),
    }  # fmt: skip
    shape = shape_of(tmp_path, metadata("lfm2"), outside() | blocks(convolution | dense(), attention() | dense()))
    assert [len(layer.mixers) for layer in shape.layers] == [0, 1]
    assert "left out" in shape.note
