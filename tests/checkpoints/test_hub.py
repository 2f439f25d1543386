"""The hub: what is asked of it, and what its refusals become. The client is a stand-in; nothing leaves the machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadpath.checkpoints import hub
from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.source import open_model
from tiny_checkpoints import tiny


class RepositoryNotFoundError(Exception):
    """As the client names it."""


class EntryNotFoundError(Exception):
    """As the client names it."""


class Client:
    """A hub with one tiny model, which remembers what it was asked for."""

    def __init__(self, folder: Path, kind: str = "qwen3", headers: bool = True) -> None:
        self.config, self.header = tiny(kind)
        self.folder, self.headers, self.asked = folder, headers, list[str]()

    def hf_hub_download(self, repository: str, name: str) -> str:
        self.asked.append(name)
        if repository != "nobody/tiny":
            raise RepositoryNotFoundError("404 Client Error.\n\nRepository Not Found for url")
        if name != "config.json":
            raise EntryNotFoundError("404")
        (self.folder / name).write_text(json.dumps(self.config))
        return str(self.folder / name)

    def get_safetensors_metadata(self, repository: str) -> Any:
        if not self.headers:
            raise EntryNotFoundError("no safetensors")
        tensors = {
            name: SimpleNamespace(dtype=entry["dtype"], shape=entry["shape"], data_offsets=entry["data_offsets"])
            for name, entry in self.header.items()
            if name != "__metadata__"
        }
        return SimpleNamespace(files_metadata={"model.safetensors": SimpleNamespace(tensors=tensors)})


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    made = Client(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", made)
    return made


def test_configuration_and_headers_are_enough(client: Client) -> None:
    opened = open_model("nobody/tiny")
    assert (opened.shape.id, opened.shape.family, opened.source) == ("nobody/tiny", "qwen3", "hub (nobody/tiny)")
    assert opened.checkpoint is not None
    assert opened.checkpoint.bytes == max(
        entry["data_offsets"][1] for entry in client.header.values() if "dtype" in entry
    )
    assert client.asked == ["config.json", "hf_quant_config.json"]


def test_without_headers_the_shape_is_still_there(client: Client) -> None:
    client.headers = False
    opened = open_model("nobody/tiny")
    assert opened.checkpoint is None
    assert len(opened.shape.layers) == 4


def test_a_refusal_is_one_line_with_what_to_do(client: Client) -> None:
    with pytest.raises(ModelError, match="no such repository, or a private one that needs HF_TOKEN") as caught:
        open_model("nobody/absent")
    assert "\n" not in str(caught.value)
    assert client.asked == ["config.json"]


def test_offline_nothing_is_asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    with pytest.raises(ModelError, match="offline"):
        open_model("nobody/tiny")
    monkeypatch.delenv("TRANSFORMERS_OFFLINE")
    with pytest.raises(ModelError, match="offline"):
        open_model("nobody/tiny", network=False)
    assert client.asked == []


def test_the_cache_is_where_the_client_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert hub.cache_folder() == Path("/home/somebody/.cache/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "/data/hf")
    assert hub.cache_folder() == Path("/data/hf/hub")
    monkeypatch.setenv("HF_HUB_CACHE", "/data/cache")
    assert hub.cache_folder() == Path("/data/cache")
