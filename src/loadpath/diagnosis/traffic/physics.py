"""A benchmark against what the card can do: figures that cannot be, and the part of the roof that was reached."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from loadpath.core.case import Case
from loadpath.core.facts.traffic import Benchmark, BenchTimeline, LlamaBenchTest
from loadpath.core.report import Figures, Finding, Remedy
from loadpath.core.units import show_bytes
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.cards import cards
from loadpath.diagnosis.traffic.floor import Floor, context, floor_of, in_flight, pace, tokens_a_step
from loadpath.knowledge.gpus import by_name

SLACK = 0.97
"""A figure is impossible only below so much of its floor: tools round, and boards run a little above their nominal clock."""
BOOST = 1.15
"""Boards run above the clock that their peak rate is stated for, by about a tenth: more is impossible."""
NEAR_ROOF, FAR_FROM_ROOF = 0.65, 0.35
IDLE, MANY_SAMPLES = 0.8, 3
"""NVML's utilisation below which a card waits between kernels, in so many stretches at least."""


def ms(seconds: float, digits: int = 3) -> str:
    """`"13.2 ms"`, `"21.1 s"`; a figure that was read has one digit more than one that was computed."""
    return f"{seconds * 1e3:.{digits}g} ms" if seconds < 1 else f"{seconds:.{digits}g} s"


def judge_impossible(case: Case) -> Iterator[Finding]:
    """Tokens that come faster than one reading of the weights takes."""
    for bench in case.all(Benchmark):
        floor, gap = floor_of(case, bench), pace(bench)
        if floor is None or gap is None or not floor.fits or bench.output_basis == "chunks":
            continue
        least = floor.weights_seconds
        if gap * tokens_a_step(bench) >= least * SLACK:
            continue
        yield _impossible(case, bench, floor, gap, least)
        return


def _impossible(case: Case, bench: Benchmark, floor: Floor, gap: float, least: float) -> Finding:
    bandwidth = floor.cards.bandwidth_bytes_per_s * floor.cards.tensor_parallel
    card = f"{floor.gpu} ({bandwidth / 1e9:,.0f} GB/s)" if floor.gpu else f"{bandwidth / 1e9:,.0f} GB/s"
    cards = f"{floor.cards.tensor_parallel} x " if floor.cards.tensor_parallel > 1 else ""
    requests, cached = in_flight(bench), context(bench)
    with_cache = ""
    if floor.whole and requests and cached:
        full = floor.step(round(requests), cached).itl_seconds
        with_cache = f" With the caches of {requests:.0f} requests of about {cached:,} tokens it is {ms(full)}."
    most = gap / least
    routed = "" if floor.whole else ", a mixture of experts"
    name = "TPOT" if bench.tpot and bench.tpot.average else "ITL"
    return finding(
        "bench-impossible-figure",
        (bench, *floor.facts),
        case=case,
        certainty="established" if floor.sure else "likely",
        title=f"{name} {ms(gap)} is impossible as one step a token: reading the weights alone takes {ms(least)}",
        cause=f"{show_bytes(floor.read_bytes)} of weights read per step ({floor.told}) over {cards}{card} take at least "
        f"{ms(least)}; {name} {ms(gap)} would need {bandwidth / most / 1e9:,.0f} GB/s.{with_cache} Either a step gives more than "
        f"{least / gap:.2f} tokens (speculative decoding), or fewer bytes are read (quantised weights, another "
        f"model{routed}), or the card is another one or more than one. The tool may also count chunks or tokens wrongly.",
        figures={
            "itl_seconds": gap,
            "floor_seconds": least,
            "weight_bytes": round(floor.read_bytes),
            "bandwidth_bytes_per_s": bandwidth,
            "tokens_per_step_needed": round(least / gap, 3),
        },
    )


def judge_share(case: Case) -> Iterator[Finding]:
    """How much of the roof the steps reached, and what bounds them."""
    for bench in reversed(case.all(Benchmark)):
        floor, gap, requests = floor_of(case, bench), pace(bench), in_flight(bench)
        if floor is None or gap is None or not requests or not floor.fits:
            continue
        step = floor.step(round(requests), context(bench))
        many = tokens_a_step(bench)
        share = step.itl_seconds / (gap * many)
        if share > 1 / SLACK or gap * many < floor.weights_seconds * SLACK:
            return  # below a floor: said by the rule above, or the requests at once are not what they seem
        yield _share(case, bench, floor, share, round(requests), gap)
        return


