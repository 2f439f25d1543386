"""What only the order of llama.cpp's lines tells: which KV cache is the sliding one, which exit was a stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import KvPool, ServerReady, StepMark, Stopped
from loadpath.core.facts.placement import SidePool


def settled(facts: Sequence[Fact]) -> list[Fact]:
    """`facts` in the order of their lines: one ServerReady a start, no stop before it, window caches named."""
    out = list(_once_ready(sorted(facts, key=lambda fact: fact.span.first_line)))
    sizes = [fact.tokens for fact in out if isinstance(fact, KvPool) and fact.tokens]
    largest = max(sizes, default=0)
    return [
        _sliding(fact) if isinstance(fact, KvPool) and fact.tokens and fact.tokens < largest else fact for fact in out
    ]


def _sliding(pool: KvPool) -> SidePool:
    common = {"span": pool.span, "origin": pool.origin, "text": pool.text, "run": pool.run}
    return SidePool(**common, what="sliding", tokens=pool.tokens, bytes=pool.bytes, dtype=pool.dtype)  # type: ignore[arg-type]


def _once_ready(facts: Sequence[Fact]) -> Iterator[Fact]:
    """`cleaning up before exit` also follows a failed load, and `all slots are idle` each burst of requests."""
    ready = stopped = serving = context = False
    ended: set[str] = set()
    for fact in facts:
        step = fact.step if isinstance(fact, StepMark) else ""
        if step == "context-creation" and context:
            continue
        context = context or step == "context-creation"
        if (isinstance(fact, ServerReady) and ready) or step in ended or (step == "serving" and serving):
            continue
        if step in ("http-server", "warm-up") and isinstance(fact, StepMark) and fact.event == "ended":
            ended.add(step)
        if step == "shutdown" and not ready:
            continue
        if isinstance(fact, Stopped) and (not ready or stopped):
            continue
        ready = ready or isinstance(fact, ServerReady)
        stopped = stopped or isinstance(fact, Stopped)
        serving = serving or step == "serving"
        yield fact
