"""What took the time in a start: weights that load slowly, a cold compile, a long warm-up. Remarks, never faults."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    CompileTook,
    GraphsCaptured,
    InitTook,
    Progress,
    RankAssigned,
    ServerReady,
    StepMark,
    WeightsLoaded,
)
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import GIB, show_bytes, show_seconds
from loadpath.core.vocabulary import Severity
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag

SLOW_LOAD_SECONDS = 600  # ten minutes; local NVMe reads 100 GB in about one
SLOW_RATE = 0.1 * GIB  # bytes a second: a network link of 1 Gbit/s; NVMe reads twenty times as much
NOTICEABLE_SECONDS = 180  # shorter loads are not worth a word, whatever their rate
SLOW_SHARD_SECONDS = 15  # a shard has 5 GB at most: 0.3 GB/s, far below local NVMe
SLOW_CAPTURE_SECONDS = 300  # 35 to 86 graphs take 5 to 60 s
SLOW_INIT_SECONDS = 600
SLOW_COMPILE_SECONDS = 240  # a cold compile of a large model takes one or two minutes


def slow_weights(case: Case) -> Iterator[Finding]:
    """The weights took, or by the bar's pace will take, ten minutes and more."""
    bars = [p for p in case.all(Progress) if p.step == "weight-load" and p.total > 1 and "download" not in p.what]
    bar = bars[-1] if bars else None
    loaded = max((w for w in case.all(WeightsLoaded) if w.seconds), key=lambda w: w.seconds or 0, default=None)
    shown: list[Fact] = []
    if loaded is not None and _is_slow(loaded):
        title = f"Loading the weights took {show_seconds(loaded.seconds or 0)}"
        cause = [f"The weights of one GPU{_size(loaded)} were in place after {show_seconds(loaded.seconds or 0)}."]
        read = max((w.read_seconds for w in case.all(WeightsLoaded) if w.read_seconds), default=None)
        fetched = max((m.seconds for m in case.all(StepMark) if m.what == "download" and m.seconds), default=None)
        if fetched is not None and fetched > 0.5 * (loaded.seconds or 0):
            cause.append(f"Downloading them took {show_seconds(fetched)} of it: keep the download for the next start.")
        elif read is not None and read < 0.5 * (loaded.seconds or 0):
            cause.append(f"Reading the files took only {show_seconds(read)}; the rest was download or preparation.")
        shown = [loaded]
    elif loaded is None and bar is not None and bar.done < bar.total and (pace := _pace(bar)):
        whole = (bar.elapsed_seconds or 0) + (bar.left_seconds or pace * (bar.total - bar.done))
        if whole < SLOW_LOAD_SECONDS or pace < SLOW_SHARD_SECONDS:
            return
        title = (
            f"The weights load slowly but steadily: {show_seconds(pace)} a shard, about {show_seconds(whole)} in all"
        )
        cause = [f"{bar.done} of {bar.total} shards are read, each takes {show_seconds(pace)}, so the load needs about "
                 f"{show_seconds(whole)} in all and goes on for {show_seconds(whole - (bar.elapsed_seconds or 0))}."]  # fmt: skip
        shown = [bars[0], bar]
    else:
        return
    cause.append("The bar moves, so this is progress; storage throughput is the likely limit, not the GPU.")
    yield finding(
        "weights-load-slowly", shown, case=case, title=title, cause=" ".join(cause), severity=_if_ready(case),
        remedies=_faster_load(case),
        next_checks=(Check("How fast is the storage that holds the weights?",
                           "dd if=MODEL/model-00001-of-….safetensors of=/dev/null bs=16M count=128 iflag=direct; df -T MODEL"),),
    )  # fmt: skip


