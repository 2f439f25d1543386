"""Safetensors by their headers: whole files, indexes, and the ways in which files arrive broken."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from loadpath.checkpoints import safetensors
from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.source import open_model
from loadpath.planning.parameters import parameters
from loadpath.planning.split import WHOLE
from loadpath.planning.weights import AS_STORED, weights
from tiny_checkpoints import KINDS, header_of, tiny, write_safetensors, write_tiny_checkpoint

TWO = {"a.weight": ("BF16", (4, 8), 64), "b.bias": ("F32", (4,), 16)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_planned_bytes_are_those_of_the_file(tmp_path: Path, kind: str) -> None:
    opened = open_model(str(write_tiny_checkpoint(tmp_path / kind, kind)))
    assert opened.checkpoint is not None
    stored = {tensor.name: tensor for tensor in opened.checkpoint.tensors}
    assert parameters(opened.shape).total == sum(tensor.elements for tensor in stored.values())
    # Types that the library keeps or drops against the rule: routers in float32, Mamba's decay in 16 bits.
    routers = sum(tensor.bytes // 2 for tensor in stored.values() if tensor.dtype == "F32")
    decays = sum(2 * tensor.elements for name, tensor in stored.items() if name.endswith("A_log"))
    assert weights(opened.shape, WHOLE, AS_STORED).bytes == opened.checkpoint.bytes - routers + decays


def test_tensors_come_with_shape_type_and_bytes(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", header_of(TWO) | {"__metadata__": {"format": "pt"}})
    first, second = safetensors.read_file(tmp_path / "m.safetensors")
    assert (first.name, first.dtype, first.shape, first.bytes, first.elements) == ("a.weight", "BF16", (4, 8), 64, 32)
    assert second.bytes == 16


def test_an_index_reads_its_shards_and_notices_a_missing_one(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model-00001-of-00002.safetensors", header_of(TWO))
    places = {"a.weight": "model-00001-of-00002.safetensors", "c.weight": "model-00002-of-00002.safetensors"}
    (tmp_path / safetensors.INDEX).write_text(json.dumps({"weight_map": places}))
    found = safetensors.read_folder(tmp_path)
    assert found is not None
    assert (found.bytes, found.complete) == (80, False)
    write_safetensors(tmp_path / "model-00002-of-00002.safetensors", header_of({"c.weight": ("F8_E4M3", (2, 2), 4)}))
    found = safetensors.read_folder(tmp_path)
    assert found is not None
    assert (found.bytes, found.complete) == (84, True)


def test_the_consolidated_copy_of_the_same_weights_is_not_counted_twice(tmp_path: Path) -> None:
    for name in ("model.safetensors", "consolidated.safetensors"):
        write_safetensors(tmp_path / name, header_of(TWO))
    found = safetensors.read_folder(tmp_path)
    assert found is not None
    assert found.bytes == 80


def test_a_folder_without_safetensors_has_no_checkpoint(tmp_path: Path) -> None:
    assert safetensors.read_folder(tmp_path) is None


def test_a_cut_file_is_named_with_the_bytes_that_are_missing(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write_safetensors(file, header_of(TWO))
    with file.open("r+b") as handle:
        handle.truncate(file.stat().st_size - 30)
    with pytest.raises(ModelError, match=r"model\.safetensors is cut off: its tensors take 80 bytes, 50 are there"):
        safetensors.read_file(file)


@pytest.mark.parametrize("content", [b"", b"\x10\x00", struct.pack("<Q", 1 << 40) + b"{}", b"<html>not found</html>"])
def test_what_is_no_safetensors_file_is_said_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="no whole safetensors file"):
        safetensors.read_file(tmp_path / "model.safetensors")


def test_a_git_pointer_is_told_from_a_file(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    with pytest.raises(ModelError, match="git lfs pull"):
        safetensors.read_file(tmp_path / "model.safetensors")


def test_damaged_entries_name_their_tensor() -> None:
    with pytest.raises(ModelError, match=r"tensor `x` of BF16 .* takes 64 bytes, its offsets span 10"):
        safetensors.tensors_of(b'{"x":{"dtype":"BF16","shape":[4,8],"data_offsets":[0,10]}}', "m")
    with pytest.raises(ModelError, match="entry of tensor `x` is damaged"):
        safetensors.tensors_of(b'{"x":{"dtype":"BF16"}}', "m")
    with pytest.raises(ModelError, match="no valid JSON"):
        safetensors.tensors_of(b'{"x":', "m")


def test_the_tiny_headers_are_whole() -> None:
    for kind in KINDS:
        assert tiny(kind)[1]
