"""vLLM, 0.4 to 0.33: its log lines as facts, its flags.

Lines of every era are told by their own words, not by the prefix, so a single pasted line is enough. Each theme has
a module with `PATTERNS`; `reader` runs them over a capture in one pass.
"""

from loadpath.engines.vllm.flags import flag
from loadpath.engines.vllm.reader import read, starts_run
from loadpath.engines.vllm.runs import more_starts

__all__ = ["flag", "more_starts", "read", "starts_run"]
