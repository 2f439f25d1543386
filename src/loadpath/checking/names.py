"""Names of hosts and users in texts: where they stand, and their aliases.

A name that is also a word of the logs (a host called `gpu`, a user called `max`) is masked only where a name stands:
replaced everywhere it would change what the text says, and such a name tells nobody whose machine it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import msgspec

from loadpath.checking.sought import Sought, sought

# Names that everybody's machine has.
COMMON = frozenset((
    "root", "nobody", "ubuntu", "debian", "centos", "rocky", "fedora", "ec2-user", "azureuser", "admin", "user", "users", "app",
    "localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback", "ip6-localnet", "ip6-mcastprefix",
    "ip6-allnodes", "ip6-allrouters", "ip6-allhosts", "host", "hostname", "node", "server", "worker", "docker",
    "daemon", "nvidia", "nvidia-persistenced", "vllm", "sglang", "ollama", "ray", "jovyan", "linux", "kernel", "systemd", "none",
    "null", "default", "shared", "git", "hf", "python", "host.docker.internal", "host.containers.internal", "linuxbrew", "runner",
    "container", "system", "unknown", "example.com", "example.org",
))  # fmt: skip
# Domains that anybody's logs name.
PUBLIC = re.compile(
    r"(?i)(?:^|\.)(?:huggingface\.co|hf\.co|github(?:usercontent)?\.com|github\.io|gitlab\.com|nvidia\.com|nvcr\.io|pytorch\.org|"
    r"python\.org|pypi\.org|pythonhosted\.org|docker\.(?:io|com)|ghcr\.io|quay\.io|gcr\.io|k8s\.io|kubernetes\.io|readthedocs\.io|"
    r"vllm\.ai|sglang\.ai|sgl-project\.(?:io|ai)|ollama\.(?:com|ai)|modelscope\.c(?:n|om)|openai\.com|anaconda\.(?:com|org)|"
    r"ubuntu\.com|debian\.org|kernel\.org|freedesktop\.org|ray\.io|microsoft\.com|googleapis\.com|amazonaws\.com|example\.(?:com|org))$"
)
_NAME = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_LABEL = r"[A-Za-z0-9][\w-]*"
_TAILS = ("internal", "local", "lan", "corp", "intra", "intranet", "localdomain", "home.arpa")
# Where a name stands, and what gives the place away.
_HOSTS = (
    # syslog and journalctl: time, host, program
    (
        rf"(?m)^(?:<\d+>)?(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{{4}}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?) "
        rf"(?P<name>{_NAME}) (?=(?:kernel|[\w./@-]+(?:\[\d+\])?): )",
        (),
    ),
    (rf"(?m)^Linux (?P<name>{_NAME}) (?=\d+\.\d+)", ("linux ",)),
    (
        rf"(?i)\b(?:hostname|nodename|node[_-]name|host[_-]name)['\"]?\s*[:=]\s*['\"]?(?P<name>{_NAME})",
        ("hostname", "nodename", "node_name", "node-name", "host_name", "host-name"),
    ),
    (rf"(?m)^ {{1,4}}Name: (?P<name>{_NAME})$", (" name: ",)),
    # NCCL's lines, c10d's addresses, launchers' options and variables, Slurm, Kubernetes
    (rf"(?m)^(?P<name>{_NAME}):\d+:\d+ \[\d+\] NCCL ", (" nccl ",)),
    (r"\[(?P<name>[A-Za-z][\w-]*(?:\.[\w-]+)*)\]:\d{4,5}\b", ("]:",)),
    (
        r"(?i)\b(?:master[_-]addr|head[_-]node|rdzv[_-]endpoint|dist[_-]init[_-]addr|nnodes[_-]addr)['\"]?[=:\s]\s*['\"]?(?:tcp://)?"
        r"(?P<name>[A-Za-z][\w-]*(?:\.[\w-]+)*)(?=[:\s'\",)]|$)",
        ("master_addr", "master-addr", "head_node", "head-node", "rdzv", "dist_init", "dist-init"),
    ),
    (r"\bsrun: error: (?P<name>[A-Za-z][\w-]*\d)(?=: )", ("srun: ",)),
    (r"\bSuccessfully assigned \S+ to (?P<name>[A-Za-z][\w.-]*\w)", ("successfully assigned ",)),
    (r"(?m)^\s*Node:\s+(?P<name>[A-Za-z][\w.-]*)/", ("node:",)),
    (
        rf"\b[a-z][a-z0-9+.]*://(?:[^\s/@'\"]*@)?(?P<name>{_LABEL}(?:\.{_LABEL})*\.[A-Za-z]{{2,}})(?=[:/?#\s'\"),]|$)",
        ("://",),
    ),
    (
        rf"(?<![\w./-])(?P<name>{_LABEL}(?:\.{_LABEL})*\.(?:{'|'.join(_TAILS)}))(?![\w-]|\.\w)",
        tuple(f".{tail}" for tail in _TAILS),
    ),
    (rf"(?<![\w./-])(?P<name>{_LABEL}(?:\.{_LABEL})*\.[a-z]{{2,}}):\d{{2,5}}/", tuple(f"{d}/" for d in range(10))),
    (rf"(?<![\w.+-])[\w.+-]+@(?P<name>{_LABEL}(?:\.{_LABEL})+)(?![\w-])", ("@",)),
    (r"(?m)^\[?[a-z_][\w-]*@(?P<name>[A-Za-z0-9][\w.-]*)(?=[:\s][^\n]{0,60}[#$] ?)", ("@",)),
)
_USERS = (
    (r"/(?:home|Users)/(?P<name>[A-Za-z0-9_][\w.-]*)", ("/home/", "/users/")),
    (r"\b(?:USER|LOGNAME|USERNAME|SUDO_USER)=['\"]?(?P<name>[A-Za-z_][\w.-]*)", ("user=", "logname=", "username=")),
    (r"\buid=\d+\((?P<name>[\w.-]+)\)", ("uid=",)),
    (r"\bsession (?:opened|closed) for user (?P<name>[A-Za-z_][\w.-]*)", ("for user ",)),
    (rf"(?<![\w.+/:-])(?P<name>[A-Za-z_][\w.+-]*)@(?={_LABEL}(?:\.{_LABEL})+(?![\w-]))", ("@",)),
    (r"(?m)^\[?(?P<name>[a-z_][\w-]*)@(?=[A-Za-z0-9][\w.-]*[:\s][^\n]{0,60}[#$] ?)", ("@",)),
)  # fmt: skip
# Modules whose names end like a host's.
_MODULE = re.compile(r"(?:threading|torch|ray|vllm|sglang|grpc|asyncio|multiprocessing|google|triton|werkzeug)\.")
_ALIAS = re.compile(r"(?:host|user)\d+(?:\.example)?")
SHORTEST = 3
"""Letters of a name that is masked wherever it stands; a shorter one is only where a name stands."""


class Names(msgspec.Struct, frozen=True):
    """The names of one machine: its host names and those of the people with an account on it."""

    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class NameFinder:
    """Finds names, and replaces them by `host1`, `user2`: one alias for a host with and without its domain."""

    def __init__(self, names: Names) -> None:
        self._known: dict[str, dict[str, str]] = {"host": {}, "user": {}}
        self._used: dict[str, str] = {}
        self._anywhere: re.Pattern[str] | None = None
        for sort, given in (("host", names.hosts), ("user", names.users)):
            for name in given:
                self._alias(sort, name)

    def learn(self, text: str) -> None:
        for sort, found in _found(text):
            self._alias(sort, found["name"])

    def redact(self, text: str) -> str:
        for sort, patterns in (("host", _host_patterns()), ("user", _user_patterns())):
            for pattern in patterns:
                text = pattern.sub(lambda m, sort=sort: self._in_place(sort, m), text)  # type: ignore[misc]
        if self._anywhere is None:
            self._anywhere = self._everywhere()
        return self._anywhere.sub(self._replaced, text)

    @property
    def counts(self) -> dict[str, int]:
        """How many hosts and users were masked so far."""
        used = [self._used[alias] for alias in sorted(self._used)]
        return {f"{sort} name": used.count(sort) for sort in self._known if sort in used}

    def _alias(self, sort: str, name: str) -> str:
        """The alias of `name`; the name itself where it tells nothing or is an alias already."""
        low = name.lower()
        if _tells_nothing(low):
            return name
        known = self._known[sort]
        if low not in known:
            short = low.partition(".")[0] if sort == "host" else low
            alias = known.get(short) or f"{sort}{len(set(known.values())) + 1}"
            known[low] = alias
            if sort == "host" and not _tells_nothing(short) and len(short) >= SHORTEST:
                known.setdefault(short, alias)
            self._anywhere = None
        return known[low]

    def _in_place(self, sort: str, match: re.Match[str]) -> str:
        start, end = match.span("name")
        alias = self._alias(sort, match["name"])
        if alias != match["name"]:
            self._used[alias] = sort
        return match.string[match.start() : start] + alias + match.string[end : match.end()]

    def _replaced(self, match: re.Match[str]) -> str:
        low = match[0].lower()
        sort = "host" if low in self._known["host"] else "user"
        alias = self._known[sort].get(low, match[0])
        self._used[alias] = sort
        return alias

    def _everywhere(self) -> re.Pattern[str]:
        names = [n for known in self._known.values() for n in known if len(n) >= SHORTEST and not _is_word(n)]
        names.sort(key=len, reverse=True)
        words = "|".join(re.escape(name) for name in names)
        return re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])" if names else r"(?!)", re.IGNORECASE)


def _found(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    for sort, patterns in (("host", _host_patterns()), ("user", _user_patterns())):
        for pattern in patterns:
            for match in pattern.finditer(text):
                yield sort, match


def _tells_nothing(low: str) -> bool:
    known = _ALIAS.fullmatch(low) or PUBLIC.search(low) or _MODULE.match(low) or re.fullmatch(r"[\d.]+", low)
    return low in COMMON or bool(known)


@cache
def _host_patterns() -> tuple[Sought, ...]:
    return tuple(sought(pattern, *hints) for pattern, hints in _HOSTS)


@cache
def _user_patterns() -> tuple[Sought, ...]:
    return tuple(sought(pattern, *hints) for pattern, hints in _USERS)


@cache
def _vocabulary() -> str:
    """What readers and tables look for in a text, and their examples: a blank around every word."""
    from loadpath.knowledge.tables import findings
    from loadpath.readers.registry import READERS

    literals = [s for entry in READERS for s in entry.sniffs]
    literals += [s for row in findings().values() for match in row.match for s in (*match.literals, match.example)]
    return f" {re.sub(r'[^a-z0-9]+', ' ', ' '.join(literals).lower())} "


def _is_word(name: str) -> bool:
    """Whether a name is a word (or words in a row) of the logs."""
    return f" {re.sub(r'[^a-z0-9]+', ' ', name.lower()).strip()} " in _vocabulary()
