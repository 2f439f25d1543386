"""Types of tensors in GGUF files: elements of a block and bytes that it takes (ggml's type traits).

File types (`Q4_K_M`) name a mix of tensor types; `average_bits` is what such a file takes per weight of a usual model.
"""

from __future__ import annotations

GGML_TYPES: dict[str, tuple[int, int]] = {
    "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "F64": (1, 8),
    "I8": (1, 1), "I16": (1, 2), "I32": (1, 4), "I64": (1, 8),
    "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "Q8_1": (32, 36),
    "Q2_K": (256, 84), "Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210),
    "Q8_K": (256, 292),
    "IQ1_S": (256, 50), "IQ1_M": (256, 56), "IQ2_XXS": (256, 66), "IQ2_XS": (256, 74), "IQ2_S": (256, 82),
    "IQ3_XXS": (256, 98), "IQ3_S": (256, 110), "IQ4_NL": (32, 18), "IQ4_XS": (256, 136),
    "TQ1_0": (256, 54), "TQ2_0": (256, 66), "MXFP4": (32, 17), "NVFP4": (64, 36),
}  # fmt: skip
"""Type → (elements of a block, bytes of a block)."""

TYPE_NUMBERS: dict[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
"""The number of a type in a file's tensor table → its name."""

# Bits per weight of whole files of Llama-3.1-8B as llama.cpp's quantisation page lists them (parameters 8.03e9).
_FILE_BITS: dict[str, float] = {
    "Q2_K": 3.16, "Q2_K_S": 2.97, "Q3_K_S": 3.64, "Q3_K_M": 4.00, "Q3_K_L": 4.30, "Q4_K_S": 4.67, "Q4_K_M": 4.89,
    "Q5_K_S": 5.57, "Q5_K_M": 5.70, "Q6_K": 6.56, "Q8_0": 8.50, "Q4_0": 4.66, "Q4_1": 5.13, "Q5_0": 5.60,
    "Q5_1": 6.07, "IQ1_S": 2.00, "IQ1_M": 2.15, "IQ2_XXS": 2.38, "IQ2_XS": 2.59, "IQ2_S": 2.74, "IQ2_M": 2.93,
    "IQ3_XXS": 3.25, "IQ3_XS": 3.50, "IQ3_S": 3.66, "IQ3_M": 3.76, "IQ4_XS": 4.46, "IQ4_NL": 4.68,
}  # fmt: skip


def ggml_bytes(kind: str, elements: int) -> int | None:
    """Bytes of `elements` (a multiple of the block) stored as `kind`; None for a type that is not known."""
    block = GGML_TYPES.get(kind.upper())
    return None if block is None else -(-elements // block[0]) * block[1]


def average_bits(file_type: str) -> float | None:
    """Bits per weight of a file of this type; None where the type is not known."""
    name = file_type.upper()
    if name in _FILE_BITS:
        return _FILE_BITS[name]
    if name == "Q3_K" or name == "Q4_K" or name == "Q5_K":
        return _FILE_BITS[f"{name}_M"]
    block = GGML_TYPES.get(name.removesuffix("_MOE"))
    return None if block is None else block[1] * 8 / block[0]
