"""From a request and its plan to a launch: the engine's flags with reasons, mounts, probes, shared memory."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import msgspec

from loadpath.core.plan import Plan
from loadpath.core.units import GIB, show_bytes, show_count, show_seconds
from loadpath.knowledge.engine_health import engine_health
from loadpath.launching.engines import STARTS, EngineStart
from loadpath.launching.spec import Argument, Launch, Mount, Probes, Variable, shm_for

READ_BYTES_PER_S = 1.0e9
"""Assumed rate of reading a checkpoint from disk (a plain NVMe drive sustains two to six times that, a network share less)."""
COMPILE_SECONDS = {"vllm": 90, "sglang": 60}
"""Assumed compile, profile and graph capture of a cold start (public logs: 20 to 60 s of torch.compile, 10 to 40 s of graphs)."""
IMPORT_SECONDS = 25
PATIENCE = 4
"""A start is given so many times its prediction before it is called dead: cold caches and slow disks are ordinary."""
LEAST_PATIENCE = 300
HOST_BASE = 8 * GIB
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LISTS = ("lora-modules",)
"""Flags that take several words."""
_WHYS = {
    "tensor-parallel-size": "splits every layer over the cards", "tp-size": "splits every layer over the cards",
    "pipeline-parallel-size": "splits the layers into stages", "pp-size": "splits the layers into stages",
    "num-shard": "splits every layer over the cards", "max-total-tokens": "the longest request, prompt and answer",
    "max-model-len": "the longest request; the KV cache must hold one", "context-length": "the longest request",
    "ctx-size": "tokens of all slots together", "gpu-memory-utilization": "share of the card that the engine may use",
    "mem-fraction-static": "share for weights and KV pool", "kv-cache-dtype": "element type of the KV cache",
    "max-num-seqs": "requests in one step at most", "max-num-batched-tokens": "tokens of one step; sizes the activation peak",
    "enforce-eager": "no CUDA graphs: less memory, slower decode", "quantization": "scheme of the weights",
    "enable-lora": "adapters may be served", "max-loras": "adapters in one step; each has a slot in GPU memory",
    "max-lora-rank": "sizes the slots", "lora-modules": "the adapters by the names that clients ask for",
    "speculative-config": "who drafts, and how many tokens a step",
    "dtype": "type of unquantised weights and activations", "n-gpu-layers": "layers on the GPU",
}  # fmt: skip


class Options(msgspec.Struct, frozen=True):
    """What the person chose of the container; the rest follows from the plan."""

    name: str = ""
    image: str = ""
    port: int = 0
    host: str = "127.0.0.1"
    devices: tuple[int, ...] = ()
    cache: str = ""
    cdi: bool = False
    runtime_class: str = ""
    gate: bool = False
    """Health checks ask for a generated token."""
    bare: bool = False
    """The program itself is started, without a container around it."""


def launch(
    plan: Plan,
    model: str,
    settings: dict[str, str],
    options: Options,
    adapters: tuple[str, ...] = (),
    drafter: str = "",
) -> Launch:
    """A server's launch; folders of `adapters` and a local `drafter` are mounted beside the model.

    Raises ValueError for an engine whose start is not known here.
    """
    start = STARTS.get(plan.engine)
    if start is None:
        raise ValueError(f"launch does not know how {plan.engine} is started; it knows {', '.join(STARTS)}")
    _check(plan, options)
    local = _is_local(model)
    target = _target(model, options.bare) if local else model
    beside = _beside(adapters, drafter, options.bare)
    settings = {name: _moved(value, beside) for name, value in settings.items()}
    port = options.port or int(settings.get("port", start.port))
    return Launch(
        name=options.name or _name(plan.engine, model),
        purpose="serve",
        engine=plan.engine,
        image=options.image or start.image.format(version=start.latest or plan.engine_version),
        program=(Path(start.program[0]).name, *start.program[1:]) if options.bare else start.program,
        arguments=_arguments(start, target, port, settings, options),
        environment=_environment(local),
        mounts=(_mount(model, target, local, options, start), *beside.values()),
        gpus=plan.gpus,
        devices=options.devices,
        port=port,
        host=options.host,
        shm_bytes=shm_for(plan.gpus),
        probes=_probes(plan, options.gate),
        memory_bytes=HOST_BASE + plan.host_bytes,
        cdi=options.cdi,
        runtime_class=options.runtime_class,
        header=_header(plan),
    )


def _check(plan: Plan, options: Options) -> None:
    """Raises ValueError for choices that contradict the plan, or that no container engine takes."""
    if options.devices and len(set(options.devices)) != plan.gpus:
        raise ValueError(
            f"--devices names {len(set(options.devices))} GPUs, and the plan is for {plan.gpus}: --gpus {len(set(options.devices))}"
        )
    if options.name and not _LABEL.fullmatch(options.name):
        raise ValueError(
            f"--name {options.name}: lower-case letters, digits and - were expected (a DNS label, at most 63)"
        )


def _target(model: str, bare: bool) -> str:
    """Where a local model is seen by the engine: mounted, or where it is."""
    path = Path(model).expanduser().resolve()
    return str(path) if bare else f"/models/{path.name}"


def _beside(adapters: tuple[str, ...], drafter: str, bare: bool) -> dict[str, Mount]:
    """What is mounted beside the model, by the path as it was typed."""
    found: dict[str, Mount] = {}
    for text, folder, why in (
        *((a, "/adapters", "a LoRA adapter; nothing in the container may change it") for a in adapters),
        *(
            (d, "/models", "the drafter; nothing in the container may change it")
            for d in (drafter,)
            if d and _is_local(d)
        ),
    ):
        path = Path(text).expanduser().resolve()
        found[text] = Mount(str(path), str(path) if bare else f"{folder}/{path.name}", why)
    return found


def _moved(value: str, beside: dict[str, Mount]) -> str:
    """A setting's value with the paths of mounted folders as the engine sees them."""
    for typed, mount in beside.items():
        value = re.sub(rf"(?<![^\s=\"]){re.escape(typed)}(?![^\s\"])", mount.target, value)
    return value


