"""Effects of `planning.remedies` as remedies: words, figures, and the engine's own flags."""

from __future__ import annotations

import math
from collections.abc import Iterable

from loadpath.core.case import Case
from loadpath.core.facts.engine import Advice
from loadpath.core.report import Remedy
from loadpath.core.units import GIB, MIB, show_bytes, show_count
from loadpath.engines.registry import flag
from loadpath.planning import remedies as plan
from loadpath.planning.kv import round_context, subtracts_graphs
from loadpath.planning.remedies import Effect, Fit

MOST = 5
FEWEST_BATCHED = 2048  # tokens of one step: vLLM's own default on small cards
WORTH_SAYING = 256 * MIB
MOST_OFFLOADED = 0.5  # of the weights: beyond, a model runs at the pace of PCIe and another card is the answer


def as_printed(size: float) -> str:
    """A size with the two decimals that allocators print: `60.69 MiB`, so that the reader finds it in the log."""
    if MIB <= size < GIB:
        return f"{size / MIB:,.2f} MiB".replace(".00 ", " ")
    return show_bytes(size)


def show_ratio(ratio: float) -> str:
    return f"{ratio:.2f}x"


def outcome(effect: Effect, unit: str = "") -> str:
    """ "KV cache 53.15 GiB (+27.06 GiB), about 33,377 tokens, 1.02x: suffices"."""
    parts = []
    if effect.kv_bytes is not None and effect.added_bytes:
        parts.append(f"KV cache {show_bytes(effect.kv_bytes)} (+{show_bytes(effect.added_bytes)})")
    elif effect.added_bytes:
        parts.append(f"+{show_bytes(effect.added_bytes)} of KV cache")
    if effect.tokens is not None:
        parts.append(f"about {show_count(effect.tokens)} tokens")
    if effect.ratio is not None:
        parts.append(show_ratio(effect.ratio))
    text = ", ".join(parts)
    if effect.suffices is None:
        return text
    return f"{text}: {'suffices alone' if effect.suffices else 'not enough alone'}"


def made(action: str, effect: Effect | None, command: str = "", words: str = "") -> Remedy:
    """A remedy from an effect; `words` stand before the computed outcome."""
    if effect is None:
        return Remedy(action, command, words)
    figures = {
        name: round(value, 4) if isinstance(value, float) and name == "ratio" else int(value)
        for name, value in (("added_bytes", effect.added_bytes), ("kv_bytes", effect.kv_bytes),
                            ("tokens", effect.tokens), ("ratio", effect.ratio)) if value is not None
    }  # fmt: skip
    computed = outcome(effect)
    return Remedy(action, command, "; ".join(t for t in (words, computed) if t), figures, effect.suffices)


def shorter_context(engine: str | None, limit: int, asked: int | None = None) -> Remedy | None:
    """The context lowered to a round value at or below `limit` tokens."""
    value = round_context(limit)
    if value < 1 or (asked is not None and value >= asked):
        return None
    room = "the limit" if value == limit else f"at most {show_count(limit)}"
    command = flag(engine, "context-length", value)
    return Remedy(
        f"Lower the maximum context length to {show_count(value)} tokens ({room})",
        command,
        "one full-length request fits; longer requests are refused with HTTP 400",
        {"tokens": value, "limit_tokens": limit},
        True,
    )


def greater_share(engine: str | None, fit: Fit) -> Remedy | None:
    """A greater share of the GPU, where one full-length request then fits."""
    needed = plan.share_needed(fit)
    if fit.share is None or not fit.total_bytes:
        return None
    if needed is None:
        effect = plan.raise_share(fit)
        return made(f"Raise the memory share to {plan.HIGHEST_SHARE}, if nothing else uses the GPU", effect,
                    flag(engine, "memory-share", plan.HIGHEST_SHARE)) if effect else None  # fmt: skip
    share = next((s / 100 for s in range(int(fit.share * 100) + 1, 96) if s / 100 >= needed), None)
    if share is None or (effect := plan.raise_share(fit, share)) is None:
        return None
    return made(f"Raise the memory share from {fit.share:g} to {share:g}, if nothing else uses the GPU", effect,
                flag(engine, "memory-share", share))  # fmt: skip


def share_unknown(engine: str | None, fit: Fit) -> Remedy | None:
    """A greater share where the card's size (or its share) is not in the input: what it would have to make up for."""
    if (
        (fit.share is not None and fit.total_bytes)
        or fit.kv_bytes is None
        or fit.wanted_bytes is None
        or engine != "vllm"
    ):
        return None
    return Remedy(
        f"Raise the memory share, where it is below {plan.HIGHEST_SHARE} and nothing else uses the GPU",
        flag(engine, "memory-share", plan.HIGHEST_SHARE),
        f"{show_bytes(fit.wanted_bytes - fit.kv_bytes)} are missing; each 0.01 adds 1 % of the card",
    )


def moved_to_host(engine: str | None, fit: Fit) -> Remedy | None:
    """So much of the weights in host memory that one full-length request fits."""
    effect = plan.offload(fit)
    if effect is None or effect.added_bytes is None or fit.weights_bytes is None:
        return None
    size = math.ceil(effect.added_bytes / GIB)
    command = flag(engine, "cpu-offload", size)
    if not command or size * GIB > MOST_OFFLOADED * fit.weights_bytes:
        return None
    return Remedy(
        f"Keep {size} GiB of the weights in host memory (slow: every step reads them over PCIe)", command,
        f"+{size} GiB of KV cache, one full-length request fits", {"added_bytes": size * GIB},
    )  # fmt: skip


