"""SGLang: its log lines from 0.3 to 0.5.23, its settings, its memory model, its flags.

SGLang prints GB and means GiB. There is no profiling pass: the KV pool is sized from free memory alone
(`memory.static_pool_bytes`), so a start can succeed and the first long prefill can still run out of memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.plan import Plan
from loadpath.core.text import Capture, Line
from loadpath.engines.line_table import read_table, thinned
from loadpath.engines.sglang.flags import flag as flag
from loadpath.engines.sglang.passes import name_passes, with_serving
from loadpath.engines.sglang.serving import SERVING
from loadpath.engines.sglang.settings import SETTINGS
from loadpath.engines.sglang.startup import STARTUP
from loadpath.planning.deployment import Deployment

ROWS = (*SETTINGS, *STARTUP, *SERVING)
_STARTS = ("server_args=ServerArgs(", "server_args={'")


def starts_run(line: Line) -> bool:
    """A start begins with the effective arguments: the first thing that the engine itself logs."""
    return any(start in line.text[:200] for start in _STARTS)


def read(capture: Capture) -> Iterator[Fact]:
    yield from thinned(with_serving(name_passes(list(read_table(capture, ROWS)))))


def plan(deployment: Deployment) -> Plan:
    """The memory of a start, planned (see `planning`, imported only here: reading a log does not need it)."""
    from loadpath.engines.sglang.planning import plan as planned

    return planned(deployment)
