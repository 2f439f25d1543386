"""How this server wants to be asked, found by asking: which API, which fields it takes, how many tokens a word makes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadpath.core.traffic import Api, Exchange, ServerIdentity
from loadpath.traffic.goal import bucket_of
from loadpath.traffic.prompts import Prompt
from loadpath.traffic.sender import PATHS, Manner, Sender
from loadpath.traffic.texts import Rate, TextMaker

_SHORT, _LONG = 32, 288
"""Words of the two prompts that tell how many tokens a word makes."""
_PROBE_TOKENS = 2
_TAKES_IGNORE_EOS = ("vllm", "sglang", "llama.cpp", "lmdeploy", "tensorrt-llm")


class Refused(Exception):
    """The server answers, but no request; the message has its words, `exchanges` what was tried."""

    def __init__(self, words: str, exchanges: tuple[Exchange, ...] = ()) -> None:
        super().__init__(words)
        self.exchanges = exchanges


class Approach(msgspec.Struct, frozen=True):
    """What was found. `exchanges`: of the requests that it took; the first is the server's first of this run."""

    manner: Manner
    rate: Rate
    exchanges: tuple[Exchange, ...]
    notes: tuple[str, ...] = ()


async def approach(
    sender: Sender, identity: ServerIdentity, apis: tuple[Api, ...], *, stream: bool, ignore_eos: bool,
    fields: dict[str, object], calibrate: bool,
) -> Approach:  # fmt: skip
    """Ask small requests until one is answered. `apis`: to be tried in this order. Raises Refused."""
    maker = TextMaker(0x10AD, Rate())
    exchanges: list[Exchange] = []
    why: list[str] = []
    for manner in _manners(identity, apis, stream, ignore_eos, fields):
        sender.with_manner(manner)
        exchange = await _ask(sender, maker, _SHORT)
        exchanges.append(exchange)
        if exchange.error in ("", "empty"):
            notes = _notes(manner, apis, ignore_eos and identity.engine in _TAKES_IGNORE_EOS)
            rate = await _rate(sender, maker, exchange, exchanges, identity.max_model_len) if calibrate else Rate()
            return Approach(manner, rate, tuple(exchanges), notes)
        why.append(f"{PATHS[manner.api]}: {exchange.status or exchange.error} {exchange.message}".strip())
        if exchange.error not in ("http", "bad-answer"):
            break
        if exchange.status in (401, 403):
            break
    raise Refused("; ".join(dict.fromkeys(why)), tuple(exchanges))


def _manners(
    identity: ServerIdentity, apis: tuple[Api, ...], stream: bool, ignore_eos: bool, fields: dict[str, object]
) -> Iterator[Manner]:
    """Ways to ask, the richest first: all that helps counting, then plain ones for strict servers."""
    known = ignore_eos and identity.engine in _TAKES_IGNORE_EOS
    for api in apis:
        base = Manner(
            api=api, model=identity.model, stream=stream and api != "embeddings", ignore_eos=known, fields=dict(fields)
        )
        yield base
        if api == "embeddings":
            continue
        if known:
            yield msgspec.structs.replace(base, ignore_eos=False)
        yield msgspec.structs.replace(base, ignore_eos=False, usage_in_stream=False)
        if api == "chat":
            yield msgspec.structs.replace(base, ignore_eos=False, limit="max_completion_tokens", temperature=False)


async def _ask(sender: Sender, maker: TextMaker, words: int) -> Exchange:
    prompt = Prompt(({"role": "user", "content": maker.words(words)},), _PROBE_TOKENS)
    exchange, _ = await sender.send(prompt, sender.now())
    bucket = bucket_of(exchange.prompt_tokens, prompt.output)
    return msgspec.structs.replace(exchange, bucket=bucket, phase="warm-up", level=-1)


async def _rate(
    sender: Sender, maker: TextMaker, short: Exchange, exchanges: list[Exchange], longest: int | None
) -> Rate:
    """Tokens of a word, and of the template, by the server's own count of two prompts. `longest`: its context."""
    if short.prompt_basis not in ("usage", "tokenizer") or not short.prompt_tokens:
        return Rate()
    few = short.prompt_tokens
    words = min(_LONG, int((longest or few * _LONG) / 2 / few * _SHORT))  # half of the context at most
    alone = Rate(per_word=few / _SHORT)
    if words < 2 * _SHORT:
        return alone
    long = await _ask(sender, maker, words)
    exchanges.append(long)
    if long.error or not long.prompt_tokens or long.prompt_tokens <= few:
        return alone
    per_word = (long.prompt_tokens - few) / (words - _SHORT)
    return Rate(per_word, max(0.0, few - per_word * _SHORT))


def _notes(manner: Manner, apis: tuple[Api, ...], wanted_ignore_eos: bool) -> tuple[str, ...]:
    told = []
    if manner.api != apis[0]:
        told.append(f"Asked through {PATHS[manner.api]}: {PATHS[apis[0]]} was refused.")
    if wanted_ignore_eos and not manner.ignore_eos and manner.api != "embeddings":
        told.append("The server does not take ignore_eos: answers may end before the wanted length.")
    if manner.stream and not manner.usage_in_stream:
        told.append("The server gives no usage in streams: output tokens are counted as one a chunk.")
    return tuple(told)
