"""Broken messages are made whole where something shows that they were broken, and only there."""

from __future__ import annotations

import textwrap

from loadpath.core.text import Line
from loadpath.intake.clean import clean


def lines(text: str) -> list[Line]:
    return clean(text.encode())


def hard_wrapped(text: str, width: int) -> str:
    """As a terminal of that width copies it."""
    return "\n".join(line[i : i + width] for line in text.split("\n") for i in range(0, max(1, len(line)), width))


RECORDS = "\n".join(
    f"(EngineCore_0 pid=7) INFO 09-03 04:3{i}:47 [core.py:74] message number {i}: " + words
    for i, words in enumerate([
        "short", "a=" + ", b=".join("x" * 30 for _ in range(9)), "Available KV cache memory: 11.03 GiB for the pool of this engine, after "
        "weights, activations and graphs were taken from the budget", "short again",
        "c=" + ", d=".join("y" * 20 for _ in range(14)), "e=" + ", f=".join("z" * 25 for _ in range(8)),
    ])
)  # fmt: skip


def test_a_terminals_width_is_seen_and_undone() -> None:
    found = lines(hard_wrapped(RECORDS, 100))
    assert [line.text for line in found] == [line.text for line in lines(RECORDS)]
    assert found[1].number == 2 and found[1].last_number > 2


def test_a_message_wrapped_by_a_mail_client_is_joined() -> None:
    message = (
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
        "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
    )
    for width in (70, 76, 80, 100):
        (line,) = lines("\n".join(textwrap.wrap(message, width)))
        assert line.text == message


def test_a_kernel_message_goes_on_in_indented_lines() -> None:
    found = lines(
        "[ 1157.046099] NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:1db5)\n"
        "               NVRM: installed in this system is not supported by the\n"
        "               NVRM: NVIDIA 575.57 driver release.\n"
        "[ 1157.046101] nvidia: probe failed\n"
    )
    assert found[0].text.endswith("installed in this system is not supported by the NVIDIA 575.57 driver release.")
    assert (found[0].last_number, found[1].number) == (3, 4)


SEPARATE = [
    # records that repeat their header
    "INFO 12-24 08:50:35 [a.py:1] Available routes are:\nINFO 12-24 08:50:35 [a.py:1] Route: /health, Methods: GET",
    # a traceback
    'Traceback (most recent call last):\n  File "/app/vllm/engine/llm_engine.py", line 483, in _initialize_kv_caches\n'
    "    self.model_executor.determine_num_available_blocks())\nRuntimeError: x",
    # lists of equal width
    "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000001-0000-4000-8000-000000000001)\n"
    "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-00000002-0000-4000-8000-000000000002)\n"
    "GPU 2: NVIDIA A100-SXM4-80GB (UUID: GPU-00000003-0000-4000-8000-000000000003)\n"
    "GPU 3: NVIDIA A100-SXM4-80GB (UUID: GPU-00000004-0000-4000-8000-000000000004)",
    # a table
    "| N/A   55C    P0             98W /  400W |   89079MiB /  95830MiB |      0%      Default |\n"
    "|                                         |                        |             Disabled |",
    # an error, then what another program says
    "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory\nsgl_kernel: 0.3.9.post2",
    "NVRM: GPU 0000:05:00.0: rm_init_adapter failed, device minor number 0\ncaller os_map_kernel_space.part.0+0xa2/0xb0",
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer\nllama_model_load_from_file_impl: failed to load model",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be asynchronously "
    "reported at some other API call, so the stacktrace below might be incorrect.",
]  # fmt: skip


def test_lines_that_merely_follow_each_other_stay_apart() -> None:
    for text in SEPARATE:
        assert [line.number for line in lines(text)] == list(range(1, text.count("\n") + 2)), text
