"""Faults that nvidia-smi itself shows: unreadable cells, ECC and row remapping, a recovery action, a fabric that is not up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.gpu import BoardInformation, DriverVersions, GpuHealth, GpuState, InforomCorrupted, SmiSnapshot
from loadpath.core.report import Finding
from loadpath.core.vocabulary import OperatorAction
from loadpath.diagnosis.gpu.words import Seen, board, gpus_now, label, labels, same_bus
from loadpath.diagnosis.rule import Rule, finding

_DEAD = {"name", "MIG", "ecc"}
_SENSORS = {"fan", "power", "temperature", "performance state", "utilisation", "power cap"}


def judge_cells(case: Case) -> Iterator[Finding]:
    """`ERR!` cells: a GPU in an error state, or one sensor that does not answer."""
    seen = gpus_now(case)
    dead = [s.state for s in seen if _DEAD & set(s.state.failed_cells)]
    if dead:
        yield _dead(case, dead, [s for s in seen if s.state not in dead])
    for name, own in _by_sensor(s for s in seen if s.state not in dead).items():
        if all(_is_limited(s) for s in own):
            gpus = [s.state for s in own]
            title = f"ERR! for the {name} of {labels(gpus)} comes from a board with limited queries, not from a fault"
            yield finding("gpu-limited-report", gpus, case=case, title=title)
            continue
        yield _sensor(case, name, own)


def _by_sensor(seen: Iterator[Seen]) -> dict[str, list[Seen]]:
    groups: dict[str, list[Seen]] = {}
    for s in seen:
        failed = [cell for cell in s.state.failed_cells if cell in _SENSORS]
        if failed:
            groups.setdefault(" and ".join(failed), []).append(s)
    return groups


def _is_limited(seen: Seen) -> bool:
    """An old card under WSL or Windows: 0 °C, no utilisation, no power, while the rest is there."""
    gpu = seen.state
    return seen.foreign and gpu.utilisation is None and gpu.power_w is None


def _dead(case: Case, dead: list[GpuState], others: list[Seen]) -> Finding:
    gpu = dead[0]
    cells = sorted({cell for g in dead for cell in g.failed_cells})
    buses = ", ".join(g.bus_id for g in dead if g.bus_id)
    cause = (
        f"nvidia-smi could not read {', '.join(cells)} of {labels(dead)}{f' ({buses})' if buses else ''}: the driver keeps the board in an "
        "error state. 0 MiB and N/A there are not idleness; CUDA cannot use it until it is reset. "
    )
    if others:
        cause += f"{labels([s.state for s in others])} still {'answers' if len(others) == 1 else 'answer'}. "
    cause += "What happened stands in the kernel log (Xid) and as GPU Recovery Action in `nvidia-smi -q`."
    values = {"index": gpu.index or 0, "bus": gpu.bus_id or ""}
    title = f"{labels(dead)} {'is' if len(dead) == 1 else 'are'} in an error state (ERR!) and cannot be used"
    return finding("gpu-error-cells", dead, case=case, title=title, cause=cause, values=values)


def _sensor(case: Case, name: str, own: list[Seen]) -> Finding:
    gpus = [s.state for s in own]
    rest = "temperature and memory still read" if "temperature" not in name else "memory still reads"
    title = f"{labels(gpus)}: {name} {'read' if ' and ' in name else 'reads'} ERR!; {rest}"
    cause = (
        f"The query for {name} failed while the rest of the board answers ({rest}). "
        "The sensor or its controller does not respond: for a fan, it may stand still. Compute work is not affected by the reading itself."
    )
    if any(_is_fanless(g) for g in gpus):
        cause += (
            " This board has no fan of its own, so ERR! there (N/A is usual) points at the board's state, not at a fan."
        )
    return finding("gpu-sensor-error", gpus, case=case, title=title, cause=cause, values={"index": gpus[0].index or 0})


def _is_fanless(gpu: GpuState) -> bool:
    found = board(gpu)
    return found is not None and found.kind == "datacenter"


def judge_health(case: Case) -> Iterator[Finding]:
    """What `-q`, XML and CSV print of the board's condition, one finding a kind."""
    healths = case.all(GpuHealth)
    for row_id, own in _bad_healths(healths).items():
        first = own[0]
        values = {
            "gpus": labels(own), "index": first.index or 0, "bus": first.bus_id or "", "action": first.recovery_action,
            "rows": (first.remapped_corrected or 0) + (first.remapped_uncorrected or 0) or None,
            "corrected": first.remapped_corrected, "uncorrected": first.remapped_uncorrected or None,
            "banks": first.banks_without_spare, "errors": first.uncorrected_volatile,
            "pages": (first.retired_single or 0) + (first.retired_double or 0) or None,
            "state": first.fabric_state, "status": first.fabric_status, "health": first.fabric_health,
        }  # fmt: skip
        yield finding(row_id, own, case=case, values=values, operator_action=_operator_action(row_id, first))


def judge_error_counts(case: Case) -> Iterator[Finding]:
    """The ECC cell of the table: uncorrected errors since the driver was loaded."""
    own = [s.state for s in gpus_now(case) if s.state.uncorrected_errors]
    if own and not any(h.uncorrected_volatile for h in case.all(GpuHealth)):
        values = {"gpus": labels(own), "errors": own[0].uncorrected_errors, "index": own[0].index or 0}
        yield finding("gpu-uncorrected-errors", own, case=case, values=values)


