"""The kernel module and its parts: what holds it off the card, and which versions do not fit."""

from __future__ import annotations

import pytest

from conftest import read_text
from loadpath.core.report import Finding

NO_DRIVER = ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
             "driver is installed and running.\n")  # fmt: skip


def root(text: str) -> Finding:
    report = read_text(text)
    assert report.root is not None, "a root cause"
    return report.root


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NO_DRIVER, "driver-not-loaded"),
        (NO_DRIVER + "modprobe: ERROR: could not insert 'nvidia': Required key not available", "secure-boot-rejects-module"),
        ("Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7", "secure-boot-rejects-module"),
        ("modprobe: ERROR: could not insert 'nvidia': Invalid module format", "module-for-other-kernel"),
        ("modprobe: ERROR: could not insert 'nvidia': Operation not permitted", "nvidia-module-not-inserted"),
        (NO_DRIVER + "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-60-generic",
         "module-missing-for-kernel"),
        ("Error! Your kernel headers for kernel 6.8.0-60-generic cannot be found at /lib/modules/6.8.0-60-generic/build.\n"
         + NO_DRIVER, "kernel-headers-missing"),
        ("cc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'\n"
         "Error! Bad return status for module build on kernel: 6.5.0-14-generic (x86_64)", "module-build-compiler"),
        ("NVRM: The NVIDIA probe routine was not called for 2 device(s).\nNVRM: No NVIDIA devices probed.\n" + NO_DRIVER,
         "gpu-owned-by-other-driver"),
        ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR1 is 0M @ 0x0 (PCI:0000:06:10.0)\n"
         "NVRM: The NVIDIA probe routine failed for 1 device(s).", "gpu-bars-unmapped"),
        ("NVRM: RmFetchGspRmImages: No firmware image found\nNVRM: GPU 0000:ae:00.0: RmInitAdapter failed! (0x61:0x56:1697)",
         "gsp-firmware-missing"),
        ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment\n"
         "ls: cannot access '/dev/nvidia-uvm': No such file or directory", "nvidia-uvm-node-missing"),
        ("|  No MIG devices found                            |", "mig-without-instances"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "gpu-access-blocked-by-os"),
    ],
)  # fmt: skip
def test_the_deepest_of_the_lines_leads(text: str, expected: str) -> None:
    assert root(text).id == expected


def test_signature_warnings_are_no_fault() -> None:
    report = read_text("""\
[    4.101234] nvidia: loading out-of-tree module taints kernel.
[    4.111234] nvidia: module verification failed: signature and/or required key missing - tainting kernel
[    4.121234] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023
""")
    assert report.root is None


def test_secure_boot_tells_that_the_module_is_built() -> None:
    made = root("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n"
                "nvidia/550.120, 6.8.0-59-generic, x86_64: installed\n")  # fmt: skip
    assert "550.120 for 6.8.0-59-generic" in made.cause and "installed by DKMS" in made.cause
    assert "mokutil" in made.remedies[0].command


def test_missing_module_tells_for_which_kernel_there_is_one() -> None:
    made = root("modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-60-generic\n"
                "nvidia/550.120, 6.8.0-59-generic, x86_64: installed\n")  # fmt: skip
    assert "6.8.0-60-generic" in made.cause and "550.120 for 6.8.0-59-generic" in made.cause


def test_card_older_than_the_open_module() -> None:
    made = root("""\
[ 1157.036170] PKCS#7 signature not signed with a trusted key
[ 1157.046099] NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:1db6)
               NVRM: installed in this system is not supported by open
               NVRM: nvidia.ko because it does not include the required GPU
               NVRM: System Processor (GSP).
""")
    assert made.id == "open-module-cannot-drive-gpu"
    assert "Volta" in made.cause and "proprietary" in made.remedies[0].action


@pytest.mark.parametrize(
    ("release", "device_id", "branch"), [("515.105.01", "2684", "525"), ("590.48.01", "1b38", "580")]
)
def test_branch_that_knows_the_card(release: str, device_id: str, branch: str) -> None:
    made = root(f"NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:{device_id})\n"
                f"NVRM: installed in this system is not supported by the\nNVRM: NVIDIA {release} driver release.\n")  # fmt: skip
    assert made.id == "gpu-not-supported-by-driver"
    assert branch in made.remedies[0].action


def test_mismatch_names_both_sides_and_who_changed_them() -> None:
    made = root("""\
Failed to initialize NVML: Driver/library version mismatch
NVML library version: 535.183
Commandline: /usr/bin/unattended-upgrade
Upgrade: libnvidia-compute-535:amd64 (535.161.07-0ubuntu0.22.04.1, 535.183.01-0ubuntu0.22.04.1)
NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024
""")
    assert made.id == "driver-library-mismatch"
    assert "535.161.07" in made.cause and "535.183" in made.cause and "unattended-upgrades" in made.cause
    assert made.operator_action == "reboot"


def test_mismatch_of_branches_asks_for_the_packages_first_repaired() -> None:
    made = root("""\
Failed to initialize NVML: Driver/library version mismatch
NVRM version: NVIDIA UNIX x86_64 Kernel Module  520.56.06  Thu Oct  6 21:38:55 UTC 2022
ii  nvidia-smi     525.85.12-1  amd64        NVIDIA System Management Interface
""")
    assert "520.56.06" in made.cause and "525.85.12" in made.cause
    assert any("--fix-broken" in r.command for r in made.remedies)
