"""loadpath: follow a language model's load path from checkpoint to first token, and name what broke.

import loadpath

report = loadpath.read("vllm.log")           # files, folders, archives
report = loadpath.read_text(pasted)          # a string
report = loadpath.plan("Qwen/Qwen3-14B", gpu="H100 80GB", max_model_len=32768)
report = loadpath.check()                    # this machine
if report.root:
    print(report.root.title, report.root.remedies[0].command)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Finding", "Remedy", "Report", "__version__", "check", "plan", "read", "read_text"]

if TYPE_CHECKING:
    from collections.abc import Collection
    from os import PathLike

    from loadpath.core.layers import Layer
    from loadpath.core.report import Finding, Remedy, Report


def read(*paths: str | PathLike[str]) -> Report:
    """The report on files, folders or archives. Nothing is run or changed.

    Raises OSError for what cannot be opened; whatever is in the bytes is no error.
    """
    from loadpath.reading.service import read_paths

    return read_paths([str(path) for path in paths])


def read_text(text: str, name: str = "text") -> Report:
    """The report on a string, such as a pasted log; `name` stands for its source in the evidence."""
    from loadpath.reading.service import read_bytes

    return read_bytes([(name, text.encode("utf-8", "surrogateescape"))])


def plan(
    model: str, *, gpu: str, gpus: int | None = None, engine: str = "vllm", version: str = "", **settings: object
) -> Report:
    """The report on a start that has not happened; its figures are in `report.plan`.

    `model`: a folder, config.json, GGUF file, hub id or name; `gpu`: a card's name; `gpus`: how many, None: as many as the
    settings need. `settings`: the engine's long flags with underscores (`max_model_len=8192`).
    Raises `loadpath.forecast.request.PlanRefused` where it cannot be planned.
    """
    from loadpath.forecast.request import Request
    from loadpath.forecast.service import plan as planned

    named = {name.replace("_", "-"): str(value) for name, value in settings.items()}
    return planned(Request(model, (gpu,), gpus, engine, version, named))


def check(root: str | PathLike[str] = "/", layers: Collection[Layer] = ()) -> Report:
    """The report on this machine, layer by layer: read-only probes with time-outs; nothing is changed.

    `root`: a saved machine's file tree, in which nothing is run. `layers`: only these.
    """
    from loadpath.checking.service import check as checked
    from loadpath.collect.probe import Machine

    return checked(Machine(str(root)), layers)


def __getattr__(name: str) -> object:
    """The report types, imported when first asked for: `import loadpath` stays light."""
    if name in ("Finding", "Remedy", "Report"):
        from loadpath.core import report

        return getattr(report, name)
    raise AttributeError(f"module 'loadpath' has no attribute {name!r}")
