"""Real containers (Podman with runc and a root file system of busybox): what `check --image` and `--container` see in them.

The host's side is a made machine with one GPU; the containers, the CDI injection, limits and refusals are real.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadpath.checking.service import gathered, report_on
from loadpath.collect.container_runtime import gather_configuration, gather_engines
from loadpath.collect.inside import look
from loadpath.collect.probe import Machine
from loadpath.core.report import Report
from machines import DRIVER, Tree

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
SPEC = Path("/var/run/cdi/loadpath-test.yaml")
IMAGE = "localhost/loadpath-test:1"
TOOLS = ("sh", "ls", "cat", "env", "grep", "sed", "df", "tail", "head", "readlink", "tr", "timeout", "sleep")


def nvidia_specs() -> list[Path]:
    folders = (Path("/etc/cdi"), Path("/var/run/cdi"))
    return [path for folder in folders if folder.is_dir() for path in folder.iterdir() if path != SPEC]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine whose Podman has a store of its own with one image; skips where containers cannot run."""
    busybox = shutil.which("busybox")
    if not shutil.which("podman") or not shutil.which("runc") or busybox is None:
        pytest.skip("no podman, runc or static busybox here: apt-get install podman runc busybox-static")
    if os.geteuid() != 0 or Path("/dev/nvidia0").exists() or nvidia_specs():
        pytest.skip("needs root and a machine without CDI specifications of its own")
    folder = tmp_path_factory.mktemp("podman")
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
    )
    (folder / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\nnetns = "none"\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
    )
    environ = {
        **os.environ,
        "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf",
        "CONTAINERS_CONF": f"{folder}/containers.conf",
    }
    machine = Machine(environ=environ, timeout_s=60)
    archive = root_file_system(folder, Path(busybox))
    made = machine.run(["podman", "import", str(archive), IMAGE])
    tried = machine.run(["podman", "run", "--rm", "--network=none", IMAGE, "/bin/sh", "-c", "true"])
    if made.outcome != "ok" or tried.outcome != "ok":
        pytest.skip(f"podman cannot run a container here: {(made.data + tried.data).decode()[-200:]}")
    yield machine
    SPEC.unlink(missing_ok=True)
    machine.run(["podman", "rm", "--all", "--force", "--time", "0"])
    machine.run(["podman", "rmi", "--all", "--force"])


def root_file_system(folder: Path, busybox: Path) -> Path:
    """An image's files: busybox, and the loader's names of driver libraries that only an injection fills."""
    root = folder / "rootfs"
    for name in ("bin", "dev", "proc", "sys", "tmp", "etc", LIBRARIES.lstrip("/")):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin" / "busybox")
    for tool in TOOLS:
        (root / "bin" / tool).symlink_to("busybox")
    for stem in ("libcuda.so", "libnvidia-ml.so"):
        (root / LIBRARIES.lstrip("/") / f"{stem}.1").symlink_to(f"{stem}.{DRIVER}")
    archive = folder / "image.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    return archive


Inject = Callable[..., None]


@pytest.fixture
def inject(tmp_path: Path) -> Iterator[Inject]:
    """Write a CDI specification for devices and libraries that stand in for a GPU's; removed afterwards."""

    def written(*stems: str, capabilities: str = "compute,utility", gone: bool = False) -> None:
        node = tmp_path / "nvidia0"
        os.mknod(node, 0o20666, os.makedev(1, 3))  # /dev/null's number: a device that opens everywhere
        mounts = ""
        for stem in stems:
            library = tmp_path / f"{stem}.{DRIVER}"
            library.write_bytes(b"library")
            mounts += f"    - hostPath: {library}\n      containerPath: {LIBRARIES}/{stem}.{DRIVER}\n      options: [ro, bind]\n"
            if gone:
                library.unlink()
        SPEC.parent.mkdir(exist_ok=True)
        SPEC.write_text(
            "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n    deviceNodes:\n"
            f"    - path: /dev/nvidia0\n      hostPath: {node}\ncontainerEdits:\n"
            f"  env: [NVIDIA_VISIBLE_DEVICES=void, 'NVIDIA_DRIVER_CAPABILITIES={capabilities}']\n"
            + (f"  mounts:\n{mounts}" if mounts else "")
        )

    yield written
    SPEC.unlink(missing_ok=True)


