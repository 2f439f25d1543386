"""`loadpath` on a real vLLM, on the CPU, with a tiny model: what it measures, and what it foretold of the start.

The tests share one server and run in this order: the first meets it cold, the last kills it.
"""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

from real_engines.conftest import BLOCK, BLOCKS, CONTEXT
from real_engines.running import Server, bench, run, stages


def test_the_first_request_is_seen_to_be_cold(vllm: Server, tmp_path: Path) -> None:
    made = bench(tmp_path, vllm.url, "--requests", "40", "--concurrency", "1", "--output-tokens", "2")
    first = made.result.warm_up[0]
    assert first.bucket == "first request" and first.cold_ttft
    assert made.result.exchanges[0].phase == "cold", "it is not among what was measured"
    assert made.figures.ttft and first.cold_ttft > 1.2 * made.figures.ttft.p50


def test_it_is_measured_and_named(vllm: Server, tmp_path: Path) -> None:
    made = bench(tmp_path, vllm.url, "--requests", "40", "--concurrency", "4", "--input-tokens", "64",
                 "--output-tokens", "32")  # fmt: skip
    server = made.result.server
    assert (server.engine, server.max_model_len) == ("vllm", CONTEXT) and server.version.startswith("0.32")
    assert not made.figures.errors and made.figures.output_tokens == 32 * made.figures.completed
    assert made.figures.prompt_basis == "usage" and made.figures.input_tokens
    assert abs(made.figures.input_tokens / made.figures.completed - 64) < 13, (
        "lengths are learnt from the server's count"
    )


def test_it_is_ready_once_it_answers_steadily(vllm: Server) -> None:
    status, report = run("ready", vllm.url, "--timeout", "60s", "--warm", "--shape", "64x8", "--json")
    assert status == 0, report
    assert {name: state for name, (state, _) in stages(report).items()} == dict.fromkeys(
        ("port", "health", "models", "first-token", "warm 64x8"), "holds"
    )
    status, line = run("ready", vllm.url, "--probe")
    assert status == 0 and len(line.strip().splitlines()) == 1


def test_the_plan_foretells_the_cache_of_this_start(vllm: Server) -> None:
    """With the room and the block size of the CPU build (VLLM_CPU_KVCACHE_SPACE, 128 tokens): the same tokens."""
    log = vllm.log.read_text("utf-8", "replace")
    computed = re.search(r"Overriding num_gpu_blocks=(\d+) with num_gpu_blocks_override=(\d+)", log)
    model = re.search(r"model='([^']+)'", log)
    assert computed and model and int(computed[2]) == BLOCKS, "the words of this release"
    asked = ("plan", model[1], "--gpu", "24GiB", "--available-kv-gib", "1", "--engine-version", "0.32.0",
             "--max-model-len", str(CONTEXT), "--block-size", str(BLOCK), "--json")  # fmt: skip
    status, out = run(*asked)
    assert status == 0 and json.loads(out)["plan"]["kv_tokens"] == int(computed[1]) * BLOCK
    status, out = run(*asked, "--against", str(vllm.log))  # with the log's own --num-gpu-blocks-override
    rows = next(table["rows"] for table in json.loads(out)["tables"] if table["id"] == "against")
    assert {row[0]: row[-1] for row in rows} == {"KV cache": 0.0, "KV tokens": 0.0, "concurrency": 0.0}, rows


def test_its_log_is_read_as_a_good_start(vllm: Server) -> None:
    status, out = run("read", str(vllm.log), "--json")
    report = json.loads(out)
    assert status == 0, report["verdict"]
    assert {step["step"]: step["state"] for step in report["steps"]}["http-server"] == "done"
    assert any(fact["type"] == "KvPool" and fact.get("tokens") == BLOCKS * BLOCK for fact in report["facts"])


def test_a_request_over_the_context_is_an_error_and_said(vllm: Server, tmp_path: Path) -> None:
    made = bench(tmp_path, vllm.url, "--requests", "6", "--concurrency", "2", "--input-tokens", "3000", "--warmup", "0")
    refused = [x for x in made.result.exchanges if x.status == 400]
    assert len(refused) == 6 and all(x.error == "http" and str(CONTEXT) in x.message for x in refused)
    assert made.status != 0 and made.report["verdict"]["state"] != "healthy"


def test_preemption_under_load_is_seen_in_its_metrics(vllm: Server, tmp_path: Path) -> None:
    made = bench(tmp_path, vllm.url, "--requests", "72", "--concurrency", "24", "--input-tokens", "64",
                 "--output-tokens", "256", "--warmup", "0")  # fmt: skip
    samples = [sample for sample in made.result.metrics if sample.preemptions is not None]
    assert samples and all(0 <= sample.time <= made.result.seconds for sample in samples)
    assert (samples[-1].preemptions or 0) > (samples[0].preemptions or 0), f"24 streams on {BLOCKS} blocks"
    assert max(sample.kv_usage or 0 for sample in samples) > 0.5
    assert made.figures.completed >= 72, "preempted requests are computed anew, not lost"


def test_a_server_that_dies_in_mid_run_ends_the_run_and_is_told(vllm: Server, tmp_path: Path) -> None:
    killer = threading.Timer(4, vllm.kill)
    killer.start()
    begun = time.monotonic()
    made = bench(tmp_path, vllm.url, "--duration", "90s", "--concurrency", "4", "--input-tokens", "64",
                 "--output-tokens", "64", "--warmup", "0")  # fmt: skip
    assert time.monotonic() - begun < 45, "it does not go on asking a dead server"
    assert "gone" in made.result.interrupted and made.figures.completed > 0
    assert made.status == 1 and made.report["root_cause"] == "bench-server-gone"
    assert run("ready", vllm.url, "--timeout", "2s")[0] == 1
