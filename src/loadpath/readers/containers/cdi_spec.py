"""CDI specifications (/etc/cdi/nvidia.yaml, JSON in /var/run/cdi): devices, host paths, hooks.

cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
  - name: "0"
    containerEdits:
      deviceNodes: [{path: /dev/nvidia0}]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from loadpath.core.facts.base import at
from loadpath.core.facts.container import CdiSpec
from loadpath.core.text import Capture, Line
from loadpath.readers.documents import Broken, json_extent, mappings, parse_json, parse_yaml, yaml_extent

_BEGINS = re.compile(r"""^\s*(?P<json>\{?\s*")?cdiVersion"?\s*:""")
_TOP = frozenset(("cdiVersion", "kind", "devices", "containerEdits", "annotations"))
_SHOWN = re.compile(r"\b(?:cat|less|more|nano|vim?)\s+(?P<path>\S*/cdi/\S+\.(?:ya?ml|json))")
_DRIVER = re.compile(r"/lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler|nvidia-[\w-]+)\.so\.(\d{3,}\.\d+(?:\.\d+)?)$")


def extent(lines: Sequence[Line], i: int) -> int:
    start = i + 1 if _SHOWN.search(lines[i].text) else i
    while start < len(lines) and start <= i + 2 and lines[start].text.strip() in ("---", "{", ""):
        start += 1
    begins = _BEGINS.match(lines[start].text) if start < len(lines) else None
    if begins is None:
        return i
    if begins["json"]:
        return json_extent(lines, start, 0 if lines[start].text.lstrip().startswith("{") else 1)
    return yaml_extent(lines, start, _TOP)


def read(capture: Capture) -> Iterator[CdiSpec]:
    shown = _SHOWN.search(capture.lines[0].text)
    path = shown["path"] if shown else None
    body = [line for line in capture.lines if not _SHOWN.search(line.text)]
    text = "\n".join(line.text for line in body)
    where = at(capture, body[0] if body else capture.lines[0])
    try:
        documents = [parse_json(text)] if '"cdiVersion"' in text else parse_yaml(text)
    except Broken as broken:
        yield CdiSpec(**where, path=path, broken=str(broken))
        return
    for document in documents:
        if isinstance(document, dict):
            yield _spec(where, path, document)


def _spec(where: dict[str, Any], path: str | None, document: dict[str, Any]) -> CdiSpec:
    edits = [m for m in mappings(document) if not m.keys().isdisjoint(("deviceNodes", "mounts", "hooks"))]
    nodes = [n for e in edits for n in _paths(e.get("deviceNodes"), "hostPath", "path")]
    mounts = [m for e in edits for m in _paths(e.get("mounts"), "hostPath")]
    hooks = [h for e in edits for h in _paths(e.get("hooks"), "path")]
    versions = {found[1] for mount in mounts if (found := _DRIVER.search(mount))}
    devices = document.get("devices")
    names = (
        [str(d["name"]) for d in devices if isinstance(d, dict) and "name" in d] if isinstance(devices, list) else []
    )
    return CdiSpec(
        **where, path=path, kind=_text(document.get("kind")), version=_text(document.get("cdiVersion")),
        devices=tuple(names), device_nodes=tuple(dict.fromkeys(nodes)), mounts=tuple(dict.fromkeys(mounts)),
        hooks=tuple(dict.fromkeys(hooks)), driver_versions=tuple(sorted(versions)),
    )  # fmt: skip


def _paths(entries: Any, *keys: str) -> Iterator[str]:
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and (path := next((entry[k] for k in keys if isinstance(entry.get(k), str)), None)):
            yield path


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
