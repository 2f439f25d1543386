"""Every module of rules, by name. Each has `RULES: tuple[Rule, ...]`."""

from __future__ import annotations

from importlib import import_module

from loadpath.core.extensions import extensions
from loadpath.diagnosis.rule import Rule

MODULES: tuple[str, ...] = (
    # What probes of a live machine show comes first: of two findings of one id the first one's words are kept.
    "machine_bus",
    "machine_module",
    "machine_nodes",
    "machine_driver",
    "machine_calls",
    "symptoms",
    "device_fault",
    "health_tools",
    "kernel_driver",
    "interconnect",
    "rdma_ports",
    "serving",
    "sglang_serving",
    "sglang_graphs",
    "attention_workspace",
    "ggml_memory",
    "offload",
    "rocm_override",
    "kv_cache",
    "kv_room",
    "free_memory",
    "out_of_memory",
    "figures",
    "startup",
    "start_pace",
    "died",
    "kernels",
    "slow_decode",
    "runtime_driver",
    "arch",
    "library_set",
    "python_packages",
    "framework_engine",
    "model_config",
    "container_injection",
    "cdi",
    "container_parts",
    "shared_memory",
    "host_limits",
    "oom_killer",
    "exits",
    "host_offload",
    "probes",
    "nccl_start",
    "good_start",
    "stall",
    "unknown_error",
    "driver_install",
    "gpu_faults",
    "gpu_state",
    "gpu_clocks",
    "gpu_memory_owners",
    "gpu_settings",
    "gpu_activity",
    "gpu_links",
    "container_stack",
    "host_figures",
    "engines_seen",
    "inside",
    "gpu_code",
    "installed_runtime",
    "installed_libraries",
    "installed_packages",
    "training_plan",
    "readiness",
    "bench_physics",
    "bench_consistency",
    "bench_load",
    "bench_ended",
    "bench_sweep",
    "profile_gaps",
    "profile_kernels",
    "profile_inside",
)


def rules() -> tuple[Rule, ...]:
    """Ours and those of other packages (entry points of the group `loadpath.rules`: a tuple of Rules each)."""
    own = (rule for name in MODULES for rule in import_module(f"loadpath.diagnosis.{name}").RULES)
    return (*own, *(rule for more in extensions("loadpath.rules") for rule in more))
