"""A GPU on the bus and no driver: which package to take, and why."""

from __future__ import annotations

import pytest

from conftest import read_text
from smi_text import EXAMPLES, HEAD, NONE, found, gpu, ids

MISSING = "bash: nvidia-smi: command not found\n"
OFFER = "modalias : pci:v000010DEd0000{id}sv000010DEsd0000204Bbc03sc00i00\nvendor   : NVIDIA Corporation\n{drivers}"


def offer(id: str, *names: str) -> str:
    return OFFER.format(id=id.upper(), drivers="".join(f"driver   : {name} - distro non-free\n" for name in names))


def lspci(id: str, name: str = "", driver: str = "") -> str:
    what = f"NVIDIA Corporation {name} [10de:{id}] (rev a1)" if name else f"NVIDIA Corporation Device {id} (rev a1)"
    return f"01:00.0 3D controller: {what}\n" + (f"\tKernel driver in use: {driver}\n" if driver else "")


def test_walk_through_no_driver() -> None:
    report = read_text((EXAMPLES / "no-driver.txt").read_text())
    root = report.root
    assert root is not None and root.id == "driver-not-installed" and report.verdict.state == "failed"
    assert (root.boundary, root.certainty) == ("hardware-kernel", "established")
    assert "2bb1" in root.cause and "RTX PRO 6000 Blackwell" in root.title
    assert "570 or newer" in root.cause and "open kernel modules" in root.cause
    assert root.remedies[0].command.startswith("sudo apt install nvidia-driver-580-server-open")
    assert "nvidia-driver-535-server is too old" in root.cause
    assert "nvidia-driver-570-server and nvidia-driver-580 would load proprietary modules" in root.cause


@pytest.mark.parametrize(
    ("id", "names", "chosen"),
    [
        ("2330", ("nvidia-driver-470-server", "nvidia-driver-550-server", "nvidia-driver-570-server-open"),
         "nvidia-driver-570-server-open"),
        ("1db6", ("nvidia-driver-535-server", "nvidia-driver-580-server", "nvidia-driver-580-server-open", "nvidia-driver-590"),
         "nvidia-driver-580-server"),
        ("2b85", ("nvidia-driver-565", "nvidia-driver-570", "nvidia-driver-575-open"), "nvidia-driver-575-open"),
    ],
    ids=["Hopper", "Volta: proprietary, 580 at most", "Blackwell: open only"],
)  # fmt: skip
def test_the_package_fits_board_and_generation(id: str, names: tuple[str, ...], chosen: str) -> None:
    root = read_text(MISSING + lspci(id) + offer(id, *names)).root
    assert root is not None and root.id == "driver-not-installed"
    assert root.remedies[0].command == f"sudo apt install {chosen} && sudo reboot"


def test_nothing_that_fits_is_said() -> None:
    root = read_text(MISSING + lspci("2bb5") + offer("2bb5", "nvidia-driver-535-server", "nvidia-driver-550")).root
    assert root is not None and "None of the packages offered fits" in root.cause
    assert "575 or newer" in root.remedies[0].action and "nvidia-driver-580-server-open" in root.remedies[0].command


def test_without_the_list_it_is_asked_for() -> None:
    root = read_text(MISSING + lspci("27b8", "AD104GL [L4]")).root
    assert root is not None and root.id == "driver-not-installed" and root.certainty == "likely"
    assert root.next_checks[0].command == "ubuntu-drivers devices"


def test_a_bound_driver_or_a_listed_gpu_is_no_missing_driver() -> None:
    assert "driver-not-installed" not in ids(read_text(MISSING + lspci("2330", driver="nvidia")))
    assert "driver-not-installed" not in ids(read_text(MISSING + lspci("2330") + HEAD + gpu() + NONE))


def test_other_drivers_and_a_dead_card() -> None:
    for driver, root in (("nouveau", "gpu-owned-by-other-driver"), ("vfio-pci", "gpu-bound-to-vfio")):
        held = read_text(lspci("2330", driver=driver))
        assert held.root_cause == root and "driver-not-installed" not in ids(held)
    dead = read_text("01:00.0 3D controller: NVIDIA Corporation GH100 [H100 PCIe] (rev ff)\n")
    assert (
        dead.root_cause == "gpu-config-space-dead" and dead.root is not None and dead.root.operator_action == "reboot"
    )


def test_fewer_gpus_than_on_the_bus() -> None:
    two = lspci("26b9", driver="nvidia") + lspci("26b9", driver="nvidia").replace("01:00", "02:00")
    missing = found(read_text(two + HEAD + gpu() + NONE), "gpu-missing-from-driver")
    assert "lspci shows 2 NVIDIA GPUs, nvidia-smi 1" in missing.title and missing.certainty == "likely"


def test_device_files() -> None:
    gone = read_text("ls: cannot access '/dev/nvidia*': No such file or directory\n")
    assert "gpu-no-device-files" in ids(gone)
    node = "crw-rw-rw- 1 root root {}, {} Sep  3 08:11 /dev/{}\n"
    nodes = node.format(195, 0, "nvidia0") + node.format(195, 255, "nvidiactl")
    assert "gpu-uvm-file-missing" in ids(read_text(nodes))
    whole = nodes + node.format(236, 0, "nvidia-uvm")
    assert read_text(whole).root_cause is None


def test_an_nvswitch_machine_needs_its_fabric_manager() -> None:
    switch = "07:00.0 Bridge: NVIDIA Corporation GH100 [H100 NVSwitch] (rev a1)\n"
    root = read_text(MISSING + lspci("2330") + switch + offer("2330", "nvidia-driver-580-server-open")).root
    assert root is not None and any("nvidia-fabricmanager-580" in remedy.command for remedy in root.remedies)
