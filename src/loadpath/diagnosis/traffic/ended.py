"""How a benchmark ended: before its plan, for want of the server."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.traffic import Benchmark
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding

GONE = "server gone"  # as a result of ours says it


def judge_server_gone(case: Case) -> Iterator[Finding]:
    for bench in case.all(Benchmark):
        if not bench.interrupted.startswith(GONE):
            continue
        done, failed = bench.completed or 0, bench.failed or 0
        after = f" after {bench.seconds:.3g} s" if bench.seconds else ""
        yield finding(
            "bench-server-gone", (bench,), case=case,
            cause=f"{bench.interrupted[:1].upper()}{bench.interrupted[1:]}{after}: {done} requests had been answered, {failed} failed. "
            "What was measured before is of a server that was about to die; it is no result to compare with.",
            figures={"completed": done, "failed": failed},
        )  # fmt: skip
        return


RULES = (Rule(judge_server_gone, needs=(Benchmark,), makes=("bench-server-gone",)),)
