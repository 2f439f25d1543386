"""Limits of the host's memory that refuse something: allocations, mappings, locked memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.host import ResourceLimit
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import parse_size, show_bytes, show_count
from loadpath.diagnosis.rule import Rule, finding

LOAD_LESS = Remedy(
    "Load with less in RAM at once: safetensors (mapped) in place of .bin, transformers with low_cpu_mem_usage or device_map, "
    "fewer loading workers.",
    "low_cpu_mem_usage=True, device_map='cuda'  # vLLM: --max-parallel-loading-workers 1 --swap-space 0",
)
MORE_MEMORY = Remedy(
    "Give it more memory: a higher limit of the container or pod, a larger machine, or swap for a peak that is short.",
    "docker run --memory=128g …  # Kubernetes: resources.limits.memory",
)
HOLD_LESS = Remedy(
    "Hold less in RAM: less CPU offload, fewer DataLoader workers, less pinned or swap space, fewer processes per host."
)


def judge_allocation(case: Case) -> Iterator[Finding]:
    """An allocation or a mapping in host memory was refused."""
    if mapped := case.symptoms("host-mmap-failed"):
        yield _mmap(case, mapped)
    if failed := case.symptoms("host-allocation-failed"):
        size = max((_size(s) for s in failed), default=0)
        what = (
            f"An allocation of {show_bytes(size)} in the host's RAM" if size else "An allocation in the host's memory"
        )
        cause = (
            f"{what} was refused. It is the machine's memory, the container's limit or an address-space limit (ulimit -v) "
            "that is too small; GPU memory has no part in it."
        )
        yield finding(
            "host-allocation-failed",
            failed,
            case=case,
            cause=cause,
            remedies=[MORE_MEMORY, LOAD_LESS, HOLD_LESS],
            next_checks=(
                Check(
                    "How much is free, and which limit applies?", "free -g; cat /sys/fs/cgroup/memory.max; ulimit -v"
                ),
            ),
            figures={"requested_bytes": size} if size else {},
        )


def _size(symptom: Symptom) -> int:
    if symptom.groups.get("size"):
        return int(symptom.groups["size"])
    return parse_size(symptom.groups.get("amount", "")) or 0


def _mmap(case: Case, mapped: Sequence[Symptom]) -> Finding:
    size = max((_size(s) for s in mapped), default=0)
    file = next((s.groups["file"].rpartition("/")[2] for s in mapped if s.groups.get("file")), None)
    what = f"Mapping {file or 'a file'}" + (f" ({show_bytes(size)}, {show_count(size)} bytes)" if size else "")
    cause = (
        f"{what} into the process's address space was refused: Cannot allocate memory (12). That is a limit of host memory "
        "(RAM with overcommit switched off, the container's memory limit, ulimit -v, or vm.max_map_count), reached before any "
        "weight went to the GPU: GPU memory was not touched."
    )
    return finding(
        "host-mmap-failed",
        mapped,
        case=case,
        cause=cause,
        figures={"mapped_bytes": size} if size else {},
        remedies=[
            Remedy("Lift the address-space limit of the shell or job.", "ulimit -v unlimited"),
            Remedy(
                "Raise the container's or job's memory limit above the size of the weights.",
                "docker run --memory=64g …",
            ),
            Remedy("If overcommit is switched off on the host, allow it.", "sudo sysctl vm.overcommit_memory=0"),
            Remedy(
                "Load without mmap, if RAM is enough for a whole file.",
                ("llama.cpp: --no-mmap; otherwise convert to smaller shards: save_pretrained(max_shard_size='1GB')"),
            ),
        ],
        next_checks=(
            Check(
                "Which of the limits is it?",
                ("free -g; ulimit -v; cat /sys/fs/cgroup/memory.max; sysctl vm.overcommit_memory vm.max_map_count"),
            ),
        ),
    )


def judge_memlock(case: Case) -> Iterator[Finding]:
    """Verbs refused to register memory, because so much may not be locked."""
    refused = case.symptoms("rdma-locked-memory-limit")
    if not refused:
        return
    limit = next((x for x in reversed(case.all(ResourceLimit)) if x.name == "memlock"), None)
    call = next((s.groups["call"] for s in refused if s.groups.get("call")), "reg_mr")
    call = call if call.startswith(("ibv_", "mlx5dv_")) else f"ibv_{call}"
    cause = [f"{call} failed with Cannot allocate memory: registering RDMA memory pins (locks) it."]
    facts: list[Fact] = [*refused]
    if limit is not None and limit.value is not None:
        facts.append(limit)
        cause.append(
            f"ulimit -l, the locked-memory limit (memlock), is {show_count(limit.value / 1024)} kB ({show_bytes(limit.value)}), "
            "and NCCL registers buffers of many MiB per channel and peer."
        )
    elif limit is None:
        cause.append(
            "The locked-memory limit (ulimit -l, memlock) of the process is too low for NCCL's buffers; 64 kB or 8 MB are usual defaults."
        )
    else:
        facts.append(limit)
        cause.append(
            "The limit shown is unlimited, but what counts is that of the failing "
            "process (service, container or job launcher), which may differ."
        )
    yield finding(
        "rdma-locked-memory-limit",
        facts,
        case=case,
        cause=" ".join(cause),
        certainty="established" if limit is not None and limit.value is not None else "likely",
        remedies=[
            Remedy(
                "In a container: lift the limit and allow locking.",
                (
                    "docker run --ulimit memlock=-1 --cap-add=IPC_LOCK …  # Kubernetes: "
                    "securityContext.capabilities.add: [IPC_LOCK] and containerd with "
                    "LimitMEMLOCK=infinity"
                ),
            ),
            Remedy(
                ("On the host: set it to unlimited and log in again (running shells and daemons keep the old one)."),
                "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/rdma.conf",
            ),
            Remedy(
                "For services and Slurm: set it in the unit.",
                "LimitMEMLOCK=infinity  # slurmd: PropagateResourceLimitsExcept=MEMLOCK",
            ),
        ],
        next_checks=(Check("What may the failing process itself lock?", "grep 'locked memory' /proc/PID/limits"),),
    )


def judge_ray_disk(case: Case) -> Iterator[Finding]:
    """Ray's own warning about the file system under its session folder."""
    warned = case.symptoms("ray-disk-nearly-full")
    if not warned:
        return
    said = warned[-1].groups
    room = {name: parse_size(said[name]) or 0 for name in ("free", "all")}
    yield finding(
        "ray-disk-nearly-full",
        [warned[0], warned[-1]],
        case=case,
        cause=(
            f"`{said['path']}` lies on a file system that is over {said['percent']} % full: {show_bytes(room['free'])} of "
            f"{show_bytes(room['all'])} are free. Ray goes on with what it has in memory, but objects that have to be "
            "spilled there will fail. The limit is a share of the whole, so a large file system warns early."
        ),
        remedies=[
            Remedy(
                "Put Ray's session files on another file system, or free space there.",
                "ray start --temp-dir=/big/ray …",
            ),
            Remedy("If the free space is enough: raise Ray's limit.", "RAY_local_fs_capacity_threshold=0.99"),
        ],
        next_checks=(Check("What fills it?", "df -h /tmp; du -xsh /tmp/ray"),),
        figures={"disk_free_bytes": room["free"], "disk_capacity_bytes": room["all"]},
    )


RULES = (
    Rule(judge_ray_disk, (Symptom,), ("ray-disk-nearly-full",)),
    Rule(judge_allocation, (Symptom,), ("host-mmap-failed", "host-allocation-failed")),
    Rule(judge_memlock, (Symptom,), ("rdma-locked-memory-limit",), uses=(ResourceLimit,)),
)
