"""A bundle: masked, whole by its manifest, capped, and read elsewhere with the same findings."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest
import zstandard

from loadpath.checking.bundle import Manifest, bundle, fit, names_of, write
from loadpath.checking.names import Names
from loadpath.checking.service import gathered, report_on
from loadpath.collect.probe import Machine
from loadpath.core.report import Report
from loadpath.core.sample import Sample, from_bytes, header_of
from loadpath.reading.service import read_paths
from machines import Tree

MakeMachine = Callable[..., Tree]

XID = (
    b"Jan  3 10:00:00 trainbox7 kernel: NVRM: GPU at PCI:0000:3b:00: GPU-5a1c29e0-77b1-4c3e-9d21-0b6f7a1d2c3e\n"
    b"Jan  3 10:00:01 trainbox7 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.\n"
)
SAMPLES = (
    Sample("kernel-log", "kernel-log", "journalctl -k", 0, 0.3, "2026-01-03T10:05:00Z", data=XID),
    Sample("nvidia-smi", "text", "nvidia-smi --token=hf_abcdefghijk123 /home/zofia", 9, 0.1, outcome="failed",
           data=b"No devices were found\n"),
)  # fmt: skip
NAMES = Names(hosts=("trainbox7",), users=("zofia",))


def verified(path: Path) -> list[str]:
    """The members of a bundle whose bytes are not those that its manifest names (none: it is whole). Raises OSError."""
    import zstandard

    wrong: list[str] = []
    sums: dict[str, str] = {}
    with (
        path.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as packed,
        tarfile.open(fileobj=cast("io.BufferedReader", packed), mode="r|") as archive,
    ):
        for member in archive:
            data = (archive.extractfile(member) or io.BytesIO()).read()
            if member.name == "manifest.json":
                sums = {m.file: m.sha256 for m in msgspec.json.decode(data, type=Manifest).members}
            elif sums.pop(member.name, "") != hashlib.sha256(data).hexdigest():
                wrong.append(member.name)
    return [*wrong, *sums]


def findings(report: Report) -> bytes:
    return msgspec.json.encode(report.findings)


def contents(path: Path) -> dict[str, bytes]:
    with zstandard.ZstdDecompressor().stream_reader(path.open("rb")) as packed:
        archive = tarfile.open(fileobj=io.BytesIO(packed.read()))  # noqa: SIM115
    return {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]


def test_reading_a_bundle_gives_the_findings_that_check_gave_byte_for_byte(tmp_path: Path) -> None:
    made = write(SAMPLES, tmp_path / "b.tar.zst", NAMES)
    masked = [from_bytes(data) for name, data in contents(made.path).items() if name.startswith("captures/")]
    read = read_paths([str(made.path)])
    assert findings(read) == findings(report_on([s for s in masked if s]))
    assert read.root_cause == report_on(SAMPLES).root_cause
    assert not read.skipped or all("manifest" not in skipped.what for skipped in read.skipped)


def test_an_unmasked_bundle_reads_like_the_machine_itself(tmp_path: Path) -> None:
    made = write(SAMPLES, tmp_path / "b.tar.zst", None)
    assert findings(read_paths([str(made.path)])) == findings(report_on(SAMPLES))
    assert not made.manifest.redacted


def test_nothing_that_identifies_is_in_the_file(tmp_path: Path) -> None:
    made = write(SAMPLES, tmp_path / "b.tar.zst", NAMES)
    everything = b"".join(contents(made.path).values())
    for secret in (b"trainbox7", b"zofia", b"abcdefghijk123", b"5a1c29e0"):
        assert secret not in everything
    for name, data in contents(made.path).items():
        if name.startswith("captures/"):
            assert header_of(data.split(b"\n")[0].decode()), "masking leaves the header readable"


def test_the_manifest_comes_first_and_its_sums_hold(tmp_path: Path) -> None:
    made = write(SAMPLES, tmp_path / "b.tar.zst", NAMES)
    files = contents(made.path)
    assert next(iter(files)) == "manifest.json"
    manifest = msgspec.json.decode(files["manifest.json"], type=Manifest)
    assert manifest.members[0].command == "journalctl -k"
    assert manifest.masked["host name"] == 1
    assert verified(made.path) == []


def test_a_long_log_is_cut_and_the_cut_is_said(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_bytes(b"".join(b"INFO step %d\n" % i for i in range(60_000)) + b"ERROR last words\n")
    root = tmp_path / "root"
    root.mkdir()
    made = bundle(Machine(root), tmp_path / "b.tar.zst", most_bytes=200_000, logs=[str(log)])
    data = contents(made.path)["captures/log-vllm.txt"]
    assert data.endswith(b"ERROR last words\n")
    assert b"left out here" in data
    assert b"bytes left out" in data.split(b"\n")[0]
    assert sum(m.bytes for m in made.manifest.members) < 230_000
    assert any("bytes left out" in m.note for m in made.manifest.members)


def test_small_samples_stay_whole_beside_a_large_one() -> None:
    big = Sample("big", "log", "x", data=b"a line of a log\n" * 100_000)
    fitted = fit([*SAMPLES, big], 300_000)
    assert [len(s.data) for s in fitted[:2]] == [len(s.data) for s in SAMPLES]
    assert not any(s.note for s in fitted[:2])
    assert "bytes left out" in fitted[2].note


def test_a_file_is_only_replaced_by_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "b.tar.zst"
    target.write_bytes(b"an older one")
    monkeypatch.setattr("tarfile.TarFile.addfile", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write(SAMPLES, target, None)
    assert target.read_bytes() == b"an older one"
    assert list(tmp_path.iterdir()) == [target]


def test_a_live_machines_bundle_gives_the_findings_of_check(tmp_path: Path) -> None:
    """Everything that the probes of this very machine see, whatever it is: masked, packed, read."""
    samples = gathered(Machine(timeout_s=5))
    made = write(samples, tmp_path / "b.tar.zst", names_of(Machine()))
    masked = [from_bytes(data) for name, data in contents(made.path).items() if name.startswith("captures/")]
    report = report_on([s for s in masked if s])
    assert findings(read_paths([str(made.path)])) == findings(report)
    assert report.layers
    assert [f.id for f in report.findings] == [f.id for f in report_on(samples).findings], (
        "masking changes no judgement"
    )


@pytest.mark.parametrize("scenario", ["", "cuInit 803", "remap-pending.0 1", "recovery.1 1"])
def test_a_broken_machines_bundle_names_the_same_root_cause(
    machine: MakeMachine, scenario: str, tmp_path: Path
) -> None:
    tree = machine(scenario, gpus=2)
    tree.file("/etc/hostname", "trainbox7")
    tree.file("/proc/sys/kernel/hostname", "trainbox7")
    report = tree.check()
    made = bundle(tree.machine(), tmp_path / "b.tar.zst")
    read = read_paths([str(made.path)])
    assert read.root_cause == report.root_cause
    assert [layer.state for layer in read.layers] == [layer.state for layer in report.layers]


def test_an_unpacked_bundle_reads_alike(tmp_path: Path) -> None:
    made = write(SAMPLES, tmp_path / "b.tar.zst", NAMES)
    folder = tmp_path / "unpacked"
    for name, data in contents(made.path).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    report = read_paths([str(folder)])
    assert report.root_cause == read_paths([str(made.path)]).root_cause
    assert any("manifest of a bundle" in skipped.why for skipped in report.skipped)
