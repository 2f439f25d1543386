"""Machines that are broken in one place of layers 1 to 4: `check` names that place as the root cause."""

from __future__ import annotations

from collections.abc import Callable

from loadpath.core.report import Report
from machines import DRIVER, KERNEL, LIBRARIES, Tree, play

Machine = Callable[..., Tree]
NVIDIA_MISSING = (
    b'#loadpath-sample {"name":"nvidia-smi","kind":"nvidia-smi","command":"nvidia-smi","outcome":"missing"}\n'
)


def states(report: Report) -> dict[str, str]:
    return {layer.layer: layer.state for layer in report.layers}


def without_libraries(tree: Tree) -> None:
    for name in ("libcuda.so", "libnvidia-ml.so"):
        tree.remove(f"{LIBRARIES}/{name}.1")
    tree.command("nvml_child", "Failed to initialize NVML: NVML Shared Library Not Found\n")
    tree.command(
        "cuda_child", "libcuda: none (libcuda.so.1: cannot open shared object file: No such file or directory)\n"
    )


def unload(tree: Tree) -> None:
    """The module is not loaded: no /proc/driver/nvidia, no device files, and the libraries say so."""
    tree.file("/proc/modules", "ext4 1 0 - Live 0x0\n")
    for path in ("/sys/module/nvidia", "/proc/driver/nvidia", "/dev", "/loadpath-commands/open_child"):
        tree.remove(path)
    tree.file("/dev/null", "c 1 3")
    tree.file("/proc/devices", "Character devices:\n1 mem\n")
    tree.command("nvml_child", "Failed to initialize NVML: Driver Not Loaded\n")
    tree.command(
        "cuda_child", f"libcuda: {LIBRARIES}/libcuda.so.{DRIVER}\ncuInit: called\ncuInit: 100 (CUDA_ERROR_NO_DEVICE)\n"
    )


def test_no_gpu_on_the_bus(machine: Machine) -> None:
    tree = machine()
    unload(tree)
    tree.remove("/sys/bus/pci/devices/0000:01:00.0")
    report = tree.check()
    assert report.root_cause == "no-gpu-on-bus"
    assert states(report)["pci"] == "broken"


def test_a_gpu_that_fell_off_the_bus_leads_over_the_empty_bus(machine: Machine) -> None:
    tree = machine()
    unload(tree)
    tree.remove("/sys/bus/pci/devices/0000:01:00.0")
    tree.command("dmesg", "[  912.1] NVRM: Xid (PCI:0000:01:00): 79, pid=1207, GPU has fallen off the bus.\n")
    report = tree.check()
    assert report.root_cause == "gpu-off-bus"


def test_a_memory_window_without_an_address(machine: Machine) -> None:
    tree = machine()
    tree.file(
        "/sys/bus/pci/devices/0000:01:00.0/resource", "0x0000000000000000 0x0000001fffffffff 0x000000002014220c\n"
    )
    report = tree.check()
    assert report.root_cause == "gpu-bars-unmapped"
    assert report.root is not None and "0 (128G)" in report.root.cause
    assert states(report)["pci"] == "broken"


def test_a_card_that_reads_all_ones(machine: Machine) -> None:
    tree = machine()
    tree.file("/sys/bus/pci/devices/0000:01:00.0/config", b"\xff" * 64)
    assert tree.check().root_cause == "gpu-config-space-dead"


def test_the_module_was_built_for_another_kernel(machine: Machine) -> None:
    tree = machine()
    unload(tree)
    tree.remove("/sys/bus/pci/devices/0000:01:00.0/driver")
    tree.file("/proc/sys/kernel/osrelease", "6.8.0-47-generic")
    tree.file("/lib/modules/6.8.0-47-generic/modules.dep", "kernel/fs/ext4/ext4.ko:\n")
    report = tree.check()
    assert report.root_cause == "module-missing-for-kernel"
    assert report.root is not None
    assert "6.8.0-47-generic" in report.root.cause and KERNEL in report.root.cause and "headers" in report.root.cause
    assert states(report)["pci"] == "holds" and states(report)["kernel-module"] == "broken"


