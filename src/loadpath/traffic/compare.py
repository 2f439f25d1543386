"""Two results beside each other: refused where more than the named factor differs, judged by the spread of their repeats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import hypot

import msgspec

from loadpath.core.facts.traffic import Benchmark
from loadpath.core.report import Report, Verdict
from loadpath.core.table import Cell, Column, Table
from loadpath.intake.clean import clean
from loadpath.reading.service import captures_of, case_of
from loadpath.traffic.other_results import condensed

LENGTHS = 0.05
"""Mean prompt and answer lengths of the same shape differ by less."""
CLOCKS = 0.03
_HIGHER = ("request_rate", "output_rate", "input_rate", "goodput_rate")
_LATENCIES = ("ttft", "itl", "tpot", "e2e")
_POINTS = ("mean", "p50", "p99")
_NAMES = {
    "request_rate": "requests/s", "output_rate": "output tokens/s", "input_rate": "input tokens/s",
    "goodput_rate": "goodput requests/s",
}  # fmt: skip


class Factor(msgspec.Struct, frozen=True):
    """Something that is not alike in both. `name` is what `--factor` takes."""

    name: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.name} ({self.first or 'not told'} against {self.second or 'not told'})"


class Change(msgspec.Struct, frozen=True):
    """A figure in both. `spread`: half-width of 95 % of the difference, by the repeats of both; None: not repeated."""

    name: str
    first: float
    second: float
    spread: float | None

    @property
    def relative(self) -> float:
        return (self.second - self.first) / self.first

    @property
    def beyond(self) -> bool | None:
        """Whether the difference is more than the repeats differ by themselves."""
        return None if self.spread is None else abs(self.second - self.first) > self.spread


def benchmarks(name: str, data: bytes) -> list[Benchmark]:
    """The levels of a result, of any tool that is known."""
    lines = [msgspec.structs.replace(line, prose=False) for line in clean(condensed(data))]
    return case_of(captures_of(name, lines), []).all(Benchmark)


def compare(first: tuple[str, bytes], second: tuple[str, bytes], allowed: Iterable[str] = ()) -> Report:
    """The report. `allowed`: names of factors that were changed on purpose; any other difference refuses the comparison."""
    ours, theirs = benchmarks(*first), benchmarks(*second)
    for (name, _), found in ((first, ours), (second, theirs)):
        if not found:
            return Report(Verdict("unknown", f"{name} holds no benchmark that is known."))
    pairs = _pairs(ours, theirs)
    changed = factors(*(pairs[0] if pairs else (ours[0], theirs[0])), same_load=bool(pairs))
    permitted = set(allowed)
    refused = [factor for factor in changed if factor.name not in permitted]
    notes = [f"Changed on purpose: {factor}." for factor in changed if factor.name in permitted]
    if refused:
        return _refusal(refused, notes)
    pairs = pairs or [(ours[0], theirs[0])]
    tables = tuple(_table(number, *pair) for number, pair in enumerate(pairs))
    untold = _untold(*pairs[0])
    if untold:
        notes.append(f"Neither result tells {', '.join(untold)}: they are assumed to be alike.")
    return Report(_verdict(pairs), tables=tables, notes=tuple(notes))


def factors(first: Benchmark, second: Benchmark, *, same_load: bool = True) -> list[Factor]:
    """What is not alike. Where only one result tells, that counts too, but for clocks and cards."""
    found = [
        Factor(name, own, other)
        for name in ("tool", "model", "dtype", "engine", "version", "gpu")
        if (own := str(getattr(first, name))) != (other := str(getattr(second, name)))
        and (name != "gpu" or (own and other))
    ]
    if (first.gpus or 1) != (second.gpus or 1):
        found.append(Factor("gpus", str(first.gpus or 1), str(second.gpus or 1)))
    if not same_load:
        found.append(Factor("load", _load(first), _load(second)))
    for name, few, many in (
        ("prompt-tokens", first.input_mean, second.input_mean),
        ("output-tokens", first.output_mean, second.output_mean),
    ):
        if few and many and abs(few - many) > LENGTHS * max(few, many):
            found.append(Factor(name, f"{few:,.0f}", f"{many:,.0f}"))
    return found + list(_settings(first.settings, second.settings))


def _settings(first: dict[str, str], second: dict[str, str]) -> Iterator[Factor]:
    for name in sorted({*first, *second}):
        own, other = first.get(name, ""), second.get(name, "")
        if "clock" in name:
            if own and other and abs(float(own) - float(other)) > CLOCKS * max(float(own), float(other)):
                yield Factor("clocks", f"{own} MHz", f"{other} MHz")
        elif own != other:
            yield Factor(name.replace(" ", "-").replace("_", "-"), own, other)


def _load(bench: Benchmark) -> str:
    if bench.concurrency:
        return f"concurrency {bench.concurrency}"
    return f"{bench.rate:g} requests/s" if bench.rate else "all at once" if bench.unlimited_rate else ""


def _pairs(ours: list[Benchmark], theirs: list[Benchmark]) -> list[tuple[Benchmark, Benchmark]]:
    """Levels of the same load in both."""
    by_load = {_load(bench): bench for bench in theirs}
    return [(bench, by_load[_load(bench)]) for bench in ours if _load(bench) in by_load]


def _untold(first: Benchmark, second: Benchmark) -> list[str]:
    told = {"version": first.version, "dtype": first.dtype, "card": first.gpu or second.gpu, "model": first.model}
    told["clocks"] = first.settings.get("SM clock (median MHz)", "")
    return [name for name, value in told.items() if not value]


def _refusal(refused: list[Factor], notes: list[str]) -> Report:
    said = "; ".join(map(str, refused[:4]))
    if len(refused) == 1:
        hint = f"One factor changed. If it is the one under test: --factor {refused[0].name}"
    else:
        hint = f"{len(refused)} factors changed: no difference can be ascribed to one of them. Measure again with one change."
    return Report(Verdict("unknown", f"Not comparable: {said}."), notes=(*notes, hint))


def changes(first: Benchmark, second: Benchmark) -> list[Change]:
    """Every figure that both have."""
    made = [_change(first, second, name, getattr(first, name), getattr(second, name)) for name in _HIGHER]
    for latency in _LATENCIES:
        own, other = getattr(first, latency), getattr(second, latency)
        if own and other:
            made += [_change(first, second, f"{latency}.{p}", getattr(own, p), getattr(other, p)) for p in _POINTS]
    return [change for change in made if change]


def _change(first: Benchmark, second: Benchmark, name: str, own: float | None, other: float | None) -> Change | None:
    if not own or other is None:
        return None
    half = [bench.ci.get(name) for bench in (first, second)]
    spread = hypot(*(h for h in half if h is not None)) if all(h is not None for h in half) else None
    return Change(name, own, other, spread)


def _table(number: int, first: Benchmark, second: Benchmark) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for change in changes(first, second):
        is_time = "." in change.name
        shown = [f"{v * 1e3:,.4g} ms" if is_time else f"{v:,.4g}" for v in (change.first, change.second)]
        beyond = {None: "not repeated", True: "yes", False: "no"}[change.beyond]
        label = _NAMES.get(change.name) or " ".join((change.name.split(".")[0].upper(), *change.name.split(".")[1:]))
        rows.append((label, *shown, f"{change.relative:+.1%}", beyond))
    columns = (Column("figure"), Column("first"), Column("second"), Column("change"), Column("beyond the repeats"))
    load = _load(first) or "the same load"
    return Table("bench-compare" if not number else f"bench-compare-{number}", f"At {load}", columns, tuple(rows))


def _verdict(pairs: list[tuple[Benchmark, Benchmark]]) -> Verdict:
    first, second = pairs[-1]
    found = {change.name: change for change in changes(first, second)}
    main = next(
        (found[name] for name in ("output_rate", "request_rate", "itl.mean", "ttft.mean") if name in found), None
    )
    if main is None:
        return Verdict("unknown", "The two results have no figure in common.")
    what = _NAMES.get(main.name, main.name.upper().replace(".", " "))
    way = "more" if main.relative >= 0 else "less"
    how = {
        True: "more than their repeats differ by",
        False: "no more than their repeats differ by: no difference is shown",
        None: "without repeats it cannot be told from noise (--repeat 3 for both)",
    }[main.beyond]
    return Verdict(
        "healthy", f"The second has {abs(main.relative):.1%} {way} {what} at {_load(second) or 'the same load'}; {how}."
    )
