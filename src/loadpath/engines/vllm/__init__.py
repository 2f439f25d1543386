"""vLLM, 0.4 to 0.33: its log lines as facts, its flags.

Lines of every era are told by their own words, not by the prefix, so a single pasted line is enough. Each theme has
a module with `PATTERNS`; `reader` runs them over a capture in one pass.
"""

from loadpath.core.plan import Plan
from loadpath.engines.vllm.flags import flag
from loadpath.engines.vllm.reader import read, starts_run
from loadpath.engines.vllm.runs import more_starts
from loadpath.planning.deployment import Deployment

__all__ = ["flag", "more_starts", "plan", "read", "starts_run"]


def plan(deployment: Deployment) -> Plan:
    """The memory of a start, planned (see `planning`, imported only here: reading a log does not need it)."""
    from loadpath.engines.vllm.planning import plan as planned

    return planned(deployment)