def test_the_module_is_there_and_secure_boot_may_refuse_it(machine: Machine) -> None:
    tree = machine()
    unload(tree)
    tree.remove("/sys/bus/pci/devices/0000:01:00.0/driver")
    tree.file("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\0\0\0\x01")
    report = tree.check()
    assert report.root_cause == "driver-not-loaded"
    assert report.root is not None and "Secure Boot is on" in report.root.cause


def test_the_kernel_log_says_that_secure_boot_refused_it(machine: Machine) -> None:
    tree = machine()
    unload(tree)
    tree.remove("/sys/bus/pci/devices/0000:01:00.0/driver")
    tree.command("dmesg", "[    9.21] Loading of unsigned module is rejected\n[    9.22] nvidia: module not loaded\n")
    assert tree.check().root_cause == "secure-boot-rejects-module"


def test_nouveau_has_the_card(machine: Machine) -> None:
    tree = machine()
    unload(tree)
    tree.file("/proc/modules", "nouveau 2400256 1 - Live 0x0\n")
    tree.remove("/sys/bus/pci/devices/0000:01:00.0/driver")
    tree.link("/sys/bus/pci/devices/0000:01:00.0/driver", "../../../bus/pci/drivers/nouveau")
    report = tree.check()
    assert report.root_cause == "gpu-owned-by-other-driver"
    assert report.root is not None and "nouveau" in report.root.cause


def test_the_card_is_set_aside_for_a_virtual_machine(machine: Machine) -> None:
    tree = machine()
    unload(tree)
    tree.remove("/sys/bus/pci/devices/0000:01:00.0/driver")
    tree.link("/sys/bus/pci/devices/0000:01:00.0/driver", "../../../bus/pci/drivers/vfio-pci")
    found = {f.id for f in tree.check().findings}
    assert found & {"gpu-bound-to-vfio", "gpu-owned-by-other-driver"}


def test_no_driver_is_installed_at_all(machine: Machine) -> None:
    tree = machine()
    unload(tree)
    without_libraries(tree)
    tree.remove("/sys/bus/pci/devices/0000:01:00.0/driver")
    tree.file(f"/lib/modules/{KERNEL}/modules.dep", "kernel/fs/ext4/ext4.ko:\n")
    tree.command("nvidia-smi", NVIDIA_MISSING)
    report = tree.check()
    assert report.root_cause == "driver-not-installed"


def test_one_device_file_is_missing(machine: Machine) -> None:
    tree = machine("cuda-count 1", gpus=2)
    tree.remove("/dev/nvidia0")
    report = tree.check()
    assert report.root_cause == "device-node-missing"
    assert report.root is not None and "/dev/nvidia0" in report.root.title
    assert states(report)["device-nodes"] == "broken" and states(report)["kernel-module"] == "holds"


def test_the_uvm_file_has_the_number_of_an_earlier_module(machine: Machine) -> None:
    tree = machine("cuInit 999")
    tree.file("/dev/nvidia-uvm", "c 235 0 0666")
    report = tree.check()
    assert report.root_cause == "device-node-stale"
    assert report.root is not None and "cuda-init-failed" in report.root.consequences


def test_a_user_outside_the_group_may_not_open_the_files(machine: Machine) -> None:
    tree = machine("init 4")
    tree.command(
        "open_child", "open /dev/nvidia0: EACCES (Permission denied)\nopen /dev/nvidiactl: EACCES (Permission denied)\n"
    )
    report = tree.check()
    assert report.root_cause == "gpu-access-not-permitted"
    assert report.root is not None and report.root.certainty == "established"


