"""Who answers, from the pages of each engine."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from loadpath.core.traffic import ServerIdentity
from loadpath.traffic import identity
from loadpath.traffic.connections import Pool
from loadpath.traffic.identity import NotThere, identify
from loadpath.traffic.pages import Page
from loadpath.traffic.sender import Manner, Sender
from loadpath.traffic.wire import target_of


def models(**row: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "m", "object": "model", **row}]}


def asked(
    monkeypatch: pytest.MonkeyPatch, pages: dict[str, Any], status: int = 404, model: str | None = None
) -> ServerIdentity:
    """The identity that these pages tell; other pages answer `status`."""

    async def page(sender: Sender, path: str) -> Page:
        said = pages.get(path)
        if said is None:
            return Page(status if status else None, why="nobody there")
        return Page(200, body=said.encode() if isinstance(said, str) else msgspec.json.encode(said))

    monkeypatch.setattr(identity, "page", page)
    target = target_of("http://x")
    return asyncio.run(identify(Sender(Pool(target), target, Manner(api="chat", model="")), model))


@pytest.mark.parametrize(("pages", "engine", "version", "length"), [
    ({"/v1/models": models(owned_by="vllm", max_model_len=4096, root="org/m"), "/version": {"version": "0.12.0"}},
     "vllm", "0.12.0", 4096),
    ({"/v1/models": models(owned_by="sglang", max_model_len=8192),
      "/get_server_info": {"model_path": "org/m", "version": "0.5.5", "dtype": "bfloat16", "tp_size": 2}}, "sglang", "0.5.5", 8192),
    ({"/v1/models": models(owned_by="llamacpp", meta={"n_ctx": 2048}),
      "/props": {"default_generation_settings": {"n_ctx": 2048}, "build_info": "b6700", "total_slots": 4}},
     "llama.cpp", "b6700", 2048),
    ({"/v1/models": models(owned_by="library"), "/api/version": {"version": "0.13.1"}}, "ollama", "0.13.1", None),
    ({"/v1/models": models(owned_by="org"), "/info": {"model_id": "m", "version": "3.3.0", "max_total_tokens": 4096}},
     "tgi", "3.3.0", 4096),
    ({"/v1/models": models(), "/metrics": "# TYPE x counter\nsglang:num_running_reqs 1\n"}, "sglang", "", None),
    ({"/v1/models": models(owned_by="me")}, "", "", None),
])  # fmt: skip
def test_each_engine_is_known_by_its_pages(
    monkeypatch: pytest.MonkeyPatch, pages: dict[str, Any], engine: str, version: str, length: int | None
) -> None:
    found = asked(monkeypatch, pages)
    assert (found.engine, found.version, found.max_model_len, found.model) == (engine, version, length, "m")
    assert found.metrics == ("/metrics" if "/metrics" in pages else "")


def test_the_base_model_is_asked_not_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"data": [{"id": "lora", "parent": "base"}, {"id": "base"}]}
    assert asked(monkeypatch, {"/v1/models": listed}).model == "base"
    assert asked(monkeypatch, {"/v1/models": listed}, model="lora").model == "lora"


def test_nobody_and_no_key_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotThere, match="nobody there"):
        asked(monkeypatch, {}, status=0)
    with pytest.raises(NotThere, match="--api-key"):
        asked(monkeypatch, {}, status=401)
