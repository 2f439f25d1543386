"""Engines started from Python: the calls in a paste that name a model and its settings.

llm = LLM(model="org/model-14b", gpu_memory_utilization=0.95, max_model_len=32768)
pipe = pipeline('/models/some-7b', backend_config=TurbomindEngineConfig(tp=2, session_len=8192))
engine_args = AsyncEngineArgs(model='org/model-8b', tensor_parallel_size=2, …)      AutoModel.from_pretrained("org/name")
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.engine import ModelNamed, Setting
from loadpath.core.text import Capture

LONGEST = 25  # lines of one call
_ENGINES = (
    ("vllm", r"\b(?:LLM|AsyncLLM|AsyncEngineArgs|EngineArgs|VLLM)\("),
    ("sglang", r"\b(?:sgl\.Engine|sglang\.Engine|ServerArgs)\("),
    ("lmdeploy", r"\b(?:TurbomindEngineConfig|PytorchEngineConfig)\("),
    (None, r"\bpipeline\(|\.from_pretrained\("),
)
_ARGUMENT = r"\b(?P<name>[a-z][a-z0-9_]{2,40})\s*=\s*(?P<value>\"[^\"\n]*\"|'[^'\n]*'|-?[\d.]+|True|False)"
_FIRST = (
    r"(?:pipeline|from_pretrained|LLM|Engine|TurbomindEngineConfig)\(\s*(?P<quote>['\"])(?P<model>[\w./\-]+)(?P=quote)"
)
_OPTION = r"--model_?(?:type|id|path|name|name_or_path)?[ =]+['\"]?(?P<model>[\w./\-]+)"
_MODELS = ("model", "model_path", "model_name_or_path", "pretrained_model_name_or_path")


@cache
def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def read(capture: Capture) -> Iterator[Fact]:
    lines = capture.lines
    for i, line in enumerate(lines):
        if "--model_" in line.text and (option := _re(_OPTION).search(line.text)):
            yield ModelNamed(**at(capture, line), name=option["model"])
        if "(" not in line.text or (found := _call(line.text)) is None:
            continue
        engine, start = found
        call = _whole(line.text[start:], [follow.text for follow in lines[i + 1 : i + LONGEST]])
        if first := _re(_FIRST).search(call):
            yield ModelNamed(**at(capture, line), name=first["model"])
        for argument in _re(_ARGUMENT).finditer(call):
            name, value = argument["name"], argument["value"].strip("\"'")
            if name in _MODELS:
                yield ModelNamed(**at(capture, line), name=value)
            elif engine:
                yield Setting(
                    **at(capture, line), name=name.replace("_", "-"), value=value, basis="command", engine=engine
                )


def _call(text: str) -> tuple[str | None, int] | None:
    """The engine whose call begins in `text`, and where; None where there is none (definitions and imports are none)."""
    if text.lstrip().startswith(("def ", "class ", "import ", "from ")):
        return None
    found = [(engine, match.start()) for engine, pattern in _ENGINES if (match := _re(pattern).search(text))]
    if not found:
        return None
    return next((engine for engine, _ in found if engine), None), min(start for _, start in found)


def _whole(text: str, following: list[str]) -> str:
    """The call up to its closing bracket, over as many lines as it takes."""
    for more in ("", *following):
        text = f"{text} {more.strip()}" if more else text
        if text.count("(") <= text.count(")"):
            break
    depth = 0
    for i, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and char == ")":
            return text[: i + 1]
    return text
