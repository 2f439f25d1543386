"""llama.cpp's levers as remedies, in the words of the engine at hand: llama-server's flags, or Ollama's parameters."""

from __future__ import annotations

import msgspec

from loadpath.core.case import Case
from loadpath.core.report import Remedy
from loadpath.core.units import show_bytes
from loadpath.engines.registry import flag

Q8_SHARE = 34 / 64  # q8_0 takes 34 bytes for 32 values, f16 64


class Levers(msgspec.Struct, frozen=True):
    """llama.cpp's levers in the words of the engine at hand (llama-server's flags, or Ollama's parameters)."""

    engine: str

    @property
    def ollama(self) -> bool:
        return self.engine == "ollama"

    def context(self, tokens: int) -> str:
        return flag(self.engine, "context-length", tokens)

    def flash(self) -> str:
        return flag(self.engine, "attention-backend", "on")

    def slots(self, count: int) -> str:
        return flag(self.engine, "sequences", count)

    def ubatch(self, tokens: int) -> str:
        return flag(self.engine, "batched-tokens", tokens)

    def split(self) -> str:
        return "OLLAMA_SCHED_SPREAD=1" if self.ollama else "-ts 1,1 (-sm layer)"

    def shift(self, device: str) -> Remedy:
        command = "OLLAMA_SCHED_SPREAD=1" if self.ollama else "-ts 10,10,8 (one figure a device, in their order)"
        return Remedy(
            f"Give {device} a smaller share than the other GPUs", command, "layers and cache move to devices with room"
        )

    def one_copy(self) -> Remedy:
        return Remedy("Keep a single copy of the batch's inputs", "cmake -B build -DGGML_CUDA=ON -DGGML_SCHED_MAX_COPIES=1",
                      "prompts of several GPUs no longer overlap; the buffer shrinks")  # fmt: skip

    def mapped(self) -> str:
        return "use_mmap true" if self.ollama else "leave --no-mmap out; -ngl N"

    def fewer_layers(self, count: int | None) -> Remedy:
        if count:
            what, value = f"Put fewer layers on the GPU: about {count} fit", str(count)
        else:
            what, value = "Put fewer layers on the GPU; the rest runs on the CPU", "N"
        return Remedy(
            what,
            flag(self.engine, "gpu-layers", value),
            "each layer left out frees its share of weights and cache; slower",
        )

    def experts_on_cpu(self) -> Remedy | None:
        if self.ollama:
            return None
        return Remedy("For a mixture of experts: keep the experts of some layers in host memory and the rest on the GPU",
                      "--n-cpu-moe N (or -ot 'exps=CPU')", "attention stays fast; experts are most of the bytes")  # fmt: skip

    def quantised_cache(self, kv_bytes: int | None) -> Remedy:
        saved = (
            f"saves about {show_bytes(kv_bytes * (1 - Q8_SHARE))} of {show_bytes(kv_bytes)}"
            if kv_bytes
            else "53 % of the f16 cache"
        )
        return Remedy(
            "Store the KV cache in 8 bits (with flash attention)", flag(self.engine, "kv-dtype", "q8_0"), saved
        )


def levers_of(case: Case) -> Levers:
    return Levers("ollama" if case.engine == "ollama" else "llama.cpp")
