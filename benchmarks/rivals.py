"""Clients that send load to the same server: how each is told to do the same, and where it lives."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from environments import program

STREAMS = 64


@dataclass(frozen=True)
class Work:
    """What a client is to send: so many requests for so many tokens each, `streams` at once."""

    url: str
    requests: int
    tokens: int
    folder: Path
    """For its results; with a tokenizer in `tokenizer/`."""
    streams: int = STREAMS
    inputs: int = 32


@dataclass(frozen=True)
class Client:
    """`requests`: of the short and the long run of short answers; `streams`: of long ones."""

    name: str
    command: Callable[[Work], list[str]]
    requests: tuple[int, int]
    streams: tuple[int, int]
    environment: Mapping[str, str] = field(default_factory=dict)


def guidellm(work: Work) -> list[str]:
    return [
        str(program("guidellm")), "run", "--disable-console", "--backend", f"kind=openai_http,target={work.url},model=stub",
        "--profile", f"kind=concurrent,streams={work.streams}", "--constraint", f"kind=max_requests,count={work.requests}",
        "--data", f"kind=synthetic_text,prompt_tokens={work.inputs},output_tokens={work.tokens}",
        "--tokenizer", f"kind=hf_auto,model={work.folder / 'tokenizer'}",
        "--output", f"kind=json,path={work.folder / 'guidellm.json'}",
    ]  # fmt: skip


def aiperf(work: Work) -> list[str]:
    return [
        str(program("aiperf")), "profile", "-m", "stub", "--url", work.url, "--endpoint-type", "chat", "--streaming",
        "--tokenizer", str(work.folder / "tokenizer"), "--concurrency", str(work.streams),
        "--request-count", str(work.requests), "--synthetic-input-tokens-mean", str(work.inputs),
        "--output-tokens-mean", str(work.tokens), "--workers-max", "1", "--record-processors", "1", "--ui", "none",
        "--artifact-dir", str(work.folder / "aiperf"),
    ]  # fmt: skip


def inference_perf(work: Work) -> list[str]:
    def always(count: int) -> dict[str, object]:
        return {"type": "fixed", "min": count, "max": count, "mean": count, "std_dev": 0, "total_count": work.requests}

    asked = {
        "api": {"type": "completion", "streaming": True},  # its random prompts are for that one alone
        "data": {"type": "random", "input_distribution": always(work.inputs), "output_distribution": always(work.tokens)},
        "load": {"type": "concurrent", "num_workers": 1, "worker_max_concurrency": work.streams,
                 "stages": [{"num_requests": work.requests, "concurrency_level": work.streams}]},
        "server": {"type": "vllm", "model_name": "stub", "base_url": work.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(work.folder / "tokenizer")},
        "storage": {"local_storage": {"path": str(work.folder / "inference-perf")}},
    }  # fmt: skip
    config = work.folder / "inference-perf.yaml"
    config.write_text(json.dumps(asked), "utf-8")  # JSON is YAML
    return [str(program("inference-perf")), "--config_file", str(config)]


def vllm_bench(work: Work) -> list[str]:
    return [
        str(program("vllm")), "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
        "--base-url", work.url, "--model", "stub", "--tokenizer", str(work.folder / "tokenizer"), "--dataset-name", "random",
        "--random-input-len", str(work.inputs), "--random-output-len", str(work.tokens), "--num-prompts", str(work.requests),
        "--max-concurrency", str(work.streams), "--disable-tqdm",
    ]  # fmt: skip


RIVALS = (
    Client("GuideLLM", guidellm, (100, 700), (64, 464)),
    # Offline it takes tokenizers of the hub's cache alone, no folders.
    Client("AIPerf", aiperf, (200, 1200), (64, 464), {"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": ""}),
    Client("inference-perf", inference_perf, (200, 1200), (64, 464)),
    Client("vllm bench serve", vllm_bench, (200, 6200), (64, 4064)),
)


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer for the clients that need one, with nothing to download: every byte is a token."""
    alphabet = byte_alphabet()
    special = ["<pad>", "<s>", "</s>"]
    vocabulary = {token: number for number, token in enumerate([*special, *alphabet])}
    added = [
        {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for number, token in enumerate(special)
    ]  # fmt: skip
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": []}  # fmt: skip
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
             "pre_tokenizer": bytewise, "post_processor": None, "decoder": bytewise, "model": model}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(whole), "utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "bos_token": "<s>",
                "eos_token": "</s>", "model_max_length": 131072,
                "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}"}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": len(vocabulary),
              "max_position_embeddings": 131072}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


def byte_alphabet() -> list[str]:
    """Printable stand-ins of the 256 bytes, in byte order, as byte-level tokenizers have them."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = itertools.count(256)
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]
