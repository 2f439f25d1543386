"""Limits and figures of a live host that would refuse an engine something, or slow it: each with the figure that says so."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.gpu import GpuState, PciDevice
from loadpath.core.facts.host import FilesystemUse, HostMemory, ResourceLimit
from loadpath.core.facts.machine import ProbeRan
from loadpath.core.facts.runtime import CgroupLimits, EngineProcess, HostSetting, HugePages, ModelCache
from loadpath.core.report import Finding
from loadpath.core.units import GIB, show_bytes, show_count
from loadpath.diagnosis.rule import Rule, finding

NEARLY = 0.95
"""Share of a limit from which on it is told."""
THROTTLED = 0.2
CPUS_A_GPU = 2
LOW_SHARE, LOW_BYTES = 0.05, 8 * GIB
"""Less than this share of RAM, and less than this, is little."""
IDLE_PAGES = 8 * GIB
LITTLE_ROOM = 10 * GIB
LEAST_FREE = GIB
ENOUGH_LOCKED = GIB
"""Locked memory that RDMA with several peers gets along with."""
# Drivers of the CPU's frequency whose `powersave` follows the load.
FOLLOWS_LOAD = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")


def gpu_count(case: Case) -> int:
    return max(len([d for d in case.all(PciDevice) if d.is_gpu]), len({s.index for s in case.all(GpuState)}))


def groups(case: Case) -> list[CgroupLimits]:
    """Each control group once: that of loadpath, and those of the engines."""
    return list({group.path: group for group in case.all(CgroupLimits)}.values())


def judge_memory_limit(case: Case) -> Iterator[Finding]:
    """The memory limit of the control group, and who it has cost already."""
    for group in groups(case):
        if group.memory_bytes and group.used_bytes is not None:
            held = group.used_bytes - (group.cache_bytes or 0)
            if held >= NEARLY * group.memory_bytes:
                cause = (
                    f"{group.path} may hold {show_bytes(group.memory_bytes)} and holds {show_bytes(held)} that cannot be given back "
                    f"({100 * held / group.memory_bytes:.0f} %), file cache not counted. The next large allocation is refused or ends with "
                    "the OOM-killer."
                )
                yield finding(
                    "cgroup-memory-nearly-full", [group], case=case, values={"limit": show_bytes(group.memory_bytes)}, cause=cause,
                    figures={"limit_bytes": group.memory_bytes, "held_bytes": held},
                )  # fmt: skip
        if group.oom_kills:
            limit = f", at a limit of {show_bytes(group.memory_bytes)}" if group.memory_bytes else ""
            yield finding(
                "cgroup-oom-kills",
                [group],
                case=case,
                values={"count": group.oom_kills, "limit": limit or " in all", "path": group.path},
            )


def judge_cpu_quota(case: Case) -> Iterator[Finding]:
    for group in groups(case):
        gpus = gpu_count(case)
        cpus = f"{group.cpus:.3g}" if group.cpus else ""
        if group.cpus and group.throttled_share is not None and group.throttled_share >= THROTTLED:
            values = {"cpus": cpus, "share": f"{100 * group.throttled_share:.0f}"}
            yield finding("cpu-quota-throttles", [group], case=case, values=values)
        elif group.cpus and gpus and group.cpus < CPUS_A_GPU * gpus:
            yield finding("cpu-quota-small", [group], case=case, values={"cpus": cpus, "gpus": gpus})
        if group.pids and group.pids_used and group.pids_used >= NEARLY * group.pids:
            values = {"used": show_count(group.pids_used), "limit": show_count(group.pids)}
            yield finding("pids-limit-near", [group], case=case, values=values)


def judge_memory(case: Case) -> Iterator[Finding]:
    """RAM that is left on the host, and RAM that nobody can have."""
    memory = next((m for m in reversed(case.all(HostMemory)) if m.total_bytes and m.available_bytes is not None), None)
    if memory is None or memory.total_bytes is None or memory.available_bytes is None:
        return
    free, total = memory.available_bytes, memory.total_bytes
    if free < LOW_SHARE * total and free < LOW_BYTES:
        values = {"free": show_bytes(free), "total": show_bytes(total)}
        swap = memory.swap_used_bytes
        paged = f" {show_bytes(swap)} were swapped out already." if swap and swap > GIB else ""
        cause = (
            f"MemAvailable, page cache counted as free, is {show_bytes(free)} ({100 * free / total:.0f} % of {show_bytes(total)}).{paged} "
            "Loading a model reads its weights through RAM, and pinned buffers cannot be swapped: a start may end with the OOM-killer."
        )
        yield finding(
            "host-memory-low", [memory], case=case, values=values, cause=cause, figures={"available_bytes": free}
        )
    for pages in case.all(HugePages)[-1:]:
        idle = pages.free * pages.page_bytes
        if idle >= min(IDLE_PAGES, total // 10):
            values = {"idle": show_bytes(idle), "count": show_count(pages.total), "free": show_count(pages.free),
                      "page": show_bytes(pages.page_bytes)}  # fmt: skip
            yield finding("hugepages-idle", [pages], case=case, values=values, figures={"idle_bytes": idle})


def judge_settings(case: Case) -> Iterator[Finding]:
    """The CPU's governor and the kernel's accounting of memory."""
    driver = next((s.value.partition(" x ")[0] for s in case.all(HostSetting) if s.name == "cpu.driver"), "")
    for setting in case.all(HostSetting):
        value, _, count = setting.value.partition(" x ")
        if setting.name == "cpu.governor" and value == "powersave" and driver and driver not in FOLLOWS_LOAD:
            yield finding("cpu-governor-powersave", [setting], case=case, values={"count": count, "driver": driver})
        elif setting.name == "vm.overcommit_memory" and value == "2":
            yield finding("overcommit-strict", [setting], case=case)


def judge_model_cache(case: Case) -> Iterator[Finding]:
    told: set[str] = set()
    for cache in case.all(ModelCache):
        if cache.free_bytes >= LITTLE_ROOM or cache.mount in told:
            continue
        told.add(cache.mount)
        values = {"free": show_bytes(cache.free_bytes), "size": show_bytes(cache.size_bytes), "path": cache.path,
                  "mount": cache.mount, "named": "the default" if cache.named_by == "default" else cache.named_by}  # fmt: skip
        yield finding(
            "model-cache-nearly-full", [cache], case=case, values=values, figures={"free_bytes": cache.free_bytes}
        )


def judge_disks(case: Case) -> Iterator[Finding]:
    """File systems that every start writes to: logs, compile caches, sockets. Only of a live machine."""
    for disk in {f.mount: f for f in case.all(FilesystemUse) if f.mount in ("/", "/tmp", "/var")}.values():
        if disk.free_bytes < LEAST_FREE and disk.size_bytes:
            values = {"mount": disk.mount, "free": show_bytes(disk.free_bytes), "size": show_bytes(disk.size_bytes)}
            yield finding("disk-nearly-full", [disk], case=case, values=values, figures={"free_bytes": disk.free_bytes})


def judge_locked(case: Case) -> Iterator[Finding]:
    """A machine with RDMA devices whose processes may lock next to nothing."""
    devices = next((s for s in case.all(HostSetting) if s.name == "rdma.devices"), None)
    limit = next((x for x in reversed(case.all(ResourceLimit)) if x.name == "memlock"), None)
    if devices is None or limit is None or limit.value is None or limit.value >= ENOUGH_LOCKED:
        return
    whose = "The engine's process" if case.has(EngineProcess) else "A process of this user"
    cause = (
        f"This machine has RDMA devices ({devices.value}). {whose} may lock {show_bytes(limit.value)} of memory, and RDMA locks every "
        "buffer that it registers, many MiB for each peer: NCCL then fails with ibv_reg_mr … Cannot allocate memory. Without "
        "traffic over RDMA nothing fails."
    )
    yield finding("memlock-limit-low", [limit, devices], case=case, cause=cause, certainty="likely", step="unseen",
                  figures={"memlock_bytes": limit.value})  # fmt: skip


RULES = (
    Rule(judge_memory_limit, (CgroupLimits,), ("cgroup-memory-nearly-full", "cgroup-oom-kills")),
    Rule(
        judge_cpu_quota,
        (CgroupLimits,),
        ("cpu-quota-throttles", "cpu-quota-small", "pids-limit-near"),
        uses=(PciDevice,),
    ),
    Rule(judge_memory, (HostMemory,), ("host-memory-low", "hugepages-idle"), uses=(HugePages,)),
    Rule(judge_settings, (HostSetting,), ("cpu-governor-powersave", "overcommit-strict")),
    Rule(judge_model_cache, (ModelCache,), ("model-cache-nearly-full",)),
    Rule(judge_disks, (FilesystemUse, ProbeRan), ("disk-nearly-full",)),
    Rule(judge_locked, (HostSetting, ResourceLimit), ("memlock-limit-low",)),
)
