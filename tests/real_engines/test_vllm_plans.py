"""What `loadpath plan` foretells of vLLM's KV cache, for kinds of models that keep it differently, against its own log.

A start each, about a minute: run by `make test-engines ENGINES=all`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from real_engines.conftest import BLOCK, QUIET, START_LIMIT, vllm_program
from real_engines.running import free_port, run, server
from real_engines.tiny_weights import write_model

CONTEXT = 1024
WITHIN = 0.001
"""The log's tokens are those of a context times how many fit, rounded by groups of layers."""


@pytest.mark.skipif(os.environ.get("LOADPATH_REAL_ENGINES") != "all", reason="make test-engines ENGINES=all runs it")
@pytest.mark.parametrize("kind", ["gemma3", "mla", "hybrid"])
def test_the_kv_cache_is_as_planned(kind: str, tmp_path: Path) -> None:
    model, port = write_model(tmp_path / f"tiny-{kind}", kind, CONTEXT), free_port()
    command = [
        str(vllm_program()), "serve", str(model), "--host", "127.0.0.1", "--port", str(port), "--enforce-eager",
        "--max-model-len", str(CONTEXT),
    ]  # fmt: skip
    with server(command, port, tmp_path / "vllm.log", START_LIMIT, QUIET) as running:
        status, out = run("plan", str(model), "--gpu", "24GiB", "--available-kv-gib", "1", "--engine-version", "0.32.0",
                          "--block-size", str(BLOCK), "--against", str(running.log), "--json")  # fmt: skip
    assert status == 0, out
    rows = next(table["rows"] for table in json.loads(out)["tables"] if table["id"] == "against")
    errors = {row[0]: row[-1] for row in rows}
    assert abs(errors["KV tokens"]) <= WITHIN and abs(errors["concurrency"]) <= WITHIN, rows
