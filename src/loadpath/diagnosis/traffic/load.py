"""What a benchmark really measured, and where its time went: errors, the client, warm-up, caches, queues, power."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from loadpath.core.case import Case
from loadpath.core.facts.traffic import BenchClient, Benchmark, BenchTimeline, BenchWarmUp
from loadpath.core.report import Finding, Remedy
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.traffic.phases import slow_stretches, slowed

BUSY, LATE = 0.9, 0.10
"""A client that uses so much of a core, or whose event loop is late for so much of the time, measures itself."""
HITS = 0.2
"""From so large a part of the prompt tokens on, a prefix cache makes another benchmark of it."""
FULL = 0.97
MANY_ERRORS = 0.5
FEW_REQUESTS = 100
COLD = 3.0
POWER_SHARE = 0.25
STARVED = (
    Remedy(
        "Give the client a core that neither the server nor anything else uses", "taskset -c 0 loadpath bench URL …"
    ),
    Remedy("Send from another machine, near the server"),
)
"""What helps a client that is late without being busy: more processes would not."""


def judge_errors(case: Case) -> Iterator[Finding]:
    for bench in case.all(Benchmark):
        failed = bench.failed or 0
        asked = bench.requests or (bench.completed or 0) + failed
        if not failed or not asked:
            continue
        kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(bench.errors.items(), key=lambda e: -e[1])[:4])
        yield finding(
            "bench-requests-failed", (bench,), case=case, severity="error" if failed >= MANY_ERRORS * asked else "warning",
            title=f"{failed} of {asked} requests failed",
            cause=f"{failed} of {asked} requests ({failed / asked:.0%}) failed{f': {kinds}' if kinds else ''}. Latencies and rates are "
            "of the requests that succeeded; what failed early also left the others more of the server.",
            figures={"failed": failed, "requests": asked, "errors": bench.errors},
        )  # fmt: skip
        return


def judge_client(case: Case) -> Iterator[Finding]:
    client = case.all(BenchClient)[-1]
    if client.cpu_share < BUSY and client.late_share < LATE:
        return
    starved = client.cpu_share < BUSY / 2  # late without being busy: the cores were others'
    gaps = [b.itl.p50 for b in case.all(Benchmark) if b.itl and b.itl.p50]
    beside = f", beside a median ITL of {min(gaps) * 1e3:.3g} ms" if gaps else ""
    yield finding(
        "bench-client-bound", (client,), case=case,
        title="Client-bound: the measuring process had to wait for a core"
        if starved
        else f"Client-bound: the measuring process used {client.cpu_share:.0%} of a core",
        cause=f"The client used {client.cpu_share:.0%} of one core and its event loop was late for {client.late_share:.0%} of the time, by "
        f"{client.lag_p99 * 1e3:.3g} ms at p99{beside}. TTFT and ITL hold that delay: they are upper bounds of the server's."
        + (" It asked for little: other processes held the cores." if starved else ""),
        remedies=STARVED if starved else None,
        figures={"cpu_share": client.cpu_share, "late_share": client.late_share, "lag_p99_seconds": client.lag_p99},
    )  # fmt: skip


def judge_warm_up(case: Case) -> Iterator[Finding]:
    shapes = [w for w in case.all(BenchWarmUp) if not w.given]
    never = [w for w in shapes if not w.steady and w.seen >= 8]
    if never:
        worst = max(never, key=lambda w: w.seen)
        why = f" {worst.why.rstrip('.')}." if worst.why else ""
        yield finding(
            "bench-never-steady", never, case=case,
            title=f"The server never became steady in {worst.seen} requests of {worst.bucket} tokens",
            cause=f"No stretch of requests of {worst.bucket} tokens had a steady latency.{why} Its figures are of a server that still "
            "warms up, or whose load still grows: they describe the run, not the server.",
            values={"more": worst.seen * 3}, figures={"requests": worst.seen},
        )  # fmt: skip
    cold = [w for w in shapes if w.cold_ttft and w.steady_ttft and w.cold_ttft > COLD * w.steady_ttft]
    if cold:
        worst = max(cold, key=lambda w: (w.cold_ttft or 0) / (w.steady_ttft or 1))
        first, later = worst.cold_ttft or 0.0, worst.steady_ttft or 1.0
        yield finding(
            "bench-cold-first", cold[:3], case=case,
            title=f"The first request took {first / later:.0f} times as long: {first:.3g} s to its first token",
            cause=f"TTFT of the first request of {worst.bucket} tokens was {first * 1e3:.4g} ms, {later * 1e3:.4g} ms once steady "
            f"(after {worst.requests} requests). They are left out of the figures; users after a restart are not spared them.",
            figures={"cold_ttft_seconds": first, "steady_ttft_seconds": later, "requests": worst.requests},
        )  # fmt: skip


def judge_cache(case: Case) -> Iterator[Finding]:
    """Prompts that were meant to differ, and did not for the server."""
    timeline = case.last(BenchTimeline)
    for bench in case.all(Benchmark):
        if bench.same_prompts:
            continue
        counted = bench.cached_tokens and bench.input_tokens and bench.cached_tokens / bench.input_tokens
        watched = (
            timeline
            and timeline.prefix_hits
            and timeline.prefix_queries
            and timeline.prefix_hits / timeline.prefix_queries
        )
        share, by = (counted, "usage") if counted else (watched, "the server's metrics")
        if not share or share < HITS:
            continue
        yield finding(
            "bench-prefix-cache-measured", (bench,), case=case,
            title=f"{min(share, 1):.0%} of the prompt tokens came from the prefix cache",
            cause=f"By {by}, {min(share, 1):.0%} of the prompt tokens were not computed but found in the prefix cache. TTFT and input "
            "tokens/s are those of a cache: with prompts that differ they are worse.",
            figures={"cached_share": round(min(share, 1.0), 4)},
        )  # fmt: skip
        return


def judge_kv(case: Case) -> Iterator[Finding]:
    timeline = case.all(BenchTimeline)[-1]
    lost = sum(s.preemptions or 0 for s in timeline.stretches)
    full = [s for s in timeline.stretches if (s.kv_usage or 0) >= FULL and (s.waiting or 0) > 0]
    if not lost and len(full) < max(2, len(timeline.stretches) // 10):
        return
    peak = max((s.kv_usage or 0 for s in timeline.stretches), default=0)
    waited = max((s.waiting or 0 for s in timeline.stretches), default=0)
    most = max((s.running or 0 for s in timeline.stretches), default=0)
    said = (
        f"{lost:.0f} preemptions"
        if lost
        else f"{len(full)} of {len(timeline.stretches)} stretches with a full cache and a queue"
    )
    yield finding(
        "bench-kv-starved", (timeline,), case=case, certainty="established" if lost else "likely",
        title=f"The KV cache limits the load: {said}",
        cause=f"KV cache up to {peak:.0%} full, {most:.0f} requests running and up to {waited:.0f} waiting; {said}. "
        "More concurrency only lengthens the queue: each preempted request computes its tokens again.",
        values={"half": max(1, round(most * 0.75))} if most else {},
        figures={"preemptions": lost, "kv_usage": peak, "waiting": waited, "running": most},
    )  # fmt: skip


def judge_queue(case: Case) -> Iterator[Finding]:
    """Requests wait though the cache has room: a limit of the scheduler, or more load than the server takes."""
    timeline = case.all(BenchTimeline)[-1]
    waits = [s for s in timeline.stretches if (s.waiting or 0) >= 1]
    if len(waits) < max(3, len(timeline.stretches) // 3) or any((s.kv_usage or 0) >= FULL for s in waits):
        return
    if any(s.preemptions for s in timeline.stretches):
        return
    running = max((s.running or 0 for s in waits), default=0)
    usage = max((s.kv_usage or 0 for s in waits), default=0)
    queued = median(s.waiting or 0 for s in waits)
    limit = (
        f" {running:.0f} run at most: that is the limit on sequences."
        if running and running == median(s.running or 0 for s in waits)
        else ""
    )
    yield finding(
        "bench-queueing", (timeline,), case=case,
        title=f"Requests queue: {queued:.0f} waiting on median while the KV cache is at most {usage:.0%} full",
        cause=f"{queued:.0f} requests waited on median, the KV cache was at most {usage:.0%} full.{limit} TTFT here is mostly the "
        "queue; the cache is not what limits.",
        values={"sequences": round(running * 2)} if limit else {}, figures={"waiting": queued, "running": running, "kv_usage": usage},
    )  # fmt: skip


def judge_burst(case: Case) -> Iterator[Finding]:
    """Everything at once (`--request-rate inf` without a limit): TTFT is the queue's length."""
    for bench in case.all(Benchmark):
        first, pace = bench.ttft, bench.tpot or bench.itl
        all_at_once = bench.unlimited_rate and not bench.concurrency and bench.tool in ("vllm", "sglang")
        if not (
            all_at_once and first and first.average and pace and pace.average and first.average > 20 * pace.average
        ):
            continue
        if (bench.completed or 0) < 2:
            continue
        yield finding(
            "bench-all-at-once", (bench,), case=case,
            title=f"All {bench.completed} requests were sent at once: TTFT {first.average:.3g} s measures the queue",
            cause=f"The rate was unlimited and no concurrency was set, so {bench.completed} requests arrived together. TTFT of "
            f"{first.average:.3g} s is the time in the queue of that pile; the throughput is right, the latencies describe no real load.",
            figures={"ttft_seconds": first.average, "requests": bench.completed},
        )  # fmt: skip
        return


