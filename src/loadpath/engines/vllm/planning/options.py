"""A deployment's settings, typed, with the defaults of its vLLM version and card (shared facts, vllm.md C.3 and F)."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, cast

import msgspec

from loadpath.core.shape import DTYPE_BYTES, Experts, GatedDelta, Mamba, ModelShape
from loadpath.core.units import GIB, parse_size
from loadpath.engines.vllm.planning import releases
from loadpath.planning.deployment import Card, Deployment, Version
from loadpath.planning.kv import default_utilisation
from loadpath.planning.per_shape import per_shape

_TRUE = ("", "true", "1", "yes", "on")
BLOCK = 16
MULTIMODAL_TOKENS = 5120  # least batch of V0 for models with encoders
_STRETCHED = ("hf-overrides", "rope-scaling", "rope-theta", "VLLM-ALLOW-LONG-MAX-MODEL-LEN")
"""Settings that let a model serve more than its configuration states."""
StateMode = Literal["none", "align", "all"]
"""How recurrent state is cached: one page, one more at the end of the prefix, or one a block."""


class BadSetting(ValueError):
    """A setting that this engine would refuse, with a sentence for the user."""


class Speculation(msgspec.Struct, frozen=True):
    """Speculative decoding: `tokens` drafted a step; `layers`: cache layers that the drafter adds where its shape is unknown."""

    method: str = ""
    tokens: int = 0
    layers: int = 0


class Options(msgspec.Struct, frozen=True, cache_hash=True):
    """What the arithmetic needs to know. Sizes in bytes, lengths in tokens; 0 or None: not set."""

    version: Version
    v0: bool
    """The first engine: all releases before 0.8, later ones on cards that the second did not serve yet."""
    chunked: bool
    """Prompts may be divided over steps."""
    second_runner: bool
    tensor_parallel: int
    pipeline_parallel: int
    partition: tuple[int, ...]
    """Layers of each pipeline stage, where the user set them (VLLM_PP_LAYER_PARTITION)."""
    data_parallel: int
    expert_parallel: bool
    decode_context_parallel: int
    prefill_context_parallel: int
    utilisation: float
    max_model_len: int
    auto_length: bool
    too_long: bool
    """The length is above what the model's configuration allows, and nothing stretches it."""
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    block_size_set: bool
    dtype_bytes: int
    kv_dtype: str
    eager: bool
    graph_sizes: tuple[int, ...]
    prefix_caching: bool
    state_mode: StateMode
    state_bytes: int
    """Bytes of an element of recurrent state; 0: as the model states it."""
    async_scheduling: bool
    hybrid_manager: bool
    speculation: Speculation
    skip_multimodal_pass: bool
    text_only: bool
    kv_bytes: int | None
    block_override: int | None
    offload_bytes: int
    host_kv_bytes: int
    lora_slots: int
    lora_rank: int
    custom_all_reduce: bool

    @property
    def in_flight_tokens(self) -> int:
        """Tokens of one request that may be scheduled and not yet settled: batches in flight × tokens of a batch."""
        if self.version < releases.IN_FLIGHT_BATCHES:
            return self.max_num_batched_tokens
        if self.pipeline_parallel > 1:
            batches = self.pipeline_parallel + (1 if self.second_runner and self.async_scheduling else 0)
        else:
            batches = 2 if self.async_scheduling else 1
        return batches * self.max_num_batched_tokens


KV_DTYPES = (
    "auto",
    "float16",
    "bfloat16",
    "half",
    "fp8",
    "int8",
    "int4",
    "nvfp4",
    "turboquant",
    "octave",
    "ultraquant",
)
"""How the types that vLLM's releases take for their cache begin."""


