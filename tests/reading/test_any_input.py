"""Whatever is read, a report comes back, and never an exception."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.reading.service import read_bytes

# Beginnings of what readers know, to be cut and mixed.
PIECES = st.sampled_from([
    "| NVIDIA-SMI 575.51.03   Driver Version: 575.51.03   CUDA Version: 12.9 |\n", "+-----+\n", "|   0  NVIDIA H100 NVL   Off |\n",
    "<nvidia_smi_log>\n", "<gpu id='", "# gpu   pwr gtemp\n# Idx  W  C\n    0   70   40\n", "\tGPU0\tGPU1\nGPU0\t X \tNV18\n",
    "index, name, memory.total [MiB]\n0, NVIDIA H100, 81559 MiB\n", "GPU 0: NVIDIA H100 (UUID: GPU-1)\n", "PyTorch version: 2.7.0\n",
    "Traceback (most recent call last):\n", '  File "x.py", line 1, in f\n', "RuntimeError: CUDA error: out of memory\n",
    "Xid (PCI:0000:01:00): 79, ",
    "(EngineCore_DP0 pid=9) ERROR 12-24 08:50:35 [core.py:866] ", "Available KV cache memory: nan GiB\n", "GPU KV cache size: 0 tokens\n",
    "Maximum concurrency for 0 tokens per request: 0.00x\n", "[2024-10-22 06:31:49 TP0] Load weight end. avail mem=-1 GB\n",
    "time=2026-04-02T13:13:15.973Z level=INFO source=server.go:1 msg=", "llama_model_loader: - kv   7:", "vllm serve m --max-model-len x\n",
    "Process 99999999999999999999 has 1e9 GiB memory in use. Tried to allocate 99999999999999999999.00 GiB\n", "0%",
    "\n", "\r", "\0", "-1 ", "1e999 ",
])  # fmt: skip


@given(st.lists(PIECES, max_size=25).map("".join))
@settings(max_examples=120, deadline=None)
def test_any_mixture_of_captures_gives_a_report(text: str) -> None:
    assert read_bytes([("paste", text.encode())]).verdict.sentence


@given(st.binary(max_size=500))
@settings(max_examples=40, deadline=None)
def test_any_bytes_give_a_report(data: bytes) -> None:
    assert read_bytes([("paste", data)]).verdict.sentence
