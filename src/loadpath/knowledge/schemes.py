"""Schemes of quantisation that a model's name states, and what each of them usually stores."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal

import msgspec

from loadpath.core.shape import Quantisation, Role

LINEAR: frozenset[Role] = frozenset({"attention", "mlp", "experts", "shared-experts", "recurrent"})
"""The linear layers: what schemes quantise unless their files say otherwise."""
_GGUF_MODULES: frozenset[Role] = LINEAR | frozenset[Role]({"embedding", "lm_head"})
_BLOCK_FP8 = ("qwen", "deepseek", "glm_moe_dsa", "minimax", "mimo", "step", "kimi")
"""Families whose own FP8 releases have scales of 128 x 128 blocks."""

COMPRESSORS = frozenset({"redhatai", "neuralmagic", "cyankiwi", "cpatonn"})
"""Organisations whose quantised checkpoints are made with llm-compressor."""
_LINEAR_ATTENTION = ("qwen3_5", "qwen3_next")
"""Families whose linear attention llm-compressor's recipes leave in 16 bits."""
_GROUPS_OF_32 = frozenset({"cyankiwi", "cpatonn"})
"""Organisations whose "AWQ" is symmetric, in groups of 32."""


class Scheme(msgspec.Struct, frozen=True):
    """A scheme by `name`; `stored`: how its checkpoints usually store linear layers."""

    name: str
    stored: Quantisation | None
    changes: dict[str, Any] = {}
    """Fields of the shape that the name sets besides (`dtype`)."""

    def quantisation(self, family: str, publisher: str = "") -> Quantisation | None:
        """What is usual for a model of `family`, and for a `publisher` (an organisation in lower case)."""
        if self.name == "FP8" and family.startswith(_BLOCK_FP8) and publisher not in COMPRESSORS:
            return _stored("fp8", 8, "float", strategy="block", block=(128, 128), activation_bits=8)
        found = self.stored
        if found is None or found.method == "gguf":
            return found
        if self.name == "AWQ" and publisher in _GROUPS_OF_32:
            found = _stored("compressed-tensors", 4, "int", group_size=32, strategy="group")
        compressed = found.method == "compressed-tensors" or publisher in COMPRESSORS
        if compressed and family.startswith(_LINEAR_ATTENTION):
            found = msgspec.structs.replace(found, modules=found.modules - {"recurrent"})
        return found


def _stored(method: str, bits: int, kind: Literal["int", "float", ""] = "", **more: Any) -> Quantisation:
    return Quantisation(method=method, bits=bits, type=kind, modules=LINEAR, **more)