def test_a_container_lost_its_devices_at_a_reload_of_the_cgroups(machine: Machine) -> None:
    tree = machine("init 999\ncuInit 100")
    tree.container()
    tree.command(
        "open_child",
        "open /dev/nvidia0: EPERM (Operation not permitted)\nopen /dev/nvidiactl: EPERM (Operation not permitted)\n",
    )
    report = tree.check()
    assert report.root_cause == "container-lost-gpu-access"
    assert any("daemon-reload" in sentence for sentence in [report.root.cause if report.root else ""])


def test_a_container_that_was_started_without_the_gpus(machine: Machine) -> None:
    tree = machine()
    without_libraries(tree)
    tree.container()
    tree.remove("/dev")
    tree.file("/dev/null", "c 1 3")
    tree.remove("/loadpath-commands/open_child")
    report = tree.check()
    assert report.root_cause == "gpu-not-requested"
    assert report.root is not None and "--gpus all" in report.root.remedies[0].command
    tree.environ["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    report = tree.check()
    assert report.root is not None and "nvidia.com/gpu" in report.root.remedies[0].command


def test_a_container_without_the_utility_part(machine: Machine) -> None:
    tree = machine()
    tree.container()
    tree.remove(f"{LIBRARIES}/libnvidia-ml.so.1")
    tree.environ["NVIDIA_DRIVER_CAPABILITIES"] = "compute"
    tree.command("nvml_child", "Failed to initialize NVML: NVML Shared Library Not Found\n")
    tree.command("nvidia-smi", NVIDIA_MISSING)
    report = tree.check()
    assert report.root_cause == "driver-capability-missing"
    assert report.root is not None and "`utility`" in report.root.cause and report.root.certainty == "established"
    tree.environ["NVIDIA_DRIVER_CAPABILITIES"] = "all"
    assert tree.check().root_cause == "nvml-library-missing", "it was asked for, so that is not the reason"


def test_a_second_libcuda_on_the_library_path(machine: Machine) -> None:
    tree = machine("cuInit 803")
    tree.file("/opt/old/libcuda.so.535.54.03", "x" * 400_000)
    tree.link("/opt/old/libcuda.so.1", "libcuda.so.535.54.03")
    tree.environ["LD_LIBRARY_PATH"] = "/opt/cuda/lib64:/opt/old"
    report = tree.check()
    assert report.root_cause == "libcuda-of-other-version"
    assert report.root is not None
    assert "/opt/old/libcuda.so.1 (535.54.03)" in report.root.cause and DRIVER in report.root.title
    assert report.root.remedies[0].command == "export LD_LIBRARY_PATH=/opt/cuda/lib64"
    assert report.root.remedies[0].suffices
    assert "libcuda-kernel-mismatch" in report.root.consequences


def test_packages_that_were_updated_under_the_loaded_module(machine: Machine) -> None:
    tree = machine("init 18\ncuInit 803")
    tree.driver("570.86.15")
    report = tree.check()
    assert report.root_cause == "driver-library-mismatch"
    assert report.root is not None and report.root.certainty == "established"
    assert "module is 570.86.15" in report.root.cause and DRIVER in report.root.cause
    assert "libcuda-kernel-mismatch" in report.root.consequences
    assert not any("ld.so.conf" in r.command for r in report.root.remedies)


def test_a_module_that_started_no_gpu(machine: Machine) -> None:
    tree = machine("count 0\ncuInit 100")
    play(tree, tree.stubs, "count 0\ncuInit 100")
    assert tree.check().root_cause == "no-gpu-initialised"


def test_a_compat_library_that_works_is_only_noted(machine: Machine) -> None:
    tree = machine()
    tree.file("/usr/local/cuda/compat/libcuda.so.590.44.01", "x" * 400_000)
    tree.link("/usr/local/cuda/compat/libcuda.so.1", "libcuda.so.590.44.01")
    tree.environ["LD_LIBRARY_PATH"] = "/usr/local/cuda/compat"
    report = tree.check()
    assert report.verdict.state == "healthy"
    noted = next(f for f in report.findings if f.id == "libcuda-of-other-version")
    assert noted.severity == "info" and not noted.remedies


def test_the_toolkits_stub_hides_libcuda(machine: Machine) -> None:
    tree = machine("cuInit 34")
    tree.file("/usr/local/cuda/lib64/stubs/libcuda.so.1", "x" * 60_000)
    tree.environ["LD_LIBRARY_PATH"] = "/usr/local/cuda/lib64/stubs"
    report = tree.check()
    assert report.root_cause == "stub-libcuda"
    assert report.root is not None and "/usr/local/cuda/lib64/stubs" in report.root.cause


def test_a_copy_of_the_stub_is_known_by_its_answer(machine: Machine) -> None:
    tree = machine("cuInit 34")
    tree.file("/opt/copied/libcuda.so.1", "x" * 60_000)
    tree.environ["LD_LIBRARY_PATH"] = "/opt/copied"
    report = tree.check()
    assert report.root_cause == "stub-libcuda"
    assert report.root is not None and "/opt/copied/libcuda.so.1" in report.root.cause


def test_a_small_library_that_works_is_no_stub(machine: Machine) -> None:
    tree = machine()
    tree.file("/usr/lib/wsl/lib/libcuda.so.1", "x" * 150_000)
    tree.environ["LD_LIBRARY_PATH"] = "/usr/lib/wsl/lib"
    assert tree.check().verdict.state == "healthy"


def test_an_xid_in_the_log_counts_though_nvml_is_content(machine: Machine) -> None:
    tree = machine()
    tree.command(
        "dmesg", "[ 8123.4] NVRM: Xid (PCI:0000:01:00): 48, pid=4711, name=python3, DBE (double bit error) at 0x1f\n"
    )
    report = tree.check()
    assert report.root_cause == "gpu-memory-uncorrectable"
    assert states(report)["user-driver"] == "holds" and states(report)["pci"] == "broken"


def test_a_log_that_may_not_be_read_is_said(machine: Machine) -> None:
    tree = machine()
    tree.command(
        "dmesg", b'#loadpath-sample {"name":"kernel-log","kind":"kernel-log","command":"dmesg","outcome":"denied"}\n'
    )
    report = tree.check()
    assert "kernel log may not be read" in next(x for x in report.layers if x.layer == "kernel-module").why


def test_a_card_that_needs_the_open_module_and_is_given_the_other(machine: Machine) -> None:
    tree = machine("count 0\ncuInit 100")
    tree.file("/sys/bus/pci/devices/0000:01:00.0/device", "0x2901")
    tree.remove("/sys/bus/pci/devices/0000:01:00.0/driver")
    for path in ("/dev/nvidia0", "/proc/driver/nvidia/gpus"):
        tree.remove(path)
    tree.file("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Wed Sep 10\n")
    report = tree.check()
    assert report.root_cause == "open-module-required", report.root_cause


def test_nvidia_smi_that_hangs_in_the_kernel(machine: Machine) -> None:
    tree = machine()
    tree.command("nvidia-smi", (
        b'#loadpath-sample {"name":"nvidia-smi","kind":"nvidia-smi","command":"nvidia-smi","seconds":10.0,"outcome":"timed-out",'
        b'"note":"no answer in 10 s, state D, waits in os_acquire_rwlock_write; still there 2 s after SIGKILL (state D)"}\n'
    ))  # fmt: skip
    report = tree.check()
    assert report.root_cause == "driver-call-hangs"
    assert report.root is not None and report.root.operator_action == "drain"
    assert "in os_acquire_rwlock_write" in report.root.cause


def test_a_gsp_time_out_in_the_log_explains_the_hang(machine: Machine) -> None:
    tree = machine("hang nvmlDeviceGetCount", timeout_s=1.0)
    tree.command(
        "dmesg",
        "[ 812.4] NVRM: Xid (PCI:0000:01:00): 119, pid=4711, name=nvidia-smi, Timeout after 45s of waiting for RPC "
        "response from GPU0 GSP! Expected function 76.\n",
    )
    assert tree.check().root_cause == "gsp-timeout"


def test_wsl_has_no_card_on_its_bus_and_works(machine: Machine) -> None:
    tree = machine()
    unload(tree)
    tree.remove("/sys/bus/pci/devices/0000:01:00.0")
    tree.file("/dev/dxg", "c 10 125")
    tree.command("nvml_child", "")
    tree.command("cuda_child", f"libcuda: {LIBRARIES}/libcuda.so.{DRIVER}\ncuInit: called\ncuInit: 0\ndevices: 1\n")
    report = tree.check()
    assert report.verdict.state == "healthy", report.verdict
    assert states(report)["user-driver"] == "holds" and states(report)["pci"] == "not-seen"


def test_a_job_that_was_given_two_of_eight_gpus_is_no_fault(machine: Machine) -> None:
    tree = machine(gpus=8)
    opened = "".join(f"open /dev/nvidia{n}: {'ok' if n < 2 else 'EPERM (Operation not permitted)'}\n" for n in range(8))
    tree.command("open_child", f"{opened}open /dev/nvidia-uvm: ok\nopen /dev/nvidiactl: ok\n")
    play(tree, tree.stubs, "count 2")
    report = tree.check()
    assert report.verdict.state == "healthy", report.root_cause
    assert next(f for f in report.findings if f.id == "gpu-subset-allotted").title.startswith(
        "This process may use 2 of 8"
    )
    assert states(report)["device-nodes"] == "holds"


def test_a_container_with_one_gpu_of_the_hosts_eight_is_no_fault(machine: Machine) -> None:
    tree = machine(gpus=8)
    tree.container()
    for index in range(1, 8):
        tree.remove(f"/dev/nvidia{index}")
    tree.command("open_child", "open /dev/nvidia0: ok\nopen /dev/nvidia-uvm: ok\nopen /dev/nvidiactl: ok\n")
    play(tree, tree.stubs, "count 1")
    report = tree.check()
    assert report.verdict.state == "healthy", report.root_cause


def test_device_files_that_the_first_call_makes_are_no_fault(machine: Machine) -> None:
    tree = machine()
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        tree.remove(f"/dev/{name}")
    tree.file("/dev/null", "c 1 3")
    tree.remove("/loadpath-commands/open_child")
    report = tree.check()
    assert report.verdict.state == "healthy", report.root_cause
    assert states(report)["device-nodes"] == "holds"


def test_a_process_that_was_killed_hours_ago_is_told_as_history(machine: Machine) -> None:
    tree = machine()
    tree.file("/proc/uptime", "90000.00 1000.00\n")
    tree.command(
        "dmesg",
        "[ 4000.000000] Out of memory: Killed process 4711 (python3) total-vm:90000000kB, anon-rss:60000000kB\n",
    )
    report = tree.check()
    assert report.root_cause == "host-oom-killed" and report.verdict.state == "degraded"
    assert report.root is not None and "23 h 53 min old" in report.root.cause


def test_a_programs_own_xid_is_history_where_the_driver_answers(machine: Machine) -> None:
    tree = machine()
    tree.file("/proc/uptime", "9000.00 1000.00\n")
    tree.command(
        "dmesg", "[ 8940.000000] NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=python3, Ch 00000008, MMU Fault\n"
    )
    report = tree.check()
    assert report.root_cause == "gpu-application-fault" and report.verdict.state == "degraded"
    assert report.root is not None and "60 s old" in report.root.cause


def test_a_command_that_is_late_and_has_nothing_to_do_with_the_driver_is_a_note(machine: Machine) -> None:
    tree = machine()
    tree.command(
        "dmesg", b'#loadpath-sample {"name":"kernel-log","kind":"kernel-log","command":"dmesg","outcome":"timed-out"}\n'
    )
    report = tree.check()
    assert report.verdict.state == "healthy"
    assert any("No answer in time: dmesg" in note for note in report.notes)
