"""llama.cpp (`llama-server`, and what embeds it) and Ollama, which wraps it: their log lines and flags.

Two eras: library lines as `function: text` without time, and since b9181 (May 2026) `M.SS.mmm.uuu L function: text`,
where the lines about memory are hidden below `-lv 4`: their absence then means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.plan import Plan
from loadpath.core.text import Capture, Line
from loadpath.engines.line_table import read_table, thinned
from loadpath.engines.llama_cpp.flags import flag as flag
from loadpath.engines.llama_cpp.loading import LOADING
from loadpath.engines.llama_cpp.passes import settled
from loadpath.engines.llama_cpp.refusals import read_refusals
from loadpath.engines.llama_cpp.serving import SERVING
from loadpath.planning.deployment import Deployment

ROWS = (*LOADING, *SERVING)
_STARTS = re.compile(r"llama_server: initializing|ggml_(?:cuda_init|init_cublas): found \d+ \w+ devices")


def starts_run(line: Line) -> bool:
    return bool(_STARTS.search(line.text[:120]))


def read(capture: Capture) -> Iterator[Fact]:
    yield from thinned(settled([*read_table(capture, ROWS), *read_refusals(capture)]))


def plan(deployment: Deployment) -> Plan:
    """The memory of a start, planned (see `planning`, imported only here: reading a log does not need it)."""
    from loadpath.engines.llama_cpp.planning import plan as planned

    return planned(deployment)
