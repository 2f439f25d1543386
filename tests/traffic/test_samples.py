"""The server's own side: metrics pages of three engines, and the local cards through a stub of NVML."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from driver_stubs import built
from loadpath.core.traffic import GpuSample
from loadpath.traffic.samples import is_local, sample_of
from loadpath.traffic.wire import target_of

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 11.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 4096.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 1024.0
vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="m"} 7.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 1.5
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 9.0
"""
SGLANG = b'sglang:num_running_reqs{model_name="m"} 5\nsglang:num_queue_reqs{model_name="m"} 1\nsglang:token_usage{model_name="m"} 0.25\n'
LLAMA = b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 6\nllamacpp:tokens_predicted_total 1.5e+3\n"


def test_a_page_of_vllm_is_added_over_its_engines() -> None:
    seen = sample_of(1.0, VLLM)
    assert seen and (seen.running, seen.waiting, seen.kv_usage, seen.preemptions) == (7.0, 11.0, 0.75, 2.0)
    assert (seen.prefix_queries, seen.prefix_hits) == (4096.0, 1024.0)
    assert seen.values == {"vllm:request_queue_time_seconds_sum": 1.5, "vllm:request_queue_time_seconds_count": 9.0}


def test_pages_of_sglang_and_llama_cpp() -> None:
    one, two = sample_of(1.0, SGLANG), sample_of(1.0, LLAMA)
    assert one and (one.running, one.waiting, one.kv_usage) == (5.0, 1.0, 0.25)
    assert two and (two.running, two.waiting, two.generation_tokens) == (2.0, 6.0, 1500.0)
    assert sample_of(1.0, b"go_gc_duration_seconds 1\n") is None


@pytest.mark.parametrize(
    ("url", "local"), [("http://localhost:1", True), ("http://127.0.1.1:1", True), ("http://gpu7:1", False)]
)
def test_only_a_server_of_this_machine_has_this_machines_cards(url: str, local: bool) -> None:
    assert is_local(target_of(url)) is local


def test_cards_are_sampled_until_standard_input_ends(tmp_path: Path) -> None:
    pytest.importorskip("pynvml")
    told = tmp_path / "scenario"
    told.write_text("count 2\nbusy.1 97\npower.1 412\nsm-clock.1 1410\nreasons.1 0x4\n")
    environ = {**os.environ, "LD_LIBRARY_PATH": str(built(tmp_path)), "LOADPATH_STUB": str(told)}
    words = [sys.executable, "-m", "loadpath.collect.nvml_stream"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, env=environ, timeout=20)
    rows = [msgspec.convert({**json.loads(line), "time": 0.0}, GpuSample) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [row.gpu for row in rows] == [0, 1]
    assert (rows[1].busy, rows[1].watts, rows[1].sm_mhz, rows[1].throttle, rows[1].limit_watts) == (
        0.97,
        412.0,
        1410,
        4,
        700.0,
    )