def _bad_healths(healths: Sequence[GpuHealth]) -> dict[str, list[GpuHealth]]:
    tests: dict[str, Callable[[GpuHealth], object]] = {
        "gpu-remap-failed": lambda h: h.remap_failed,
        "gpu-sram-threshold": lambda h: h.sram_threshold_exceeded,
        "gpu-recovery-action": lambda h: (
            h.recovery_action not in (None, "None") or h.reset_required or h.drain_and_reset
        ),
        "gpu-remap-pending": lambda h: h.remap_pending,
        "gpu-retirement-pending": lambda h: h.retirement_pending,
        "gpu-repair-pending": lambda h: h.repair_pending,
        "gpu-no-spare-rows": lambda h: bool(h.banks_without_spare) and not h.remap_failed,
        "gpu-uncorrected-errors": lambda h: bool(h.uncorrected_volatile),
        "fabric-state-incomplete": _fabric_down,
        "gpu-fabric-unhealthy": lambda h: (h.fabric_health or "Healthy").lower() not in ("healthy", "n/a"),
    }
    return {row_id: own for row_id, test in tests.items() if (own := [h for h in healths if test(h)])}


def _fabric_down(health: GpuHealth) -> bool:
    state = (health.fabric_state or "").lower()
    return state in ("in progress", "not started") or (
        state == "completed" and (health.fabric_status or "success").lower() != "success"
    )


def _operator_action(row_id: str, health: GpuHealth) -> OperatorAction:
    """The driver's own word overrides the table."""
    if row_id != "gpu-recovery-action":
        return {
            "gpu-remap-failed": "service",
            "gpu-sram-threshold": "service",
            "fabric-state-incomplete": "change-settings",
        }.get(row_id, "reset-gpu")  # type: ignore[return-value]
    word = (health.recovery_action or "").lower()
    if "reboot" in word:
        return "reboot"
    return "drain" if "drain" in word or health.drain_and_reset else "reset-gpu"


def judge_inforom(case: Case) -> Iterator[Finding]:
    for warning in case.all(InforomCorrupted)[:1]:
        gpu = next((s.state for s in gpus_now(case) if same_bus(s.state.bus_id, warning.bus_id)), None)
        where = f"{label(gpu)} ({warning.bus_id})" if gpu else f"the GPU at {warning.bus_id}"
        yield finding("gpu-inforom-corrupted", [warning], case=case, values={"gpu": where, "bus": warning.bus_id})


def judge_uninitialised(case: Case) -> Iterator[Finding]:
    for info in case.all(BoardInformation):
        if not info.initialised or info.excluded:
            why = "its VBIOS version reads ??.??.??.??.??" if not info.initialised else "it is marked as excluded"
            values = {"name": info.name, "bus": info.bus_id, "why": why}
            yield finding("gpu-not-initialised", [info], case=case, values=values)


def judge_count(case: Case) -> Iterator[Finding]:
    """Fewer GPUs than there should be: what is seen, and what that may mean."""
    for snapshot in case.all(SmiSnapshot):
        if snapshot.attached is not None and 0 < snapshot.shown < snapshot.attached:
            values = {"attached": snapshot.attached, "shown": snapshot.shown}
            yield finding("gpu-listing-cut", [snapshot], case=case, values=values)
            return
    seen = gpus_now(case)
    gpus = [s.state for s in seen]
    found = board(gpus[0]) if gpus else None
    indices = [g.index for g in gpus if g.index is not None]
    if (
        found
        and found.nvlink_gbs
        and found.kind == "datacenter"
        and len(gpus) == 7
        and len({g.name for g in gpus}) == 1
    ):
        yield finding("gpu-one-of-eight-missing", gpus, case=case, values={"name": gpus[0].name})
    elif indices and min(indices) > 0 and _has_its_head(case, gpus[0]):
        yield finding("gpu-index-not-from-zero", gpus, case=case, values={"gpus": labels(gpus), "first": min(indices)})


def _has_its_head(case: Case, gpu: GpuState) -> bool:
    """Was the table pasted from its header on? Else rows may simply have been left out."""
    capture = case.capture_of(gpu)
    return any(case.capture_of(versions) is capture for versions in case.all(DriverVersions))


RULES = (
    Rule(judge_cells, (GpuState,), ("gpu-error-cells", "gpu-sensor-error", "gpu-limited-report")),
    Rule(
        judge_health,
        (GpuHealth,),
        (
            "gpu-remap-failed", "gpu-sram-threshold", "gpu-recovery-action", "gpu-remap-pending", "gpu-retirement-pending",
            "gpu-repair-pending", "gpu-no-spare-rows", "gpu-uncorrected-errors", "fabric-state-incomplete", "gpu-fabric-unhealthy",
        ),
    ),
    Rule(judge_error_counts, (GpuState,), ("gpu-uncorrected-errors",)),
    Rule(judge_inforom, (InforomCorrupted,), ("gpu-inforom-corrupted",), uses=(GpuState,)),
    Rule(judge_uninitialised, (BoardInformation,), ("gpu-not-initialised",)),
    Rule(judge_count, (SmiSnapshot,), ("gpu-listing-cut", "gpu-one-of-eight-missing", "gpu-index-not-from-zero")),
)  # fmt: skip
