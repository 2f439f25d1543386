"""Engines that refuse to start for want of KV memory, that find too little memory free, or that see it change.

Read wherever they stand, with or without the rest of the log: an error line pasted alone must be understood.
(vLLM of every era: shared facts, vllm.md B.1; SGLang A6, TensorRT-LLM D, TGI E1, LMDeploy E2 of engines.md.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.engine import Concurrency, KvShortfall
from loadpath.core.facts.errors import FreeBelowDesired, MemoryChangedWhileProfiling
from loadpath.core.facts.memory import (
    MemoryUnbalanced,
    NoRoomForKv,
    ProfiledItems,
    SleepReport,
    WarmUpShortage,
)
from loadpath.core.text import Capture
from loadpath.core.units import GIB, gib
from loadpath.readers.joined import readings

WINDOW = 10  # a wrapped message is looked for in so many lines
Maker = Callable[[re.Match[str]], tuple[type[Fact], dict[str, Any]] | None]


def _shortfall_tokens(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
    return KvShortfall, {"asked_tokens": int(m["asked"]), "held_tokens": int(m["held"]) if m["held"] else None}


def _shortfall_bytes(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
    return KvShortfall, {
        "asked_tokens": int(m["asked"]),
        "needed_bytes": gib(float(m["need"])),
        "available_bytes": gib(float(m["have"])) if m["have"] else None,
        "estimated_tokens": int(m["fits"]) if m["fits"] else None,
    }


def _warning_tokens(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
    return Concurrency, {"context_tokens": int(m["asked"]), "ratio": int(m["held"]) / int(m["asked"])}


def _free_below(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
    device = re.search(r"\d+", m["device"] or "")
    return FreeBelowDesired, {
        "free_bytes": gib(float(m["free"])),
        "total_bytes": gib(float(m["total"])),
        "utilisation": float(m["share"]) if m["share"] else None,
        "desired_bytes": gib(float(m["want"])) if m["want"] else None,
        "device": int(device[0]) if device else None,
    }


def _changed(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
    def size(figure: str) -> int:
        value = float(figure)
        return gib(value) if value < 1 << 20 else round(value)  # bytes without a unit up to 0.9.0

    return MemoryChangedWhileProfiling, {
        "initial_bytes": size(m["first"]),
        "current_bytes": size(m["now"]) if m["now"] else None,
        "measure": m["measure"].lower(),
    }


def _no_room(engine: str, **fields: Any) -> Maker:
    def make(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
        groups = m.groupdict()
        made: dict[str, Any] = {"engine": engine, **fields}
        for name in ("fraction", "least_fraction"):
            if groups.get(name):
                made[name] = float(groups[name])
        if groups.get("left"):
            made["available_bytes"] = round(float(groups["left"]) * GIB)
        if groups.get("component"):
            made["component"] = groups["component"].strip()
        for name in ("tokens", "prefill_tokens"):
            if groups.get(name):
                made[name] = int(groups[name])
        if groups.get("total"):
            made["total_bytes"] = round(float(groups["total"]) * GIB)
        if groups.get("before") and groups.get("after"):
            made["model_bytes"] = round((float(groups["before"]) - float(groups["after"])) * GIB)
        return NoRoomForKv, made

    return make


def _warm_up(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
    return WarmUpShortage, {"what": m["what"], "requests": int(m["requests"]) if m["requests"] else None}


def _items(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
    items = re.findall(r"'(\w+)': (\d+)", m["items"] or "")
    return ProfiledItems, {
        "tokens": int(m["tokens"]),
        "items": tuple((name, int(n)) for name, n in items),
        "context_tokens": int(m["context"]) if m["context"] else None,
    }


def _counts(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
    return ProfiledItems, {"tokens": int(m["tokens"]), "counts": ((m["what"], int(m["count"])),)}


def _unbalanced(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
    return MemoryUnbalanced, {
        "least_bytes": gib(float(m["least"])) if m["least"] else None,
        "local_bytes": gib(float(m["local"])) if m["local"] else None,
    }


def _slept(m: re.Match[str]) -> tuple[type[Fact], dict[str, Any]]:
    return SleepReport, {"freed_bytes": gib(float(m["freed"])), "still_bytes": gib(float(m["still"]))}


_NUMBER = r"-?[\d.]*\d"
# literal (lower case, in the first line of the message), pattern over the joined window, maker
_TEXTS: tuple[tuple[str, str, Maker], ...] = (
    ("max seq len (", r"max seq len \((?P<asked>\d+)\) is larger than the maximum number of tokens that can be stored in"
     r"(?: the)? KV cache(?: \((?P<held>\d+)\))?", _shortfall_tokens),
    ("max seq len (", rf"max seq len \((?P<asked>\d+)\),? \(?(?P<need>{_NUMBER}) ?Gi?B KV cache is needed"
     rf"(?:,? which is larger than the available KV cache memory \((?P<have>{_NUMBER}) ?Gi?B\))?"
     r"(?:.{0,80}?estimated maximum model length is (?P<fits>\d+))?", _shortfall_bytes),
    ("kv pool holds", r"KV pool holds (?P<held>\d+) tokens, fewer than --context-length (?P<asked>\d+)", _warning_tokens),
    ("no available memory for the cache blocks", r"No available memory for the cache blocks", _no_room("vllm")),
    ("cannot auto-fit max_model_len", r"Cannot auto-fit max_model_len", _no_room("vllm")),
    ("please try to increase --mem-fraction-static", r"Not enough memory[.,]? Please try to increase --mem-fraction-static"
     r"(?:.{0,60}?mem_fraction_static=(?P<fraction>[\d.]*\d))?", _no_room("sglang")),
    ("leave no gpu memory for the kv cache", r"leave no GPU memory for the KV cache under --mem-fraction-static=(?P<fraction>[\d.]*\d)"
     r"(?:.{0,40}? above (?P<least_fraction>[\d.]*\d))?", _no_room("sglang")),
    ("state cache", r"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache"
     rf"(?:.{{0,80}}?total_rest_memory=(?P<left>{_NUMBER}) GB)?", _no_room("sglang", pool="state")),
    ("state cache is too small", r"state cache is too small to serve any requests", _no_room("sglang", pool="state")),
    ("than the profiled value", r"max_total_tokens=\d+ is larger than the profiled value -\d+", _no_room("sglang")),
    ("memory pool size is too small", r"Memory pool size is too small", _no_room("sglang")),
    ("maxtokensinpagedkvcache", r"maxTokensInPagedKvCache must be large enough to process at least 1 sequence"
     r"(?:.{0,60}?must be larger than (?P<tokens>\d+))?", _no_room("tensorrt-llm", one_sequence=True)),
    ("insufficient gpu memory", r"Executor creation failed due to insufficient GPU memory"
     r"(?:.{0,80}?could not be created: (?P<component>[\w ]+?)(?= Total|$))?"
     rf"(?:.{{0,40}}?Total GPU memory \(GiB\): (?P<total>{_NUMBER}))?"
     rf"(?:.{{0,60}}?Free GPU memory before component creation attempt \(GiB\): (?P<left>{_NUMBER}))?"
     rf"(?:.{{0,120}}?\bModel: (?P<before>{_NUMBER}) / (?P<after>{_NUMBER}))?", _no_room("tensorrt-llm")),
    ("no enough gpu memory for", r"No enough gpu memory for (?:kv cache|runtime)", _no_room("lmdeploy")),
    ("not enough memory to handle", r"Not enough memory to handle (?P<tokens>\d+) total tokens with (?P<prefill_tokens>\d+) prefill tokens",
     _no_room("tgi")),
    ("warmup(notenoughmemory", r"Warmup\(NotEnoughMemory\((?P<tokens>\d+)\)", _no_room("tgi", pool="prefill")),
    ("not enough memory to handle", r"Not enough memory to handle (?P<tokens>\d+) prefill tokens", _no_room("tgi", pool="prefill")),
    ("not enough memory to handle", r"Not enough memory to handle `?max_total_tokens=(?P<tokens>\d+)", _no_room("tgi")),
    ("free memory on device", rf"Free memory on device ?(?P<device>[\w:]+)? ?\((?P<free>{_NUMBER})/(?P<total>{_NUMBER}) GiB\) on startup"
     rf" is less than (?:desired GPU memory utilization \((?P<share>[\d.]+), (?P<want>{_NUMBER}) GiB\))?", _free_below),
    ("error in memory profiling", rf"Error in memory profiling\. Initial (?P<measure>free|used) memory:? (?P<first>{_NUMBER})(?: GiB)?"
     rf"(?:,? current(?:ly)? (?:free|used) memory:? (?P<now>{_NUMBER}))?", _changed),
    ("warming up", r"out of memory occurred when warming up (?P<what>sampler|pooler)(?:.{0,30}?with (?P<requests>\d+) dummy requests)?",
     _warm_up),
    ("is too short to hold the multi-modal embeddings",
     r"(?:context length \((?P<context>\d+)\)[^(]{0,200})?in the worst case \((?P<tokens>\d+) tokens in total"
     r"(?:, out of which \{(?P<items>[^}]*)\})?", _items),
    ("encoder cache will be initialized", r"with a budget of (?P<tokens>\d+) tokens, and profiled with (?P<count>\d+) (?P<what>\w+) items",
     _counts),
    ("memory capacity is unbalanced", r"memory capacity is unbalanced.{0,60}occupied by other processes"
     rf"(?:.{{0,60}}?memory=(?P<least>{_NUMBER}))?(?:.{{0,20}}?local_gpu_memory=(?P<local>{_NUMBER}))?", _unbalanced),
    ("sleep mode freed", rf"Sleep mode freed (?P<freed>{_NUMBER}) GiB memory, (?P<still>{_NUMBER}) GiB memory is still in use", _slept),
)  # fmt: skip
# Wrapped messages begin with a literal that the wrap may have cut: their first words alone are looked for as well.
_SHORT = 18
_FRACTION = re.compile(r"(?:kv_cache_)?free_gpu_mem(?:ory)?_fraction[\"'`]?\s*[:=]\s*[\"'`]?(0?\.\d+|1(?:\.0+)?)\b")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def read(capture: Capture) -> Iterator[Fact]:
    lines = [line for line in capture.lines if not line.prose]
    for i, line in enumerate(lines):
        low = line.text.lower()
        for literal, pattern, make in _TEXTS:
            if literal[:_SHORT] not in low:
                continue
            found = _fullest(pattern, readings(lines, i, WINDOW))
            if found is None or (made := make(found)) is None:
                continue
            kind, fields = made
            if kind is NoRoomForKv and fields["engine"] == "tensorrt-llm" and (share := _FRACTION.search(capture.text)):
                fields = {**fields, "fraction": float(share[1])}
            yield kind(**at(capture, line), **fields)
            break


def _fullest(pattern: str, texts: list[str]) -> re.Match[str] | None:
    """The match in the reading of the message in which most of the pattern's figures are found."""
    matches = [found for text in texts if (found := _compiled(pattern).search(text))]
    return max(matches, key=lambda found: sum(group is not None for group in found.groups()), default=None)