def slow_download(case: Case) -> Iterator[Finding]:
    """The checkpoint is still being fetched, at a rate that makes minutes of it."""
    bars = [
        p for p in case.all(Progress) if p.what.startswith("download of ") and p.elapsed_seconds and p.done < p.total
    ]
    if not bars or any(w.bytes for w in case.all(WeightsLoaded)) or case.has(ServerReady):
        return
    rate = sum(bar.done / (bar.elapsed_seconds or 1) for bar in bars)
    left = max((bar.total - bar.done) * (bar.elapsed_seconds or 0) / max(bar.done, 1) for bar in bars)
    if left < NOTICEABLE_SECONDS:
        return
    yield finding(
        "weights-download-slowly", bars[-3:], case=case,
        title=f"The weights are still being downloaded, at {rate / 1e6:.1f} MB/s: about {show_seconds(left)} to go",
        cause=f"{len(bars)} files are being fetched at {rate / 1e6:.1f} MB/s in all, so the load waits for the network for "
              f"about {show_seconds(left)} more. It is progress, and the GPU is not involved yet.",
        remedies=[
            Remedy("Fetch the checkpoint before the start, into the cache that the server uses", "hf download MODEL"),
            Remedy("Keep the cache between starts, so that it is fetched once", "-v ~/.cache/huggingface:/root/.cache/huggingface"),
            Remedy("Give start-up probes more time than the download needs", "startupProbe: periodSeconds 10, failureThreshold 600"),
        ],
        next_checks=(Check("How fast is the way to the hub?", "curl -o /dev/null -w '%{speed_download}' -L FILE_URL"),),
    )  # fmt: skip


def _is_slow(loaded: WeightsLoaded) -> bool:
    seconds = loaded.seconds or 0
    if seconds >= SLOW_LOAD_SECONDS:
        return True
    return seconds >= NOTICEABLE_SECONDS and loaded.bytes is not None and loaded.bytes / seconds < SLOW_RATE


def _pace(bar: Progress) -> float | None:
    """Seconds of one item: by what the bar still expects, else by what it has done."""
    if bar.left_seconds and bar.total > bar.done:
        return bar.left_seconds / (bar.total - bar.done)
    return bar.elapsed_seconds / bar.done if bar.elapsed_seconds and bar.done else None


def _size(loaded: WeightsLoaded) -> str:
    return f" ({show_bytes(loaded.bytes)})" if loaded.bytes else ""


def _faster_load(case: Case) -> list[Remedy]:
    remedies = [
        Remedy(
            "Copy the checkpoint to local NVMe (or warm the page cache) before the start", "cp -r MODEL /local/nvme/"
        ),
    ]
    if case.engine in (None, "vllm"):
        remedies.append(Remedy("Read with a streaming, parallel loader", "--load-format runai_streamer"))
        if any(r.world_size > 1 for r in case.all(RankAssigned)):
            remedies.append(Remedy("With tensor parallelism save each rank's share once, so that a rank reads only that",
                                   "--load-format sharded_state"))  # fmt: skip
        remedies.append(
            Remedy("Read ahead on network file systems (0.18 and later)", "--safetensors-load-strategy prefetch")
        )
    remedies.append(Remedy("Give start-up probes and supervisors more time than the load needs",
                           "startupProbe: periodSeconds 10, failureThreshold 600"))  # fmt: skip
    return remedies


def _if_ready(case: Case) -> Severity:
    """A slow step of a start that came up is a remark."""
    return "info" if case.has(ServerReady) else "warning"


