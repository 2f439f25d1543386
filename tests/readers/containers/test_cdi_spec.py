"""CDI specifications in YAML and JSON, whole, cut, and followed by other output."""

from __future__ import annotations

from conftest import shared_file
from loadpath.core.facts.container import CdiSpec
from loadpath.core.text import Capture
from loadpath.intake.clean import clean
from loadpath.readers.containers import cdi_spec

YAML = """$ cat /etc/cdi/nvidia.yaml
---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
  - name: "0"
    containerEdits:
      deviceNodes:
        - path: /dev/nvidia0
containerEdits:
  hooks:
    - hookName: createContainer
      path: /usr/bin/nvidia-cdi-hook
  mounts:
    - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15
      containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15
Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=1
"""


def read(text: str) -> CdiSpec:
    lines = clean(text.encode())
    end = cdi_spec.extent(lines, 0)
    assert end > 0
    return next(iter(cdi_spec.read(Capture("cdi-spec", "paste", tuple(lines[:end])))))


def test_yaml_ends_where_the_next_output_begins() -> None:
    spec = read(YAML)
    assert spec.broken is None
    assert (spec.path, spec.kind, spec.version, spec.devices) == (
        "/etc/cdi/nvidia.yaml",
        "nvidia.com/gpu",
        "0.5.0",
        ("0",),
    )
    assert spec.driver_versions == ("550.54.15",)
    assert spec.hooks == ("/usr/bin/nvidia-cdi-hook",) and spec.device_nodes == ("/dev/nvidia0",)


def test_json_cut_at_its_end_still_names_its_devices() -> None:
    spec = read(
        '{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu",\n "devices": [{"name": "all", "containerEdits": {"env": []}},\n'
    )
    assert spec.version == "0.6.0" and spec.devices == ("all",)


def test_what_is_no_yaml_is_said_to_be_broken() -> None:
    spec = read("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n  - name: [\n")
    assert spec.broken


def test_the_shared_specification() -> None:
    path = shared_file("captures", "nvidia", "container", "cdi-nvidia-default.yaml")
    spec = read(path.read_text().removeprefix("---\n"))
    assert spec.devices == ("0", "all") and spec.driver_versions == ("999.88.77",)
