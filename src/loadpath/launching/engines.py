"""How each engine is started: image, program, the address flags. What its health page means: knowledge/engine_health.toml."""

from __future__ import annotations

import msgspec


class EngineStart(msgspec.Struct, frozen=True):
    """`image`: the project's own, `{version}` filled in; `model_flag`: "" where the model is a bare word."""

    image: str
    program: tuple[str, ...]
    model_flag: str
    host_flag: str
    port_flag: str
    port: int
    cache_target: str = "/root/.cache/huggingface"
    latest: str = ""
    """The tag where no version was asked for; "": the newest version known to the planner."""


STARTS: dict[str, EngineStart] = {
    "vllm": EngineStart(
        "vllm/vllm-openai:v{version}", ("vllm", "serve"), "", "--host", "--port", 8000,
    ),
    "sglang": EngineStart(
        "lmsysorg/sglang:v{version}", ("python3", "-m", "sglang.launch_server"), "--model-path", "--host", "--port", 30000,
    ),
    "llama.cpp": EngineStart(
        "ghcr.io/ggml-org/llama.cpp:{version}", ("/app/llama-server",), "--model", "--host", "--port", 8080,
        latest="server-cuda",
    ),
    "tgi": EngineStart(
        "ghcr.io/huggingface/text-generation-inference:{version}", ("text-generation-launcher",), "--model-id", "--hostname",
        "--port", 8080, cache_target="/data",
    ),
}  # fmt: skip
"""Sources: the projects' own Docker pages (vLLM, SGLang, llama.cpp, TGI)."""
