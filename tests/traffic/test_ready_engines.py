"""The stages adapt to what each engine's pages say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from loadpath.core.readiness import Readiness
from loadpath.traffic.ready import ReadyRequest, ready
from loadpath.traffic.wire import target_of

Pages = dict[str, tuple[int, Any]]
MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "library"}]}
ANSWER = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "a b"}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 30, "completion_tokens": 2},
}
EMBEDDING = {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 30}}


@contextmanager
def pages(served: Pages) -> Iterator[str]:
    """A server of fixed JSON pages; what is not listed is 404."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, body = served.get(self.path, (404, {"detail": "Not Found"}))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def gate(served: Pages, **given: Any) -> Readiness:
    with pages(served) as url:
        return ready(ReadyRequest(target=target_of(url), limit=3.0, wait=False, **given))


def stage(result: Readiness, name: str) -> Any:
    return next(one for one in result.stages if one.name == name)


def test_ollama_has_no_health_page_and_its_own_is_asked() -> None:
    result = gate(
        {
            "/api/version": (200, {"version": "0.12.0"}),
            "/v1/models": (200, MODELS),
            "/v1/chat/completions": (200, ANSWER),
        }
    )
    assert result.ready and result.engine == "ollama"
    assert stage(result, "health").why == "/api/version 200" and "no model need be loaded" in result.health_says


def test_a_server_without_any_health_page_is_asked_for_a_token() -> None:
    result = gate({"/v1/models": (200, MODELS), "/v1/chat/completions": (200, ANSWER)})
    assert result.ready and stage(result, "health").state == "skipped"


def test_a_server_of_embeddings_is_ready_when_it_embeds() -> None:
    result = gate({"/health": (200, {}), "/v1/models": (200, MODELS), "/v1/embeddings": (200, EMBEDDING)})
    assert result.ready and stage(result, "first-token").why == "/v1/embeddings"


def test_llama_cpp_says_on_every_page_that_it_loads() -> None:
    loading = (503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})
    result = gate(dict.fromkeys(("/health", "/v1/models", "/v1/chat/completions"), loading))
    assert result.failed and (result.failed.name, result.failed.kind) == ("health", "loading")
    assert "Loading model" in result.failed.why


def test_a_model_that_is_not_listed_is_told_with_those_that_are() -> None:
    result = gate({"/health": (200, {}), "/v1/models": (200, MODELS)}, model="n")
    assert result.failed and result.failed.kind == "no-model" and "lists m, not n" in result.failed.why


def test_a_key_is_asked_for() -> None:
    result = gate({"/health": (200, {}), "/v1/models": (401, {"error": "Unauthorized"})})
    assert result.failed and result.failed.kind == "no-key" and "--api-key" in result.failed.why


def test_an_answer_without_a_token_is_no_generation() -> None:
    empty = {
        "choices": [{"index": 0, "message": {"content": ""}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 0},
    }
    result = gate({"/health": (200, {}), "/v1/models": (200, MODELS), "/v1/chat/completions": (200, empty)})
    assert result.failed and (result.failed.name, result.failed.kind) == ("first-token", "no-token")
