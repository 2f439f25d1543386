"""The options of `bench` as a request: words into numbers, with what is wrong said in the words of the option."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from loadpath.core.traffic import Api, Arrivals, BenchSettings
from loadpath.traffic.lengths import Lengths, lengths_of
from loadpath.traffic.prompt_files import NoPrompts, prompts_of, trace_of
from loadpath.traffic.prompts import Dataset, Synthetic
from loadpath.traffic.request import Request
from loadpath.traffic.sender import Key
from loadpath.traffic.wire import Target, target_of

if TYPE_CHECKING:
    from loadpath.cli.bench_asked import Asked

REQUESTS, CONCURRENCY = 100, 8
_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_LIMITS = ("ttft", "itl", "tpot", "e2e")


def request_of(asked: Asked) -> Request:
    """Raises click.UsageError."""
    target = server_of(asked.url or "")
    inputs, outputs = _lengths(asked.input_tokens, "--input-tokens"), _lengths(asked.output_tokens, "--output-tokens")
    dataset = _dataset(asked, inputs, outputs)
    salt = asked.seed if asked.seed is not None else secrets.randbits(32)
    apis: tuple[Api, ...] = ("chat", "completions", "embeddings")
    if asked.api != "auto":
        apis = (msgspec.convert(asked.api, Api),)
    return Request(
        target=target,
        settings=_settings(asked),
        dataset=dataset,
        apis=apis,
        model=asked.model,
        key=Key(asked.api_key or ""),
        headers=headers_of(asked.headers),
        fields=_fields(asked.extra),
        tokenizer=asked.tokenizer,
        insecure=asked.insecure,
        salt=salt,
        calibrate=not asked.prompts,
        watch_metrics=asked.metrics,
        watch_gpus=asked.metrics,
    )


def _settings(asked: Asked) -> BenchSettings:
    slo = slo_of(asked.slo) if asked.slo else {}
    open_loop = bool(asked.rate or asked.trace or asked.search)
    _together(asked, slo)
    arrivals: Arrivals = "trace" if asked.trace else msgspec.convert(asked.arrivals or "poisson", Arrivals)
    seconds = seconds_of(asked.duration, "--duration") if asked.duration else None
    requests = asked.requests
    if requests is None and seconds is None and not asked.trace:
        requests = REQUESTS
    return BenchSettings(
        stream=asked.stream,
        requests=requests,
        seconds=seconds,
        loop="open" if open_loop else "closed",
        concurrency=()
        if open_loop
        else tuple(int(n) for n in _numbers(asked.concurrency or str(CONCURRENCY), "--concurrency", whole=True)),
        rates=tuple(_numbers(asked.rate, "--rate")) if asked.rate else (),
        arrivals=arrivals if open_loop else "constant",
        burstiness=asked.burstiness,
        max_in_flight=asked.max_in_flight,
        dataset="trace" if asked.trace else "file" if asked.prompts else "random",
        input_tokens="" if asked.trace or asked.prompts else asked.input_tokens,
        output_tokens="" if asked.trace else asked.output_tokens,
        prefix_tokens=asked.prefix_tokens,
        turns=asked.turns,
        same_prompts=asked.same_prompt,
        ignore_eos=asked.ignore_eos,
        seed=asked.seed or 0,
        warmup=asked.warmup,
        repeat=asked.repeat,
        request_timeout=seconds_of(asked.request_timeout, "--request-timeout"),
        slo=slo,
        slo_share=asked.slo_share,
        search=asked.search,
        gpu=asked.gpu,
        gpus=asked.gpus,
        checkpoint=asked.checkpoint,
        extra={name: value for name, _, value in (text.partition("=") for text in asked.extra)},
    )


def _together(asked: Asked, slo: dict[str, float]) -> None:
    """Options that exclude or need each other."""
    loads = [name for name, value in (("--rate", asked.rate), ("--trace", asked.trace), ("--concurrency", asked.concurrency),
             ("--search", asked.search)) if value]  # fmt: skip
    if len(loads) > 1:
        raise click.UsageError(f"{' and '.join(loads)} exclude each other: each says when requests are sent")
    if asked.search and not slo:
        raise click.UsageError("--search finds the highest rate that meets an SLO: give --slo ttft=500ms,itl=50ms")
    if asked.arrivals and not (asked.rate or asked.search):
        raise click.UsageError("--arrivals belongs to --rate or --search")
    if asked.requests and asked.duration:
        raise click.UsageError("--requests and --duration exclude each other")


def _dataset(asked: Asked, inputs: Lengths, outputs: Lengths) -> Dataset:
    try:
        if asked.trace:
            return trace_of(Path(asked.trace), asked.trace_speed)
        if asked.prompts:
            given = click.get_current_context().get_parameter_source("output_tokens")
            limit = round(outputs.middle) if given and given.name != "DEFAULT" else None
            return prompts_of(Path(asked.prompts), limit)
    except (NoPrompts, OSError) as error:
        raise click.UsageError(str(error)) from error
    return Synthetic(inputs, outputs, asked.prefix_tokens, asked.turns, asked.same_prompt, asked.seed or 0)


def server_of(url: str) -> Target:
    try:
        return target_of(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _lengths(text: str, option: str) -> Lengths:
    try:
        return lengths_of(text)
    except ValueError as error:
        raise click.UsageError(f"{option} {error}") from error


def _numbers(text: str, option: str, *, whole: bool = False) -> list[float]:
    try:
        found = [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        found = []
    if not found or min(found) <= 0 or (whole and any(n != int(n) for n in found)):
        raise click.UsageError(f"{option} {text!r}: write {'4 or 1,4,16' if whole else '2 or 0.5,1,2'}")
    return found


def seconds_of(text: str, option: str) -> float:
    """`500ms`, `60s`, `5m`; a bare number is seconds. Raises click.UsageError."""
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzµ")
    unit = text.strip()[len(number) :] or "s"
    try:
        value = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise click.UsageError(f"{option} {text!r}: write 500ms, 60s or 5m") from None
    if value <= 0:
        raise click.UsageError(f"{option} {text!r}: a time above 0")
    return value


def slo_of(text: str) -> dict[str, float]:
    """`ttft=500ms,itl=50ms` → {"ttft": 0.5, "itl": 0.05}. Raises click.UsageError."""
    made = {}
    for word in text.split(","):
        name, _, limit = word.partition("=")
        if name.strip().lower() not in _LIMITS or not limit:
            raise click.UsageError(f"--slo {word!r}: write NAME=TIME, of {', '.join(_LIMITS)}: ttft=500ms,itl=50ms")
        made[name.strip().lower()] = seconds_of(limit, "--slo")
    return made


def headers_of(given: tuple[str, ...]) -> dict[str, str]:
    made = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or "\n" in text or "\r" in text:
            raise click.UsageError("--header: write NAME:VALUE")
        made[name.strip()] = value.strip()
    return made


def _fields(given: tuple[str, ...]) -> dict[str, object]:
    made: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--extra {text!r}: write FIELD=JSON, such as top_p=0.9")
        try:
            made[name] = msgspec.json.decode(value.encode())
        except msgspec.DecodeError:
            made[name] = value
    return made