def _is_local(model: str) -> bool:
    return model.startswith(("/", "./", "../", "~")) or Path(model).exists()


def _name(engine: str, model: str) -> str:
    """A DNS label: what Kubernetes and Docker both accept as a name."""
    stem = re.sub(r"[^a-z0-9]+", "-", f"{engine}-{Path(model).name}".lower()).strip("-")
    return stem[:50].strip("-")


def _arguments(
    start: EngineStart, model: str, port: int, settings: dict[str, str], options: Options
) -> tuple[Argument, ...]:
    words = (start.model_flag, model) if start.model_flag else (model,)
    made = [
        Argument(words, "the model"),
        Argument((start.host_flag, options.host), "the address that it listens on")
        if options.bare
        else Argument((start.host_flag, "0.0.0.0"), "inside the container; the host's side is published below"),
        Argument((start.port_flag, str(port)), "the port that the probes ask"),
    ]
    for name, value in settings.items():
        if name in (start.host_flag.lstrip("-"), start.port_flag.lstrip("-")) or name.isupper():
            continue
        flag = f"--{name}"
        on = value in ("", "true", "True")
        words = (flag,) if on else (flag, *(value.split() if name in _LISTS else (value,)))
        made.append(Argument(words, _WHYS.get(name, "as asked")))
    return tuple(made)


def _environment(local: bool) -> tuple[Variable, ...]:
    if local:
        return (Variable("HF_HUB_OFFLINE", "1", "the model is mounted: nothing is to be fetched"),)
    return (Variable("HF_TOKEN", "", "taken from the caller's environment, for gated models", secret=True),)


def _mount(model: str, target: str, local: bool, options: Options, start: EngineStart) -> Mount:
    if local:
        source = str(Path(model).expanduser().resolve())
        return Mount(source, target, "the checkpoint; nothing in the container may change it")
    cache = options.cache or os.path.join("$HOME", ".cache", "huggingface")  # noqa: PTH118 - the shell expands it
    why = "downloads survive a restart; writable, or the first start could not save them"
    return Mount(cache, start.cache_target, why, read_only=False)


def predicted_start(plan: Plan) -> int:
    """Seconds of a cold start: imports, reading every card's weights once, compile and graphs. Assumed rates, said so."""
    read = plan.weights_bytes * plan.gpus / READ_BYTES_PER_S
    return math.ceil(IMPORT_SECONDS + read + COMPILE_SECONDS.get(plan.engine, 5))


def _probes(plan: Plan, generates: bool) -> Probes:
    predicted = predicted_start(plan)
    given = max(LEAST_PATIENCE, math.ceil(PATIENCE * predicted / 60) * 60)
    health = engine_health()[plan.engine]
    why = f"a cold start takes about {show_seconds(predicted)} (assumed: 1 GB/s from disk); {health.words}"
    return Probes(health.paths[0], given, predicted, why, generates)


def _header(plan: Plan) -> tuple[str, ...]:
    cards = f"{plan.gpus} x {plan.gpu}" if plan.gpus > 1 and " + " not in plan.gpu else plan.gpu
    room = f"{plan.max_concurrency:.2f} requests of {show_count(plan.max_model_len)} tokens"
    return (
        f"{plan.model} on {cards}, {plan.engine} {plan.engine_version}".rstrip(),
        f"Planned per GPU: weights {show_bytes(plan.weights_bytes)}, KV cache {show_bytes(plan.kv_bytes)}"
        f" = {show_count(plan.kv_tokens)} tokens, room for {room}.",
    )
