"""Tests on real engines: started by `make test-engines` alone, since they take minutes and an environment of 3 GB."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from real_engines.running import TOP, Server, free_port, server
from real_engines.tiny_weights import write_model

BLOCKS, BLOCK = 15, 128
"""vLLM's KV cache is held down to so many blocks of so many tokens, so that few streams fill it."""
CONTEXT = 1024
START_LIMIT = 300.0  # seconds: 25 on a quiet machine, 110 seen on a busy one
QUIET = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return None if os.environ.get("LOADPATH_REAL_ENGINES") else True


def vllm_program() -> Path:
    """vLLM's command; skips the test where its environment could not be made."""
    program = TOP / ".venv-engines" / "bin" / "vllm"
    if not program.exists():
        pytest.skip(f"{program} is not here: benchmarks/environments.py vllm says why")
    return program


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One vLLM for all tests: a start takes most of a minute."""
    program = vllm_program()
    folder = tmp_path_factory.mktemp("vllm")
    model, port = write_model(folder / "tiny-llama", context=CONTEXT), free_port()
    command = [
        str(program), "serve", str(model), "--host", "127.0.0.1", "--port", str(port), "--enforce-eager",
        "--max-model-len", str(CONTEXT), "--num-gpu-blocks-override", str(BLOCKS),
    ]  # fmt: skip
    with server(command, port, folder / "vllm.log", START_LIMIT, QUIET) as running:
        yield running
