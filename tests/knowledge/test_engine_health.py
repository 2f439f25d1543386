"""What health pages mean: every engine that is started or recognised has a row."""

from __future__ import annotations

from loadpath.knowledge.engine_health import PAGES, engine_health
from loadpath.launching.engines import STARTS


def test_every_engine_that_we_start_has_a_row() -> None:
    assert set(STARTS) <= set(engine_health())


def test_the_first_page_of_each_is_asked_before_the_engine_is_known() -> None:
    for row in engine_health().values():
        assert set(row.paths) <= set(PAGES), row.id
        assert row.means and row.means_not and row.loading and row.log and row.source, row.id
