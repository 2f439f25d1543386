"""SGLang's settings as typed options, with the defaults of its version and of the card."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from loadpath.core.shape import CompressedAttention, LatentAttention, ModelShape, Tower
from loadpath.core.units import MIB
from loadpath.engines.sglang.planning.cells import COMPRESSED_PAGE
from loadpath.engines.sglang.planning.fraction import (
    Demand,
    default_chunk,
    default_fraction,
    default_graph_batch,
    prefill_sizes,
    runner_factor,
)
from loadpath.knowledge.gpus import by_id
from loadpath.planning.deployment import Card, Deployment, Version

NEWEST: Version = (0, 5, 23)
SMI_OVER_CUDA = 1.0057
"""nvidia-smi's total over cudaMemGetInfo's (81,559 against 81,090 MiB on an H100), for cards not in the table."""
_SPELLINGS = {
    "tp-size": ("tp", "tensor-parallel-size"),
    "pp-size": ("pp", "pipeline-parallel-size"),
    "dp-size": ("dp", "data-parallel-size"),
    "ep-size": ("ep", "expert-parallel-size"),
    "cuda-graph-max-bs": ("cuda-graph-max-bs-decode",),
    "mamba-radix-cache-strategy": ("mamba-scheduler-strategy",),
}
_ONE_BYTE = ("fp8_e4m3", "fp8_e5m2", "fp8", "mxfp8")
_HALF_BYTE = ("fp4_e2m1", "nvfp4", "fp4_mx_block16")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about memory. `attention_tp`: ranks that one copy of the attention is split over."""

    version: Version
    tp: int
    pp: int
    dp: int
    ep: int
    attention_tp: int
    context: int
    chunk: int
    max_prefill_tokens: int
    graph_batch: int
    prefill_graphs: int
    fraction: float
    fraction_given: bool
    allowance_mib: float
    """What SGLang's own rule would leave outside the static share."""
    kv_dtype: str
    kv_dtype_given: bool
    page: int
    window_ratio: float
    window_ratio_given: bool
    compressed: bool
    packed_latent: bool
    """FP8 latents of sparse attention have scales and 16-bit rotary parts; not in TensorRT-LLM's kernels."""
    state_ratio: float
    state_dtype: str
    state_slots: int | None
    slots_per_request: int
    radix_cache: bool
    max_requests: int | None
    max_tokens: int | None
    speculation: str
    draft_tokens: int
    draft_steps: int
    draft_topk: int
    multimodal: bool

    @property
    def kv_bytes(self) -> float:
        """Bytes of one cache element without scales."""
        return 0.5 if self.kv_dtype in _HALF_BYTE else 1 if self.kv_dtype in _ONE_BYTE else 2

    @property
    def kv_torch_dtype(self) -> str:
        names = {"fp8_e4m3": "float8_e4m3fn", "fp8": "float8_e4m3fn", "mxfp8": "float8_e4m3fn"}
        return "torch." + (
            "uint8" if self.kv_dtype in _HALF_BYTE else "float8_e5m2" if self.kv_dtype == "fp8_e5m2"
            else names.get(self.kv_dtype, self.kv_dtype)
        )  # fmt: skip


class _Settings:
    """A deployment's settings under SGLang's own names, whatever spelling was used."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    def text(self, name: str) -> str | None:
        for own in (name, *_SPELLINGS.get(name, ())):
            if (value := self._settings.get(own)) not in (None, "", "None"):
                return value
        return None

    def whole(self, name: str) -> int | None:
        value = self.text(name)
        return None if value is None else int(float(value))

    def number(self, name: str) -> float | None:
        value = self.text(name)
        return None if value is None else float(value)

    def on(self, name: str) -> bool:
        return (self.text(name) or "false").lower() not in ("false", "0", "no")


def smi_mib(card: Card) -> int:
    """The card's total as nvidia-smi prints it, in MiB: the least that was seen for its board and is no less than CUDA's."""
    total = card.total_bytes / MIB
    board = by_id(card.id) if card.id else None
    seen = [size for size in (board.memory_mib if board else ()) if total <= size <= 1.06 * total]
    return min(seen) if seen else round(total * SMI_OVER_CUDA)


def is_latent(shape: ModelShape) -> bool:
    """Whether the model's attention keeps one latent for all heads (MLA)."""
    return any(isinstance(m, LatentAttention | CompressedAttention) for layer in shape.layers for m in layer.mixers)