def judge_stretches(case: Case) -> Iterator[Finding]:
    timeline = case.all(BenchTimeline)[-1]
    slow = slow_stretches(timeline)
    if not slow:
        return
    phases = Counter(one.phase for one in slow)
    worst = max(slow, key=lambda one: one.times)
    told = ", ".join(f"{count} {phase}" for phase, count in phases.most_common())
    s = worst.stretch
    yield finding(
        "bench-slow-stretches", (timeline,), case=case,
        title=f"{len(slow)} of {len(timeline.stretches)} stretches were slow, most of them in: {phases.most_common(1)[0][0]}",
        cause=f"Slow stretches by phase: {told}. The worst, {s.begin:.1f} to {s.end:.1f} s: {worst.figure} {worst.times:.1f} times "
        f"the usual, phase {worst.phase} ({worst.why}).",
        figures={"slow": len(slow), "stretches": len(timeline.stretches), "phases": dict(phases)},
    )  # fmt: skip


def judge_power(case: Case) -> Iterator[Finding]:
    timeline = case.all(BenchTimeline)[-1]
    watched = [s for s in timeline.stretches if s.watts is not None]
    held = [s for s in watched if slowed(s)]
    if not watched or len(held) < POWER_SHARE * len(watched):
        return
    reasons = Counter(slowed(s) for s in held).most_common(1)[0][0]
    clocks = [s.sm_mhz for s in held if s.sm_mhz]
    at = f" SM clock down to {min(clocks):.0f} MHz." if clocks else ""
    limit = next((s.watts_limit for s in held if s.watts_limit), None)
    watts = median(s.watts or 0 for s in held)
    drawn = f"{watts:.0f} W of {limit:.0f} W" if limit else f"{watts:.0f} W"
    yield finding(
        "bench-clocks-held", (timeline,), case=case,
        title=f"The card's clocks were held down in {len(held)} of {len(watched)} stretches: {reasons}",
        cause=f"NVML names {reasons} in {len(held)} of {len(watched)} stretches, at {drawn}.{at} "
        "Bandwidth-bound decode loses little by that, prefill loses in proportion to the clock.",
        figures={"held": len(held), "watts": watts},
    )  # fmt: skip