def _share(case: Case, bench: Benchmark, floor: Floor, share: float, requests: int, gap: float) -> Finding:
    step = floor.step(requests, context(bench))
    what = (
        "weights alone"
        if not floor.whole
        else f"weights and the caches of {requests} requests of {context(bench):,} tokens"
    )
    base = (
        f"A step of {requests} requests cannot take less than {ms(step.itl_seconds)} on {floor.gpu or 'this card'} "
        f"({what}, {floor.told}; {step.limit}-bound); measured were {ms(gap)} a token: {share:.0%} of what the card allows."
    )
    if (computed := floor.compute_share(bench)) is not None:
        base += f" All tokens of the run together took {computed:.1%} of the compute peak."
    figures: Figures = {
        "share_of_roof": round(share, 4), "floor_seconds": step.itl_seconds, "itl_seconds": gap, "requests": requests,
    }  # fmt: skip
    if computed is not None:
        figures["share_of_compute"] = round(computed, 4)
    if share >= NEAR_ROOF and step.limit == "bandwidth":
        more = floor.step(requests * 2, context(bench))
        title = f"Decode runs at {share:.0%} of the {step.limit} roof with {requests} requests at once"
        gain = more.tokens_per_s / step.tokens_per_s
        effect = (
            f"twice as many would allow up to {gain:.2f} times the tokens/s, at {ms(more.itl_seconds)} a step at least"
        )
        return finding(
            "bench-near-roof", (bench, *floor.facts), case=case, title=title,
            cause=f"{base} No profiler finds much more here; next, one change alone: --concurrency {requests * 2}.",
            values={"effect": effect, "more": requests * 2, "requests": requests}, figures=figures,
        )  # fmt: skip
    if share < FAR_FROM_ROOF:
        title = f"Decode reaches {share:.0%} of the {step.limit} roof: the steps wait for something else"
        return finding(
            "bench-far-from-roof", (bench, *floor.facts), case=case, title=title,
            cause=f"{base} {_what_is_left(case)} Next, one change alone: --concurrency 1 with short prompts; if that is as far from the "
            "roof, a timeline (nsys), else batching or prompts in between.",
            values={"requests": requests}, figures=figures,
        )  # fmt: skip
    title = f"Decode reaches {share:.0%} of the {step.limit} roof with {requests} requests at once"
    return finding("bench-share-of-roof", (bench, *floor.facts), case=case, cause=base, title=title, figures=figures)


def _what_is_left(case: Case) -> str:
    """Where the rest of a step may go, by how busy the card was."""
    timeline = case.last(BenchTimeline)
    busy = [s.gpu_busy for s in timeline.stretches if s.gpu_busy is not None] if timeline else []
    if len(busy) >= MANY_SAMPLES and median(busy) < IDLE:
        idle = f"The GPU had no kernel at all in {1 - median(busy):.0%} of the time"
        return f"{idle}: the host (scheduling, launches, tokenising) holds it up."
    return (
        "What is left is time without memory traffic: the host's scheduling and launches, prompts that are read in between, "
        "slow kernels, or lower clocks."
    )


def judge_compute(case: Case) -> Iterator[Finding]:
    """Tokens that would need more operations a second than the cards have."""
    for bench in case.all(Benchmark):
        floor = floor_of(case, bench)
        share = floor.compute_share(bench) if floor and floor.fits else None
        if floor is None or share is None or share <= BOOST:
            continue
        peak = floor.cards.flops_per_s * floor.cards.tensor_parallel
        read, made = bench.input_rate or (bench.request_rate or 0) * (bench.input_mean or 0), bench.output_rate or 0
        yield finding(
            "bench-impossible-figure", (bench, *floor.facts), case=case, certainty="likely" if bench.same_prompts else "established",
            title=f"{read + made:,.0f} tokens/s would need {share:.1f} times the card's compute peak",
            cause=f"{read:,.0f} prompt and {made:,.0f} output tokens/s of the model ({floor.told}) are {share * peak / 1e12:,.0f} TFLOP/s; "
            f"{floor.cards.tensor_parallel} x {floor.gpu} has {peak / 1e12:,.0f}. Prompts that come from the prefix cache are not computed "
            "and explain it; otherwise the tokens are counted wrongly, the model is another one, or there are more cards.",
            remedies=(
                Remedy("Send prompts that differ from their first token on, with another seed than the run before", "--seed N"),
                Remedy("Name the cards as they are, and judge again", "loadpath bench --read RESULT --gpu NAME --gpus N"),
            ),
            figures={"tokens_per_s": read + made, "share_of_compute": round(share, 3)},
        )  # fmt: skip
        return


