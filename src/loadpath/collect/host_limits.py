"""Limits of the host: shared memory and disks, locked memory and open files, RAM and swap, huge pages, control groups,
processors and their governor, and the room where models are downloaded to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from loadpath.collect.cgroups import cgroup_limits
from loadpath.collect.probe import Machine, Probe, Sample
from loadpath.collect.programs import find_program

_SYSCTLS = ("vm.overcommit_memory", "vm.max_map_count", "vm.swappiness", "vm.zone_reclaim_mode", "kernel.pid_max",
            "kernel.threads-max", "kernel.shmmax", "fs.file-max", "net.core.somaxconn")  # fmt: skip
_CPUS = "/sys/devices/system/cpu"
_CACHES = (("HF_HUB_CACHE", ""), ("HF_HOME", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("TRANSFORMERS_CACHE", ""),
           ("VLLM_CACHE_ROOT", ""), ("XDG_CACHE_HOME", "/huggingface"), ("OLLAMA_MODELS", ""), ("MODELSCOPE_CACHE", ""))  # fmt: skip


def gather_filesystems(machine: Machine) -> Iterator[Sample]:
    paths = [path for path in ("/dev/shm", "/tmp", "/") if machine.exists(path)]
    yield machine.run(["df", "-kP", *paths], name="filesystems", kind="text")


def gather_limits(machine: Machine) -> Iterator[Sample]:
    """The limits that this shell's processes get. Those of a running engine are its own: see the engines' samples."""
    yield machine.cat("/proc/self/limits", name="process-limits", kind="text")


def gather_memory(machine: Machine) -> Iterator[Sample]:
    yield machine.cat("/proc/meminfo", name="memory", kind="meminfo")


def gather_settings(machine: Machine) -> Iterator[Sample]:
    lines = []
    for name in _SYSCTLS:
        if value := machine.text(f"/proc/sys/{name.replace('.', '/')}"):
            lines.append(f"{name}: {' '.join(value.split())}")
    pages = machine.text("/sys/kernel/mm/transparent_hugepage/enabled")
    if pages and "[" in pages:
        lines.append(f"transparent-hugepages: {pages.partition('[')[2].partition(']')[0]}")
    if load := machine.text("/proc/loadavg"):
        lines.append(f"load: {' '.join(load.split()[:3])}")
    if devices := machine.listdir("/sys/class/infiniband"):
        lines.append(f"rdma.devices: {' '.join(devices)}")
    lines += _processors(machine)
    groups = cgroup_limits(machine)
    lines += [f"cgroup: {json.dumps(groups)}"] if groups else []
    yield machine.told(lines, name="host-settings", kind="host-settings", command="sysctl vm kernel.pid_max fs.file-max; "
                       "cat /proc/self/cgroup /sys/fs/cgroup/…/{memory,cpu,pids}.* /sys/devices/system/cpu/cpu*/cpufreq/*")  # fmt: skip


def _processors(machine: Machine) -> Iterator[str]:
    text = machine.text("/proc/cpuinfo") or ""
    models = Counter(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    for model, count in models.items():
        yield f"cpu.model: {model} x {count}"
    for what, file in (
        ("governor", "scaling_governor"),
        ("driver", "scaling_driver"),
        ("preference", "energy_performance_preference"),
    ):
        names = (name for name in machine.listdir(_CPUS) if name[3:].isdigit())
        found = Counter(filter(None, (machine.text(f"{_CPUS}/{name}/cpufreq/{file}") for name in names)))
        for value, count in found.most_common():
            yield f"cpu.{what}: {value} x {count}"


def gather_model_caches(machine: Machine) -> Iterator[Sample]:
    """The folders that models are downloaded to, and the room there. `df` may hang on a dead network mount: it has a time-out."""
    home = machine.environ.get("HOME", "/root")
    named = [
        (name, machine.environ[name] + more) for name, more in _CACHES if machine.environ.get(name, "").startswith("/")
    ]
    named += [
        ("default", f"{home}/.cache/huggingface"),
        ("default", f"{home}/.ollama/models"),
        ("default", "/usr/share/ollama/.ollama/models"),
    ]
    lines: list[str] = []
    failed = None
    for path, by in {path: by for by, path in reversed(named)}.items():
        if not find_program(machine, "df") or not machine.exists(path):
            continue
        said = machine.run(["df", "-kP", path])
        failed = failed or (said if said.outcome == "timed-out" else None)
        words = said.data.decode("utf-8", "replace").splitlines()[-1:] if said.outcome == "ok" else []
        for row in words:
            fields = row.split()
            if len(fields) >= 6 and fields[1].isdigit() and fields[3].isdigit():
                lines.append("model-cache: " + json.dumps({
                    "path": path, "mount": " ".join(fields[5:]), "size_bytes": int(fields[1]) * 1024,
                    "free_bytes": int(fields[3]) * 1024, "filesystem": fields[0], "named_by": by,
                }))  # fmt: skip
    note = "" if failed is None else f"`{failed.command}` did not answer: {failed.note}"
    if lines or failed:
        yield machine.told(lines, name="model-caches", kind="host-settings", command="df -kP $HF_HOME ~/.cache/huggingface …",
                           outcome="timed-out" if failed else "ok", note=note)  # fmt: skip


PROBES = (
    Probe("filesystems", "text", "host", gather_filesystems),
    Probe("process-limits", "text", "host", gather_limits),
    Probe("memory", "meminfo", "host", gather_memory),
    Probe("host-settings", "host-settings", "host", gather_settings),
    Probe("model-caches", "host-settings", "host", gather_model_caches),
)
