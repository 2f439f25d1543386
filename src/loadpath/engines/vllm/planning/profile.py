"""The activation peak of the profiling pass: what the engine's code holds at its fullest moment (vllm.md C.2).

The pass runs `max_num_batched_tokens` dummy tokens through the model and then samples for `max_num_seqs` requests. With
a large vocabulary the sampler is the fullest moment, and its bytes follow from the tensors that the sources hold at
once; else a layer's feed-forward block is. On 23 logged starts (0.11 to 0.19, H100) the peak was met within 0.3 % on
average; on ten of other cards and releases (0.7 to 0.22), where it is not printed alone, the KV share within 0.9 %.
"""

from __future__ import annotations

import msgspec

from loadpath.core.shape import Attention, Dense, GatedDelta, LatentAttention, Layer, Mamba, ModelShape
from loadpath.core.units import KIB, MIB
from loadpath.engines.vllm.planning import encoders, experts, releases
from loadpath.engines.vllm.planning.options import Options
from loadpath.planning.per_shape import per_shape

ERROR, ERROR_FORWARD = 0.04, 0.17
"""Error of the peak on public starts that nothing was fitted to, as a share of it: the median (where the sampler is the
fullest moment it is 0.01 on the starts of the fit), and the mean, for where a layer is."""
SORTED_LOGIT = 38
"""Bytes for each logit while top-k and top-p sort them: logits in 16 and 32 bits, sorted copy, 64-bit indices, and the
sort's own buffers. Constant over four models and three releases of the corpus."""
SAMPLED_LOGIT = 14
"""In place: logits in 16 bits (2) and 32 bits (4), probabilities (4), random draws (4)."""
RAW_LOGIT = 2
"""The second runner samples dummy requests from 16-bit logits without a copy (0.22 to 0.32)."""
DRAFT_LOGIT = 4
"""Speculative decoding: a second set of 16-bit logits, two rows a request."""
PENALTY_COUNTS = 4 + 4 / 32
"""The second runner counts tokens for penalties: 32 bits and one bit for each request and word of the vocabulary."""
CACHED_BLOCKS = 1.15
"""Before 0.6.4 whatever the allocator had cached counted as used: 7 and 24 % above the peak in two starts."""
SORT_BELOW_ROWS = 8
LATENT_WORKSPACE_TOKENS = 64 * KIB
DEFAULT_SMS = 108


class Activation(msgspec.Struct, frozen=True):
    """Bytes of the peak, and of what stays allocated after it (workspaces of the experts, sampler buffers)."""

    peak: int
    kept: int
    sampler: int
    forward: int

    @property
    def error(self) -> float:
        """Mean error to be expected of the peak."""
        return ERROR if self.sampler >= self.forward else ERROR_FORWARD


class Device(msgspec.Struct, frozen=True, cache_hash=True):
    """What of a card the pass depends on: compute capability and number of multiprocessors."""

    capability: tuple[int, int] | None
    multiprocessors: int | None


def activation(shape: ModelShape, options: Options, device: Device, last_stage: bool = True) -> Activation:
    """The peak on a rank; only the last pipeline stage samples."""
    batch = options.max_num_batched_tokens
    workspace, forward = _layers(
        shape, options.tensor_parallel, options.dtype_bytes, experts.routing(options), _compiled(options),
        device.capability or (8, 0),
    )  # fmt: skip
    multiply = matrix_workspace(device.capability)
    kept, encoder = workspace * batch + multiply, 0
    if encoders.profiled(shape, options):
        # The encoder runs first, and its products take a matrix workspace of their own.
        kept += encoders.output_bytes(shape, options) + multiply
        encoder = encoders.pass_bytes(shape, options) + 2 * multiply
    inside = forward * batch + _latent_workspace(shape, options)
    if shape.towers and options.v0:
        inside += shape.hidden * options.dtype_bytes * batch  # text and image embeddings, merged beforehand
    if not last_stage or (options.v0 and options.chunked):
        # The first engine sampled nothing in the pass where prompts are divided (0.6.4 and 0.7, three logged starts).
        return Activation(kept + inside, kept, 0, inside)
    rows = min(options.max_num_seqs, batch)
    rows_bytes = _logit_bytes(options, device, rows) * shape.vocab
    hidden = shape.hidden * options.dtype_bytes
    sampler = rows_bytes + hidden * (batch + (1 if options.second_runner else 2) * rows)
    buffer = _triton_buffer(options, device, rows) * shape.vocab
    peak = max(kept + max(inside, sampler + buffer), encoder)
    if options.version < releases.MEASURED_PEAK:
        peak = round(peak * CACHED_BLOCKS)
    return Activation(peak, kept + buffer, sampler + buffer, inside)


def penalty_counts(shape: ModelShape, options: Options) -> int:
    """What the second model runner allocates for penalties before the pass."""
    return round(PENALTY_COUNTS * options.max_num_seqs * shape.vocab) if options.second_runner else 0


