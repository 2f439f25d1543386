"""SGLang's settings: the `server_args=` line (values after SGLang's own resolution), and flags on any line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import EngineStarted, ModelNamed, Setting, StepMark
from loadpath.engines.line_table import Row, Seen

ENGINE = "sglang"
# Of some 400 arguments those that decide about memory, kernels, parallelism and limits.
_KEPT = """
    model_path served_model_name device dtype quantization kv_cache_dtype context_length mem_fraction_static
    max_running_requests max_total_tokens chunked_prefill_size max_prefill_tokens schedule_conservativeness page_size
    tp_size pp_size dp_size ep_size enable_dp_attention attention_backend sampling_backend cuda_graph_max_bs
    cuda_graph_max_bs_decode disable_cuda_graph disable_radix_cache enable_torch_compile cpu_offload_gb host port
    speculative_algorithm speculative_draft_model_path speculative_num_draft_tokens trust_remote_code
    disable_custom_all_reduce swa_full_tokens_ratio mamba_full_memory_ratio load_format watchdog_timeout
    moe_runner_backend enable_hierarchical_cache hicache_ratio hicache_size nnodes
"""
KEPT = frozenset(_KEPT.split())
_VALUE = r"""None|True|False|-?[\d.]+(?:e-?\d+)?|'[^']*'|"[^"]*\""""
_PAIR = re.compile(rf"(?:[(,{{]\s*)'?(\w+)'?\s*[=:]\s*({_VALUE})(?=\s*[,)}}]|$)")
_NOTHING = ("None", "False", "''")
# Short and old spellings of flags → the argument's name.
_SPELLINGS = {"tp": "tp-size", "tensor-parallel-size": "tp-size", "pp": "pp-size", "dp": "dp-size", "ep": "ep-size",
              "pipeline-parallel-size": "pp-size", "data-parallel-size": "dp-size", "model": "model-path"}  # fmt: skip


def _arguments(seen: Seen) -> Iterator[Fact]:
    yield EngineStarted(**seen.fields, engine=ENGINE)
    yield StepMark(**seen.fields, step="process-start", event="began")
    for name, value in _PAIR.findall(seen.line.text):
        if name not in KEPT or value in _NOTHING:
            continue
        bare = value.strip("'\"")
        if name == "model_path":
            yield ModelNamed(**seen.fields, name=bare)
        yield Setting(**seen.fields, name=name.replace("_", "-"), value=bare, basis="dump", engine=ENGINE)


_FLAG = re.compile(r"(?<!\S)--([a-z][a-z-]+)(?:[= ]+([^\s\\-][^\s\\]*|-\d\S*))?")


def _flags(seen: Seen) -> Iterator[Setting]:
    """Flags of a command line (or of a line that holds one flag). Not those in a sentence of advice."""
    if "Please" in seen.line.text or "deprecated" in seen.line.text:
        return
    for name, value in _FLAG.findall(seen.line.text):
        own = _SPELLINGS.get(name, name)
        if own.replace("-", "_") in KEPT:
            yield Setting(**seen.fields, name=own, value=value or "true", basis="command", engine=ENGINE)


def _backend(seen: Seen) -> Iterator[Setting]:
    name, value = "attention-backend", seen.match["backend"]
    yield Setting(**seen.fields, name=name, value=value, basis="derived", engine=ENGINE)


SETTINGS: tuple[Row, ...] = (
    Row("server_args=", r"server_args=(?:ServerArgs\(|\{)", _arguments),
    Row("sglang.launch_server", r"launch_server\b", _flags),
    Row("sglang serve", r"sglang serve\b", _flags),
    # Flags one a line, as in a compose file or a wrapped command.
    Row("--mem-fraction-static", r"^\s*--mem-fraction-static[= ]+0?\.\d+\s*\\?$", _flags),
    Row("Attention backend not",
        r"Attention backend not \w+(?: \w+)?\. Use (?P<backend>\w+) backend by default", _backend),
)  # fmt: skip