class _Settings:
    """The settings as given, read by name in either spelling (dashes or underscores)."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = {name.lstrip("-").replace("_", "-"): value for name, value in given.items()}

    def text(self, *names: str) -> str | None:
        for name in names:
            if name in self._given:
                value = self._given[name].strip()
                return None if value.lower() in ("none", "null") else value
        return None

    def flag(self, name: str, default: bool = False) -> bool:
        if self.text("no-" + name) is not None:
            return (self.text("no-" + name) or "").lower() not in _TRUE
        value = self.text(name)
        return default if value is None else value.lower() in _TRUE

    def whole(self, *names: str) -> int | None:
        value = self.text(*names)
        if value is None:
            return None
        number = _whole(value)
        if number is None:
            raise BadSetting(f"--{names[0]} {value}: a whole number is needed")
        return number

    def count(self, name: str) -> int | None:
        """A whole number of at least 1."""
        number = self.whole(name)
        if number is not None and number < 1:
            raise BadSetting(f"--{name} {number}: at least 1 is needed")
        return number

    def share(self, name: str) -> float | None:
        value = self.text(name)
        try:
            return None if value is None else float(value)
        except ValueError:
            raise BadSetting(f"--{name} {value}: a number is needed") from None

    def table(self, name: str) -> dict[str, Any]:
        value = self.text(name)
        if not value:
            return {}
        try:
            found = json.loads(value)
        except ValueError:
            raise BadSetting(f"--{name}: not JSON: {value[:60]}") from None
        return found if isinstance(found, dict) else {}


def _whole(value: str) -> int | None:
    """`8192`, `8k` (thousands) and `8K` (1,024s) as vLLM reads them, `8GiB`."""
    value = value.replace(",", "").replace("_", "")
    if value.lstrip("-").isdecimal():
        return int(value)
    factor = {"k": 1000, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(value[-1:])
    try:
        return int(float(value[:-1]) * factor) if factor else parse_size(value)
    except ValueError:
        return parse_size(value)


def options(deployment: Deployment) -> Options:
    """The settings of `deployment` with the version's defaults for what is not set."""
    given = _Settings(deployment.settings)
    shape = deployment.shape
    version = releases.full(deployment.version)
    card = min(deployment.cards, key=lambda one: one.total_bytes)
    length, auto = _length(given, shape)
    second = _second_runner(shape, version)
    speculation = _speculation(given, shape)
    eager = given.flag("enforce-eager") or given.text("O", "optimization-level") == "0"
    v0 = _first_engine(version, card)
    # V0 divided prompts by default for long contexts only, and not for models with encoders.
    divides = not v0 or (length > 32768 and version >= (0, 5, 5) and not shape.towers)
    chunked = given.flag("enable-chunked-prefill", divides)
    batched, seqs = _batch(given, version, card, length, chunked, v0, bool(shape.towers))
    prefix = given.flag("enable-prefix-caching", _prefix_caching(shape, version, v0))
    return Options(
        version=version,
        v0=v0,
        chunked=chunked,
        second_runner=second,
        tensor_parallel=_tensor_parallel(given),
        pipeline_parallel=given.whole("pipeline-parallel-size", "pp") or 1,
        partition=tuple(int(size) for size in re.findall(r"\d+", given.text("VLLM-PP-LAYER-PARTITION") or "")),
        data_parallel=given.whole("data-parallel-size", "dp") or 1,
        expert_parallel=given.flag("enable-expert-parallel"),
        decode_context_parallel=given.whole("decode-context-parallel-size", "dcp") or 1,
        prefill_context_parallel=given.whole("prefill-context-parallel-size", "pcp") or 1,
        utilisation=_utilisation(given, version),
        max_model_len=length,
        auto_length=auto,
        too_long=length > shape.max_position > 0 and not any(given.text(name) for name in _STRETCHED),
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        block_size=given.whole("block-size") or BLOCK,
        block_size_set=given.whole("block-size") is not None,
        dtype_bytes=_dtype_bytes(given, shape),
        kv_dtype=_kv_dtype(given, shape, version),
        eager=eager,
        graph_sizes=_graph_sizes(given),
        prefix_caching=prefix,
        state_mode=_state_mode(given, version, prefix, shape),
        state_bytes=DTYPE_BYTES.get(given.text("mamba-ssm-cache-dtype") or "", 0),
        async_scheduling=given.flag("async-scheduling", version >= (0, 14)),
        hybrid_manager=not given.flag("disable-hybrid-kv-cache-manager"),
        speculation=speculation,
        skip_multimodal_pass=given.flag("skip-mm-profiling") or given.flag("language-model-only") or _no_items(given),
        text_only=given.flag("language-model-only"),
        kv_bytes=given.whole("kv-cache-memory-bytes", "kv-cache-memory"),
        block_override=given.whole("num-gpu-blocks-override"),
        offload_bytes=round((given.share("cpu-offload-gb") or 0) * GIB),
        host_kv_bytes=round((given.share("kv-offloading-size") or 0) * GIB),
        lora_slots=(given.whole("max-loras") or 1) if given.flag("enable-lora") else 0,
        lora_rank=(given.whole("max-lora-rank") or 16) if given.flag("enable-lora") else 0,
        custom_all_reduce=not given.flag("disable-custom-all-reduce"),
    )


