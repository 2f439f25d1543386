"""Which layers go where, and what each device then holds: `-ngl`, `-ts`, `--n-cpu-moe`, and the fit step's own choice.

Sources: `llama_model_base::load_tensors` and `common/fit.cpp` of llama.cpp b11500.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from loadpath.engines.llama_cpp.planning import builds, compute
from loadpath.engines.llama_cpp.planning.kv import Caches, Rows, caches
from loadpath.engines.llama_cpp.planning.options import CELLS, Options
from loadpath.engines.llama_cpp.planning.sizes import Sizes


class Placement(msgspec.Struct, frozen=True):
    """`bounds[d]` to `bounds[d + 1]`: the layers of GPU d (the output layer counts as the last); those before `bounds[0]`
    stay on the host. `experts`: layers whose experts stay on the host."""

    bounds: tuple[int, ...]
    experts: tuple[int, int] = (0, 0)

    @property
    def on_gpu(self) -> int:
        return self.bounds[-1] - self.bounds[0]

    def has_output(self, layers: int) -> bool:
        """Whether a GPU holds the output layer of a model of so many layers."""
        return self.bounds[0] <= layers < self.bounds[-1]


class Use(msgspec.Struct, frozen=True):
    """Bytes on one device."""

    weights: int = 0
    cache: int = 0
    state: int = 0
    compute: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.state + self.compute


class Load(msgspec.Struct, frozen=True):
    """A whole placement in bytes: each GPU, and the host."""

    placement: Placement
    caches: Caches
    gpus: tuple[Use, ...]
    host: Use
    mapped: int
    """The span of the file that the host maps; equal to its weights where the file's order is not known."""


class Fitted(msgspec.Struct, frozen=True):
    """The load as chosen, the one first tried, and how the context was changed."""

    load: Load
    first: Load
    reduced: bool = False


class Machine(msgspec.Struct, frozen=True):
    """What a placement is made for. `free`: bytes free on each GPU; `tools`: the graph without context and copies."""

    sizes: Sizes
    rows: tuple[Rows, ...]
    wide: compute.Widths
    free: tuple[int, ...]
    options: Options
    known_order: bool


def by_count(machine: Machine, layers: int) -> Placement:
    """The last `layers` layers (the output layer first of all) on the GPUs, divided by `-ts` or by free memory."""
    total = machine.sizes.layers + 1
    active = min(layers, total)
    end = total if active == total or not machine.options.output_last else total - 1
    start = end - active
    if not machine.free:
        return Placement((total,))
    shares = machine.options.split or machine.free
    shares = tuple(shares[: len(machine.free)]) if machine.options.split_mode != "none" else (1,)
    points = [point / sum(shares) for point in accumulate(shares)]
    owners = [bisect_right(points, i / active) for i in range(active)] if active else []
    bounds = [start]
    for device in range(len(machine.free)):
        bounds.append(bounds[-1] + owners.count(device))
    bounds[-1] = end if active else start
    return Placement(tuple(bounds), (0, min(machine.options.cpu_experts, machine.sizes.layers)))


def load(machine: Machine, placement: Placement, context: int) -> Load:
    """What that placement takes at a context of so many tokens."""
    o, s = machine.options, machine.sizes
    kept = caches(machine.rows, context, o.slots, o.unified, o.ubatch, (o.key_type, o.value_type), o.window_full)
    cache = tuple(accumulate(kept.layer_bytes, initial=0))
    state = tuple(accumulate(kept.state_bytes, initial=0))
    graph = _graph(machine, kept, placement)
    compute_bytes = compute.device_bytes(machine.wide, graph)
    pinned = dict(s.pinned)
    gpus: list[Use] = []
    for device in range(len(placement.bounds) - 1):
        low, high = placement.bounds[device], placement.bounds[device + 1]
        first, last = min(low, s.layers), min(high, s.layers)
        away = _overlap((first, last), placement.experts)
        weights = s.dense[last] - s.dense[first] + s.experts[last] - s.experts[first]
        weights -= s.experts[away[1]] - s.experts[away[0]]
        weights += s.output if high > s.layers >= low else 0
        weights += pinned.get(f"CUDA{device}", 0)
        rows = (cache[last] - cache[first], state[last] - state[first]) if o.cache_on_gpu and high > low else (0, 0)
        extra = _copied(machine, placement) if device == 0 else 0
        busy = high > low or device == 0
        gpus.append(Use(weights, *rows, compute_bytes + extra if busy else 0))
    host, mapped = _host(machine, placement, cache, state, gpus, graph)
    return Load(placement, kept, tuple(gpus), host, mapped)


