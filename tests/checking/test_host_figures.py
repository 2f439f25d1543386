"""Limits of the host: told with their figures where they would hurt an engine, and not where they would not."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadpath.core.report import Report
from machines import Tree

GIB = 1 << 30


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A host with one GPU on its bus and 256 GiB of RAM, half of it free."""
    made = Tree.healthy(tmp_path / "machine")
    made.file("/proc/meminfo", meminfo(256, 128))
    return made


def meminfo(total: float, free: float, pages: int = 0, page_kb: int = 2048) -> str:
    return (
        f"MemTotal:       {int(total * 2**20)} kB\nMemFree:  1000 kB\nMemAvailable:   {int(free * 2**20)} kB\n"
        f"SwapTotal:      0 kB\nSwapFree:       0 kB\n"
        f"HugePages_Total:   {pages}\nHugePages_Free:    {pages}\nHugepagesize:       {page_kb} kB\n"
    )


def found(report: Report, name: str) -> str:
    return next((f"{f.title} {f.cause}" for f in report.findings if f.id == name), "")


def test_a_roomy_host_holds_and_nothing_is_said(tree: Tree) -> None:
    report = tree.check()
    host = next(layer for layer in report.layers if layer.layer == "host")
    assert host.state == "holds"
    assert "128.00 GiB of 256.00 GiB RAM available" in host.why
    ours = {
        "cgroup-memory-nearly-full",
        "host-memory-low",
        "hugepages-idle",
        "cpu-governor-powersave",
        "cpu-quota-small",
    }
    assert not ours & {f.id for f in report.findings}


def test_little_memory(tree: Tree) -> None:
    tree.file("/proc/meminfo", meminfo(256, 3))
    assert "3.00 GiB" in found(tree.check(), "host-memory-low")


def test_huge_pages_that_nobody_uses(tree: Tree) -> None:
    tree.file("/proc/meminfo", meminfo(256, 100, pages=32768))
    text = found(tree.check(), "hugepages-idle")
    assert "64.00 GiB" in text
    assert "32,768" in text


def cgroup(tree: Tree, **files: str) -> None:
    tree.file("/proc/self/cgroup", "0::/kubepods/pod7\n")
    tree.file("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids")
    for name, text in files.items():
        tree.file(f"/sys/fs/cgroup/kubepods/pod7/{name.replace('_', '.', 1)}", text)


def test_a_memory_limit_that_is_reached_without_counting_the_cache(tree: Tree) -> None:
    cgroup(tree, memory_max=str(64 * GIB), memory_current=str(63 * GIB), memory_stat=f"inactive_file {20 * GIB}\n")
    assert not found(tree.check(), "cgroup-memory-nearly-full"), "20 GiB of it are cache"
    cgroup(tree, memory_stat="inactive_file 1000\n", memory_events="oom 3\noom_kill 2\n")
    report = tree.check()
    assert "63.00 GiB" in found(report, "cgroup-memory-nearly-full")
    assert "2 times" in found(report, "cgroup-oom-kills")


def test_the_tightest_limit_above_counts(tree: Tree) -> None:
    cgroup(tree, memory_max="max", memory_current=str(31 * GIB))
    tree.file("/sys/fs/cgroup/kubepods/memory.max", str(32 * GIB))
    tree.file("/sys/fs/cgroup/kubepods/memory.current", str(31 * GIB))
    assert "32.00 GiB" in found(tree.check(), "cgroup-memory-nearly-full")


def test_version_1_control_groups_are_read_too(tree: Tree) -> None:
    tree.file("/proc/self/cgroup", "4:memory:/job1\n3:cpu,cpuacct:/job1\n")
    tree.file("/sys/fs/cgroup/memory/job1/memory.limit_in_bytes", str(16 * GIB))
    tree.file("/sys/fs/cgroup/memory/job1/memory.usage_in_bytes", str(16 * GIB - 1000))
    tree.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    assert "16.00 GiB" in found(tree.check(), "cgroup-memory-nearly-full")


def test_a_cpu_quota_that_throttles(tree: Tree) -> None:
    cgroup(tree, cpu_max="150000 100000", cpu_stat="nr_periods 1000\nnr_throttled 412\n")
    text = found(tree.check(), "cpu-quota-throttles")
    assert "1.5 processors" in text
    assert "41 %" in text


@pytest.mark.parametrize(("driver", "told"), [("acpi-cpufreq", True), ("intel_pstate", False)])
def test_powersave_means_slow_only_with_drivers_that_take_it_literally(tree: Tree, driver: str, told: bool) -> None:
    for cpu in range(4):
        tree.file(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "powersave")
        tree.file(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_driver", driver)
    assert bool(found(tree.check(), "cpu-governor-powersave")) is told


def test_locked_memory_matters_where_there_is_rdma(tree: Tree) -> None:
    tree.file("/proc/self/limits", "Max locked memory         8388608              8388608              bytes     \n")
    assert not found(tree.check(), "memlock-limit-low")
    tree.file("/sys/class/infiniband/mlx5_0/node_type", "1: CA")
    assert "8.00 MiB" in found(tree.check(), "memlock-limit-low")


def test_a_full_disk_under_the_model_cache(tree: Tree) -> None:
    tree.environ["HF_HOME"] = "/models"
    tree.file("/models/hub/x")
    tree.file("/usr/bin/df")
    tree.command(
        "df -kP /models",
        "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sdb1 104857600 102760448 2097152 98% /models\n",
    )
    text = found(tree.check(), "model-cache-nearly-full")
    assert "2.00 GiB are free" in text
    assert "HF_HOME" in text


def test_a_full_root_file_system(tree: Tree) -> None:
    tree.file("/tmp/x")
    tree.file("/dev/shm/x")
    tree.command(
        "df -kP /dev/shm /tmp /",
        "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 104857600 104800000 51200 100% /\n",
    )
    assert "50 MiB are free on /" in found(tree.check(), "disk-nearly-full")
