"""Command lines as settings: which program, its flags in long spelling, and what a container engine was asked.

Works on words (`["docker", "run", "--gpus", "all", …]`), so command lines, compose files and Kubernetes manifests use it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple


class Found(NamedTuple):
    """One setting: name without dashes, value, whose flag it is, and whether it is an environment variable."""

    name: str
    value: str
    engine: str | None = None
    basis: Literal["command", "environment"] = "command"


# The program that serves, by the words that start it.
_PROGRAMS = (
    ("vllm", r"^vllm (?:serve|bench|chat|complete|run-batch)\b|^\S*python[\d.]* (?:\S+ )*-m vllm\.entrypoints\.\S+"),
    ("sglang", r"^sglang serve\b|^\S*python[\d.]* (?:\S+ )*-m sglang\.(?:launch_server|serve)\S*"),
    (
        "llama.cpp",
        r"^\S*llama-(?:server|cli|bench|run|perplexity)\b|^\S*/server(?= -)|^\S*python[\d.]* -m llama_cpp\.server",
    ),
    ("ollama", r"^\S*ollama (?:serve|run|pull|create)\b"),
    ("tensorrt-llm", r"^trtllm-serve(?: serve)?\b|^trtllm-(?:build|bench)\b"),
    ("tgi", r"^text-generation-(?:launcher|server)\b"),
    ("lmdeploy", r"^lmdeploy serve (?:api_server|gradio)\b"),
    ("triton-server", r"^\S*tritonserver\b"),
    (
        "launcher",
        r"^(?:torchrun|deepspeed)\b|^accelerate launch\b|^\S*python[\d.]* -m torch\.distributed\.(?:run|launch)\b",
    ),
    ("container", r"^(?:docker|podman|nerdctl)(?: container)? (?:run|create)\b"),
)
_IMAGES = (
    ("vllm", r"vllm"), ("sglang", r"sglang"), ("tgi", r"text-generation-inference"), ("llama.cpp", r"llama[.-]?cpp"),
    ("ollama", r"ollama"), ("tensorrt-llm", r"tensorrt-?llm"), ("triton-server", r"tritonserver"), ("lmdeploy", r"lmdeploy"),
)  # fmt: skip
_SHORT: dict[str, dict[str, str]] = {
    "vllm": {"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size",
             "dcp": "decode-context-parallel-size", "ep": "enable-expert-parallel", "q": "quantization",
             "O": "compilation-config", "cc": "compilation-config", "asc": "api-server-count", "n": "nnodes"},
    "sglang": {"tp": "tp-size", "dp": "dp-size", "pp": "pp-size", "ep": "ep-size"},
    "llama.cpp": {"m": "model", "c": "ctx-size", "ngl": "n-gpu-layers", "np": "parallel", "b": "batch-size",
                  "ub": "ubatch-size", "fa": "flash-attn", "ctk": "cache-type-k", "ctv": "cache-type-v", "t": "threads",
                  "ts": "tensor-split", "sm": "split-mode", "mg": "main-gpu", "hf": "hf-repo", "ot": "override-tensor",
                  "cmoe": "cpu-moe", "ncmoe": "n-cpu-moe", "nkvo": "no-kv-offload", "dev": "device", "n": "n-predict",
                  "hff": "hf-file", "md": "model-draft", "ngld": "n-gpu-layers-draft", "cb": "cont-batching"},
}  # fmt: skip
_LONG: dict[str, dict[str, str]] = {
    "sglang": {"tp": "tp-size", "tensor-parallel-size": "tp-size", "dp": "dp-size", "data-parallel-size": "dp-size",
               "pp": "pp-size", "pipeline-parallel-size": "pp-size", "ep": "ep-size", "expert-parallel-size": "ep-size",
               "model": "model-path"},
    "llama.cpp": {"gpu-layers": "n-gpu-layers", "gpu_layers": "n-gpu-layers"},
    "vllm": {"model-tag": "model"},
    "lmdeploy": {"tp": "tp"},
}  # fmt: skip
# Flags that take no value, in any engine: what follows them is a positional word.
_SWITCH = re.compile(
    r"^(?:enable|disable|no|skip|return|use|log|allow|trust|enforce|async|reset|expert|delete|show|is|ignore|metrics|mlock|"
    r"jinja|verbose|offline|embedding|reranking|flash-attn|cont-batching|cpu-moe|swa-full|special|headless|bf16|fp16|"
    r"do-train|do-eval|gradient-checkpointing|standalone|use-fp8|debug|v|version|help)(?:-|$)"
)
_TAKES_VALUE = frozenset(
    [
        "log-level",
        "log-file",
        "log-config",
        "reset-period",
        "use-config",
        "no-repeat-ngram-size",
        "flash-attn-type",
        "return-tokens-as",
        "disable-fastapi-docs-url",
        "no-grad",
        "allow-deprecated-port",
        "show-config-path",
        "log-interval",
    ]
)
_LISTS = frozenset(
    ["served-model-name", "lora-modules", "cuda-graph-bs", "cuda-graph-sizes", "cudagraph-capture-sizes", "device"]
)
_POSITIONAL = {
    "vllm": "model",
    "tensorrt-llm": "model",
    "ollama": "model",
    "lmdeploy": "model-path",
    "sglang": "model-path",
}
# docker run's options without a value.
_DOCKER_SWITCHES = frozenset(
    [
        "d",
        "detach",
        "i",
        "interactive",
        "t",
        "tty",
        "rm",
        "privileged",
        "init",
        "P",
        "publish-all",
        "q",
        "quiet",
        "read-only",
        "no-healthcheck",
        "oom-kill-disable",
    ]
)
_DOCKER_SHORT = {"e": "env", "v": "volume", "p": "publish", "m": "memory", "u": "user", "w": "workdir", "h": "hostname",
                 "l": "label", "c": "cpu-shares"}  # fmt: skip
_SECRET = re.compile(r"TOKEN(?!S|IZ)|SECRET|PASSW|API_?KEY|CREDENTIAL", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
_WRAPPERS = re.compile(
    r"^(?:sudo(?: -\S+)*|nohup|time|exec|env|stdbuf -\S+|uv run|poetry run|pixi run|srun(?: -\S+)*|numactl(?: -\S+)*|"
    r"nsys profile(?: -\S+)*|docker exec(?: -\S+)* \S+|kubectl exec(?: -\S+)* \S+ --|command:|entrypoint:|CMD|\+|&&)\s+"
)
_NUMBER = re.compile(r"^-\d")


@cache
def _programs() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((name, re.compile(pattern)) for name, pattern in _PROGRAMS)


def words_of(text: str) -> list[str]:
    """The words of a command as a shell would split it; by blanks where its quotes do not close."""
    try:
        return shlex.split(text, comments=False)
    except ValueError:
        return text.split()


def command(text: str) -> list[Found]:
    """The settings of one command line; [] where it starts none of the programs known here."""
    environment: list[Found] = []
    rest = text.strip()
    while True:
        if (wrapper := _WRAPPERS.match(rest)) is not None:
            rest = rest[wrapper.end() :]
        elif _ASSIGNMENT.match(rest):
            word = next(iter(words_of(rest)), rest)
            environment += _variable(word)
            rest = rest[len(rest.split(None, 1)[0]) :].lstrip() if " " in rest else ""
        elif rest.startswith(("export ", "set ")):
            rest = rest.partition(" ")[2]
        else:
            break
    program, length = _program(rest)
    if program is None:
        return environment if environment and text.lstrip().startswith("export ") else []
    words = words_of(rest[length:])
    if program == "container":
        return environment + list(_container(rest.split(None, 1)[0], words))
    if program == "launcher":
        return environment + list(_launcher(rest, words))
    return environment + list(flags(program, words))


def _program(text: str) -> tuple[str | None, int]:
    for name, pattern in _programs():
        if found := pattern.match(text):
            return name, found.end()
    return None, 0


def flags(engine: str | None, words: Sequence[str]) -> Iterator[Found]:
    """The settings of a server's flags. The first word that belongs to no flag is the model, where the engine takes one."""
    i, positional = 0, _POSITIONAL.get(engine or "")
    while i < len(words):
        word = words[i]
        i += 1
        if word in ("&&", "||", ";", "|", ">", ">>", "2>&1", "&"):
            return
        if not word.startswith("-") or _NUMBER.match(word) or word == "-":
            if positional is not None and i > 0 and not word.startswith(("2>", ">")):
                yield Found(positional, word, engine)
                positional = None
            continue
        name, _, value = word.partition("=")
        name = _name(engine, name)
        if not value and not _is_switch(name):
            values = _values(words, i, many=name in _LISTS)
            i += len(values)
            value = " ".join(values)
        yield from _setting(name, value, engine)