@cache
def _schemes() -> tuple[tuple[re.Pattern[str], Scheme], ...]:
    """Endings of names, the more telling first. Groups of 128 (AWQ, GPTQ, W4A16) are those tools' defaults."""
    group = {"group_size": 128, "strategy": "group"}
    awq = _stored("awq", 4, "int", zero_point=True, **group)
    gptq = _stored("gptq", 4, "int", **group)
    table: tuple[tuple[str, Scheme], ...] = (
        (r"awq(?:[-_.]?(?:int)?4[-_]?bits?|[-_.]?(?:w4a16|int4|g128))?", Scheme("AWQ", awq)),
        (r"gptq[-_.]?(?:int)?8(?:[-_]?bits?)?", Scheme("GPTQ-Int8", msgspec.structs.replace(gptq, bits=8))),
        (r"gptq(?:[-_.]?(?:int)?4(?:[-_]?bits?)?(?:[-_]128g)?)?", Scheme("GPTQ-Int4", gptq)),
        (r"(?:int4[-_.]?auto[-_]?round|auto[-_]?round(?:[-_.]?(?:int4|w4a16|4[-_]?bits?))?)",
         Scheme("AutoRound", _stored("auto-round", 4, "int", **group))),
        (r"(?:quantized[-_.])?w4a16(?:[-_.]?g128)?",
         Scheme("W4A16", _stored("compressed-tensors", 4, "int", **group))),
        (r"(?:quantized[-_.])?w8a16", Scheme("W8A16", _stored("compressed-tensors", 8, "int", strategy="channel"))),
        (r"(?:quantized[-_.])?(?:int8[-_.])?w8a8(?:[-_.]int8)?",
         Scheme("W8A8", _stored("compressed-tensors", 8, "int", strategy="channel", activation_bits=8))),
        (r"nvfp4(?:a16)?|fp4", Scheme("NVFP4", _stored("modelopt", 4, "float", format="nvfp4", group_size=16,
                                                       strategy="group", activation_bits=4))),
        (r"mxfp4", Scheme("MXFP4", _stored("mxfp4", 4, "float", format="mxfp4", group_size=32, strategy="group"))),
        (r"fp8[-_.]?dynamic",
         Scheme("FP8-dynamic", _stored("compressed-tensors", 8, "float", strategy="channel", activation_bits=8))),
        (r"fp8[-_.]?block", Scheme("FP8-block", _stored("compressed-tensors", 8, "float", strategy="block",
                                                        block=(128, 128), activation_bits=8))),
        (r"fp8(?:[-_.]?kv)?", Scheme("FP8", _stored("fp8", 8, "float", strategy="tensor", activation_bits=8))),
        (r"(?:unsloth[-_.])?bnb[-_.]?4[-_]?bits?|bitsandbytes(?:[-_.]?4[-_]?bits?)?|nf4",
         Scheme("bitsandbytes NF4", _stored("bitsandbytes", 4, "float", format="nf4", group_size=64))),
        (r"bnb[-_.]?8[-_]?bits?", Scheme("bitsandbytes int8", _stored("bitsandbytes", 8, "int", strategy="channel"))),
        (r"int4|4[-_]?bits?", Scheme("4-bit integers (scheme assumed: GPTQ)", gptq)),
        (r"int8|8[-_]?bits?",
         Scheme("8-bit integers (scheme assumed: W8A8)", _stored("compressed-tensors", 8, "int", strategy="channel",
                                                                activation_bits=8))),
        (r"bf16", Scheme("BF16", None, {"dtype": "bfloat16"})),
        (r"fp16|f16", Scheme("FP16", None, {"dtype": "float16"})),
    )  # fmt: skip
    return tuple((re.compile(rf"(?:^|[-_. :])(?:{text})$", re.IGNORECASE), scheme) for text, scheme in table)


_GGUF_TYPE = re.compile(
    r"[-_. :](?:ud[-_])?(i?q\d(?:_[01]|_k(?:_[smlx]+)?|_(?:xxs|xs|s|m|nl)|_\d_\d)?|bf16|f16|f32|mxfp4(?:_moe)?)$",
    re.IGNORECASE,
)


def split_scheme(name: str) -> tuple[str, Scheme | None]:
    """`("Qwen/Qwen3-8B", AWQ)` of `"Qwen/Qwen3-8B-AWQ"`; the name as it is, and None, where it states no scheme."""
    stem = re.sub(r"\.gguf$", "", name.strip(), flags=re.IGNORECASE)
    gguf = stem != name.strip() or "gguf" in stem.lower()
    if gguf and (kind := _GGUF_TYPE.search(stem)):
        return re.sub(r"[-_. :]gguf$", "", stem[: kind.start()], flags=re.IGNORECASE), _gguf(kind[1])
    if (kind := _GGUF_TYPE.search(stem)) and kind[1].lower().startswith(("q", "iq")):
        return stem[: kind.start()], _gguf(kind[1])
    if gguf and re.search(r"[-_. :]gguf$", stem, re.IGNORECASE):
        return stem[:-5], Scheme("GGUF (type not stated, taken as Q4_K_M)", _gguf("Q4_K_M").stored)
    for pattern, scheme in _schemes():
        if match := pattern.search(stem):
            return stem[: match.start()], scheme
    return name, None


def _gguf(kind: str) -> Scheme:
    text = kind.upper()
    if text in ("BF16", "F16", "F32"):
        dtype = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[text]
        return Scheme(f"GGUF {text}", Quantisation(method="gguf", bits=32 if text == "F32" else 16, format=text),
                      {"dtype": dtype})  # fmt: skip
    digits = re.search(r"\d", text)
    bits = int(digits[0]) if digits else 4
    return Scheme(f"GGUF {text}", Quantisation(method="gguf", bits=bits, format=text, modules=_GGUF_MODULES))
