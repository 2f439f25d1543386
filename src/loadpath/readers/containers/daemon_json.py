"""Docker's daemon.json: which runtimes are configured, which one is the default, the cgroup driver, CDI.

{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.container import RuntimesKnown
from loadpath.core.facts.runtime import RuntimeBinary
from loadpath.core.text import Capture, Line
from loadpath.readers.documents import Broken, json_extent, parse_json

_KEY = re.compile(r'^\s*\{?\s*"(?:runtimes|default-runtime|exec-opts|features|cdi-spec-dirs)"\s*:')

_SHOWN = re.compile(r"\bcat\s+(\S+daemon\.json)")


def extent(lines: Sequence[Line], i: int) -> int:
    start = i
    if "daemon.json" in lines[i].text:
        while start < min(len(lines), i + 4) and not _KEY.match(lines[start].text):
            start += 1
    if start >= len(lines) or not _KEY.match(lines[start].text):
        return i
    opened = lines[start].text.lstrip().startswith("{") or any(x.text.strip() == "{" for x in lines[i:start])
    first = next((j for j in range(i, start) if lines[j].text.strip() == "{"), start)
    return json_extent(lines, first if opened else start, 0 if opened else 1)


def read(capture: Capture) -> Iterator[Fact]:
    body = [line for line in capture.lines if "daemon.json" not in line.text]
    try:
        value = parse_json("\n".join(line.text for line in body))
    except Broken:
        return
    if not isinstance(value, dict):
        return
    runtimes = value.get("runtimes")
    options = value.get("exec-opts")
    driver = (
        next((str(o).partition("=")[2] for o in options if "cgroupdriver" in str(o)), None)
        if isinstance(options, list)
        else None
    )
    features = value.get("features")
    yield RuntimesKnown(
        **at(capture, body[0]), names=tuple(runtimes) if isinstance(runtimes, dict) else (), basis="daemon.json",
        default=value["default-runtime"] if isinstance(value.get("default-runtime"), str) else None, cgroup_driver=driver,
        cdi=features["cdi"] if isinstance(features, dict) and isinstance(features.get("cdi"), bool) else None,
    )  # fmt: skip
    shown = _SHOWN.search(capture.lines[0].text)
    for name, entry in runtimes.items() if isinstance(runtimes, dict) else ():
        if isinstance(entry, dict) and isinstance(entry.get("path"), str) and entry["path"]:
            line = next((x for x in body if entry["path"] in x.text), body[0])
            yield RuntimeBinary(
                **at(capture, line),
                engine="Docker",
                name=name,
                binary=entry["path"],
                path=shown[1] if shown else "daemon.json",
            )