def _is_switch(name: str) -> bool:
    return bool(_SWITCH.match(name)) and name not in _TAKES_VALUE


def _values(words: Sequence[str], i: int, *, many: bool) -> list[str]:
    taken: list[str] = []
    while (
        i < len(words)
        and (not words[i].startswith("-") or _NUMBER.match(words[i]))
        and words[i] not in ("&&", "|", ";")
    ):
        taken.append(words[i])
        i += 1
        if not many:
            break
    return taken


def _name(engine: str | None, flag: str) -> str:
    bare = flag.lstrip("-")
    if not flag.startswith("--"):
        short = _SHORT.get(engine or "", {})
        return short.get(bare) or short.get(bare[:1] if bare[1:].isdigit() else "", bare)
    long = bare.replace("_", "-")
    return _LONG.get(engine or "", {}).get(long, long)


def _setting(name: str, value: str, engine: str | None) -> Iterator[Found]:
    shown = "***" if _SECRET.search(name) and value else value or "True"
    yield Found(name, shown, engine)
    if name.startswith("no-") and shown == "True":
        yield Found(name.removeprefix("no-"), "False", engine)


def _variable(word: str) -> Iterator[Found]:
    name, _, value = word.partition("=")
    if name and value:
        yield Found(name, "***" if _SECRET.search(name) else value, None, "environment")


