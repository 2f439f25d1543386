"""A tiny Hugging Face model with random weights and a byte-level tokenizer, for a real engine to load and serve."""

from __future__ import annotations

import json
import random
import struct
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from tiny_checkpoints import tiny
from tiny_gguf import byte_alphabet

SPECIAL = ("<pad>", "<s>", "</s>")
SCALE = 0.05  # of the random weights


def write_model(folder: Path, kind: str = "llama", context: int = 1024) -> Path:
    """The model in `folder`. It answers with noise, in plain ASCII: the rows of other tokens in its head are zero."""
    config, header = tiny(kind)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"max_position_embeddings": context, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = {name: value for name, value in config.items() if name != "time_step_limit"}  # an infinity, not in JSON
    (folder / "config.json").write_text(json.dumps(config | settings), "utf-8")
    vocabulary = _write_tokenizer(folder, config["vocab_size"], context)
    spoken = {number for token, number in vocabulary.items() if token.isascii() and number >= len(SPECIAL)}
    _write_weights(folder / "model.safetensors", header, spoken)
    return folder


def _write_weights(path: Path, header: dict[str, Any], spoken: set[int]) -> None:
    source = random.Random(0)
    some = [source.gauss(0.0, SCALE) for _ in range(4099)]  # repeated: nobody asks for better noise
    data = json.dumps(header).encode()
    tensors = sorted((entry["data_offsets"], name, entry) for name, entry in header.items() if name != "__metadata__")
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(data)) + data)
        for _, name, entry in tensors:
            count, start, row = prod(entry["shape"]), source.randrange(len(some)), entry["shape"][-1]
            noise = [some[(start + at) % len(some)] for at in range(count)]
            values = [1.0] * count if name.endswith("norm.weight") else noise
            if name == "lm_head.weight":
                values = [value if at // row in spoken else 0.0 for at, value in enumerate(values)]
            file.write(_stored(values, entry["dtype"]))


def _stored(values: list[float], kind: str) -> bytes:
    """Little-endian F32, or BF16, which is its upper half."""
    whole = struct.pack(f"<{len(values)}f", *values)
    if kind == "F32":
        return whole
    assert kind == "BF16", kind
    halves = bytearray(len(whole) // 2)
    halves[0::2], halves[1::2] = whole[2::4], whole[3::4]
    return bytes(halves)


def _write_tokenizer(folder: Path, size: int, context: int) -> dict[str, int]:
    """Every byte is a token, and so are pairs of letters until the vocabulary has `size`."""
    pairs = ["".join(pair) for pair in product("etaoinshrdlu", repeat=2)]
    tokens = [*SPECIAL, *byte_alphabet()]
    pairs = pairs[: size - len(tokens)]
    vocabulary = {token: number for number, token in enumerate([*tokens, *pairs])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": bytewise,
        "added_tokens": [{"id": n, "content": token, **flags} for n, token in enumerate(SPECIAL)],
        "post_processor": None, "decoder": bytewise,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                  "merges": [f"{pair[0]} {pair[1]}" for pair in pairs]},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(whole), "utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
        "model_max_length": context, "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return vocabulary
