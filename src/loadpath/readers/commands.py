"""Command lines in a paste: `docker run`, `vllm serve`, `torchrun`, …, with prompts, variables and continuations.

root@gpu1:~# CUDA_VISIBLE_DEVICES=0,1 vllm serve org/model --max-model-len 8192 \\
    --gpu-memory-utilization 0.95 -tp 2
--gpu-memory-utilization=0.95 --tensor-parallel-size 2
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from loadpath.core.facts.base import at
from loadpath.core.facts.engine import Setting
from loadpath.core.text import Capture, Line
from loadpath.readers.command_flags import Found, command, engine_of_flags, flags, words_of

LONGEST = 120
"""Lines of one command."""
_NAMES = (
    "docker", "podman", "nerdctl", "vllm", "python", "sglang", "llama-", "/server", "ollama", "trtllm-", "text-generation-",
    "lmdeploy", "tritonserver", "torchrun", "accelerate", "deepspeed", "export ",
)  # fmt: skip


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile({
        "prompt": r"^\s*(?:[-*•]\s+)?(?:\([\w.-]+\)\s*)*(?:[\w.-]+@[\w.-]+(?:[: ][^#$%>]*)?[#$%>]|\[[^\]]*\]\s*[#$]|[$#>%❯➜»]|"
        r"bash-\d[\d.]*[#$]|PS [A-Z]:[^>]*>|\+{1,3})\s+",
        "begins": r"^\s*(?:(?:sudo|nohup|time|exec|env|srun|numactl|nsys|uv|poetry|export|set)\b|[A-Z_][A-Z0-9_]*=\S|\S*docker |\S*podman |"
        r"nerdctl |\S*vllm |\S*python[\d.]* |sglang |\S*llama-|\S*/server |\S*ollama |trtllm-|text-generation-|lmdeploy |"
        r"\S*tritonserver|torchrun |accelerate |deepspeed )",
        "quoted": r"`([^`]+)`",
        "flags": r"^\s*-{1,2}[a-zA-Z][\w.-]*(?:[= ]|$)",
        "long-flag": r"(?:^|\s)--[a-z][\w.-]{2,}",
        "label": r"^\s*(?:command(?: line)?|cmd|launch(?:ed)? (?:command|with)|run(?:ning)?|start(?:ed)? with|args?)\s*[:=]\s+",
    }[name], re.IGNORECASE if name == "label" else 0)  # fmt: skip


def read(capture: Capture) -> Iterator[Setting]:
    lines = capture.lines
    i = 0
    while i < len(lines):
        text, end = lines[i].text, i + 1
        if any(name in text for name in _NAMES):
            bare = _bare(text)
            if _pattern("begins").match(bare):
                end = _end(lines, i)
                yield from _facts(capture, lines, i, end, command(_joined(bare, lines[i + 1 : end])))
            else:
                for quoted in _pattern("quoted").findall(text):
                    yield from _facts(capture, lines, i, end, command(quoted))
        elif _pattern("flags").match(text) and _pattern("long-flag").search(text):
            end = _end(lines, i)
            words = words_of(_joined(text, lines[i + 1 : end]))
            if _only_flags(words):
                yield from _facts(capture, lines, i, end, flags(engine_of_flags(words), words))
        i = end


def _bare(text: str) -> str:
    """`text` without a shell's prompt or a label before it."""
    for name in ("label", "prompt", "prompt"):
        if found := _pattern(name).match(text):
            text = text[found.end() :]
    return text.strip().strip("`")


def _end(lines: Sequence[Line], i: int) -> int:
    """The index after a command: it goes on behind a backslash, and where the next line is nothing but flags."""
    end = i + 1
    while end < min(len(lines), i + LONGEST):
        before, here = lines[end - 1].text.rstrip(), lines[end].text
        goes_on = before.endswith(("\\", "^", "`")) and not before.endswith("``")
        flags_only = _pattern("flags").match(here) and _only_flags(words_of(here.rstrip("\\ ")))
        if not goes_on and (not flags_only or " | " in before or ">" in before):
            break
        end += 1
    return end


def _joined(first: str, more: Sequence[Line]) -> str:
    parts = [first, *(line.text for line in more)]
    return " ".join(part.strip().rstrip("\\^").rstrip() for part in parts if not part.lstrip().startswith("# "))


def _only_flags(words: Sequence[str]) -> bool:
    """Is this a list of flags and values, and no sentence that begins with a dash?"""
    bare = [word for i, word in enumerate(words) if not word.startswith("-") and i and not words[i - 1].startswith("-")]
    return not bare


def _facts(
    capture: Capture, lines: Sequence[Line], i: int, end: int, found: Sequence[Found] | Iterator[Found]
) -> Iterator[Setting]:
    where = at(capture, lines[i], lines[end - 1])
    for name, value, engine, basis in found:
        yield Setting(**where, name=name, value=value, basis=basis, engine=engine)
