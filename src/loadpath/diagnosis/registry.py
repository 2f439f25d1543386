"""Every module of rules, by name. Each has `RULES: tuple[Rule, ...]`."""

from __future__ import annotations

from importlib import import_module

from loadpath.core.extensions import extensions
from loadpath.diagnosis.rule import Rule

MODULES: tuple[str, ...] = (
    # What probes of a live machine show comes first: of two findings of one id the first one's words are kept.
    "machine.bus",
    "machine.module",
    "machine.nodes",
    "machine.driver",
    "machine.calls",
    "symptoms",
    "gpu.device_fault",
    "gpu.health_tools",
    "stack.kernel_driver",
    "links.interconnect",
    "links.rdma_ports",
    "life.serving",
    "life.sglang_serving",
    "memory.sglang_graphs",
    "memory.attention_workspace",
    "memory.ggml_memory",
    "memory.offload",
    "stack.rocm_override",
    "memory.kv_cache",
    "memory.kv_room",
    "memory.free_memory",
    "memory.out_of_memory",
    "memory.figures",
    "life.startup",
    "life.start_pace",
    "life.died",
    "stack.kernels",
    "life.slow_decode",
    "stack.runtime_driver",
    "stack.arch",
    "stack.library_set",
    "stack.python_packages",
    "stack.framework_engine",
    "stack.model_config",
    "containers.container_injection",
    "containers.cdi",
    "containers.container_parts",
    "containers.shared_memory",
    "containers.host_limits",
    "memory.oom_killer",
    "containers.exits",
    "memory.host_offload",
    "containers.probes",
    "links.nccl_start",
    "life.good_start",
    "life.stall",
    "unknown_error",
    "stack.driver_install",
    "gpu.faults",
    "gpu.state",
    "gpu.clocks",
    "gpu.memory_owners",
    "gpu.settings",
    "gpu.activity",
    "gpu.links",
    "containers.container_stack",
    "containers.host_figures",
    "machine.engines_seen",
    "containers.inside",
    "stack.gpu_code",
    "stack.installed_runtime",
    "stack.installed_libraries",
    "stack.installed_packages",
    "memory.training_plan",
    "traffic.readiness",
    "traffic.physics",
    "traffic.consistency",
    "traffic.load",
    "traffic.ended",
    "traffic.sweep",
    "profile.gaps",
    "profile.kernels",
    "profile.inside",
)


def rules() -> tuple[Rule, ...]:
    """Ours and those of other packages (entry points of the group `loadpath.rules`: a tuple of Rules each)."""
    own = (rule for name in MODULES for rule in import_module(f"loadpath.diagnosis.{name}").RULES)
    return (*own, *(rule for more in extensions("loadpath.rules") for rule in more))
