"""What to look for in a source that is too big to be read line by line: the literals of all that knows a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from loadpath.engines import registry as engines
from loadpath.intake.sieve import Sign
from loadpath.knowledge.tables import findings
from loadpath.readers import registry as readers

SHORTEST = 5  # characters; shorter literals stand in too many lines
BLOCK_LINES = 80  # a table, a dump or a traceback is as long
START_LINES = 400  # what an engine prints from its first word until it serves

# Lines that are worth reading whatever program printed them.
_GENERAL = (
    Sign("Traceback (most recent call last)", 2, 120),
    Sign(" ERROR ", 1, 2),
    Sign("Error: ", 3, 6),
    Sign("Exception: ", 3, 6),
    Sign("CRITICAL", 1, 3),
    Sign("FATAL", 1, 4),
    Sign("panic: ", 1, 40),
    Sign("Killed", 1, 2),
    Sign("NVRM: ", 1, 2),
    Sign("Segmentation fault", 2, 20),
    Sign("core dumped", 2, 2),
    Sign("what():  ", 2, 2),
    Sign("Failed to ", 1, 2),
    Sign("| NVIDIA-SMI ", 2, 60),
    Sign("<nvidia_smi_log>", 3, 600),
)
_STARTS = (
    "API server version", "Initializing a V1 LLM engine", "Initializing an LLM engine", "Initializing a V0 LLM engine",
    "server_args=", "ServerArgs(", "llama_server: initializing", "llama_model_loader: loaded meta data", 'msg="server config"',
    "Args {", "TensorRT LLM version", "TensorRT-LLM version", "Started server process",
)  # fmt: skip
# What a JSON line escapes, or a terminal's colour codes may split, is no part of a literal.
_SAFE = re.compile(r"[^\"\\<>&\x00-\x1f\x7f-\U0010ffff]+")


def signs() -> list[Sign]:
    """All signs, one for each literal (that with the most lines around it)."""
    best: dict[str, Sign] = {}
    for sign in _all():
        literal = _longest_safe(sign.literal)
        if len(literal) < SHORTEST:
            continue
        held = best.get(literal)
        if held is None or held.after < sign.after:
            best[literal] = Sign(literal, sign.before, sign.after)
    return list(best.values())


def _all() -> Iterator[Sign]:
    yield from _GENERAL
    yield from (Sign(literal, 1, START_LINES) for literal in _STARTS)
    for row in findings().values():
        for match in row.match:
            yield from (Sign(literal) for literal in match.literals)
    for entry in readers.READERS:
        after = BLOCK_LINES if entry.where == "block" else 2
        yield from (Sign(sniff, 1, after) for sniff in entry.sniffs)
    for engine in engines.ENGINES:
        yield from (Sign(sniff, 0, 0) for sniff in engine.sniffs)
        yield from (Sign(literal, 0, 0) for literal in _own_literals(engine))


def _own_literals(entry: engines.EngineEntry) -> Iterable[str]:
    """The literals of the lines that an engine's package reads, where it tells them."""
    tell = getattr(engines.load(entry), "literals", None)
    return tell() if tell else ()


def _longest_safe(literal: str) -> str:
    return max(_SAFE.findall(literal), key=len, default="").lower()
