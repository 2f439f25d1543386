"""A tiny random-weight GGUF of the llama architecture, made without any download: for a real llama.cpp to load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LAYERS, WIDTH, HEADS, KV_HEADS = 2, 128, 4, 2
SPECIAL = ["<pad>", "<s>", "</s>"]


def byte_alphabet() -> list[str]:
    """The 256 printable stand-ins of GPT-2's byte-level BPE, in byte order."""
    keep = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(spare)) for b in range(256)]


def write_tiny_gguf(path: Path, architecture: str = "llama", context: int = 2048) -> None:
    """Write the model to `path`; `architecture` may be one that no engine knows."""
    import gguf
    import numpy as np

    tokens = [*SPECIAL, *byte_alphabet()]
    writer: Any = gguf.GGUFWriter(str(path), architecture)
    head = WIDTH // HEADS
    for setting, value in {
        "name": "tiny-random", "context_length": context, "embedding_length": WIDTH, "block_count": LAYERS,
        "feed_forward_length": 2 * WIDTH, "head_count": HEADS, "head_count_kv": KV_HEADS, "rope_dimension_count": head,
        "layer_norm_rms_eps": 1e-5, "vocab_size": len(tokens), "file_type": 1, "tokenizer_model": "gpt2",
        "tokenizer_pre": "gpt-2", "token_list": tokens,
        "token_types": [gguf.TokenType.CONTROL] * len(SPECIAL) + [gguf.TokenType.NORMAL] * 256,
        "token_merges": ["t h"], "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }.items():  # fmt: skip
        getattr(writer, f"add_{setting}")(value)
    random = np.random.default_rng(0)

    def matrix(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(name, (random.standard_normal((rows, columns)) * 0.05).astype(np.float16))

    matrix("token_embd.weight", len(tokens), WIDTH)
    for block in (f"blk.{i}." for i in range(LAYERS)):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}{norm}.weight", np.ones(WIDTH, dtype=np.float32))
        for part, rows, columns in (
            ("attn_q", WIDTH, WIDTH), ("attn_k", KV_HEADS * head, WIDTH), ("attn_v", KV_HEADS * head, WIDTH),
            ("attn_output", WIDTH, WIDTH), ("ffn_gate", 2 * WIDTH, WIDTH), ("ffn_up", 2 * WIDTH, WIDTH),
            ("ffn_down", WIDTH, 2 * WIDTH),
        ):  # fmt: skip
            matrix(f"{block}{part}.weight", rows, columns)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
    matrix("output.weight", len(tokens), WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
