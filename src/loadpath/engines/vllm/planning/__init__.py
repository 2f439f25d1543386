"""vLLM's memory before it starts: the engine's own arithmetic for its version, on a model's shape.

`plan` is the way in; the modules follow the engine's order: options → specs → groups → profile → graphs → budget →
pool → lines. Read in vLLM's sources, release by release (shared facts, vllm.md section C).
"""

from loadpath.engines.vllm.planning.plan import plan

__all__ = ["plan"]
