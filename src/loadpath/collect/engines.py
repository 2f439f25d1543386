"""Layer 10, engines: which are installed, which run (flags, age, ports, processes), whether they answer on this machine's
own address, their metrics, and their logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec

from loadpath.collect.cgroups import cgroup_limits
from loadpath.collect.distributions import distributions
from loadpath.collect.endpoints import ask
from loadpath.collect.engine_logs import gather_logs
from loadpath.collect.engine_names import ENGINES, EngineSigns, engine_of, port_of
from loadpath.collect.probe import Machine, Probe, Sample
from loadpath.collect.processes import Process, family, listening, processes, same_network, uptime
from loadpath.collect.programs import find_program
from loadpath.collect.pythons import environments
from loadpath.collect.records import record
from loadpath.core.facts.runtime import EndpointAsked, EngineInstalled, EngineProcess
from loadpath.core.masking import mask
from loadpath.core.units import show_seconds

MOST_RUNNING = 16
MOST_GENERATIONS = 32
_SECRET_FLAG = re.compile(r"(?i)^--?[\w-]*(?:api-?key|token|secret|password|auth)[\w-]*$")
_HEEDED = re.compile(
    r"(?:CUDA|NVIDIA|NCCL|VLLM|SGLANG|SGL|PYTORCH|TORCH|TORCHINDUCTOR|TRITON|GGML|LLAMA|OLLAMA|TLLM|TRTLLM|RAY|OMP|UCX|GLOO|FLASHINFER)_\w*="
    r"|(?:LD_LIBRARY_PATH|LD_PRELOAD|HF_HOME|HF_HUB_\w+|TRANSFORMERS_\w+|PYTHONPATH|VIRTUAL_ENV|CONDA_PREFIX)="
)
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL|AUTH")
_TOKENIZER = re.compile(r"(?i)token(?:s|izer|ization|-ids)\b|num-tokens|max-.*token|min-.*token")


def gather_installed(machine: Machine) -> Iterator[Sample]:
    lines = []
    packaged: set[str] = set()
    names = {package: signs.engine for signs in ENGINES for package in signs.packages}
    every = environments(machine)
    for environment in every:
        for package in distributions(machine, environment):
            if engine := names.get(package.name):
                packaged.add(engine)
                text = f"{package.name} {package.version} in {package.site}"
                lines.append(record(EngineInstalled, text=text, engine=engine, version=package.version, path=package.site,
                                    python=environment.prefix))  # fmt: skip
    for signs in ENGINES:
        for program in signs.programs:
            path = find_program(machine, program)
            if path and signs.engine not in packaged:
                lines.append(record(EngineInstalled, text=f"{program}: {path}", engine=signs.engine, path=path))
    looked = " ".join(folder for environment in every[:2] for folder in environment.site[:1])
    command = f"ls {looked}; which llama-server ollama tritonserver …".removeprefix("ls ; ")
    yield machine.told(lines, name="engines-installed", kind="engines-seen", command=command)


class Running(msgspec.Struct, frozen=True):
    """A running engine: its first process, the numbers of its whole family, and the ports that this listens on."""

    signs: EngineSigns
    head: Process
    members: tuple[int, ...]
    ports: tuple[int, ...]

    @property
    def port(self) -> int | None:
        """Its HTTP port; None where it listens on others alone: those are for its own ranks, and a stranger there does harm."""
        asked = port_of(self.head.argv, self.signs)
        return asked if asked in self.ports or not self.ports else None


def running(machine: Machine, every: dict[int, Process]) -> list[Running]:
    """The engines among the processes, the oldest first."""
    found: list[Running] = []
    for head in sorted(every.values(), key=lambda p: (p.started, p.pid)):
        signs = engine_of(head.argv)
        if signs is not None and not _started_by_itself(every, head, signs) and len(found) < MOST_RUNNING:
            members = family(every, head.pid)
            found.append(Running(signs, head, members, listening(machine, members)))
    return found


def _started_by_itself(every: dict[int, Process], one: Process, signs: EngineSigns) -> bool:
    """Whether a process that looks like an engine's start was started by that engine: a worker with its parent's words."""
    parent = every.get(one.parent)
    for _ in range(MOST_GENERATIONS):
        if parent is None:
            return False
        own = engine_of(parent.argv)
        if own is not None and own.engine == signs.engine:
            return True
        parent = every.get(parent.parent)
    return False


def gather_running(machine: Machine) -> Iterator[Sample]:
    every = processes(machine)
    found = running(machine, every)
    now = uptime(machine)
    lines = [_told(one, every, now) for one in found]
    yield machine.told(
        lines, name="engines-running", kind="engines-seen", command="ps -eo pid,ppid,etimes,stat,args; ss -ltnp"
    )
    if len(found) == 1:  # with several, nobody could tell whose flags these are
        line = " ".join(_quoted(word) for word in _typed(found[0]))
        yield machine.told([line], name="engine-command", kind="text", command=f"cat /proc/{found[0].head.pid}/cmdline")
        yield from _environment(machine, found[0].head.pid)
    for one in found:
        yield machine.cat(f"/proc/{one.head.pid}/limits", name=f"engine-{one.head.pid}-limits", kind="text")
        if group := cgroup_limits(machine, one.head.pid):
            command = f"cat /proc/{one.head.pid}/cgroup /sys/fs/cgroup/…/{{memory,cpu,pids}}.*"
            name = f"engine-{one.head.pid}-cgroup"
            yield machine.told([f"cgroup: {json.dumps(group)}"], name=name, kind="host-settings", command=command)
    yield from _answers(machine, found)
    for one in found:
        yield from gather_logs(machine, one.signs, one.head, now)


def _environment(machine: Machine, pid: int) -> Iterator[Sample]:
    """The variables that GPU programs heed, of one process; no others, and no secrets."""
    data = machine.read(f"/proc/{pid}/environ", 1 << 20)
    if not data:
        return
    words = sorted(word for word in data.decode("utf-8", "replace").split("\0") if _HEEDED.match(word))
    kept = [mask(word) for word in words if not _SECRET_NAME.search(word.partition("=")[0])]
    yield machine.told(
        kept, name="engine-environment", kind="text", command=f"cat /proc/{pid}/environ | grep -E 'CUDA|NCCL|VLLM|…'"
    )


def _told(one: Running, every: dict[int, Process], now: float | None) -> str:
    head, argv = one.head, _masked(one.head.argv)
    age = round(now - head.started, 1) if now is not None and now >= head.started else None
    stuck = [pid for pid in one.members if pid in every and every[pid].state == "D"]
    rss = sum(every[pid].rss_bytes or 0 for pid in one.members if pid in every)
    ports = (
        f", port {one.port}"
        if one.port in one.ports
        else f", listening on {', '.join(map(str, one.ports))}"
        if one.ports
        else ""
    )
    up = f", up {show_seconds(age)}" if age is not None else ""
    place = f", container {head.container}" if head.container else ""
    text = f"{one.signs.engine} (process {head.pid}{up}{ports}{place}): {' '.join(argv)[:300]}"
    return record(EngineProcess, text=text, engine=one.signs.engine, pid=head.pid, argv=argv, family=one.members, age_seconds=age,
                  ports=one.ports, port=one.port, state=head.state, stuck=stuck,
                  rss_bytes=rss, container=head.container)  # fmt: skip


def _answers(machine: Machine, found: list[Running]) -> Iterator[Sample]:
    """Whether each engine answers, and its metrics. Only on localhost, only pages that change nothing."""
    if not machine.live:
        return
    lines = []
    metrics: list[Sample] = []
    for one in found:
        if one.port is None or not same_network(machine, one.head.pid):
            continue
        answer = ask(one.port, one.signs.health)
        text = f"GET {answer.url}: {answer.status or answer.error} after {answer.seconds:.2f} s"
        lines.append(record(EndpointAsked, text=text, engine=one.signs.engine, pid=one.head.pid, url=answer.url, status=answer.status,
                            seconds=round(answer.seconds, 3), error=answer.error))  # fmt: skip
        if answer.status is not None and one.signs.metrics:
            page = ask(one.port, one.signs.metrics)
            if page.status == 200 and page.body:
                metrics.append(Sample(f"engine-{one.head.pid}-metrics", "prometheus-metrics", f"curl {page.url}",
                                      None, round(page.seconds, 3), page.started, data=page.body))  # fmt: skip
    if lines:
        yield machine.told(
            lines, name="engine-health", kind="engines-seen", command="curl -m 2 http://127.0.0.1:PORT/health"
        )
    yield from metrics


def _masked(argv: tuple[str, ...]) -> list[str]:
    """The words of a command line; what follows a flag for a secret is masked."""
    words: list[str] = []
    for i, word in enumerate(argv):
        before = argv[i - 1] if i else ""
        hidden = _SECRET_FLAG.match(before) and not _TOKENIZER.search(before) and not word.startswith("-")
        name, equals, _ = word.partition("=")
        if equals and _SECRET_FLAG.match(name) and not _TOKENIZER.search(name):
            words.append(f"{name}=***")
        else:
            words.append("***" if hidden else mask(word))
    return words


def _typed(one: Running) -> list[str]:
    """The command line as a person types it: a script that Python runs is a command of its own name."""
    words = _masked(one.head.argv)
    script = words[1].rpartition("/")[2] if len(words) > 1 else ""
    if re.search(r"(?:^|/)python[\d.]*$", words[0]) and script in one.signs.programs:
        return [script, *words[2:]]
    return words


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./*-]+", word) else "'" + word.replace("'", "'\\''") + "'"


PROBES = (
    Probe("engines-installed", "engines-seen", "engine", gather_installed),
    Probe("engines-running", "engines-seen", "engine", gather_running),
)
