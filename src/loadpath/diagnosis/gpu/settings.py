"""Settings of a GPU that a server feels: persistence mode, compute mode, a MIG change that waits, what a name does not tell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.gpu import DriverVersions, GpuListed, GpuState, MigInstance
from loadpath.core.report import Finding
from loadpath.diagnosis.gpu.words import board, gpus_now, labels, mebibytes, say
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge import cuda


def judge(case: Case) -> Iterator[Finding]:
    seen = gpus_now(case)
    gpus = [s.state for s in seen]
    tests = (
        ("gpu-persistence-off", [s.state for s in seen if s.state.persistence is False and not s.foreign]),
        ("gpu-compute-exclusive", [g for g in gpus if g.compute_mode == "E. Process" and not _has_mps(case)]),
        ("gpu-compute-prohibited", [g for g in gpus if g.compute_mode == "Prohibited"]),
        ("gpu-mig-change-pending", [g for g in gpus if g.mig_pending]),
        (
            "gpu-is-virtual",
            [g for g in gpus if (g.name or "").startswith("GRID ") or (g.virtualisation or "") == "VGPU"],
        ),
        ("gpu-name-counts-host-memory", [g for g in gpus if _counts_host_memory(g)]),
        ("gpu-unknown-to-driver", [g for g in gpus if "Graphics Device" in (g.name or "")]),
    )
    for row_id, own in tests:
        if own:
            values = {
                "gpus": labels(own),
                "index": own[0].index or 0,
                "verb": "is" if len(own) == 1 else "are",
                "name": own[0].name,
                "total": mebibytes(own[0].total_bytes),
            }
            yield finding(row_id, own, case=case, values=values)


def _counts_host_memory(gpu: GpuState) -> bool:
    """`GH200 480GB` has 96 GB on the GPU: the figure in the name is the CPU's memory."""
    named = re.search(r"(\d+)\s?GB\b", gpu.name or "")
    return bool(named and gpu.total_bytes and gpu.total_bytes < 0.6 * int(named[1]) * 10**9)


def _has_mps(case: Case) -> bool:
    return any("mps" in (p.name or "") or p.kind in ("M", "M+C") for s in gpus_now(case) for p in s.processes)


def judge_versions(case: Case) -> Iterator[Finding]:
    """Tool and driver versions that differ (WSL, images with their own tool), and a CUDA figure above the driver's own."""
    for versions in case.all(DriverVersions):
        if versions.view != "table":
            continue
        if versions.cuda_missing and versions.driver:
            yield finding("cuda-library-not-in-sight", [versions], case=case, values={"driver": versions.driver})
        if versions.tool and versions.driver and versions.tool != versions.driver:
            yield finding(
                "smi-tool-differs-from-driver",
                [versions],
                case=case,
                values={"tool": versions.tool, "driver": versions.driver},
            )
        branch = cuda.branch_of(versions.driver) if versions.driver else None
        windows = versions.tool != versions.driver or any("nvgpu" in (g.name or "") for g in case.all(GpuState))
        if branch and versions.cuda and not windows and _above(versions.cuda, branch.cuda):
            values = {"cuda": versions.cuda, "driver": versions.driver, "own": branch.cuda}
            yield finding("cuda-compat-in-sight", [versions], case=case, values=values)


def _above(shown: str, own: str) -> bool:
    return bool(own) and cuda.numbers(shown) > cuda.numbers(own)


def judge_last_branch(case: Case) -> Iterator[Finding]:
    """A board on the last driver branch that supports it: newer CUDA will not come to it."""
    versions = next((v for v in case.all(DriverVersions) if v.driver and v.tool == v.driver), None)
    if versions is None or not versions.driver:
        return
    branch = (cuda.numbers(versions.driver) or (0,))[0]
    for s in gpus_now(case):
        found = board(s.state)
        if found and found.max_branch and branch == found.max_branch:
            values = {"name": s.state.name, "branch": found.max_branch, "architecture": found.architecture}
            yield finding("gpu-last-driver-branch", [s.state], case=case, values=values)
            return


def judge_list(case: Case) -> Iterator[Finding]:
    """`nvidia-smi -L` by itself: what there is."""
    listed = case.all(GpuListed)
    if case.has(GpuState):
        return
    names = Counter(g.name for g in listed)
    profiles = Counter(m.profile for m in case.all(MigInstance) if m.profile)
    count = f"{len(listed)} GPU{'s' if len(listed) > 1 else ''}"
    values = {
        "count": count, "names": say([f"{n} × {name}" if n > 1 else str(name) for name, n in names.items()]),
        "mig": say([f"{n} × {profile}" for profile, n in profiles.items()]) if profiles else None,
    }  # fmt: skip
    yield finding("gpu-listed", listed, case=case, values=values)


def judge_version_alone(case: Case) -> Iterator[Finding]:
    """A driver version without any GPU beside it (`/proc/driver/nvidia/version`, `nvidia-smi --version`)."""
    versions = next((v for v in case.all(DriverVersions) if v.driver and v.view in ("proc", "version")), None)
    if versions is not None and not case.has(GpuState):
        values = {"driver": versions.driver, "flavour": versions.flavour, "cuda": versions.cuda}
        yield finding("driver-version-seen", [versions], case=case, values=values)


RULES = (
    Rule(
        judge,
        (GpuState,),
        (
            "gpu-persistence-off",
            "gpu-compute-exclusive",
            "gpu-compute-prohibited",
            "gpu-mig-change-pending",
            "gpu-is-virtual",
            "gpu-name-counts-host-memory",
            "gpu-unknown-to-driver",
        ),
    ),
    Rule(
        judge_versions,
        (DriverVersions,),
        ("smi-tool-differs-from-driver", "cuda-compat-in-sight", "cuda-library-not-in-sight"),
    ),
    Rule(judge_list, (GpuListed,), ("gpu-listed",), uses=(MigInstance,)),
    Rule(judge_version_alone, (DriverVersions,), ("driver-version-seen",)),
    Rule(judge_last_branch, (GpuState, DriverVersions), ("gpu-last-driver-branch",)),
)
