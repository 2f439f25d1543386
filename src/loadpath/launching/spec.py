"""What is started, before it is spelled as a docker command, a manifest or a unit."""

from __future__ import annotations

from typing import Literal

import msgspec

from loadpath.core.units import GIB

Purpose = Literal["serve", "train"]


class Argument(msgspec.Struct, frozen=True):
    """One flag of the program with its value(s), and why it is there."""

    words: tuple[str, ...]
    why: str


class Variable(msgspec.Struct, frozen=True):
    """An environment variable. `secret`: its value comes from the host's environment or a secret, never from a file."""

    name: str
    value: str
    why: str
    secret: bool = False


class Mount(msgspec.Struct, frozen=True):
    source: str
    target: str
    why: str
    read_only: bool = True


class Probes(msgspec.Struct, frozen=True):
    """How the server is asked whether it lives. `start_seconds`: how long a start is given, from the plan's prediction."""

    path: str
    start_seconds: int
    predicted_seconds: int
    why: str
    generates: bool = False
    """Asked by `loadpath ready`, in the container, for a real generation instead of the health page."""


class Launch(msgspec.Struct, frozen=True):
    """A container (or bare process) and all that it needs of its host.

    `devices`: indices of GPUs, () for any `gpus` of them. `program`: the words that start the engine, before `arguments`.
    """

    name: str
    purpose: Purpose
    engine: str
    image: str
    program: tuple[str, ...]
    arguments: tuple[Argument, ...]
    environment: tuple[Variable, ...]
    mounts: tuple[Mount, ...]
    gpus: int
    devices: tuple[int, ...]
    port: int
    host: str
    shm_bytes: int
    probes: Probes | None
    memory_bytes: int
    """Main memory that the process needs at least (host copies, pinned buffers, the checkpoint in page cache not counted)."""
    cdi: bool = False
    runtime_class: str = ""
    header: tuple[str, ...] = ()
    """What the plan says of it, for the head of the file."""

    @property
    def words(self) -> tuple[str, ...]:
        """The whole command as the program sees it."""
        return (*self.program, *(word for argument in self.arguments for word in argument.words))

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        return tuple((" ".join(a.words), a.why) for a in self.arguments)


def shm_for(cards: int) -> int:
    """Shared memory for NCCL's and the engine's queues between `cards` processes, bytes.

    NCCL's shared-memory transport and the engines' broadcast queues take tens of MiB a pair of ranks; a GiB a card, at
    least 2, is ample and costs nothing until it is used. Docker gives 64 MiB.
    """
    return max(2, cards) * GIB