def engine_of_image(image: str) -> str | None:
    return next((engine for engine, pattern in _IMAGES if re.search(pattern, image, re.IGNORECASE)), None)


def _container(tool: str, words: Sequence[str]) -> Iterator[Found]:
    """`docker run` with its options as `docker:…`, then the server's flags behind the image."""
    yield Found("docker:run", tool)
    i, entrypoint = 0, ""
    while i < len(words) and words[i].startswith("-"):
        word = words[i]
        i += 1
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--"):
            name, value, equals = _short_option(name, value, equals)
        if not equals and name not in _DOCKER_SWITCHES and i < len(words):
            value = words[i]
            i += 1
        if name == "env":
            yield from _variable(value)
        elif name:
            yield Found(f"docker:{name}", value or "True")
        entrypoint = value if name == "entrypoint" else entrypoint
    if i < len(words):
        image = words[i]
        yield Found("docker:image", image)
        yield from inside(engine_of_image(image), [*words_of(entrypoint), *words[i + 1 :]])


def _short_option(name: str, value: str, equals: str) -> tuple[str, str, str]:
    """`-itd`, `-p8000:8000`, `-e X=1` → the long name, its value if it is attached, and a mark that it is."""
    long = _DOCKER_SHORT.get(name[:1])
    if long is not None:
        attached = name[1:] + equals + value
        return long, attached, "=" if attached else ""
    return ("", "", "=") if all(char in _DOCKER_SWITCHES for char in name) else (name, value, equals)


def inside(engine: str | None, words: Sequence[str]) -> Iterator[Found]:
    """What runs in a container: a whole command, a shell line, or only the flags of the image's own server."""
    if len(words) >= 3 and words[0].rpartition("/")[2] in ("sh", "bash") and words[1] in ("-c", "-lc", "-ec", "-exc"):
        for part in re.split(r"&&|;|\n", words[2]):
            yield from command(part)
        return
    joined = shlex.join(words)
    if _program(joined)[0] is not None:
        yield from command(joined)
    elif not (engine == "ollama" and tuple(words[:1]) == ("serve",)):  # the image's own verb, no model
        yield from flags(engine, words)


def _launcher(text: str, words: Sequence[str]) -> Iterator[Found]:
    """torchrun, accelerate, deepspeed: their own options under their name, then the script and its flags."""
    name = "torchrun" if "torch" in text.split(None, 3)[0] + text[:60] else text.split(None, 1)[0]
    i = 0
    while i < len(words) and words[i].startswith("-"):
        option, equals, value = words[i].lstrip("-").partition("=")
        i += 1
        if (
            not equals
            and i < len(words)
            and not words[i].startswith("-")
            and not _is_switch(option)
            and not words[i].endswith(".py")
        ):
            value = words[i]
            i += 1
        yield Found(f"{name}:{option.replace('_', '-')}", value or "True")
    if i < len(words):
        yield Found(f"{name}:script", words[i])
        yield from flags(None, words[i + 1 :])


_TELLING = {
    "vllm": {"gpu-memory-utilization", "max-model-len", "max-num-seqs", "max-num-batched-tokens", "kv-cache-dtype",
             "enforce-eager", "tensor-parallel-size", "swap-space"},
    "sglang": {"mem-fraction-static", "context-length", "tp-size", "chunked-prefill-size", "max-running-requests"},
    "llama.cpp": {"n-gpu-layers", "ctx-size", "cache-type-k", "ubatch-size", "ngl"},
    "tgi": {"max-batch-prefill-tokens", "max-input-length", "max-input-tokens", "cuda-memory-fraction", "num-shard"},
}  # fmt: skip


def engine_of_flags(words: Sequence[str]) -> str | None:
    """Whose flags these are, where a flag tells."""
    names = {word.lstrip("-").partition("=")[0].replace("_", "-") for word in words if word.startswith("-")}
    return next((engine for engine, telling in _TELLING.items() if names & telling), None)
