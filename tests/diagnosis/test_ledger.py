"""Where each GPU's memory went."""

from __future__ import annotations

from conftest import read_text
from loadpath.core.report import MemoryLedger
from loadpath.core.units import gib

VERSION = "INFO [core.py:1] Initializing a V1 LLM engine (v{}) with config: model='org/m', quantization=None\n"
ADVICE = (
    "INFO [gpu_worker.py:390] Free memory on device (94.1/95.0 GiB) on startup. Desired GPU memory utilization is (0.92, "
    "87.4 GiB). Actual usage is 27.31 GiB for weight, 4.41 GiB for peak activation, 0.89 GiB for non-torch memory, and "
    "0.6 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with --kv-cache-memory=1 (1.0 GiB) to fit into "
    "requested memory. Current kv cache memory in use is {} GiB.\n"
)


def parts(ledger: MemoryLedger) -> dict[str, int]:
    return {part.name: part.bytes for part in ledger.parts}


def test_a_breakdown_that_adds_up_leaves_nothing_unaccounted() -> None:
    ledger = read_text(VERSION.format("0.26.0") + ADVICE.format("54.19")).memory[0]
    assert (ledger.total_bytes, ledger.budget_bytes, ledger.utilisation) == (gib(95.0), gib(87.4), 0.92)
    assert "unaccounted" not in parts(ledger)
    assert parts(ledger)["KV cache"] == gib(54.19)


def test_what_does_not_add_up_is_shown() -> None:
    ledger = read_text(VERSION.format("0.26.0") + ADVICE.format("50.0")).memory[0]
    assert abs(parts(ledger)["unaccounted"] - gib(4.19)) < gib(0.02)
    assert next(p.basis for p in ledger.parts if p.name == "unaccounted") == "computed"


def test_graphs_are_outside_the_budget_before_0_20() -> None:
    ledger = read_text(VERSION.format("0.17.1") + ADVICE.format("54.79")).memory[0]
    assert "unaccounted" not in parts(ledger)


def test_each_rank_has_a_ledger_of_its_own() -> None:
    lines = "".join(
        f"(VllmWorker rank={rank} pid=4{rank}) INFO 08-16 02:06:31 [gpu_model_runner.py:1] Model loading took 27.6 GiB and "
        f"119.5 seconds\n(VllmWorker rank={rank} pid=4{rank}) INFO 08-16 02:14:35 [gpu_worker.py:255] Available KV cache "
        f"memory: {size} GiB\n"
        for rank, size in ((0, 35.74), (1, 35.65))
    )
    ledgers = read_text(lines).memory
    assert [ledger.gpu for ledger in ledgers] == [0, 1]
    assert [parts(ledger)["KV cache"] for ledger in ledgers] == [gib(35.74), gib(35.65)]


def test_a_cpu_backend_has_no_gpu_ledger() -> None:
    assert read_text("INFO [kv_cache_utils.py:1] CPU KV cache size: 2,097,152 tokens").memory == ()