def matrix_workspace(capability: tuple[int, int] | None) -> int:
    """cuBLAS's workspace, which PyTorch allocates once: 32 MiB from Hopper on, 8 MiB before."""
    return 32 * MIB if capability is not None and capability >= (9, 0) else 8 * MIB + 128 * KIB


def _logit_bytes(options: Options, device: Device, rows: int) -> int:
    drafted = DRAFT_LOGIT * rows if options.speculation.method not in ("", "ngram") and not options.v0 else 0
    if options.second_runner and options.version < (0, 33):
        return RAW_LOGIT * rows + drafted
    return (SAMPLED_LOGIT if _in_place(options, rows) else SORTED_LOGIT) * rows + drafted


def _in_place(options: Options, rows: int) -> bool:
    return options.version >= releases.TRITON_SAMPLER and rows >= SORT_BELOW_ROWS


def _triton_buffer(options: Options, device: Device, rows: int) -> int:
    """Bytes for each word that the top-k kernel keeps: one 32-bit row a multiprocessor. FlashInfer's needs none."""
    if not _in_place(options, rows) or options.second_runner:
        return 0
    if options.version >= releases.FLASHINFER_SAMPLER and (device.capability or (8, 0)) >= (7, 5):
        return 0
    programs = min(device.multiprocessors or DEFAULT_SMS, rows)
    power = 1 << (programs - 1).bit_length()
    return 4 * min(power, device.multiprocessors or DEFAULT_SMS)


def _compiled(options: Options) -> bool:
    return not options.eager and not options.v0


@per_shape
def _layers(
    shape: ModelShape,
    ranks: int,
    element: int,
    how: experts.Routing,
    compiled: bool,
    capability: tuple[int, int],
) -> tuple[int, int]:
    """Bytes for each token of the batch: of the experts' kept workspace, and of the fullest layer without it."""
    workspace = forward = 0
    for layer in dict.fromkeys(shape.layers):
        mine, kept = _feeds(shape, layer, ranks, element, how, capability)
        mixer = max((_mixer_width(mixer, ranks) for mixer in layer.mixers), default=0)
        # Compiled: residual and input of the block, and the next layer's query, key and value beside its output.
        beside = 2 * shape.hidden + mixer if compiled else 3 * shape.hidden
        inside = element * beside + mine
        forward = max(forward, inside, element * (3 * shape.hidden + mixer))
        workspace = max(workspace, kept)
    return workspace, forward


def _feeds(
    shape: ModelShape, layer: Layer, ranks: int, element: int, how: experts.Routing, capability: tuple[int, int]
) -> tuple[int, int]:
    """Bytes for each token inside a layer's feed-forward parts, and in workspaces that stay allocated."""
    inside = kept = 0
    for feed in layer.feeds:
        if isinstance(feed, Dense):
            inside = max(inside, element * (3 if feed.gated else 2) * -(-feed.width // ranks))
            continue
        shared = element * (3 if feed.gated else 2) * -(-feed.shared_width // ranks)
        work = experts.token_bytes(shape, feed, ranks, element, how, capability)
        routing = 4 * feed.count + element * shape.hidden + 20 * feed.active
        if how.kept:
            kept = max(kept, work)
            inside = max(inside, shared + routing)
        else:
            inside = max(inside, shared + routing + work)
    return inside, kept


def _mixer_width(mixer: object, ranks: int) -> int:
    """Elements for each token of a mixer's projections on a rank."""
    if isinstance(mixer, Attention):
        heads = -(-mixer.heads // ranks) * (2 if mixer.output_gate else 1)
        return heads * mixer.head_dim + max(1, mixer.kv_heads // ranks) * (mixer.head_dim + mixer.value_dim)
    if isinstance(mixer, LatentAttention):
        return -(-mixer.heads // ranks) * (2 * (mixer.nope_dim + mixer.rope_dim) + mixer.v_dim)
    if isinstance(mixer, GatedDelta):
        return (2 * mixer.k_heads * mixer.k_dim + 3 * mixer.v_heads * mixer.v_dim) // ranks
    if isinstance(mixer, Mamba):
        return (3 * mixer.inner_width + 2 * mixer.groups * mixer.state) // ranks
    return 0


def _latent_workspace(shape: ModelShape, options: Options) -> int:
    """Chunked prefill of latent attention expands keys and values of so many cached tokens at once."""
    if options.v0:
        return 0
    widest = _latent_width(shape, options.tensor_parallel)
    if not widest:
        return 0
    tokens = min(max(8 * options.max_model_len, 4 * options.max_num_seqs * options.block_size), LATENT_WORKSPACE_TOKENS)
    return max(tokens, options.max_num_seqs * options.block_size) * widest * options.dtype_bytes


@per_shape
def _latent_width(shape: ModelShape, ranks: int) -> int:
    return max(
        (
            -(-mixer.heads // ranks) * (mixer.nope_dim + mixer.v_dim)
            for layer in dict.fromkeys(shape.layers)
            for mixer in layer.mixers
            if isinstance(mixer, LatentAttention)
        ),
        default=0,
    )