def _utilisation(given: _Settings, version: Version) -> float:
    share = given.share("gpu-memory-utilization")
    if share is None:
        return default_utilisation(version)
    if not 0 < share <= 1:
        raise BadSetting(f"--gpu-memory-utilization {share:g}: a share of the card above 0, at most 1, is needed")
    return share


def _tensor_parallel(given: _Settings) -> int:
    return given.whole("tensor-parallel-size", "tp") or 1


def _length(given: _Settings, shape: ModelShape) -> tuple[int, bool]:
    value = given.text("max-model-len")
    if value is None or value in ("auto", "-1"):
        return shape.max_position, value is not None
    length = _whole(value)
    if not length or length < 1:
        raise BadSetting(f"--max-model-len {value}: a number of tokens is needed")
    return length, False


def _dtype_bytes(given: _Settings, shape: ModelShape) -> int:
    """Bytes of an activation: `auto` turns a float32 checkpoint to 16 bits."""
    named = {"half": "float16", "float": "float32"}.get(given.text("dtype") or "auto", given.text("dtype") or "auto")
    if named == "auto":
        return 2
    return DTYPE_BYTES.get(named, 2)


def _kv_dtype(given: _Settings, shape: ModelShape, version: Version) -> str:
    named = given.text("kv-cache-dtype") or "auto"
    if not named.startswith(KV_DTYPES):
        raise BadSetting(f"--kv-cache-dtype {named}: one of {', '.join(KV_DTYPES)} … is needed")
    if named == "auto" and version >= releases.PAGE_UNIFICATION and shape.quantisation is not None:
        return "fp8" if shape.quantisation.kv_bits == 8 else "auto"
    return named


def _first_engine(version: Version, card: Card) -> bool:
    """0.8 to 0.10 fell back to the first engine before Ampere; 0.11 has only the second."""
    if version < releases.V1_DEFAULT:
        return True
    return version < releases.V0_REMOVED and card.capability is not None and card.capability < (8, 0)


def _batch(
    given: _Settings, version: Version, card: Card, length: int, chunked: bool, v0: bool, towers: bool
) -> tuple[int, int]:
    """Tokens and requests of one step: what the profiling pass is made of (C.3)."""
    set_tokens, set_seqs = given.count("max-num-batched-tokens"), given.count("max-num-seqs")
    tokens, seqs = _default_batch(version, card, v0)
    if v0:
        step = 512 if (0, 4, 3) <= version < (0, 6, 5) else 2048
        tokens = step if chunked else max(length, MULTIMODAL_TOKENS if towers else 2048)
    elif given.text("performance-mode") == "throughput":
        tokens, seqs = 2 * tokens, 2 * seqs
    if not v0 and not chunked:
        tokens = max(tokens, length)
    seqs = set_seqs or seqs
    # Only the second engine keeps the step within what its requests could hold.
    tokens = set_tokens or (tokens if v0 else min(tokens, seqs * length))
    return tokens, seqs if set_seqs else min(seqs, tokens)


