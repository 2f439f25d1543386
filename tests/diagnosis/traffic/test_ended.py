"""A benchmark whose server went away is an error, whatever it had measured before."""

from __future__ import annotations

from conftest import read_text
from loadpath.core.traffic import (
    BENCH_SCHEMA,
    BenchResult,
    BenchSettings,
    ClientLoad,
    Figures,
    Level,
    ServerIdentity,
    Spread,
)
from loadpath.traffic.result_file import to_json

SOME = Spread(40, *[0.1] * 7)


def result(interrupted: str) -> str:
    figures = Figures(seconds=12.0, requests=60, completed=40, errors={"connect": 16, "cut": 4}, ttft=SOME, e2e=SOME)
    return to_json(
        BenchResult(
            schema=BENCH_SCHEMA, target="http://127.0.0.1:8000", started="2026-01-01T00:00:00Z", seconds=12.0,
            loadpath="0", settings=BenchSettings(requests=100), server=ServerIdentity(engine="vllm", model="m"),
            client=ClientLoad(0.1, SOME), levels=(Level(0, concurrency=4, figures=figures),), interrupted=interrupted,
        )
    ).decode()  # fmt: skip


def test_a_server_that_went_away_leads_and_the_failed_requests_fold_under_it() -> None:
    report = read_text(result("server gone: 127.0.0.1:8000 refuses connections: nothing listens there"))
    assert report.root is not None and report.root.id == "bench-server-gone" and report.root.severity == "error"
    assert "40 requests had been answered, 20 failed" in report.root.cause
    assert "bench-requests-failed" not in {f.id for f in report.findings if f is not report.root}


def test_a_run_that_its_user_ended_is_no_error() -> None:
    assert "bench-server-gone" not in {f.id for f in read_text(result("interrupted")).findings}
