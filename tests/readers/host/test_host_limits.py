"""df, free, ulimit and DeepSpeed's memory notes."""

from __future__ import annotations

from loadpath.core.facts.host import FilesystemUse, HostMemory, OptimizerPartition, ResourceLimit, TrainingGpuMemory
from loadpath.core.text import Capture
from loadpath.core.units import GIB, KIB, MIB
from loadpath.intake.clean import clean
from loadpath.readers.host import host_limits
from loadpath.readers.python import deepspeed


def _capture(text: str) -> Capture:
    return Capture("log", "paste", tuple(clean(text.encode())))


def test_df_with_and_without_units() -> None:
    text = "shm              64M   20M   45M  31% /dev/shm\nshm                65536 64100      1436  98% /dev/shm\n"
    human, plain = [f for f in host_limits.read(_capture(text)) if isinstance(f, FilesystemUse)]
    assert (human.size_bytes, human.used_bytes, human.free_bytes) == (64 * MIB, 20 * MIB, 45 * MIB)
    assert (plain.size_bytes, plain.free_bytes) == (64 * MIB, 1436 * KIB)


def test_ulimit_in_three_forms() -> None:
    text = (
        "$ ulimit -l\n8192\n"
        "max locked memory           (kbytes, -l) 64\nopen files                          (-n) unlimited\n"
        "Max locked memory         8388608              8388608              bytes\n"
    )
    limits = [(f.name, f.value) for f in host_limits.read(_capture(text)) if isinstance(f, ResourceLimit)]
    assert limits == [("memlock", 8192 * KIB), ("memlock", 64 * KIB), ("nofile", None), ("memlock", 8 * MIB)]


def test_free_with_units_and_with_an_option() -> None:
    head = "               total        used        free      shared  buff/cache   available\n"
    human = head + "Mem:           125Gi        28Gi        90Gi       1.2Gi       7.0Gi        95Gi\n"
    option = f"$ free -g\n{head}Mem:            105           3          39           0          63         101\nSwap:    0    0    0\n"
    first = next(f for f in host_limits.read(_capture(human)) if isinstance(f, HostMemory))
    second = next(f for f in host_limits.read(_capture(option)) if isinstance(f, HostMemory))
    assert (first.total_bytes, first.available_bytes) == (125 * GIB, 95 * GIB)
    assert (second.total_bytes, second.used_bytes, second.swap_total_bytes) == (105 * GIB, 3 * GIB, 0)


def test_deepspeed_prints_gib_and_calls_them_gb() -> None:
    text = (
        "MA 11.5 GB         Max_MA 11.76 GB         CA 12.0 GB         Max_CA 12 GB\n"
        "CPU Virtual Memory:  used = 25.0 GB, percent = 50.0%\n"
        "Rank: 0 partition count [8] and sizes[(1000, False), (24, False)]\n"
    )
    gpu, host, part = deepspeed.read(_capture(text))
    assert isinstance(gpu, TrainingGpuMemory) and gpu.allocated_bytes == round(11.5 * GIB)
    assert isinstance(host, HostMemory) and host.total_bytes == 50 * GIB
    assert isinstance(part, OptimizerPartition) and (part.parameters, part.ranks) == (1024, 8)