def _graph(machine: Machine, kept: Caches, placement: Placement) -> compute.Graph:
    o = machine.options
    used = sum(1 for a, b in zip(placement.bounds, placement.bounds[1:], strict=False) if b > a)
    whole = placement.bounds[0] == 0 and placement.experts[1] <= placement.experts[0]
    return compute.Graph(
        ubatch=o.ubatch, context=kept.slot_context if kept.full[1] else 0, window=kept.window[0] if kept.window else 0,
        outputs=compute.outputs(o.build, o.ubatch, o.slots), flash=o.flash, build=o.build,
        copies=compute.COPIES if used > 1 and whole and o.split_mode == "layer" else 1, on_gpu=bool(machine.free),
    )  # fmt: skip


def _copied(machine: Machine, placement: Placement) -> int:
    """The first GPU computes long batches of the host's layers too: the largest of their matrices is copied to it."""
    s = machine.sizes
    host = [*s.largest[: placement.bounds[0]], *s.largest_expert[: placement.bounds[0]]]
    host += s.largest_expert[slice(*placement.experts)]
    if not placement.has_output(s.layers):
        host.append(s.host_output)
    return max(host, default=0)


def _host(
    machine: Machine, placement: Placement, cache: Sequence[int], state: Sequence[int], gpus: Sequence[Use],
    graph: compute.Graph,
) -> tuple[Use, int]:  # fmt: skip
    """The host's bytes, and the span of the file that it maps."""
    o, s, start = machine.options, machine.sizes, min(placement.bounds[0], machine.sizes.layers)
    away = _overlap((start, s.layers), placement.experts)
    weights = s.input + s.host_dense[start] + s.host_experts[start] + s.host_experts[away[1]] - s.host_experts[away[0]]
    output_here = not placement.has_output(s.layers)
    weights += s.host_output if output_here else 0
    weights += sum(size for buffer, size in s.pinned if not buffer.startswith("CUDA"))
    rows = (cache[start], state[start]) if o.cache_on_gpu else (cache[-1], state[-1])
    work = compute.host_bytes(machine.wide, graph) if gpus else compute.device_bytes(machine.wide, graph)
    mapped = weights
    if machine.known_order and o.map_file:
        held = [s.spans[0], *s.spans[1 : start + 1], *s.spans[1 + away[0] : 1 + away[1]]]
        held += [s.spans[-1]] if output_here else []
        held = [span for span in held if span[1]]
        mapped = max(end for _, end in held) - min(first for first, _ in held) if held else 0
    return Use(weights, *rows, work), mapped


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if high > low else (0, 0)


def fitted(machine: Machine) -> Fitted:
    """The placement of this start: as set, or as the fit step chooses it."""
    o = machine.options
    everything = o.layers is None
    first = load(machine, by_count(machine, machine.sizes.layers + 1 if o.layers is None else o.layers), o.context)
    if not o.fit or not machine.free or _fits(machine, first):
        return Fitted(first, first)
    shorter = first
    if not o.context_given and o.context > o.fit_context:
        shorter = _shortened(machine, first)
        if _fits(machine, shorter) and len(machine.free) == 1:
            return Fitted(shorter, first, reduced=True)
    if not everything or o.overrides or o.cpu_experts or o.split:
        return Fitted(shorter, first, reduced=shorter is not first)
    context = shorter.caches.context
    return Fitted(_filled(machine, context), first, reduced=context != first.caches.context)