PLAIN_LATENT_SINCE = (0, 5, 10)
"""Sparse attention with an FP8 cache runs in TensorRT-LLM's kernels on Blackwell."""


def is_sparse(shape: ModelShape) -> bool:
    """Whether an indexer picks the tokens that a latent attention reads (DeepSeek-V3.2, GLM-5)."""
    return any(isinstance(m, LatentAttention) and m.index_heads for layer in shape.layers for m in layer.mixers)


def _blackwell(deployment: Deployment) -> bool:
    """Whether all cards are data-centre Blackwells."""
    return all((card.capability or (0, 0))[0] == 10 for card in deployment.cards)


def is_compressed(shape: ModelShape) -> bool:
    """Whether it is a DeepSeek-V4, whose caches SGLang sizes by rules of their own."""
    return any(isinstance(m, CompressedAttention) for layer in shape.layers for m in layer.mixers)


def options(deployment: Deployment) -> Options:
    """The options of a deployment; what is not given as SGLang of that version sets it."""
    given, shape = _Settings(deployment.settings), deployment.shape
    version = deployment.version or NEWEST
    tp, pp, dp = (given.whole(name) or 1 for name in ("tp-size", "pp-size", "dp-size"))
    dp_attention = given.on("enable-dp-attention")
    speculation = (given.text("speculative-algorithm") or "").upper()
    demand = _demand(deployment, given, version, tp, pp, dp if dp_attention else 0, speculation)
    fraction = given.number("mem-fraction-static")
    if fraction is not None and demand.multimodal:
        fraction *= runner_factor(version)
    kv_dtype, kv_given = _kv_dtype(given, deployment, version)
    steps = given.whole("speculative-num-steps") or (3 if speculation else 0)
    topk = given.whole("speculative-eagle-topk") or (1 if speculation else 0)
    drafts = given.whole("speculative-num-draft-tokens") or (steps * topk + 1 if speculation else 0)
    radix = not given.on("disable-radix-cache")
    return Options(
        version=version, tp=tp, pp=pp, dp=dp, ep=given.whole("ep-size") or 1,
        attention_tp=max(1, tp // dp) if dp_attention else tp,
        context=given.whole("context-length") or shape.max_position,
        chunk=demand.chunk, max_prefill_tokens=demand.prefill_cap,
        graph_batch=demand.graph_batch, prefill_graphs=demand.prefill_graphs,
        fraction=default_fraction(demand) if fraction is None else fraction, fraction_given=fraction is not None,
        allowance_mib=(1 - default_fraction(demand)) * (demand.card_mib or 0),
        kv_dtype=kv_dtype, kv_dtype_given=kv_given, page=_page(given, deployment, version),
        window_ratio=given.number("swa-full-tokens-ratio") or (0.1 if is_compressed(shape) else 0.8),
        state_ratio=given.number("mamba-full-memory-ratio") or 0.9,
        state_dtype=given.text("mamba-ssm-dtype") or shape.state_dtype or "float32",
        state_slots=given.whole("max-mamba-cache-size"),
        slots_per_request=_slots_per_request(given, version, radix, bool(speculation)), radix_cache=radix,
        window_ratio_given=given.text("swa-full-tokens-ratio") is not None, compressed=is_compressed(shape),
        packed_latent=not (_blackwell(deployment) and version >= PLAIN_LATENT_SINCE),
        max_requests=_max_requests(given, version, speculation, is_compressed(shape)), max_tokens=given.whole("max-total-tokens"),
        speculation=speculation, draft_tokens=drafts, draft_steps=steps, draft_topk=topk,
        multimodal=demand.multimodal,
    )  # fmt: skip


def _demand(
    deployment: Deployment, given: _Settings, version: Version, tp: int, pp: int, dp_attention: int, speculation: str
) -> Demand:
    smallest = min(deployment.cards, key=lambda card: card.total_bytes)
    card = smi_mib(smallest)
    latent = is_latent(deployment.shape)
    chunk = given.whole("chunked-prefill-size") or default_chunk(card, version)
    batch = given.whole("cuda-graph-max-bs") or default_graph_batch(card, tp, version)
    requests = given.whole("max-running-requests")
    if requests and version >= (0, 5, 20) and given.whole("cuda-graph-max-bs") is None:
        batch = min(batch, requests)
    if given.on("disable-cuda-graph"):
        batch = 0
    prefill = 0
    if version >= (0, 5, 10) and batch and not given.on("disable-piecewise-cuda-graph"):
        prefill = prefill_sizes(min(chunk, 8192 if version >= (0, 5, 16) else 2048) if latent else chunk)
    tower = next((tower for tower in deployment.shape.towers if tower.kind == "vision"), None)
    shown = tower or Tower("vision", 0)
    return Demand(
        version=version, card_mib=card, tp=tp, pp=pp, dp_attention=dp_attention, chunk=chunk,
        prefill_cap=given.whole("max-prefill-tokens") or 16_384, graph_batch=batch, prefill_graphs=prefill,
        latent=latent, speculation=speculation, tower_layers=shown.layers, tower_hidden=shown.hidden,
        multimodal=tower is not None and not given.on("language-only"),
    )  # fmt: skip


def _max_requests(given: _Settings, version: Version, speculation: str, compressed: bool) -> int | None:
    """`--max-running-requests`; speculation and DeepSeek-V4 have defaults of their own, else the pool decides."""
    asked = given.whole("max-running-requests")
    if asked is None and speculation and version >= (0, 4, 6):
        return 48
    return 256 if asked is None and compressed else asked


def _kv_dtype(given: _Settings, deployment: Deployment, version: Version) -> tuple[str, bool]:
    """`auto` is the model's dtype, unless its quantised checkpoint asks for an 8-bit cache (0.5.3 on) or sparse attention
    runs on a Blackwell."""
    asked = given.text("kv-cache-dtype") or "auto"
    if asked != "auto":
        return {"bf16": "bfloat16", "fp8": "fp8_e4m3"}.get(asked, asked), True
    quantisation = deployment.shape.quantisation
    if is_compressed(deployment.shape):
        return "fp8_e4m3", False
    if quantisation is not None and quantisation.kv_bits == 8 and version >= (0, 5, 3):
        return "fp8_e4m3", False
    if is_sparse(deployment.shape) and _blackwell(deployment):
        return "fp8_e4m3", False
    dtype = given.text("dtype")
    own = "float16" if deployment.shape.dtype == "float16" else "bfloat16"
    return {"half": "float16", "float16": "float16", "bfloat16": "bfloat16"}.get(dtype or "", own), False


_PAGES = {"flashmla": 64, "cutlass_mla": 128, "trtllm_mla": 64, "cutedsl_mla": 64, "trtllm_mha": 64, "hpc_ops": 64}


def _page(given: _Settings, deployment: Deployment, version: Version) -> int:
    """`--page-size`, or what the attention backend forces: those of Blackwell and of sparse attention need 64."""
    page = given.whole("page-size")
    backends = [given.text(name) for name in ("attention-backend", "decode-attention-backend")]
    forced = next((_PAGES[name] for name in backends if name in _PAGES), None)
    if forced is None and page is None and backends == [None, None]:
        if is_compressed(deployment.shape):
            return COMPRESSED_PAGE
        blackwell = _blackwell(deployment)
        if is_sparse(deployment.shape) or (blackwell and version >= (0, 5, 6) and not is_latent(deployment.shape)):
            forced = 64
    if forced is None or (page is not None and page >= forced):
        return page or 1
    return forced


def _slots_per_request(given: _Settings, version: Version, radix: bool, speculative: bool) -> int:
    """State slots that one running request may hold: its own, and copies for the prefix cache and the overlap."""
    if not radix:
        return 1
    strategy = given.text("mamba-radix-cache-strategy") or "auto"
    if strategy == "auto":
        strategy = "extra_buffer" if version >= (0, 5, 14) and not given.on("disable-overlap-schedule") else "no_buffer"
    if strategy == "extra_buffer_lazy":
        return 4
    if strategy != "extra_buffer":
        return 3
    single = speculative if version < (0, 5, 14) else given.on("disable-overlap-schedule")
    return 4 if single else 5