def slow_compile(case: Case) -> Iterator[Finding]:
    """torch.compile took minutes: a cold cache."""
    took = max(
        (c for c in case.all(CompileTook) if c.what in ("torch.compile", "Inductor", "Dynamo")),
        key=lambda c: c.seconds, default=None,
    )  # fmt: skip
    if took is None or took.seconds < SLOW_COMPILE_SECONDS:
        return
    shown = [c for c in case.all(CompileTook) if c.seconds >= 0.5 * took.seconds]
    yield finding(
        "compile-took-long", shown[:4], case=case, severity=_if_ready(case),
        title=f"torch.compile took {show_seconds(took.seconds)} of the start",
        cause=f"Compiling the model's graphs took {took.seconds:.0f} s ({show_seconds(took.seconds)}): the compile cache "
              "was cold. It comes back at every start and on every new machine unless the cache is kept; few CPU cores "
              "make it longer.",
        remedies=[
            Remedy("Keep the compile cache between starts, on a volume that the next start sees",
                   "VLLM_CACHE_ROOT=/persistent/vllm-cache", "a warm start loads the graphs in seconds"),
            Remedy("Give the start more CPU cores; Inductor compiles in parallel", "docker run --cpus 16 …"),
            Remedy("For short jobs skip compilation; decoding gets slower", flag("vllm", "eager", True)),
        ],
        next_checks=(Check("Is the cache found again at the next start?", "ls ~/.cache/vllm/torch_compile_cache"),),
        figures={"compile_seconds": took.seconds},
    )  # fmt: skip


def slow_warm_up(case: Case) -> Iterator[Finding]:
    """Graph capture, kernel warm-up or all of the engine's preparation took minutes, and compilation does not explain it."""
    shown: list[Fact] = []
    bars = [p for p in case.all(Progress) if p.step == "graph-capture" and p.total > 1]
    took = max((g for g in case.all(GraphsCaptured) if g.seconds), key=lambda g: g.seconds or 0, default=None)
    init = case.last(InitTook)
    compiled = max((c.seconds for c in case.all(CompileTook)), default=0.0)
    if took is not None and (took.seconds or 0) >= SLOW_CAPTURE_SECONDS:
        title, shown = f"Capturing the CUDA graphs took {show_seconds(took.seconds or 0)}", [took]
        what = f"{took.count} graphs were captured" if took.count else "The graphs were captured"
    elif took is None and bars and bars[-1].done < bars[-1].total and (pace := _pace(bars[-1])) and (
        pace * bars[-1].total >= SLOW_CAPTURE_SECONDS
    ):  # fmt: skip
        last = bars[-1]
        title, shown = (
            f"Capturing the CUDA graphs is slow: {show_seconds(pace)} each, {last.done} of {last.total} done",
            [last],
        )
        what = f"The bar moves: about {show_seconds(pace * (last.total - last.done))} more"
    elif init is not None and init.seconds - compiled >= SLOW_INIT_SECONDS:
        title, shown = f"Preparing the engine (profile, KV cache, warm-up) took {show_seconds(init.seconds)}", [init]
        what = f"torch.compile explains {show_seconds(compiled)} of it" if compiled else "Compilation is part of it"
    else:
        return
    yield finding(
        "warm-up-slow", shown, case=case, title=title, severity=_if_ready(case),
        cause=f"{what}. It is progress, not a fault: kernels are compiled and tuned at their first use, and each captured "
              "graph is run. Few CPU cores, a busy GPU or empty kernel caches make it long.",
        remedies=[
            Remedy("Keep the caches of vLLM, Triton, FlashInfer and DeepGEMM between starts",
                   "-v /persistent/cache:/root/.cache   (VLLM_CACHE_ROOT, TRITON_CACHE_DIR, FLASHINFER_WORKSPACE_BASE)"),
            Remedy("Capture fewer graphs: only the batch sizes that are served",
                   flag("vllm", "graph-sizes", "[1, 2, 4, 8, 16, 32]")),
            Remedy("For short jobs do without graphs; decoding gets slower", flag("vllm", "eager", True)),
        ],
        next_checks=(Check("Is the CPU the limit, and does anything else use the GPU?", "top -b -n1 | head -15; nvidia-smi"),),
    )  # fmt: skip


RULES = (
    Rule(slow_weights, (StepMark,), ("weights-load-slowly",), (Progress, WeightsLoaded)),
    Rule(slow_download, (Progress,), ("weights-download-slowly",)),
    Rule(slow_compile, (CompileTook,), ("compile-took-long",)),
    Rule(slow_warm_up, (StepMark,), ("warm-up-slow",), (GraphsCaptured, InitTook)),
)