def smaller_pass(engine: str | None, fit: Fit, case: Case) -> Remedy | None:
    """Fewer tokens in one step, where the log tells how many there are and what their activations take."""
    now = int(told) if (told := case.setting("max-num-batched-tokens") or "").isdigit() else 0
    command = flag(engine, "batched-tokens", FEWEST_BATCHED)
    effect = plan.batched_tokens(fit, now, FEWEST_BATCHED) if now else None
    if effect is None or not command or not effect.added_bytes or effect.added_bytes < WORTH_SAYING:
        return None
    return made(
        f"Compute at most {show_count(FEWEST_BATCHED)} tokens in one step instead of {show_count(now)}", effect, command,
        "a longer wait for the first token of long prompts",
    )  # fmt: skip


def graphless(engine: str | None, fit: Fit, case: Case) -> Remedy | None:
    """No CUDA graphs, in the versions that take an estimate of them out of the KV share."""
    effect = plan.without_graphs(fit)
    told = case.version is None and any(a.setting == "gpu-memory-utilization" for a in case.all(Advice))
    if effect is None or engine != "vllm" or not effect.added_bytes or not (told or subtracts_graphs(case.version)):
        return None
    if fit.kv_bytes and effect.added_bytes < 0.05 * fit.kv_bytes:
        return None
    return made(
        "Do without CUDA graphs, whose estimate comes off the share",
        effect,
        flag(engine, "eager", True),
        "decoding is slower",
    )


def share_refused(fit: Fit) -> str:
    """Why a greater share does not do, in a sentence; "" where it does or where that cannot be computed."""
    needed = plan.share_needed(fit)
    effect = plan.raise_share(fit)
    if (
        needed is None
        or needed <= plan.HIGHEST_SHARE
        or fit.share is None
        or effect is None
        or effect.added_bytes is None
    ):
        return ""
    ratio = f" ({show_ratio(effect.ratio)})" if effect.ratio is not None else ""
    return (
        f"A share of {plan.HIGHEST_SHARE} instead of {fit.share:g} adds only {show_bytes(effect.added_bytes)}{ratio}: "
        "it does not suffice."
    )


def eight_bit_kv(engine: str | None, fit: Fit) -> Remedy | None:
    command = flag(engine, "kv-dtype", "fp8")
    effect = plan.fp8_kv(fit)
    if effect is None or (engine and not command):
        return None
    return made("Store the KV cache in FP8 (twice the tokens in the same bytes)", effect, command)


def smaller_weights(engine: str | None, fit: Fit) -> list[Remedy]:
    """Quantised weights: the mildest step that suffices, alone or with an FP8 cache; else the strongest."""
    command = flag(engine, "quantisation", "fp8")
    steps = [(bits, kv_too) for kv_too in (False, True) for bits in (8, 4)]
    known = [(b, k, e) for b, k in steps if (e := plan.quantise(fit, b, k)) is not None]
    enough = [(b, k, e) for b, k, e in known if e.suffices]
    some = [(b, k, e) for b, k, e in known if fit.held is None and e.kv_bytes is not None and e.kv_bytes > 0]
    best = enough[:1] or some[:1] or known[1:2] or known[:1]
    remedies = []
    for bits, kv_too, effect in best:
        what = f"a checkpoint quantised to {bits} bits" + (" with an FP8 KV cache" if kv_too else "")
        flags = " ".join(
            t for t in ((command if bits == 8 else ""), flag(engine, "kv-dtype", "fp8") if kv_too else "") if t
        )
        freed = plan.freed_by_bits(fit.weights_bytes or 0, bits, fit.weight_bits)
        words = f"weights about {show_bytes((fit.weights_bytes or 0) - freed)} instead of {show_bytes(fit.weights_bytes or 0)}"
        remedies.append(made(f"Serve {what}", effect, flags, words))
    if not known and fit.weight_bits > 4:
        remedies.append(Remedy(
            f"Serve a checkpoint quantised to {'8 or 4' if fit.weight_bits > 8 else '4'} bits",
            effect="each halving of the weights' bits gives that memory to the KV cache",
        ))  # fmt: skip
    return remedies


def more_gpus(engine: str | None, fit: Fit) -> Remedy | None:
    """Tensor parallelism over the fewest GPUs that suffice (2 where that cannot be computed)."""
    effect = plan.least_ranks(fit)
    if effect is not None:
        ranks = int(effect.value)
    elif plan.tensor_parallel(fit, 2) is None and fit.weights_bytes is None:
        ranks = fit.tensor_parallel * 2
    else:
        return None
    words = "weights and KV cache are split over them" + (
        "; the attention heads must divide by it" if fit.heads is None else ""
    )
    return made(
        f"Split the model over {ranks} GPUs (tensor parallel)", effect, flag(engine, "tensor-parallel", ranks), words
    )


def ranked(remedies: Iterable[Remedy | None], most: int = MOST) -> tuple[Remedy, ...]:
    """What suffices alone first, then what cannot be computed, then what is not enough; else in the order given."""
    order = {True: 0, None: 1, False: 2}
    kept = [r for r in remedies if r is not None]
    return tuple(sorted(kept, key=lambda r: order[r.suffices])[:most])