def _default_batch(version: Version, card: Card, v0: bool) -> tuple[int, int]:
    """`vllm serve`: 8,192 tokens and 1,024 requests on cards of 70 GiB and more (A100 and GB10 excepted), else 2,048 and 256."""
    if v0:
        return 2048, 256
    large = card.total_bytes >= 70 * GIB and not _a100(card, version) and not card.unified_memory
    if version < (0, 8, 5):
        return (8192 if large else 2048), 1024
    if large and card.total_bytes >= 160 * GIB and version >= releases.LARGE_CARD_TIER:
        return 16384, 1024
    return (8192, 1024) if large else (2048, 256)


def _a100(card: Card, version: Version) -> bool:
    return card.capability == (8, 0) and version >= (0, 9, 0)


def _graph_sizes(given: _Settings) -> tuple[int, ...]:
    listed = given.table("compilation-config").get("cudagraph_capture_sizes")
    if isinstance(listed, list) and all(isinstance(size, int) for size in listed):
        return tuple(sorted(listed))
    text = given.text("cudagraph-capture-sizes", "cuda-graph-sizes")
    return tuple(sorted(int(size) for size in re.findall(r"\d+", text or "")))


def _prefix_caching(shape: ModelShape, version: Version, v0: bool) -> bool:
    """On by default in V1; for models with recurrent layers only in late releases."""
    return not v0 and (not recurrent(shape) or version >= releases.HYBRID_PREFIX_CACHING)


def _state_mode(given: _Settings, version: Version, prefix: bool, shape: ModelShape) -> StateMode:
    named = given.text("mamba-cache-mode")
    if named in ("all", "align"):
        return cast(StateMode, named)
    return "align" if prefix and version >= releases.STATE_MODES and recurrent(shape) else "none"


@per_shape
def recurrent(shape: ModelShape) -> bool:
    """Whether some layers keep a state instead of a cache that grows."""
    return any(isinstance(mixer, Mamba | GatedDelta) for layer in dict.fromkeys(shape.layers) for mixer in layer.mixers)


def _no_items(given: _Settings) -> bool:
    """`--limit-mm-per-prompt {"image": 0, "video": 0}`: no encoder is run."""
    limits = given.table("limit-mm-per-prompt")
    return bool(limits) and all(limit == 0 for limit in limits.values())


@per_shape
def mixture(shape: ModelShape) -> bool:
    """Whether some layers are mixtures of experts."""
    return any(isinstance(feed, Experts) for layer in dict.fromkeys(shape.layers) for feed in layer.feeds)


def _second_runner(shape: ModelShape, version: Version) -> bool:
    """The second model runner by default: dense unquantised Qwen3 in 0.22, dense models from 0.26, all from 0.29."""
    if version >= releases.SECOND_RUNNER:
        return True
    if version >= releases.SECOND_RUNNER_DENSE:
        return not mixture(shape)
    return version >= (0, 22, 0) and shape.architecture == "Qwen3ForCausalLM" and shape.quantisation is None


def _speculation(given: _Settings, shape: ModelShape) -> Speculation:
    """`--speculative-config` (JSON), or its dotted form. A drafter of unknown shape is taken by its kind."""
    table = given.table("speculative-config")
    method = str(table.get("method") or given.text("speculative-config.method") or "")
    tokens = table.get("num_speculative_tokens") or given.whole(
        "speculative-config.num-speculative-tokens", "num-speculative-tokens"
    )
    named = str(table.get("model") or given.text("speculative-model") or "").lower()
    if not method and named:
        method = next((kind for kind in ("eagle3", "eagle", "dflash", "mtp", "medusa") if kind in named), "draft_model")
    if not method and not tokens:
        return Speculation()
    count = int(tokens or 1)
    own = shape.drafter.layers if shape.drafter else 1
    layers = {"dflash": 5, "eagle": 1, "eagle3": 1}.get(method, own if "mtp" in method else 0)
    return Speculation(method=method, tokens=count, layers=layers)
