"""Figures of a log that contradict each other, or two starts that cannot be of one model. Notes, never a cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import Concurrency, KvPool, KvShortfall, MemoryBreakdown, WeightsLoaded
from loadpath.core.report import Finding
from loadpath.core.units import GIB, MIB, show_bytes, show_count
from loadpath.diagnosis.memory.fits import fit_of, is_hybrid, model_name, pool_of
from loadpath.diagnosis.rule import Rule, finding
from loadpath.planning.kv import DERIVED_TOKENS_SINCE, budget, most_bytes_per_token
from loadpath.planning.names import model_of
from loadpath.planning.remedies import Fit

ROUNDING = 0.06 * GIB  # six figures of two decimals
GROUPED_SINCE = (0, 9, 2)  # between this and 0.20.0 hybrids print tokens that are not concurrency x context
APART = 2.6  # times: one model's bytes per token differ by 2 (cache type), never by so much
LONG = 4096  # tokens: below, a request's fixed state weighs too much in bytes / tokens


class Start(msgspec.Struct, frozen=True):
    """One start's KV bytes per token, as its figures have it, and what they were taken from."""

    per_token: float
    fit: Fit
    facts: tuple[Fact, ...]
    name: str | None


def start_of(case: Case) -> Start | None:
    """KV bytes of one full-length request / its tokens: valid in every version, since concurrency is bytes / need."""
    shortfall = case.last(KvShortfall)
    fit = fit_of(case, shortfall, shortfall)
    wanted = fit.wanted_bytes
    if wanted is None or not fit.context or fit.context < LONG or not fit.kv_bytes or fit.kv_bytes <= 0:
        return None
    kinds: tuple[type[Fact], ...] = (MemoryBreakdown, KvPool, Concurrency, KvShortfall)
    facts = tuple(f for kind in kinds for f in case.all(kind)[-1:])
    return Start(wanted / fit.context, fit, facts, model_name(case))


def show_mib(size: float) -> str:
    return f"{size / MIB:.2f} MiB"


def too_dear(start: Start | None) -> str:
    """Whether a token of this start would take more than any model of its size keeps; a sentence, or ""."""
    if start is None or not start.fit.weights_bytes:
        return ""
    parameters = start.fit.weights_bytes * 8 / start.fit.weight_bits
    most = most_bytes_per_token(parameters, start.fit.kv_bits)
    if start.per_token <= most:
        return ""
    tokens = start.fit.tokens or (start.fit.held or 0) * (start.fit.context or 0)
    return (
        f"{show_bytes(start.fit.kv_bytes or 0)} for {show_count(tokens)} tokens is {show_mib(start.per_token)} a token, "
        f"which no such model needs (about {parameters / 1e9:.0f}B parameters keep less than {show_mib(most)}): "
        "the figures do not belong together."
    )


def judge_figures(case: Case) -> Iterator[Finding]:
    cut = case.setting("num-gpu-blocks-override") is not None  # then the pool's tokens say nothing of its memory
    start = None if cut else start_of(case)
    said = [
        (sentence, facts)
        for sentence, facts in (
            ("" if case.has(KvShortfall) else too_dear(start), start.facts if start else ()),
            _share(case),
            _concurrency(case),
        )
        if sentence
    ]
    if said:
        text = " ".join(sentence for sentence, _ in said)
        facts = [fact for _, own in said for fact in own]
        yield finding("figures-contradict", facts, case=case, values={"contradiction": text})


def _share(case: Case) -> tuple[str, tuple[Fact, ...]]:
    """The KV share as printed against the sum of the other figures, where one line prints them all."""
    limit = next((b for b in case.all(MemoryBreakdown) if b.total_bytes and b.utilisation), None)
    parts = next(
        (
            b
            for b in case.all(MemoryBreakdown)
            if b.kv_bytes is not None and b.weights_bytes and b.activation_bytes is not None
        ),
        None,
    )
    if (
        limit is None
        or parts is None
        or parts.kv_bytes is None
        or limit.total_bytes is None
        or limit.utilisation is None
    ):
        return "", ()
    allowed = limit.budget_bytes or budget(limit.total_bytes, limit.utilisation)
    left = (
        allowed
        - (parts.weights_bytes or 0)
        - (parts.non_torch_bytes or 0)
        - (parts.activation_bytes or 0)
        - (parts.graph_bytes or 0)
    )
    if parts.consumed_bytes is not None or abs(left - parts.kv_bytes) <= ROUNDING:
        return "", ()
    return (
        f"The KV share by the log's own figures is {show_bytes(left)}, but {show_bytes(parts.kv_bytes)} is printed.",
        (limit, parts),
    )


def _concurrency(case: Case) -> tuple[str, tuple[Fact, ...]]:
    """Tokens / context against the printed concurrency, in the versions where the one is made from the other."""
    served, pool, version = case.last(Concurrency), pool_of(case), case.version
    if served is None or pool is None or not pool.tokens or version is None or is_hybrid(case):
        return "", ()
    if GROUPED_SINCE <= version < DERIVED_TOKENS_SINCE:
        return "", ()
    ratio = pool.tokens / served.context_tokens
    if abs(ratio - served.ratio) <= 0.03 * served.ratio + 0.02:
        return "", ()
    return (
        f"{show_count(pool.tokens)} tokens are {ratio:.2f} requests of {show_count(served.context_tokens)}, but "
        f"{served.ratio:.2f}x is printed.",
        (pool, served),
    )


def judge_runs(case: Case) -> Iterator[Finding]:
    """Two starts of one model in the input whose bytes per token differ more than a cache type explains."""
    starts = [s for c in (*case.earlier, case) if (s := start_of(c)) is not None]
    for first, last in pairwise(starts):
        if first.fit.tensor_parallel != last.fit.tensor_parallel or not _same_model(first.name, last.name):
            continue
        times = max(first.per_token, last.per_token) / min(first.per_token, last.per_token)
        if times < APART:
            continue
        bits = sorted({first.fit.kv_bits, last.fit.kv_bits})
        values = {
            "times": f"{times:.0f}",
            "one": _words(first),
            "two": _words(last),
            "eight": "An 8-bit against a 16-bit cache explains a factor of two, no more." if len(bits) > 1 else "",
        }
        yield finding("runs-do-not-belong-together", [*first.facts, *last.facts], case=case, values=values)
        return


def _words(start: Start) -> str:
    tokens = start.fit.tokens or (start.fit.held or 0) * (start.fit.context or 0)
    return f"{show_bytes(start.fit.kv_bytes or 0)} / {show_count(tokens)} tokens = {show_mib(start.per_token)}"


def _same_model(one: str | None, two: str | None) -> bool:
    """Whether two names can be of one model in different storage (`X-27B`, `X-27B-FP8`); unnamed ones can."""
    if not one or not two:
        return True
    bare = [
        re.sub(
            r"[-_.]?(?:fp8|awq|gptq|int[48]|w\d+a\d+|nvfp4|bnb|4bit|8bit|dynamic|quantized.*)",
            "",
            n.rstrip("/").split("/")[-1].lower(),
        )
        for n in (one, two)
    ]
    sizes = [model_of(n) for n in (one, two)]
    if sizes[0] and sizes[1] and sizes[0].parameters != sizes[1].parameters:
        return False
    return bare[0] == bare[1]


RULES = (
    Rule(judge_figures, (MemoryBreakdown,), ("figures-contradict",), (WeightsLoaded, KvPool, Concurrency, KvShortfall)),
    Rule(judge_runs, (MemoryBreakdown,), ("runs-do-not-belong-together",), (Concurrency, KvPool)),
)
