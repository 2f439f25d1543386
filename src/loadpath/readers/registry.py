"""Every reader by name: what its captures are called, what gives them away, and the module that reads them.

A module is imported only when one of its sniffs is in the text. Block readers claim whole stretches of lines:

    extent(lines: Sequence[Line], i: int) -> int    # index after the block that begins at lines[i]; i where none does
    read(capture: Capture) -> Iterable[Fact]

Line readers look at every capture and claim nothing:

    read(capture: Capture) -> Iterable[Fact]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Literal, Protocol, cast

import msgspec

from loadpath.core.extensions import extensions
from loadpath.core.facts.base import Fact
from loadpath.core.text import Capture, Line


class ReaderEntry(msgspec.Struct, frozen=True):
    """`sniffs`: literals (any case), one of which is in every capture of this kind (in its first line for blocks);
    () for a reader that must be asked always. `module` is in `package`; entries of other packages name their own.
    `alone`: no other reader looks at its captures (their words are loadpath's own, not those of a program)."""

    kind: str
    module: str
    sniffs: tuple[str, ...]
    where: Literal["block", "anywhere"] = "block"
    package: str = "loadpath.readers"
    alone: bool = False


class ReaderModule(Protocol):
    extent: Callable[[Sequence[Line], int], int]
    read: Callable[[Capture], Iterable[Fact]]


READERS: tuple[ReaderEntry, ...] = (
    ReaderEntry("loadpath-sample", "loadpath_sample", ("#loadpath-sample",), alone=True),
    ReaderEntry("whereabouts", "host.whereabouts", ("#loadpath-sample",), alone=True),
    ReaderEntry("gpu-timeline", "profile.timeline", ("#loadpath-timeline",), alone=True),
    ReaderEntry("ncu", "profile.ncu_csv", ('"kernel name"', "kernel name,"), alone=True),
    ReaderEntry("ncu-text", "profile.ncu_text", (", device ", "ctx ", "context "), alone=True),
    ReaderEntry("nsys-stats", "profile.nsys_stats", ("time (%)", "time(%)"), alone=True),
    ReaderEntry("bench-result", "traffic.result", ("{",), alone=True),
    ReaderEntry("ready-result", "traffic.ready_result", ("loadpath.ready/",), alone=True),
    ReaderEntry("step-work", "traffic.step_work", ("loadpath.step-work/",), alone=True),
    ReaderEntry("bench-json", "traffic.json", ("{", "["), alone=True),
    ReaderEntry("llama-bench", "traffic.llama_bench", ("[", "{", "t/s", "avg_ts", "n_kv"), alone=True),
    ReaderEntry("bench-serving", "traffic.serving", ("serving benchmark result",), alone=True),
    ReaderEntry("bench-table", "traffic.tables", ("metric", "statistic", "benchmark", "metadata"), alone=True),
    ReaderEntry("bench-figures", "traffic.figures", ("ttft", "itl", "tpot", "token latency", "time to first token"), "anywhere"),
    ReaderEntry("pci", "host.pci", ("#loadpath-sample",)),
    ReaderEntry("kernel-module", "host.kernel_modules", ("#loadpath-sample",), alone=True),
    ReaderEntry("device-access", "host.device_access", ("#loadpath-sample",), alone=True),
    ReaderEntry("user-driver", "nvidia.user_driver", ("#loadpath-sample",), alone=True),
    ReaderEntry("cuda-init", "nvidia.cuda_init", ("#loadpath-sample",), alone=True),
    ReaderEntry("nvml", "nvidia.nvml", ("#loadpath-sample",)),
    ReaderEntry("inventory", "python.inventory", ("#loadpath-sample",), alone=True),
    ReaderEntry("framework", "python.inventory", ("#loadpath-sample",)),
    ReaderEntry("container-stack", "containers.container_stack", ("#loadpath-sample",), alone=True),
    ReaderEntry("inside", "containers.inside", ("#loadpath-sample",), alone=True),
    ReaderEntry("engines-seen", "engines_seen", ("#loadpath-sample",), alone=True),
    ReaderEntry("host-settings", "host.host_settings", ("#loadpath-sample",), alone=True),
    ReaderEntry("runtime-toml", "containers.runtime_toml", ("#loadpath-sample",), alone=True),
    ReaderEntry("toolkit-config", "containers.toolkit_config", ("#loadpath-sample",), alone=True),
    ReaderEntry("podman-info", "containers.podman_info", ("host:",)),
    ReaderEntry("meminfo", "host.meminfo", ("MemTotal:",)),
    ReaderEntry("symptoms", "symptoms", (), "anywhere"),
    ReaderEntry("load-bars", "load_bars", ("shards", "b/s"), "anywhere"),
    ReaderEntry("commands", "commands", (
        "docker", "podman", "nerdctl", "vllm ", "vllm.entrypoints", "sglang", "llama-", "/server ", "llama_cpp.server", "ollama ",
        "trtllm-", "text-generation-", "lmdeploy", "tritonserver", "torchrun", "torch.distributed.", "accelerate launch", "deepspeed",
        "export ", "--model", "--gpu", "--tensor", "--tp", "--max", "--mem", "--ctx", "--n-gpu",
    ), "anywhere"),
    ReaderEntry("kubernetes", "containers.kubernetes", (
        "probe", "State:", "Exit Code:", "OOMKilled", "Liveness:", "Startup:", "Readiness:", "Limits:", "Requests:", "Allocatable:",
        "Runtime Class",
        "READY", "CrashLoopBackOff", "Running", "/dev/shm from", "Normal ", "Warning ",
    ), "anywhere"),
    ReaderEntry("nccl-start", "network.nccl_start", ("NCCL", "nccl=="), "anywhere"),
    ReaderEntry("docker-runtimes", "containers.docker_runtimes", ("Runtimes:", "Default Runtime:"), "anywhere"),
    ReaderEntry("docker-inspect", "containers.docker_inspect", ('"OOMKilled"', '"ExitCode"', '"ShmSize"', '"DeviceRequests"'), "anywhere"),
    ReaderEntry("nvidia-ctk", "containers.nvidia_ctk", ("nvidia.com/", "CDI devices"), "anywhere"),
    ReaderEntry("host-limits", "host.host_limits", (
        "Mem:", "ulimit", "locked memory", "open files", "/dev/shm", "% /", "% full",
    ), "anywhere"),
    ReaderEntry("deepspeed", "python.deepspeed", ("Max_MA", "CPU Virtual Memory", "partition count"), "anywhere"),
    ReaderEntry("cdi-spec", "containers.cdi_spec", ("cdiVersion", "/cdi/")),
    ReaderEntry("daemon-json", "containers.daemon_json", ("daemon.json", '"runtimes"', '"default-runtime"', '"exec-opts"')),
    ReaderEntry("docker-info", "containers.docker_info", ("Client:", "Server:", "Containers:")),
    ReaderEntry("nvidia-container-cli", "containers.nvidia_container_cli", ("NVRM version:",)),
    ReaderEntry("k8s-manifest", "containers.k8s_manifest", (
        "apiVersion", "kind:", "containers:", "livenessProbe:", "startupProbe:", "readinessProbe:", "resources:", "volumeMounts:",
    )),
    ReaderEntry("compose", "containers.compose", ("services:", "version:", "image:")),
    ReaderEntry("kubectl", "containers.kubectl_describe", ("Name:", "Events:", "LAST SEEN", "READY")),
    ReaderEntry("ibstat", "network.ibstat", ("CA '", "Infiniband device '")),
    ReaderEntry("nccl", "network.nccl", ("NCCL", "bus bandwidth", "T/s", "tok/s", "tokens/s"), "anywhere"),
    ReaderEntry("kernel-log", "host.kernel_log", ("NVRM:", "nvidia-", "oom", "kernel", "PCIe", "segfault")),
    ReaderEntry("xid", "nvidia.xid", ("Xid", "NVRM: GPU at"), "anywhere"),
    ReaderEntry("gpu-lost", "nvidia.gpu_lost", ("off the bus", "RmInitAdapter", "is lost", "device handle"), "anywhere"),
    ReaderEntry("pcie-errors", "host.pcie_errors", ("Bus Error: severity", "AER:", "Slot(", "DPC:"), "anywhere"),
    ReaderEntry("oom-killer", "host.oom_killer", (
        "oom-kill", "Kill process", "Killed process", "oom_reaper", "segfault at", "general protection",
    ), "anywhere"),
    ReaderEntry("driver-parts", "nvidia.driver_parts", (
        "Kernel Module", "has the version", "nvidia", "NVML library", "DSO version", "libcuda.so.",
    ), "anywhere"),
    ReaderEntry("fabric-manager", "nvidia.fabric_manager", ("detected NVSwitch",), "anywhere"),
    ReaderEntry("dcgm", "nvidia.dcgm_diag", (
        "ran diagnostic", "| Diagnostic", "| Pass", "| Fail", "Health Monitor Report", "GPUs found", "GPU found",
    )),
    ReaderEntry("prometheus-metrics", "prometheus_text", ("# HELP", "# TYPE", "vllm:", "sglang:", "DCGM_FI_", "llamacpp:")),
    ReaderEntry("alerts", "alerts", ("{", "[")),
    ReaderEntry("module-refusals", "host.module_refusals", (
        "NVIDIA GPU", "probe routine", "already bound to", "legacy", "driver in use", "nouveau",
    ), "anywhere"),
    ReaderEntry("torch-oom", "python.torch_oom", (
        "out of memory", "outofmemory", "memoryallocation", "alloc_failed", "out_of_memory", "resource_exhausted",
        "defaultcpuallocator", "exceed allowed memory", "unable to allocate", "requested amount of gpu memory",
        "cudahostalloc", "oom when allocating", "not enough gpu memory",
    ), "anywhere"),
    ReaderEntry("kv-errors", "kv_errors", (
        "max seq len (", "kv pool holds", "no available memory for", "cannot auto-fit", "not enough memory", "leave no gpu memory",
        "state cache", "memory pool size is", "than the profiled value", "maxtokensinpaged", "insufficient gpu memory",
        "no enough gpu memory", "free memory on device",
        "error in memory prof", "warming up", "is too short to hold", "encoder cache will", "memory capacity is unb", "sleep mode freed",
    ), "anywhere"),
    ReaderEntry("python-calls", "python.python_calls", (
        "pipeline(", "from_pretrained(", "llm(", "engine(", "engineargs(", "serverargs(", "engineconfig(", "--model_",
    ), "anywhere"),
    ReaderEntry("broken-traceback", "python.broken_traceback", (
        "traceback (most recent call last)", 'file "', "exception in worker", "self.",
    ), "anywhere"),
    ReaderEntry("tracebacks", "python.traceback", ("error", "exception", "traceback", 'file "', "interrupt"), "anywhere"),
    ReaderEntry("python-homes", "python.python_homes", ("bin/python", "/site-packages"), "anywhere"),
    ReaderEntry("versions", "python.versions", (
        "driver", "cuda", "nvcc", "torch", "==", "libc", "sm_", "nvidia", "capability", "archs", "triton", "flash",
    ), "anywhere"),
    ReaderEntry("nvidia-smi", "nvidia_smi.table", (
        "nvidia-smi", "gpu  name", "+--", "processes:", ":00.0", ".0 off", ".0 on", ".0  on", ".0 n/a", "(nvgpu)", "gpu name", "mib /",
        "mib |",
    )),
    ReaderEntry("nvidia-smi-q", "nvidia_smi.query", (
        "nvsmi log", "driver version  ", "attached gpus", "timestamp  ", "gpu 0", "gpu 1", "kmd version", "remapped rows", "retired pages",
        "clocks event reasons", "clocks throttle reasons", "fb memory usage", "ecc errors", "gpu link info", "fabric", "gpu reset status",
    )),
    ReaderEntry("nvidia-smi-xml", "nvidia_smi.xml", ("<?xml", "nvidia_smi_log")),
    ReaderEntry("nvidia-smi-csv", "nvidia_smi.csv", (
        "--query-", "memory.used", "memory.total", "memory.free", "memory.reserved", "utilization.gpu", "utilization.memory",
        "power.draw", "power.limit", "temperature.gpu", "clocks.", "clocks_event", "clocks_throttle", "gpu_name", "gpu_uuid",
        "uuid, ", "index, name", "compute_cap", "used_memory", "used_gpu_memory", "pcie.link", "ecc.errors",
        "remapped_rows.", "pstate", ":00.0,", ", gpu-", ", 0x0000",
    )),
    ReaderEntry("nvidia-smi-nvlink", "nvidia_smi.nvlink", ("(uuid: gpu-",)),
    ReaderEntry("nvidia-smi-list", "nvidia_smi.list", ("(uuid: gpu-",)),
    ReaderEntry("nvidia-smi-version", "nvidia_smi.version", ("nvidia-smi version",)),
    ReaderEntry("nvidia-smi-mig", "nvidia_smi.mig", ("instances:", "instance profiles:", "+--")),
    ReaderEntry("dmon", "nvidia_smi.dmon", ("# gpu", "#gpu", "#date", "#time", "# date", "# time")),
    ReaderEntry("topo", "nvidia_smi.topo", ("gpu0", "gpu1")),
    ReaderEntry("lspci", "host.lspci", ("10de:", "lnkcap:", "lnksta:", "3d controller", "vga compatible", "nvidia corporation")),
    ReaderEntry("cuobjdump", "nvidia.cuobjdump", ("elf file ", "ptx file ")),
    ReaderEntry("device-nodes", "host.device_nodes", ("/dev/nvidia", "nvidia-cap")),
    ReaderEntry("ubuntu-drivers", "nvidia.ubuntu_drivers", (
        "== /sys/devices/", "modalias", "driver   :", "nvidia-driver-", "nvidia-headless-",
    )),
    ReaderEntry("proc-driver", "nvidia.proc_driver", ("nvrm version:", "model: \t", "model:  ")),
    ReaderEntry("smi-errors", "nvidia_smi.errors", ("nvidia-smi", "nvidia driver", "nvml", "no devices were found"), "anywhere"),
    ReaderEntry("collect-env", "python.collect_env", (
        "Collecting environment information", "PyTorch version", "CUDA used to build PyTorch", "System Info",
        "Is CUDA available", "CUDA available:", "GPU models and configuration", "Nvidia driver version", "[pip3]",
        "DeepSpeed C++/CUDA extension op report", "DeepSpeed general environment", "Versions of relevant",
        "Package ", "OS   ", "OS:", "NVCC: Cuda",
    )),
)  # fmt: skip


def load(entry: ReaderEntry) -> ReaderModule:
    return cast(ReaderModule, import_module(f"{entry.package}.{entry.module}" if entry.package else entry.module))


@cache
def known() -> tuple[ReaderEntry, ...]:
    """Ours and those of other packages (entry points of the group `loadpath.readers`: a ReaderEntry each)."""
    return READERS + tuple(extensions("loadpath.readers"))


def present(text_lower: str, where: Literal["block", "anywhere"]) -> list[ReaderEntry]:
    """The readers of that sort, one of whose sniffs is in the (lower-cased) text."""
    return [
        entry for entry in known()
        if entry.where == where and (not entry.sniffs or any(s.lower() in text_lower for s in entry.sniffs))
    ]  # fmt: skip


def by_kind(kind: str) -> ReaderEntry | None:
    return next((entry for entry in known() if entry.kind == kind and entry.where == "block"), None)
