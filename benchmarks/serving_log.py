"""A long serving log, written anew: a vLLM start, then access and statistics lines, of which one in a thousand matters."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

START = (
    "(APIServer pid=1) INFO 11-30 00:00:01 [api_server.py:1102] vLLM API server version 0.18.1",
    "(APIServer pid=1) INFO 11-30 00:00:01 [utils.py:233] non-default args: {'model': 'org/model-8b', "
    "'max_model_len': 32768, 'gpu_memory_utilization': 0.92}",
    "(EngineCore pid=94) INFO 11-30 00:00:12 [core.py:105] Initializing a V1 LLM engine (v0.18.1) with config: "
    "model='org/model-8b', dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1",
    "(EngineCore pid=94) INFO 11-30 00:00:31 [gpu_model_runner.py:4321] Model loading took 15.27 GiB memory and 17.4 seconds",
    "(EngineCore pid=94) INFO 11-30 00:00:58 [gpu_worker.py:410] Available KV cache memory: 52.18 GiB",
    "(EngineCore pid=94) INFO 11-30 00:00:58 [kv_cache_utils.py:1310] GPU KV cache size: 379,968 tokens",
    "(EngineCore pid=94) INFO 11-30 00:00:58 [kv_cache_utils.py:1315] Maximum concurrency for 32,768 tokens per request: 11.60x",
    "(EngineCore pid=94) INFO 11-30 00:01:09 [core.py:282] init engine (profile, create kv cache, warmup model) took 38.2 seconds",
    "(APIServer pid=1) INFO:     Application startup complete.",
)  # fmt: skip
RELEVANT = (
    "(EngineCore pid=94) WARNING {time} [scheduler.py:1520] Sequence group {n} is preempted by PreemptionMode.RECOMPUTE "
    "mode because there is not enough KV cache space.",
    "(APIServer pid=1) ERROR {time} [serving_chat.py:244] Error in preprocessing prompt inputs",
    "(APIServer pid=1) ERROR {time} [serving_chat.py:244] ValueError: This model's maximum context length is 32768 tokens. "
    "However, you requested 33{n:03d} tokens in the messages.",
)
FATAL = (
    "(EngineCore pid=94) ERROR {time} [core.py:1131] EngineCore encountered a fatal error.",
    "(EngineCore pid=94) ERROR {time} [core.py:1131] Traceback (most recent call last):",
    '(EngineCore pid=94) ERROR {time} [core.py:1131]   File "/app/vllm/v1/engine/core.py", line 1122, in run_engine_core',
    "(EngineCore pid=94) ERROR {time} [core.py:1131]     engine_core.run_busy_loop()",
    "(EngineCore pid=94) ERROR {time} [core.py:1131] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB. "
    "GPU 0 has a total capacity of 79.19 GiB of which 21.75 MiB is free.",
)
EVERY = 1000  # one line in so many matters


def lines(size: int, seed: int = 7) -> Iterator[str]:
    """Lines of about `size` bytes in all; the fatal error stands at two thirds of it."""
    chance = random.Random(seed)
    written = count = 0
    fatal_at = size * 2 // 3
    for line in START:
        written += len(line) + 1
        yield line
    block: list[str] = []
    while written < size:
        count += 1
        time = f"11-30 {count // 360000 % 24:02d}:{count // 6000 % 60:02d}:{count // 100 % 60:02d}"
        if count % EVERY == 0:
            block = [chance.choice(RELEVANT).format(time=time, n=chance.randrange(1000))]
        elif fatal_at <= written:
            block, fatal_at = [line.format(time=time) for line in FATAL], size * 2
        elif count % 500 == 1:
            block = [
                f"(APIServer pid=1) INFO {time} [loggers.py:259] Engine 000: Avg prompt throughput: "
                f"{chance.random() * 9000:.1f} tokens/s, Avg generation throughput: {chance.random() * 900:.1f} tokens/s, "
                f"Running: {chance.randrange(90)} reqs, Waiting: 0 reqs, GPU KV cache usage: {chance.random() * 80:.1f}%, "
                "Prefix cache hit rate: 41.0%"
            ]
        else:
            block = [f'(APIServer pid=1) INFO:     10.0.{count % 250}.7:{40000 + count % 9000} - '
                     '"POST /v1/chat/completions HTTP/1.1" 200 OK']  # fmt: skip
        for line in block:
            written += len(line) + 1
            yield line


def write(path: Path, size: int) -> None:
    """Write such a log of `size` bytes: a stretch of 64 MiB is made, then repeated, so that making it takes no time."""
    data = ("\n".join(lines(min(size, 64 << 20))) + "\n").encode()
    again = data[len("\n".join(START)) + 1 :]
    with path.open("wb") as file:
        file.write(data)
        while file.tell() < size:
            file.write(again[: size - file.tell()])


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