def look_at(podman: Machine, tmp_path: Path, image: str = "", container: str = "") -> tuple[Report, list[str]]:
    """The report on a made host with a GPU and a look into real containers; what was announced."""
    announced: list[str] = []
    host = gathered(Tree.healthy(tmp_path / "host").machine(), ("pci", "kernel-module", "device-nodes"))
    inside = list(look(podman, image, container, announced.append))
    return report_on([*host, *inside]), announced


def ids(report: Report) -> list[str]:
    return [finding.id for finding in report.findings]


def start(podman: Machine, name: str, *options: str) -> None:
    argv = ["podman", "run", "-d", "--name", name, "--network=none", *options, IMAGE, "/bin/sh", "-c", "sleep 60"]
    assert podman.run(argv).outcome == "ok"


def test_a_whole_injection_is_seen_inside(podman: Machine, inject: Inject, tmp_path: Path) -> None:
    inject("libcuda.so", "libnvidia-ml.so")
    report, announced = look_at(podman, tmp_path, IMAGE)
    assert "container-sees-gpu" in ids(report)
    assert next(layer.state for layer in report.layers if layer.layer == "container-runtime") == "holds"
    assert "--device nvidia.com/gpu=all" in announced[0], "it is said before it is run"
    assert len(announced) == 1


def test_an_injection_without_the_utility_part(podman: Machine, inject: Inject, tmp_path: Path) -> None:
    inject("libcuda.so", capabilities="compute")
    report, _ = look_at(podman, tmp_path, IMAGE)
    found = next(f for f in report.findings if f.id == "driver-capability-missing")
    assert found.certainty == "established"
    assert "without `utility`" in found.cause


def test_a_stale_specification_is_named_by_the_engine_and_by_the_host(
    podman: Machine, inject: Inject, tmp_path: Path
) -> None:
    inject("libcuda.so", gone=True)
    report, announced = look_at(podman, tmp_path, IMAGE)
    assert report.root_cause == "cdi-host-path-missing"
    assert len(announced) == 2, "without the GPU the image is looked into all the same"
    host = report_on([*gathered(Tree.healthy(tmp_path / "again").machine()), *gather_configuration(podman)])
    assert "cdi-spec-paths-missing" in ids(host)


def test_no_specification_at_all(podman: Machine, tmp_path: Path) -> None:
    report, _ = look_at(podman, tmp_path, IMAGE)
    assert report.root_cause == "cdi-device-unresolvable"


def test_a_container_without_gpu_shows_its_shared_memory_and_limits(podman: Machine, tmp_path: Path) -> None:
    start(
        podman,
        "plain",
        *(f"--ulimit={name}" for name in ("nofile=1024:1024", "nproc=1024:1024", "memlock=65536:65536")),
    )
    start(podman, "roomy", "--shm-size=1g")
    report, announced = look_at(podman, tmp_path, container="plain")
    assert report.root_cause == "gpu-not-requested"
    assert "dev-shm-small" in ids(report)
    assert "exec plain" in announced[0]
    seen = next(fact for fact in report.facts if fact["type"] == "InsideSeen")
    assert seen["memlock_bytes"] == 65536
    assert seen["open_files"] == 1024
    roomy, _ = look_at(podman, tmp_path / "other", container="roomy")
    assert "dev-shm-small" not in ids(roomy)
    assert next(fact for fact in roomy.facts if fact["type"] == "InsideSeen")["shm_bytes"] == 1 << 30


def test_a_device_file_without_the_right_to_it(podman: Machine, tmp_path: Path) -> None:
    node = tmp_path / "nvidia0"
    os.mknod(node, 0o20666, os.makedev(195, 0))
    start(podman, "shut", "-v", f"{node}:/dev/nvidia0")
    report, _ = look_at(podman, tmp_path, container="shut")
    assert "container-lost-gpu-access" in ids(report)
    assert "Opening /dev/nvidia0 is refused" in next(
        f.cause for f in report.findings if f.id == "container-lost-gpu-access"
    )


def test_names_that_nobody_knows(podman: Machine, tmp_path: Path) -> None:
    report, announced = look_at(podman, tmp_path, image="localhost/none:1", container="nobody")
    assert announced == []
    assert ids(report).count("inside-not-seen") >= 1


def test_podman_says_its_runtime(podman: Machine) -> None:
    report = report_on([sample for sample in gather_engines(podman) if sample.name == "podman-info"])
    known = next(fact for fact in report.facts if fact["type"] == "RuntimesKnown")
    assert list(known["names"]) == ["runc"]
    assert known["cgroup_driver"] == "cgroupfs"
