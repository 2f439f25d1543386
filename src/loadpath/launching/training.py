"""A container for a training command: shared memory, locked memory, data read-only, results writable."""

from __future__ import annotations

from loadpath.launching.build import Options
from loadpath.launching.spec import Argument, Launch, Mount, Variable, shm_for


def training(words: tuple[str, ...], gpus: int, options: Options, volumes: tuple[str, ...]) -> Launch:
    """The launch of `words` on so many GPUs. Raises ValueError where no command or no image is named."""
    if not words:
        raise ValueError("--train: the command to run goes after --, such as `-- torchrun --nproc-per-node 8 train.py`")
    if not options.image:
        raise ValueError(
            "--train needs --image: the container that has your framework, such as nvcr.io/nvidia/pytorch:25.09-py3"
        )
    return Launch(
        name=options.name or "training",
        purpose="train",
        engine="training",
        image=options.image,
        program=words[:1],
        arguments=_grouped(words[1:]),
        environment=(Variable("NCCL_DEBUG", "WARN", "says why when a collective fails, and nothing else"),),
        mounts=tuple(mount(text) for text in volumes),
        gpus=gpus,
        devices=options.devices,
        port=0,
        host=options.host,
        shm_bytes=shm_for(gpus),
        probes=None,
        memory_bytes=0,
        cdi=options.cdi,
        header=(f"{' '.join(words[:3])} on {gpus} GPU{'s' if gpus > 1 else ''}",),
    )


def _grouped(words: tuple[str, ...]) -> tuple[Argument, ...]:
    """A flag and the word after it on one line: easier to read, the same words in the same order."""
    made: list[Argument] = []
    for word in words:
        last = made[-1].words if made else ()
        if len(last) == 1 and last[0].startswith("-") and not word.startswith("-"):
            made[-1] = Argument((last[0], word), "")
        else:
            made.append(Argument((word,), ""))
    return tuple(made)


def mount(text: str) -> Mount:
    """`SRC:DST` or `SRC:DST:rw`. Raises ValueError with what was expected."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not target.startswith("/") or mode not in ("", "ro", "rw"):
        raise ValueError(f"--volume {text}: SOURCE:/TARGET, or SOURCE:/TARGET:rw, was expected")
    writable = mode == "rw"
    return Mount(
        source, target, "results and checkpoints" if writable else "input; the run cannot change it", not writable
    )
