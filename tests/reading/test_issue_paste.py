"""A whole bug report in one paste: every part is known by kind and lines, and the server's failure leads."""

from __future__ import annotations

from conftest import read_text

PASTE = """### Your current environment

```text
Collecting environment information...
PyTorch version: 2.5.1+cu124
CUDA used to build PyTorch: 12.4
OS: Ubuntu 22.04.4 LTS (x86_64)
Nvidia driver version: 550.54.14
```

I start it like this on a card that nobody else uses:

```bash
vllm serve Qwen/Qwen2.5-14B-Instruct --max-model-len 32768
```

```
INFO 03-14 09:13:35 [api_server.py:1896] vLLM API server version 0.8.5
INFO 03-14 09:13:42 [gpu_model_runner.py:1329] Starting to load model Qwen/Qwen2.5-14B-Instruct...
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 90.00 MiB is free. Process 1 has 23.53 GiB memory in use. Of the allocated memory 23.11 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.
```

```
INFO 03-14 09:23:35 [api_server.py:1896] vLLM API server version 0.8.5
INFO 03-14 09:23:42 [gpu_model_runner.py:1329] Starting to load model Qwen/Qwen2.5-14B-Instruct-AWQ...
```

```
Traceback (most recent call last):
  File "/home/me/client.py", line 3, in <module>
    r = client.chat.completions.create(model="x", messages=[])
openai.APIConnectionError: Connection error.
```
"""  # noqa: E501


def test_the_parts_are_told_apart() -> None:
    report = read_text(PASTE)
    kinds = [(c.kind, c.run) for c in report.captures]
    for part in (("collect-env", 1), ("vllm-log", 1), ("vllm-log", 2), ("traceback", 1), ("command-line", 1)):
        assert part in kinds, kinds
    command = next(c for c in report.captures if c.kind == "command-line")
    assert PASTE.splitlines()[command.first_line - 1].startswith("vllm serve")


def test_the_servers_failure_leads_and_not_the_clients() -> None:
    report = read_text(PASTE)
    assert report.root is not None and report.root.boundary == "memory-fit"