def _fits(machine: Machine, one: Load) -> bool:
    """Whether every GPU keeps its margin. Ollama counts its own estimate of the graph instead of the buffer's size."""
    o = machine.options
    margin, whole = o.fit_margin, one.placement.on_gpu == machine.sizes.layers + 1
    graph = o.graph_reserve[0 if whole else 1]
    return all(
        use.total - use.compute + max(use.compute, graph) + margin <= free
        for use, free in zip(one.gpus, machine.free, strict=False)
    )


def _shortened(machine: Machine, first: Load) -> Load:
    """A shorter context, by interpolation between the least and the full one, rounded down."""
    o = machine.options
    least = load(machine, first.placement, o.fit_context)
    most, low = sum(use.total for use in first.gpus), sum(use.total for use in least.gpus)
    target = sum(machine.free) - o.fit_margin * len(machine.free)
    count = len(machine.free)
    if count > 1:
        weights = sum(use.weights for use in first.gpus)
        target -= (count + 1) * (weights // max(machine.sizes.layers, 1)) // (6 if machine.sizes.experts[-1] else 2)
    if target <= low or most <= low:
        return least
    context = o.fit_context + (o.context - o.fit_context) * (target - low) // (most - low)
    step = CELLS * o.streams
    return load(machine, first.placement, max(context - context % step, o.fit_context))


def _filled(machine: Machine, context: int) -> Load:
    """As many layers as fit: whole ones; of a mixture first all layers without their experts, then experts from the front."""
    total = machine.sizes.layers + 1
    if _parted(machine):
        away = Placement(by_count(machine, total).bounds, (0, machine.sizes.layers))
        if _fits(machine, load(machine, away, context)):
            return _with_experts(machine, away, context)
    low, high = 0, total
    while low < high:
        middle = (low + high + 1) // 2
        one = load(machine, _balanced(machine, middle), context)
        low, high = (middle, high) if _fits(machine, one) else (low, middle - 1)
    return load(machine, _balanced(machine, low), context)


def _parted(machine: Machine) -> bool:
    """Experts may stay on the host while the rest of their layer is on a GPU (Ollama's own placing moves whole layers)."""
    return bool(machine.sizes.experts[-1]) and machine.options.build >= builds.FIT


def _balanced(machine: Machine, layers: int) -> Placement:
    """Layers divided by the memory above the margin; of a mixture without their experts."""
    plain = by_count(machine, layers)
    if not _parted(machine):
        return plain
    return Placement(plain.bounds, (0, machine.sizes.layers))


def _with_experts(machine: Machine, away: Placement, context: int) -> Load:
    """Experts of the first layers on the GPUs, as many as fit."""
    low, high = 0, machine.sizes.layers
    while low < high:
        middle = (low + high + 1) // 2
        one = load(machine, _moved(machine, away, middle), context)
        low, high = (middle, high) if _fits(machine, one) else (low, middle - 1)
    return load(machine, _moved(machine, away, low), context)


def _moved(machine: Machine, away: Placement, full: int) -> Placement:
    """The first `full` layers with their experts; on several GPUs the bounds move so that bytes follow free memory."""
    if len(machine.free) == 1:
        return Placement(away.bounds, (full, machine.sizes.layers))
    s, total = machine.sizes, machine.sizes.layers + 1
    cost = [s.dense[i + 1] - s.dense[i] + (s.experts[i + 1] - s.experts[i] if i < full else 0) for i in range(s.layers)]
    running = list(accumulate([*cost, s.output]))
    shares = list(accumulate(machine.free))
    bounds = [0]
    for device in range(len(machine.free) - 1):
        bounds.append(max(bounds[-1], bisect_right(running, running[-1] * shares[device] / shares[-1])))
    return Placement((*bounds, total), (full, s.layers))
