"""Which engine a command line starts, where it listens unless told otherwise, and the pages that tell whether it is well.
Only what a probe needs to find it: what its logs mean is known elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec


class EngineSigns(msgspec.Struct, frozen=True):
    """`starts`: in the command line of its first process.

    `port`: where it listens without --port. `health`, `metrics`: pages that answer without a key and change nothing.
    `packages`: names of its Python distributions; `programs`: of its executables.
    """

    engine: str
    starts: str
    port: int = 8000
    health: str = "/health"
    metrics: str = "/metrics"
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


ENGINES: tuple[EngineSigns, ...] = (
    EngineSigns("vllm", r"(?:^|/)vllm serve\b|-m vllm\.entrypoints\.|vllm/entrypoints/\w+/?\w*api_server",
                packages=("vllm",), programs=("vllm",)),
    EngineSigns("sglang", r"-m sglang\.launch_server|(?:^|/)sglang serve\b|sglang_router\.launch_server", 30000,
                packages=("sglang", "sgl-kernel"), programs=("sglang",)),
    EngineSigns("tensorrt-llm", r"(?:^|/)trtllm-serve\b|tensorrt_llm\.commands\.serve",
                packages=("tensorrt-llm",), programs=("trtllm-serve",)),
    EngineSigns("triton", r"(?:^|/)tritonserver\b", health="/v2/health/ready", metrics="", programs=("tritonserver",)),
    EngineSigns("tgi", r"(?:^|/)text-generation-(?:launcher|router)\b", 3000,
                packages=("text-generation-server",), programs=("text-generation-launcher",)),
    EngineSigns("lmdeploy", r"(?:^|/)lmdeploy serve\b", 23333, packages=("lmdeploy",), programs=("lmdeploy",)),
    EngineSigns("ollama", r"(?:^|/)ollama serve\b", 11434, "/api/version", "", programs=("ollama",)),
    EngineSigns("llama.cpp", r"(?:^|/)llama-server\b|-m llama_cpp\.server", 8080, packages=("llama-cpp-python",),
                programs=("llama-server",)),
)  # fmt: skip
_PORT = re.compile(r"^--?(?:port|http-port|server[_-]port)(?:=(\d+))?$")


def engine_of(argv: Sequence[str]) -> EngineSigns | None:
    """The engine that this command line starts; None for its helpers and for everything else.

    A shell that runs a command has its words in one argument: that is not the engine, its child is.
    """
    line = " ".join(argv[:8])
    if not argv or (re.search(r"(?:^|/)(?:ba|da)?sh$", argv[0]) and "-c" in argv[1:3]):
        return None
    if re.search(
        r"(?:^|/)(?:docker|podman|nerdctl|kubectl|ssh|grep|tail|less|vi|vim|nano|watch|sudo|su|timeout)$", argv[0]
    ):
        return None
    return next((signs for signs in ENGINES if re.search(signs.starts, line)), None)


def port_of(argv: Sequence[str], signs: EngineSigns) -> int:
    """The port that its flags name, else the engine's own."""
    for i, word in enumerate(argv):
        if found := _PORT.match(word):
            value = found[1] or (argv[i + 1] if i + 1 < len(argv) else "")
            if value.isdigit():
                return int(value)
    return signs.port
