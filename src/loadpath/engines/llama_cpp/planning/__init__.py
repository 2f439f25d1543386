"""llama.cpp's memory model: buffers of each device by build, file and settings, before it starts."""

from loadpath.engines.llama_cpp.planning.plan import plan as plan
