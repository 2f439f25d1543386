"""`plan`: from a request to a report. The one place where models, cards, engines and rules meet before a launch."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from loadpath.core.report import Report, Verdict
from loadpath.core.table import Table
from loadpath.forecast.beside_model import notes_of
from loadpath.forecast.deploy import cards_used, deployment, opened_model
from loadpath.forecast.planned import planned
from loadpath.forecast.request import PlanRefused, Request
from loadpath.planning.training import Training

Progress = Callable[[int, int], None]


class Wants(msgspec.Struct, frozen=True):
    """What to tell beside the plan itself. `concurrency` full-length requests of `length` tokens are what has to fit.

    `sweeps`: (field, values); `against`: a real start's log; `beside`: another model on the same cards; `training`:
    a training run instead of a server; `share`: processes that are to share one card.
    """

    solve: bool = False
    which_gpu: bool = False
    concurrency: float = 1.0
    length: int | None = None
    sweeps: tuple[tuple[str, tuple[str, ...]], ...] = ()
    against: str | None = None
    beside: str | None = None
    training: Training | None = None
    share: int | None = None


def answer(request: Request, wants: Wants, progress: Progress | None = None) -> Report:
    """The report on a start that has not happened, with the tables that are wanted.

    A request without a model: the log of `wants.against` says what was started. Raises PlanRefused, and OSError for the log.
    """
    if wants.against:
        return _beside(request, wants.against)
    if wants.solve:
        request = _at_length(request, wants.length)
    if not request.model:
        raise PlanRefused(
            "which model? A folder, config.json, .gguf file, hub id or name; or the whole command after --"
        )
    if wants.training is not None:
        from loadpath.forecast.training import train

        return train(request, wants.training)
    if wants.which_gpu:
        from loadpath.forecast.which_gpu import which_gpu

        return _table_alone(*which_gpu(_at_length(request, wants.length), wants.concurrency))
    if wants.sweeps:
        from loadpath.forecast.sweep import sweep

        return _table_alone(*sweep(request, wants.sweeps, progress))
    report = plan(request)
    if wants.solve:
        from loadpath.forecast.change import without_remedies
        from loadpath.forecast.solve import solve

        report = _with(without_remedies(report), solve(deployment(request), wants.concurrency, wants.length))
    if wants.beside and report.plan:
        from loadpath.forecast.beside import beside

        report = _with(report, beside(report.plan, request, wants.beside))
    if wants.share:
        from loadpath.forecast.sharing import sharing

        report = _with(report, *sharing(request, wants.share))
    return report


def plan(request: Request) -> Report:
    """The report on a start that has not happened. Raises PlanRefused where the request cannot be planned."""
    from loadpath.forecast.change import remedied
    from loadpath.forecast.judge import judged
    from loadpath.forecast.speed import speed, with_speed

    deployed = deployment(request)
    made = planned(deployed)
    if notes := (*filter(None, (opened_model(request.model).note,)), *notes_of(request), *_idle_cards(request)):
        made = msgspec.structs.replace(made, notes=(*notes, *made.notes))
    found = speed(made, deployed)
    if found is None:
        return remedied(judged(made), deployed)
    bounds, table = found
    return remedied(_with(judged(with_speed(made, bounds)), table), deployed)


def _idle_cards(request: Request) -> tuple[str, ...]:
    """A note where the settings use fewer cards than were given."""
    used = cards_used(request)
    if not request.count or used is None or used >= request.count:
        return ()
    return (
        f"the settings use {used} of the {request.count} GPUs: the other {request.count - used} stay idle; the figures are "
        "those of one replica",
    )


def _beside(request: Request, log: str) -> Report:
    from loadpath.forecast.against import against, from_log, logged_case

    case = logged_case(log)
    report = plan(from_log(case, log, request))
    return _with(report, against(report.plan, case, log)) if report.plan else report


def _at_length(request: Request, length: int | None) -> Request:
    from loadpath.forecast.commands import lever

    if length is None:
        return request
    return msgspec.structs.replace(
        request, settings={**request.settings, **lever(request.engine, "context-length", length)}
    )


def _with(report: Report, *tables: Table) -> Report:
    return msgspec.structs.replace(report, tables=(*report.tables, *tables))


def _table_alone(table: Table, verdict: Verdict) -> Report:
    return Report(verdict, tables=(table,))
