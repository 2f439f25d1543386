"""What kubectl prints: pods and containers (`describe`, `get pods`), probes, limits, events.

    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
    Liveness:       http-get http://:8000/health delay=15s timeout=1s period=10s #success=1 #failure=3
  Warning  Unhealthy  41s (x3 over 61s)  kubelet  Liveness probe failed: HTTP probe failed with statuscode: 404
NAME                     READY   STATUS             RESTARTS       AGE
vllm-7b-57c8d4996c-abc   0/1     CrashLoopBackOff   6 (118s ago)   20m

Fragments are read as well as whole outputs, so this looks at every capture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.container import (
    ContainerState,
    EventListed,
    PodListed,
    Probe,
    ProbeConfigured,
    ProbeFailed,
    ProbeKilled,
)
from loadpath.core.facts.engine import Setting
from loadpath.core.text import Capture, Line

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_STATES: dict[str, Literal["running", "waiting", "terminated"]] = {
    "Running": "running", "Waiting": "waiting", "Terminated": "terminated",
}  # fmt: skip


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile({
        "candidate": r"State:|Reason:|Exit Code:|Restart Count:|probe|Limits:|Requests:|Capacity:|Allocatable:|"
        r"(?:Liveness|Readiness|Startup):|Normal|Warning|\s\d+/\d+\s|Runtime Class|/dev/shm from|"
        r"^\s+[a-z0-9][a-z0-9.-]*:$",
        "state": r"^(?P<last>Last )?State:\s+(?P<state>Running|Waiting|Terminated)$",
        "field": r"^(?P<key>Reason|Exit Code|Restart Count):\s+(?P<value>\S+)$",
        "container": r"^(?P<name>[a-z0-9][a-z0-9.-]*):$",
        "limit": r"^(?P<what>memory|nvidia\.com/[\w.-]+|cpu|ephemeral-storage):\s+(?P<value>\S+)$",
        "amount": r"^[a-z][\w./-]*:\s+\d+\w*$",
        "probe": r"^(?P<probe>Liveness|Readiness|Startup):\s+(?P<how>http-get|tcp-socket|exec|grpc)\s+(?P<target>.*?)\s+"
        r"delay=(?P<delay>\d+)s timeout=(?P<timeout>\d+)s period=(?P<period>\d+)s #success=\d+ #failure=(?P<failure>\d+)",
        "failed": r"(?P<probe>Liveness|Readiness|Startup) probe (?:failed|errored):? ?(?P<why>.*)",
        "killed": r"Container (?P<container>\S+) failed (?P<probe>liveness|startup) probe, will be (?:restarted|killed)",
        "times": r"\(x(?P<times>\d+) over (?P<over>(?:\d+[dhms])+)\)",
        "pod": r"^(?:\S+\s+)?(?:pod/)?(?P<name>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)\s+(?P<ready>\d+)/(?P<all>\d+)\s+"
        r"(?P<status>[A-Z][A-Za-z]+(?::\S+)?)\s+(?P<restarts>\d+)(?:\s+\([\w ]+ago\))?\s+(?:<\w+>|(?:\d+[dhmsy])+)(?:\s|$)",
        "url": r"https?://(?P<host>\[[^\]]*\]|[^/:\"\s]*)(?::(?P<port>\d+))?(?P<path>/[^\"\s?]*)?",
        "runtime": r"^Runtime Class Name:\s+(?P<name>\S+)$",
        "shm": r"^/dev/shm from (?P<name>\S+)",
        "event": r"^(?:\S+\s+)?(?P<kind>Normal|Warning)\s+(?P<reason>[A-Z]\w+)\s+(?P<rest>\S.*)$",
        "about": r"^(?P<about>(?:pod|node|job|daemonset|deployment|replicaset)/\S+)\s+(?P<message>.*)$",
        "from": r"^(?:<\w+>|[\dsmhdy]+(?: \(x\d+ over \w+\))?)\s+(?P<who>[\w-]+)\s+(?P<message>.*)$",
    }[name])  # fmt: skip


def read(capture: Capture) -> Iterator[Fact]:
    name: str | None = None
    state: dict[str, Any] | None = None
    section = ""
    for line in capture.lines:
        if state is None and not section and not _pattern("candidate").search(line.text):
            continue
        text = line.text.strip()
        if (
            state is not None
            and not _pattern("field").match(text)
            and not text.startswith(("Started:", "Finished:", "Message:", "Signal:"))
        ):
            yield _state(capture, state)
            state = None
        if found := _pattern("state").match(text):
            state = {"line": line, "name": name, "state": _STATES[found["state"]], "previous": bool(found["last"])}
        elif found := _pattern("field").match(text):
            if state is not None and found["key"] != "Restart Count":
                state[found["key"]] = found["value"]
            elif found["key"] == "Restart Count":
                if state is not None:
                    yield _state(capture, state)
                    state = None
                yield from _restarts(capture, line, name, found["value"])
            elif found["key"] == "Exit Code" or found["value"] == "OOMKilled":
                state = {
                    "line": line,
                    "name": name,
                    "state": "terminated",
                    "previous": False,
                    found["key"]: found["value"],
                }
        elif text in ("Limits:", "Requests:", "Capacity:", "Allocatable:"):
            section = text[:-1].lower()
        elif section and (found := _pattern("limit").match(text)):
            yield Setting(
                **at(capture, line), name=f"k8s:{section}.{found['what']}", value=found["value"], basis="dump"
            )
        elif not (section in ("capacity", "allocatable") and _pattern("amount").match(text)):
            section = ""
            if found := _pattern("container").match(text):
                name = found["name"]
            yield from _other(capture, line)
    if state is not None:
        yield _state(capture, state)


def _state(capture: Capture, seen: dict[str, Any]) -> ContainerState:
    code = seen.get("Exit Code")
    reason = seen.get("Reason")
    return ContainerState(
        **at(capture, seen["line"]), name=seen["name"], state=seen["state"], previous=seen["previous"], reason=reason,
        exit_code=int(code) if code is not None and code.lstrip("-").isdigit() else None,
        oom_killed=True if reason == "OOMKilled" else False if reason == "Error" else None,
    )  # fmt: skip


def _restarts(capture: Capture, line: Line, name: str | None, count: str) -> Iterator[ContainerState]:
    if count.isdigit() and int(count):
        yield ContainerState(**at(capture, line), name=name, state="running", restarts=int(count))


def _other(capture: Capture, line: Line) -> Iterator[Fact]:
    text = line.text.strip()
    if ("Normal" in text or "Warning" in text) and (found := _pattern("event").match(text)):
        rest = _pattern("about").match(found["rest"]) or _pattern("from").match(found["rest"])
        if rest is not None:
            yield EventListed(
                **at(capture, line), kind="Normal" if found["kind"] == "Normal" else "Warning", reason=found["reason"],
                message=rest["message"], about=rest.groupdict().get("about"),
            )  # fmt: skip
    if "probe" in text:
        if found := _pattern("killed").search(text):
            times, _ = _repeats(text)
            yield ProbeKilled(
                **at(capture, line), container=found["container"], probe=_probe(found["probe"]), times=times
            )
        elif found := _pattern("failed").search(text):
            yield _failed(capture, line, found)
    elif found := _pattern("probe").match(text):
        yield _configured(capture, line, found)
    elif found := _pattern("pod").match(text):
        yield PodListed(
            **at(capture, line), name=found["name"], ready=int(found["ready"]), containers=int(found["all"]),
            status=found["status"], restarts=int(found["restarts"]),
        )  # fmt: skip
        if found["status"].endswith(("CrashLoopBackOff", "OOMKilled")):
            yield ContainerState(
                **at(capture, line), name=found["name"], state="waiting", reason=found["status"].removeprefix("Init:"),
                restarts=int(found["restarts"]), oom_killed=found["status"].endswith("OOMKilled") or None,
            )  # fmt: skip
    elif found := _pattern("runtime").match(text):
        yield Setting(**at(capture, line), name="k8s:runtime-class", value=found["name"], basis="dump")
    elif _pattern("shm").match(text):
        yield Setting(**at(capture, line), name="k8s:shm-mounted", value="True", basis="dump")


def _probe(word: str) -> Probe:
    return {"liveness": "liveness", "readiness": "readiness", "startup": "startup"}[word.lower()]  # type: ignore[return-value]


def _failed(capture: Capture, line: Line, found: re.Match[str]) -> ProbeFailed:
    why = found["why"]
    times, over = _repeats(line.text)
    url = _pattern("url").search(why)
    status = re.search(r"statuscode: (\d{3})", why)
    return ProbeFailed(
        **at(capture, line), probe=_probe(found["probe"]), how=_how(why), status=int(status[1]) if status else None,
        path=url["path"] if url else None, port=url["port"] if url else _port(why), times=times, over_seconds=over,
    )  # fmt: skip


def _how(why: str) -> Literal["status", "refused", "timeout", "reset", "exec", "other"]:
    low = why.lower()
    if "statuscode" in low:
        return "status"
    if "refused" in low:
        return "refused"
    if "deadline" in low or "timeout" in low or "timed out" in low:
        return "timeout"
    if "reset by peer" in low or low.endswith("eof"):
        return "reset"
    return "other" if not low or "get " in low else "exec"


def _port(why: str) -> str | None:
    found = re.search(r"dial tcp \S*?:(\d+)", why)
    return found[1] if found else None


def _repeats(text: str) -> tuple[int, float | None]:
    found = _pattern("times").search(text)
    if found is None:
        return 1, None
    parts = re.findall(r"(\d+)([dhms])", found["over"])
    return int(found["times"]), sum(int(number) * _UNITS[unit] for number, unit in parts)


def _configured(capture: Capture, line: Line, found: re.Match[str]) -> ProbeConfigured:
    url = _pattern("url").search(found["target"])
    port = url["port"] if url else (m[1] if (m := re.search(r":(\w+)", found["target"])) else None)
    return ProbeConfigured(
        **at(capture, line), probe=_probe(found["probe"]), path=url["path"] if url else None, port=port,
        initial_delay_seconds=float(found["delay"]), period_seconds=float(found["period"]),
        timeout_seconds=float(found["timeout"]), failure_threshold=int(found["failure"]),
    )  # fmt: skip