def judge_prompts(case: Case) -> Iterator[Finding]:
    """First tokens that come before the prompt can have been computed: it was not, a cache had it."""
    for bench in case.all(Benchmark):
        floor, first = floor_of(case, bench), bench.ttft.typical if bench.ttft else None
        if (
            floor is None
            or not floor.whole
            or not first
            or not bench.input_mean
            or bench.same_prompts
            or bench.cached_tokens
            or not floor.fits
        ):
            continue
        tokens = round(bench.input_mean)
        least = floor.prompt(tokens).ttft_seconds
        if first >= least * SLACK:
            continue
        yield finding(
            "bench-prefix-cache-measured", (bench, *floor.facts), case=case, certainty="likely",
            title=f"TTFT {ms(first)} is too short for {tokens:,} prompt tokens: they were not computed anew",
            cause=f"Computing {tokens:,} tokens takes at least {ms(least)} on {floor.gpu} (work {floor.told}); half of the first tokens "
            f"came within {ms(first)}. The prompts (or most of each) were in the prefix cache, or they are shorter than the tool says.",
            figures={"ttft_seconds": first, "floor_seconds": least, "prompt_tokens": tokens},
        )  # fmt: skip
        return


def judge_llama_bench(case: Case) -> Iterator[Finding]:
    """tg rows of llama-bench against the bandwidth: each token reads the whole model once."""
    rows = [t for t in case.all(LlamaBenchTest) if t.generated and not t.prompt and t.batch == 1 and t.size_bytes]
    best = max(rows, key=lambda t: t.rate, default=None)
    if best is None or best.size_bytes is None:
        return
    moved = best.rate * best.size_bytes
    board = by_name(best.gpu) if best.gpu else None
    if board is None:
        seen = cards(case)
        board = by_name(seen[0].name) if len(seen) == 1 and seen[0].name else None
    said = f"{best.rate:.4g} tokens/s read a file of {show_bytes(best.size_bytes)} as often: {moved / 1e9:,.0f} GB/s"
    if board is None or not board.bandwidth_gbs:
        return
    share = moved / (board.bandwidth_gbs * 1e9)
    figures = {
        "bytes_per_s": moved,
        "share_of_roof": round(share, 4),
        "bandwidth_bytes_per_s": board.bandwidth_gbs * 1e9,
    }
    if share > 1 / SLACK:
        yield finding(
            "bench-impossible-figure", (best,), case=case, certainty="likely", figures=figures,
            title=f"{best.rate:.4g} tokens/s would need {moved / 1e9:,.0f} GB/s; the card has {board.bandwidth_gbs:,.0f} GB/s",
            cause=f"{said}; {board.names[0]} has {board.bandwidth_gbs:,.0f} GB/s. A mixture of experts reads only a part of its file for "
            "a token; otherwise the layers are spread over several cards, or the card is another one.",
        )  # fmt: skip
    elif best.gpu_layers is None or best.gpu_layers > 0:
        yield finding(
            "bench-share-of-roof", (best,), case=case, certainty="likely", figures=figures,
            title=f"Generation reaches {share:.0%} of the card's bandwidth",
            cause=f"{said}, {share:.0%} of the {board.bandwidth_gbs:,.0f} GB/s of {board.names[0]}.",
        )  # fmt: skip


_SHARES = ("bench-near-roof", "bench-far-from-roof", "bench-share-of-roof")
RULES = (
    Rule(judge_impossible, (Benchmark,), ("bench-impossible-figure",)),
    Rule(judge_compute, (Benchmark,), ("bench-impossible-figure",)),
    Rule(judge_share, (Benchmark,), _SHARES),
    Rule(judge_prompts, (Benchmark,), ("bench-prefix-cache-measured",)),
    Rule(judge_llama_bench, (LlamaBenchTest,), ("bench-impossible-figure", "bench-share-of-roof")),
)
