"""What a probe is, and the machine that it looks at: files below a root, and commands that cannot hang us.

With a root other than `/` (a saved machine) nothing is run: a command's output is taken from the file
`<root>/loadpath-commands/<slug>` (its raw output, or a saved sample), where there is one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

import msgspec

from loadpath.collect.runner import Ran, run_command
from loadpath.core.layers import Layer
from loadpath.core.sample import Outcome, Sample, from_bytes

__all__ = ["Machine", "Outcome", "Probe", "Runner", "Sample", "slug"]

Runner = Callable[[Sequence[str], float, Mapping[str, str]], Ran]
MOST_READ = 32 << 20
"""Bytes of one file that are read."""
COMMANDS = "loadpath-commands"
USUAL_TIMEOUT = 10.0
DRIVER_PATIENCE = 30.0
"""Seconds for a call into the driver: with eight GPUs and persistence off the first one takes more than ten."""
DEEPEST = 20
"""Links that are followed for one path."""


class Machine:
    """A live machine, or a saved one below `root`. Paths are as the machine itself names them (`/proc/modules`)."""

    def __init__(
        self,
        root: Path | str = "/",
        run: Runner = run_command,
        environ: Mapping[str, str] | None = None,
        timeout_s: float = USUAL_TIMEOUT,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`environ`: of the shell that asked; empty for a saved machine. `options`: what a probe needs to be told
        (`run-framework`, `image`, …): probes look up their own names."""
        self.root = Path(root)
        self.live = str(self.root) == "/"
        self._runner = run
        self.environ = dict(environ if environ is not None else (os.environ if self.live else {}))
        self.timeout_s = timeout_s
        self.options = dict(options or {})
        self._driver = Lock()
        self._hung = ""

    def path(self, path: str) -> Path:
        """Where `path` of the machine lies for us. Absolute links inside a saved root lead back into it."""
        return Path(path) if self.live else self._inside(path)

    def _inside(self, path: str, depth: int = 0) -> Path:
        """`path` below the root, its links followed by hand so that none leads out."""
        here = self.root
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for position, part in enumerate(parts):
            if part == "..":
                here = here.parent if here != self.root else here
                continue
            here = here / part
            if here.is_symlink():
                if depth >= DEEPEST:
                    return self.root / "too-many-links"
                target = str(here.readlink())
                base = target if target.startswith("/") else f"/{here.parent.relative_to(self.root)}/{target}"
                return self._inside("/".join((base, *parts[position + 1 :])), depth + 1)
        return here

    def read(self, path: str, most: int = MOST_READ) -> bytes | None:
        """The bytes of a file; None where it is not there, may not be read, or does not answer."""
        try:
            with self.path(path).open("rb") as file:
                return file.read(most)
        except (OSError, ValueError):
            return None

    def text(self, path: str) -> str | None:
        """A small file's text without blanks at its ends."""
        data = self.read(path, 1 << 20)
        return None if data is None else data.decode("utf-8", "replace").strip("\0 \n\t")

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted; none where it is not there or may not be read."""
        try:
            return sorted(entry.name for entry in self.path(path).iterdir())
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether something is there that this user can reach (a link counts by what it leads to)."""
        try:
            return self.path(path).exists()
        except OSError:
            return False

    def readlink(self, path: str) -> str | None:
        """Where a link leads, as written; None where it is none."""
        parent, _, name = path.rstrip("/").rpartition("/")
        try:
            return str((self.path(parent or "/") / name).readlink())
        except OSError:
            return None

    def stat(self, path: str) -> os.stat_result | None:
        try:
            return self.path(path).stat()
        except OSError:
            return None

    def why_unread(self, path: str) -> Outcome:
        """Why `read` gave None: `denied`, `missing`, or `failed` where the file is there and does not answer."""
        try:
            with self.path(path).open("rb"):
                return "failed"
        except PermissionError:
            return "denied"
        except FileNotFoundError:
            return "missing"
        except OSError:
            return "failed"

    def run(self, argv: Sequence[str], timeout_s: float | None = None, *, name: str = "", kind: str = "text") -> Sample:
        """A command's output (both streams) as a sample. It gets `timeout_s` (else the machine's); never raises."""
        name, started, shown = name or slug(argv), now(), _shown(argv)
        if not self.live:
            return self._saved(argv, name, kind, shown)
        environ = {**self.environ, "LC_ALL": "C", "LANG": "C"}
        ran = self._runner(argv, timeout_s or self.timeout_s, environ)
        return Sample(name, kind, shown, ran.status, round(ran.seconds, 3), started, ran.outcome, ran.data, ran.note)

    def ask_driver(self, argv: Sequence[str], *, name: str, kind: str) -> Sample:
        """`run` for a command that calls into the driver: one at a time, with more patience, and none after one that
        hung, because each further call would be stuck as well."""
        patience = max(self.timeout_s, DRIVER_PATIENCE) if self.timeout_s >= USUAL_TIMEOUT else self.timeout_s
        with self._driver:
            if self._hung:
                note = f"not asked, because {self._hung} did not answer"
                return Sample(name, kind, _shown(argv), outcome="not-run", note=note)
            sample = self.run(argv, patience, name=name, kind=kind)
            if sample.outcome == "timed-out":
                self._hung = name
            return sample

    def _saved(self, argv: Sequence[str], name: str, kind: str, shown: str) -> Sample:
        data = self.read(f"/{COMMANDS}/{slug(argv)}")
        if data is None:
            return Sample(name, kind, shown, outcome="not-run", note="a saved machine: nothing is run")
        if saved := from_bytes(data):
            return msgspec.structs.replace(saved, name=name, kind=kind)
        return Sample(name, kind, shown, 0, data=data)

    def cat(self, path: str, *, name: str, kind: str) -> Sample:
        """A file as a sample; where it cannot be read, an empty one that says why."""
        started, data = now(), self.read(path)
        outcome: Outcome = "ok" if data is not None else self.why_unread(path)
        return Sample(name, kind, f"cat {path}", None, 0.0, started, outcome, data or b"")

    def told(
        self,
        lines: Iterable[str],
        *,
        name: str,
        kind: str,
        command: str,
        outcome: Outcome = "ok",
        note: str = "",
    ) -> Sample:
        """A sample of lines that a probe itself put together from files; `command` names them."""
        data = "".join(f"{line}\n" for line in lines)
        return Sample(name, kind, command, None, 0.0, now(), outcome, data.encode("utf-8", "surrogateescape"), note)


class Probe(msgspec.Struct, frozen=True):
    """One look at the machine: `gather` gives its samples (usually one). `kind`: of the capture that it makes."""

    name: str
    kind: str
    layer: Layer
    gather: Callable[[Machine], Iterator[Sample]]


def _shown(argv: Sequence[str]) -> str:
    """A command as a person would type it; our own children by Python's plain name."""
    return " ".join(("python", *argv[1:]) if argv[1:2] == ["-m"] else argv)


def slug(argv: Sequence[str]) -> str:
    """A command as a file name: `nvidia-smi topo -m` → `nvidia-smi_topo_-m`; a child of ours by its module's name."""
    if list(argv[1:2]) == ["-m"] and len(argv) > 2:
        return argv[2].rpartition(".")[2]
    words = [argv[0].rpartition("/")[2], *argv[1:]]
    return "_".join(re.sub(r"[^A-Za-z0-9._=-]+", "-", word) for word in words)[:120]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
