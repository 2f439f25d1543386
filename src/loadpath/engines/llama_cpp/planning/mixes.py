"""Which type llama-quantize gives each tensor of a file type (`Q4_K_M` and its kin).

Source: `llama_tensor_get_type_impl` and `tensor_type_fallback` of llama.cpp b11500, without an importance matrix. Files
of other makers (Unsloth's UD types) mix otherwise: for those this is an estimate.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec

from loadpath.knowledge.ggml_types import GGML_TYPES

Category = Literal[
    "output", "token-embedding", "attn-v", "attn-qkv", "attn-k", "attn-q", "attn-output", "ffn-down", "ffn-gate", "ffn-up",
    "other",
]  # fmt: skip
_DEFAULT = {
    "Q2_K_S": "Q2_K", "Q3_K_S": "Q3_K", "Q3_K_M": "Q3_K", "Q3_K_L": "Q3_K", "Q3_K_XL": "Q3_K", "Q4_K_S": "Q4_K",
    "Q4_K_M": "Q4_K", "Q4_K_L": "Q4_K", "Q4_K_XL": "Q4_K", "Q5_K_S": "Q5_K", "Q5_K_M": "Q5_K", "Q5_K_L": "Q5_K",
    "Q5_K_XL": "Q5_K", "Q2_K_L": "Q2_K", "Q2_K_XL": "Q2_K", "Q6_K_L": "Q6_K", "Q6_K_XL": "Q6_K", "Q8_K_XL": "Q8_0",
    "IQ2_S": "IQ2_XS", "IQ2_M": "IQ2_S", "IQ3_XS": "IQ3_S", "IQ3_M": "IQ3_S", "MXFP4_MOE": "MXFP4",
}  # fmt: skip
_LOW = ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M")
_SMALLER_BLOCKS = {
    "IQ1_S": "IQ4_NL", "IQ1_M": "IQ4_NL", "IQ2_XXS": "IQ4_NL", "IQ2_XS": "IQ4_NL", "IQ2_S": "IQ4_NL",
    "IQ3_XXS": "IQ4_NL", "IQ3_S": "IQ4_NL", "IQ4_XS": "IQ4_NL", "Q2_K": "Q4_0", "Q3_K": "Q4_0", "TQ1_0": "Q4_0",
    "TQ2_0": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0",
}  # fmt: skip


class Model(msgspec.Struct, frozen=True):
    """What of a model decides about its mix. `ratio`: query heads for one key-value head; `seventy`: a Llama 70B."""

    layers: int
    ratio: int
    experts: int = 0
    tied: bool = False
    seventy: bool = False


def base_type(file_type: str) -> str | None:
    """The type of most tensors of a file type; None where llama.cpp has no such file type."""
    name = file_type.upper()
    name = re.sub(r"^(Q[3-5]_K)$", r"\1_M", name)
    kind = _DEFAULT.get(name, name)
    return kind if kind in GGML_TYPES else None


@lru_cache(maxsize=65536)
def tensor_type(file_type: str, category: Category, columns: int, model: Model, index: int, count: int) -> str:
    """The type of one tensor that may be quantised: the `index`-th of `count` layers that have such a tensor."""
    name = re.sub(r"^(Q[3-5]_K)$", r"\1_M", file_type.upper())
    name = re.sub(r"_(?:XL|L)$", "_M", name) if name not in ("Q3_K_L",) else name
    base = base_type(file_type) or "Q4_K"
    if GGML_TYPES[base][0] == 1:
        return base
    return _fallback(_chosen(name, base, category, columns, model, index, count), columns)


def _chosen(name: str, base: str, category: Category, columns: int, model: Model, index: int, count: int) -> str:
    if category == "output" or (model.tied and category == "token-embedding"):
        return _output(name, base, columns)
    if name == "MXFP4_MOE":
        return "MXFP4" if category.startswith("ffn") and model.experts else "Q8_0"
    if category == "token-embedding":
        return _embedding(name, base)
    if name in _LOW:
        return _low(name, base, category, model, index, count)
    if category in ("attn-v", "attn-qkv"):
        return _values(name, base, category, model, index, count)
    if category == "ffn-down":
        return _down(name, base, model, index, count)
    if category == "attn-output":
        return _projection(name, base, model)
    if model.experts == 8 and category == "attn-k":
        return "Q8_0"
    return _small_cases(name, base, category, index, count)


def _output(name: str, base: str, columns: int) -> str:
    if name == "MXFP4_MOE" or columns % GGML_TYPES[base][0]:
        return "Q8_0"
    if name in (*_LOW, "IQ3_XXS"):
        return "Q5_K"
    return base if base == "Q8_0" else "Q6_K"


def _embedding(name: str, base: str) -> str:
    if name in ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"):
        return "Q2_K"
    if name in ("IQ2_S", "IQ2_M", "IQ3_XXS"):
        return "IQ3_S"
    return "Q4_K" if name in ("TQ1_0", "TQ2_0") else base


def _low(name: str, base: str, category: Category, model: Model, index: int, count: int) -> str:
    richer = "IQ3_S" if name in ("IQ2_S", "IQ2_M") else "Q2_K"
    if category in ("attn-v", "attn-qkv"):
        return "Q4_K" if model.ratio >= 4 or model.experts >= 4 else richer
    if model.experts == 8 and category == "attn-k":
        return "Q4_K"
    if category == "ffn-down" and index < count // 8:
        return richer
    if category == "attn-output":
        if model.experts == 8:
            return "Q5_K"
        return {"IQ1_S": "IQ2_XXS", "IQ1_M": "IQ2_XXS", "IQ2_S": "IQ3_S", "IQ2_M": "IQ3_S"}.get(name, base)
    return base


def _values(name: str, base: str, category: Category, model: Model, index: int, count: int) -> str:
    """Value projections get more bits: they are small and matter much."""
    kind, grouped = base, model.ratio >= 4
    if name == "Q2_K":
        kind = "Q4_K" if grouped else "Q3_K"
    elif name == "Q2_K_S" and grouped:
        kind = "Q4_K"
    elif name == "IQ3_XXS":
        kind = "Q4_K" if grouped else "IQ3_S"
    elif name == "IQ3_M" or (name in ("IQ3_XS", "IQ3_S") and grouped):
        kind = "Q4_K"
    elif name == "Q3_K_M":
        kind = "Q5_K" if index < 2 else "Q4_K"
    elif name == "Q3_K_L" or (name in ("IQ4_NL", "IQ4_XS") and grouped):
        kind = "Q5_K"
    elif name in ("Q4_K_M", "Q5_K_M") and _more_bits(index, count):
        kind = "Q6_K"
    elif name == "Q4_K_S" and index < 4:
        kind = "Q5_K"
    if model.seventy and kind in ("Q3_K", "Q4_K"):
        kind = "Q5_K"
    return "Q8_0" if model.experts == 8 else kind


def _down(name: str, base: str, model: Model, index: int, count: int) -> str:
    early = index < count // 8
    if name == "Q2_K":
        return "Q3_K"
    if name == "Q3_K_M":
        return "Q5_K" if index < count // 16 else "Q4_K"
    if name == "Q3_K_L":
        return "Q5_K"
    if name == "IQ3_XXS":
        return "Q4_K" if early else "Q3_K"
    if name == "IQ3_M" and (early or (model.experts == 8 and _more_bits(index, count))):
        return "Q4_K"
    if name in ("Q4_K_M", "Q5_K_M"):
        return "Q6_K" if _more_bits(index, count) else base
    if early:
        return {"Q2_K_S": "Q4_K", "IQ4_NL": "Q5_K", "IQ4_XS": "Q5_K", "Q4_K_S": "Q5_K"}.get(name, base)
    return base


def _projection(name: str, base: str, model: Model) -> str:
    if model.experts == 8:
        raised = (
            "Q2_K",
            "IQ3_XS",
            "IQ3_XXS",
            "Q3_K_S",
            "Q3_K_M",
            "IQ4_NL",
            "Q4_K_S",
            "Q4_K_M",
            "IQ3_S",
            "IQ3_M",
            "IQ4_XS",
        )
        return "Q5_K" if name in raised else base
    return {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"}.get(name, base)


def _small_cases(name: str, base: str, category: Category, index: int, count: int) -> str:
    if name == "IQ3_XS":
        middle = count // 8 <= index < 7 * count // 8
        if category in ("attn-k", "attn-q") or (category in ("ffn-gate", "ffn-up") and middle):
            return "IQ3_XXS"
    if name == "IQ3_XXS" and category in ("attn-k", "attn-q"):
        return "IQ2_S"
    return base


def _more_bits(index: int, count: int) -> bool:
    return index < count // 8 or index >= 7 * count // 8 or (index - count // 8) % 3 == 2


def _fallback(kind: str, columns: int) -> str:
    """A type whose blocks divide the columns."""
    if columns % GGML_TYPES[kind][0] == 0:
        return kind
    kind = _SMALLER_BLOCKS.get(kind, kind)
    return kind if columns % GGML_TYPES[kind][0] == 0 else "F16"
