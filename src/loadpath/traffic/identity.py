"""What answers at the target: engine, version, model and settings, each from the page that tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from loadpath.core.traffic import ServerIdentity
from loadpath.traffic.pages import Page, page
from loadpath.traffic.sender import Sender

_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "library": "ollama", "lmdeploy": "lmdeploy",
           "tensorrt_llm": "tensorrt-llm"}  # fmt: skip
_METRICS = (("vllm:", "vllm"), ("sglang:", "sglang"), ("sglang_", "sglang"), ("llamacpp:", "llama.cpp"), ("tgi_", "tgi"),
            ("trtllm_", "tensorrt-llm"), ("nv_inference", "triton"))  # fmt: skip
_PAGES = ("/v1/models", "/version", "/get_server_info", "/server_info", "/props", "/api/version", "/info", "/metrics")
# Settings of SGLang's page that change figures; the page has hundreds.
_KEPT = ("tp_size", "dp_size", "dtype", "kv_cache_dtype", "quantization", "max_running_requests", "chunked_prefill_size",
         "mem_fraction_static", "disable_radix_cache", "speculative_algorithm", "attention_backend", "context_length")  # fmt: skip


class NotThere(Exception):
    """Nothing answers at the target; the message says what was tried."""


async def identify(sender: Sender, model: str | None = None) -> ServerIdentity:
    """Ask the pages that servers have. `model`: the name to use; else the first that the server lists.

    Raises NotThere where no page answers at all, or none without a key.
    """
    answers = dict(zip(_PAGES, await asyncio.gather(*(page(sender, path) for path in _PAGES)), strict=True))
    if all(answer.status is None for answer in answers.values()):
        why = next(answer.why for answer in answers.values())
        hint = "" if sender.target.tls or "ended" not in why else "; a server with TLS is asked as https://"
        raise NotThere(f"{why}{hint}")
    if answers["/v1/models"].status in (401, 403):
        raise NotThere(
            f"/v1/models answers {answers['/v1/models'].status}: give the server's key with --api-key or OPENAI_API_KEY"
        )
    told: dict[str, str] = {}
    found: dict[str, Any] = {"settings": {}}
    for source, fields in _said(answers):
        for name, value in fields.items():
            if value in (None, "") or name not in ServerIdentity.__struct_fields__:
                continue
            if name == "settings":
                found["settings"] |= value
            elif name not in found:
                found[name], told[name] = value, source
    if model:
        found["model"], told["model"] = model, "asked"
    metrics = answers["/metrics"]
    if (metrics.status == 200 and b"# TYPE" in metrics.body) or _engine_of_metrics(metrics):
        found["metrics"] = "/metrics"
    return msgspec.convert({**found, "told_by": told}, ServerIdentity)


def _said(answers: dict[str, Page]) -> Iterable[tuple[str, dict[str, Any]]]:
    """(page, fields), the pages that say it best first."""
    yield "/v1/models", _models(answers["/v1/models"].document())
    for path in ("/get_server_info", "/server_info"):
        yield path, _sglang(answers[path].document())
    yield "/props", _llama_cpp(answers["/props"].document())
    yield "/info", _tgi(answers["/info"].document())
    if engine := _engine_of_metrics(answers["/metrics"]):
        yield "/metrics", {"engine": engine}
    if version := answers["/api/version"].document().get("version"):
        yield "/api/version", {"engine": "ollama", "version": str(version)}
    if version := answers["/version"].document().get("version"):
        yield "/version", {"engine": "vllm", "version": str(version)}
    for path, answer in answers.items():
        if "llama.cpp" in answer.headers.get("server", ""):
            yield f"{path} (Server header)", {"engine": "llama.cpp"}


def _models(document: dict[str, Any]) -> dict[str, Any]:
    rows = [row for row in document.get("data") or [] if isinstance(row, dict)]
    if not rows:
        return {}
    base = next((row for row in rows if not row.get("parent")), rows[0])  # adapters name their base as parent
    meta = base.get("meta") or {}
    root = base.get("root")
    return {
        "engine": _OWNERS.get(str(base.get("owned_by")), ""),
        "model": base.get("id"),
        "model_root": root if isinstance(root, str) and root != base.get("id") else "",
        "max_model_len": base.get("max_model_len") or meta.get("n_ctx"),
    }


def _sglang(document: dict[str, Any]) -> dict[str, Any]:
    if "model_path" not in document:
        return {}
    return {
        "engine": "sglang",
        "version": document.get("version"),
        "model_root": document["model_path"],
        "dtype": document.get("dtype"),
        "quantisation": document.get("quantization"),
        "settings": {name: str(document[name]) for name in _KEPT if document.get(name) is not None},
    }


def _llama_cpp(document: dict[str, Any]) -> dict[str, Any]:
    defaults = document.get("default_generation_settings")
    if not isinstance(defaults, dict):
        return {}
    settings = {"parallel": document.get("total_slots"), "ctx-per-slot": defaults.get("n_ctx")}
    return {
        "engine": "llama.cpp",
        "version": document.get("build_info"),
        "model_root": document.get("model_path"),
        "max_model_len": defaults.get("n_ctx"),
        "settings": {name: str(value) for name, value in settings.items() if value is not None},
    }


def _tgi(document: dict[str, Any]) -> dict[str, Any]:
    if "model_id" not in document or "version" not in document:
        return {}
    return {
        "engine": "tgi",
        "version": document["version"],
        "model": document["model_id"],
        "dtype": document.get("model_dtype"),
        "max_model_len": document.get("max_total_tokens"),
    }


def _engine_of_metrics(metrics: Page) -> str:
    if metrics.status != 200:
        return ""
    return next((engine for begin, engine in _METRICS if f"\n{begin}".encode() in b"\n" + metrics.body), "")
