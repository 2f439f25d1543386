"""SGLang's memory model, 0.3.0 to 0.5.23: what its start will print, before it starts."""

from loadpath.engines.sglang.planning.plan import plan as plan