def judge_size(case: Case) -> Iterator[Finding]:
    for bench in case.all(Benchmark):
        tails = [name for name in ("ttft", "e2e") if (spread := getattr(bench, name)) and spread.p99]
        if tails and bench.completed and bench.completed < FEW_REQUESTS:
            yield finding(
                "bench-few-requests", (bench,), case=case, title=f"p99 of {bench.completed} requests is nearly their maximum",
                cause=f"With {bench.completed} requests the 99th percentile is decided by one or two of them: it changes from run to run. "
                "The medians are usable.",
                values={"requests": FEW_REQUESTS * 3}, figures={"requests": bench.completed},
            )  # fmt: skip
            return


RULES = (
    Rule(judge_errors, (Benchmark,), ("bench-requests-failed",)),
    Rule(judge_client, (BenchClient,), ("bench-client-bound",)),
    Rule(judge_warm_up, (BenchWarmUp,), ("bench-never-steady", "bench-cold-first")),
    Rule(judge_cache, (Benchmark,), ("bench-prefix-cache-measured",)),
    Rule(judge_kv, (BenchTimeline,), ("bench-kv-starved",)),
    Rule(judge_queue, (BenchTimeline,), ("bench-queueing",)),
    Rule(judge_burst, (Benchmark,), ("bench-all-at-once",)),
    Rule(judge_stretches, (BenchTimeline,), ("bench-slow-stretches",)),
    Rule(judge_power, (BenchTimeline,), ("bench-clocks-held",)),
    Rule(judge_size, (Benchmark,), ("bench-few-requests",)),
)
