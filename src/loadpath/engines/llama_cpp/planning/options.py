"""llama-server's settings as typed options, with the defaults of its build."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from loadpath.core.units import MIB
from loadpath.engines.llama_cpp.planning import builds
from loadpath.planning.deployment import Deployment, Version

CELLS = 256
"""Contexts are whole multiples of so many cells."""
ALL_LAYERS = 1_000_000
_SPELLINGS = {
    "ctx-size": ("c", "n_ctx", "num_ctx"), "n-gpu-layers": ("ngl", "gpu-layers", "num_gpu"), "parallel": ("np",),
    "ubatch-size": ("ub",), "batch-size": ("b", "num_batch"), "cache-type-k": ("ctk",), "cache-type-v": ("ctv",),
    "flash-attn": ("fa",), "tensor-split": ("ts",), "split-mode": ("sm",), "override-tensor": ("ot",),
    "n-cpu-moe": ("ncmoe",), "cpu-moe": ("cmoe",), "no-kv-offload": ("nkvo",), "fit": ("fit-params",),
    "fit-target": ("fitt",), "fit-ctx": ("fitc",),
}  # fmt: skip
_OFF = ("off", "0", "false", "no", "disabled")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about memory. `context`: cells of all slots together, 0: the model's own; `layers`: None: fitted."""

    build: int
    context: int
    context_given: bool
    slots: int
    unified: bool
    batch: int
    ubatch: int
    key_type: str
    value_type: str
    flash: bool
    layers: int | None
    split: tuple[float, ...]
    split_mode: str
    cpu_experts: int
    """Leading layers whose experts stay in host memory."""
    overrides: tuple[tuple[str, str], ...]
    """Patterns of tensor names and the buffer that they go to."""
    window_full: bool
    cache_on_gpu: bool
    map_file: bool
    fit: bool
    fit_margin: int
    fit_context: int
    output_last: bool = False
    """The output layer goes to a GPU when all others are there (Ollama); in llama.cpp it is the first."""
    graph_reserve: tuple[int, int] = (0, 0)
    """Bytes that Ollama estimates for the graph: with all layers on the GPUs, and with some."""

    @property
    def streams(self) -> int:
        return 1 if self.unified else self.slots


def build_of(version: Version | None) -> int:
    """The build number; a version that is none (llama.cpp has no other) counts as the newest."""
    return version[0] if version and version[0] >= 1000 else builds.NEWEST


def padded(tokens: int) -> int:
    return -(-tokens // CELLS) * CELLS


def options(deployment: Deployment) -> Options:
    """The options of a deployment; what is not given as llama-server of that build sets it."""
    given, build = _Given(deployment.settings), build_of(deployment.version)
    fitting = build >= builds.FIT
    slots, unified = given.whole("parallel"), given.on("kv-unified")
    if slots is None or slots <= 0:
        slots, unified = (4, True) if fitting else (1, False)
    context = given.whole("ctx-size")
    per_slot = given.whole("kv-unified-per-slot")
    if context is None:
        context = slots * per_slot if per_slot else 0 if fitting else 4096
    layers = _layers(given.text("n-gpu-layers"), fitting)
    flash = given.text("flash-attn")
    key, value = (given.text(f"cache-type-{which}") or "f16" for which in "kv")
    target = given.text("fit-target")
    return Options(
        build=build, context=context or deployment.shape.max_position, context_given=context > 0,
        slots=slots, unified=unified,
        batch=given.whole("batch-size") or 2048,
        ubatch=min(given.whole("ubatch-size") or 512, given.whole("batch-size") or 2048),
        key_type=key.lower(), value_type=value.lower(),
        flash=flash.lower() not in _OFF if flash is not None else build >= builds.AUTO_FLASH,
        layers=layers, split=given.numbers("tensor-split"), split_mode=given.text("split-mode") or "layer",
        cpu_experts=ALL_LAYERS if given.on("cpu-moe") else given.whole("n-cpu-moe") or 0,
        overrides=given.overrides(), window_full=given.on("swa-full"), cache_on_gpu=not given.on("no-kv-offload"),
        map_file=not given.on("no-mmap"),
        fit=fitting and (given.text("fit") or "on").lower() not in _OFF,
        fit_margin=round(float(target.split(",")[0]) * MIB) if target else 1024 * MIB,
        fit_context=given.whole("fit-ctx") or 4096,
    )  # fmt: skip


def _layers(text: str | None, fitting: bool) -> int | None:
    """`-ngl`: a count, `all`, or (since it is fitted) `auto`."""
    if text is None or text.lower() in ("auto", "-1"):
        return None if fitting else (0 if text is None else ALL_LAYERS)
    return ALL_LAYERS if text.lower() == "all" or int(text) < -1 else int(text)


class _Given:
    """A deployment's settings under llama-server's long names, whatever spelling was used."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    def text(self, name: str) -> str | None:
        for own in (name, *_SPELLINGS.get(name, ())):
            if value := self._settings.get(own):
                return value
        return None

    def whole(self, name: str) -> int | None:
        value = self.text(name)
        return int(value) if value and re.fullmatch(r"-?\d+", value) else None

    def on(self, name: str) -> bool:
        value = self.text(name)
        return value is not None and value.lower() not in _OFF

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(float(part) for part in re.split(r"[,/]", self.text(name) or "") if part)

    def overrides(self) -> tuple[tuple[str, str], ...]:
        pairs = (one.rpartition("=") for one in (self.text("override-tensor") or "").split(",") if "=" in one)
        return tuple((pattern, buffer) for pattern, _, buffer in pairs)
