"""Every prefix comes off, in any nesting; what it said is kept; what is content stays."""

from __future__ import annotations

import pytest

from loadpath.core.text import Line, Origin
from loadpath.intake.clean import clean

HEADER = "ERROR 12-24 08:50:35 [core.py:866] "
AT = ((335 + 23) * 24 + 8) * 3600 + 50 * 60 + 35.0


def one(text: str) -> Line:
    (line,) = clean(text.encode())
    return line


# prefix → what it tells
PREFIXES = [
    # vLLM's record headers of every era
    ("ERROR 12-24 08:50:35 core.py:866] ", Origin(time=AT, level="ERROR", location="core.py:866")),
    (HEADER, Origin(time=AT, level="ERROR", location="core.py:866")),
    ("WARNING 12-24 08:50:35 [v1/core/kv_cache_utils.py:12] ", Origin(time=AT, level="WARNING", location="v1/core/kv_cache_utils.py:12")),
    ("INFO 12-24 08:50:35 [model_executor/.../x/y.py:3] ", Origin(time=AT, level="INFO", location="model_executor/.../x/y.py:3")),
    ("[multiproc_executor.py:492] ", Origin(location="multiproc_executor.py:492")),
    # process prefixes of every era
    ("(VllmWorkerProcess pid=42877) ", Origin(process="VllmWorkerProcess", pid=42877)),
    ("(VllmWorker rank=3 pid=7) ", Origin(process="VllmWorker", pid=7, rank=3)),
    ("(VllmWorker TP1 pid=7) ", Origin(process="VllmWorker TP1", pid=7, rank=1)),
    ("(Worker_DP0_TP3_EP3 pid=7) ", Origin(process="Worker_DP0_TP3_EP3", pid=7, rank=3)),
    ("(Worker_PP1 pid=7) ", Origin(process="Worker_PP1", pid=7, rank=1)),
    ("(EngineCore_DP0 pid=94) ", Origin(process="EngineCore_DP0", pid=94)),
    ("(ApiServer_2 pid=94) ", Origin(process="ApiServer_2", pid=94)),
    ("(RayWorkerWrapper pid=345, ip=10.0.0.9) ", Origin(process="RayWorkerWrapper", pid=345, ip="10.0.0.9")),
    ("(MapWorker(MapBatches(vLLMEngineStageUDF)) pid=5) ", Origin(process="MapWorker(MapBatches(vLLMEngineStageUDF))", pid=5)),
    ("(pid=345) ", Origin(pid=345)),
    ("(raylet, ip=10.0.0.9) ", Origin(process="raylet", ip="10.0.0.9")),
    ("[rank3]: ", Origin(rank=3)),
    ("[default0]:", Origin(rank=0)),
    ("[TP2] ", Origin(process="TP2", rank=2)),
    ("[2024-12-24 08:50:35 TP1] ", Origin(time=AT, year=2024, process="TP1", rank=1)),
    ("[2024-12-24 08:50:35 DP0 TP3 EP3] ", Origin(time=AT, year=2024, process="DP0_TP3_EP3", rank=3)),
    ("[1,2]<stderr>: ", Origin(rank=2, stream="stderr")),
    # transports
    ("2024-12-24T08:50:35.000000000Z ", Origin(time=AT, year=2024)),
    ("2024-12-24T08:50:35.000000000Z stderr F ", Origin(time=AT, year=2024, stream="stderr")),
    ("[2024-12-24T08:50:35Z] ", Origin(time=AT, year=2024)),
    ("[pod/vllm-7f9/server] ", Origin(pod="vllm-7f9", container="server")),
    ('{namespace="llm", pod="vllm-0", container="server"} ', Origin(pod="vllm-0", container="server")),
    ("Dec 24 08:50:35 gpu1 vllm[1234]: ", Origin(time=AT, host="gpu1", process="vllm", pid=1234)),
    ("2024-12-24T08:50:35+0000 gpu1 vllm[1234]: ", Origin(time=AT, year=2024, host="gpu1", process="vllm", pid=1234)),
    ("<14>1 2024-12-24T08:50:35Z gpu1 vllm 1234 - - ", Origin(time=AT, year=2024, host="gpu1", process="vllm", pid=1234)),
    # the kernel
    ("[  123.456789] ", Origin(uptime=123.456789)),
    ("[123.456] ", Origin(uptime=123.456)),
    ("<4>[  123.456789] ", Origin(uptime=123.456789)),
    ("[  123.456789][ T1234] ", Origin(uptime=123.456789)),
    ("[Tue Dec 24 08:50:35 2024] ", Origin(time=AT, year=2024)),
    ("Dec 24 08:50:35 gpu1 kernel: ", Origin(time=AT, host="gpu1", process="kernel")),
    ("Dec 24 08:50:35 gpu1 kernel: [  123.456789] ", Origin(time=AT, host="gpu1", process="kernel", uptime=123.456789)),
    ("kernel: ", Origin(process="kernel")),
    ("kern  :err   : 2024-12-24T08:50:35,000000+00:00 ", Origin(time=AT, year=2024, level="ERROR", process="kernel")),
    ("3,964,123456789,-;", Origin(uptime=123.456789)),
    # other loggers
    ("2024-12-24 08:50:35,000 - vllm.engine - ERROR - ", Origin(time=AT, year=2024, level="ERROR")),
    ("2024-12-24 08:50:35,000 - ERROR - ", Origin(time=AT, year=2024, level="ERROR")),
    ("2024-12-24 08:50:35.000 | ERROR    | vllm.core:step:12 - ", Origin(time=AT, year=2024, level="ERROR", location="vllm.core:step:12")),
    ("2024-12-24 08:50:35,000\tINFO worker.py:1852 -- ", Origin(time=AT, year=2024, level="INFO", location="worker.py:1852")),
    ("[2024-12-24 08:50:35,000 E 629 629] (raylet) node_manager.cc:3069: ",
     Origin(time=AT, year=2024, level="ERROR", pid=629, location="node_manager.cc:3069")),
    ("[2024-12-24 08:50:35,000] [INFO] [launch.py:318:sigkill_handler] ",
     Origin(time=AT, year=2024, level="INFO", location="launch.py:318")),
    ("[2024-12-24 08:50:35] WARNING model_config.py:12: ", Origin(time=AT, year=2024, level="WARNING", location="model_config.py:12")),
    ("E1224 08:50:35.000000       1 factory.go:112] ", Origin(time=AT, level="ERROR", pid=1, location="factory.go:112")),
    ("0.01.123.456 E ", Origin(uptime=1.123456, level="ERROR")),
    ("INFO:vllm.engine:", Origin(level="INFO")),
]  # fmt: skip


@pytest.mark.parametrize(("prefix", "origin"), PREFIXES, ids=[p for p, _ in PREFIXES])
def test_a_prefix_comes_off_and_what_it_says_is_kept(prefix: str, origin: Origin) -> None:
    line = one(prefix + "no CUDA-capable device is detected")
    assert line.text == "no CUDA-capable device is detected"
    assert line.origin == origin


NESTED = [
    "2024-12-24T08:50:35.1Z (EngineCore_0 pid=9) (RayWorkerWrapper pid=3, ip=10.0.0.2) " + HEADER,
    "server-1  | 2024-12-24T08:50:35.1Z [rank0]: " + HEADER,
    "[pod/vllm-0/vllm] 2024-12-24T08:50:35.1Z (Worker_TP2 pid=5) (Worker_TP6 pid=6) " + HEADER,
    "Dec 24 08:50:35 gpu1 docker[77]: (APIServer pid=1) " + HEADER,
    "> 12: " + HEADER,
    "&gt; 0: \x1b[36m(Worker pid=1)\x1b[0m " + HEADER,
]


@pytest.mark.parametrize("prefix", NESTED)
def test_prefixes_come_off_in_any_nesting(prefix: str) -> None:
    line = one(prefix + '  File "x.py", line 1')
    assert line.text == '  File "x.py", line 1'
    assert (line.origin.level, line.origin.location) == ("ERROR", "core.py:866")


def test_the_innermost_process_speaks_and_the_outermost_clock_counts() -> None:
    origin = one(
        "2026-01-02T00:00:05Z (EngineCore_0 pid=9) (RayWorkerWrapper pid=3, ip=10.0.0.2) " + HEADER + "x"
    ).origin
    assert (origin.process, origin.pid, origin.ip, origin.year, origin.time) == (
        "RayWorkerWrapper",
        3,
        "10.0.0.2",
        2026,
        86405.0,
    )


@pytest.mark.parametrize(
    "record",
    [
        r'{"log":"WORDS\n","stream":"stderr","time":"2026-11-30T01:28:27.2Z"}',
        '{"level":"error","ts":1764473040.5,"caller":"main.go:12","msg":"WORDS"}',
        '{"timestamp":"2026-04-14T15:51:57Z","level":"ERROR","fields":{"message":"WORDS"},"target":"x"}',
        '{"MESSAGE":"WORDS","__REALTIME_TIMESTAMP":"1764473040000000","_HOSTNAME":"h","_PID":"12"}',
        '{"log":"2026-11-30 01:28:27,2 - x - ERROR - WORDS","stream":"stdout","kubernetes":{"pod_name":"p"}}',
    ],
)
def test_json_records_yield_their_words(record: str) -> None:
    assert (
        one(record.replace("WORDS", "Failed to initialize NVML: Unknown Error")).text
        == "Failed to initialize NVML: Unknown Error"
    )


def test_a_json_record_of_several_lines_yields_each_under_its_number() -> None:
    trace = r"Traceback (most recent call last):\n  File 'x', line 1\nKeyError: 1"
    record = '{"level":"error","time":"2026-11-30T01:28:27Z","message":"failed","exception":"TRACE"}'
    lines = clean(record.replace("TRACE", trace).encode())
    assert [line.text for line in lines] == [
        "failed",
        "Traceback (most recent call last):",
        "  File 'x', line 1",
        "KeyError: 1",
    ]
    assert {line.number for line in lines} == {1}


def test_an_answer_of_an_api_is_content() -> None:
    body = '{"object":"error","message":"bad","type":"BadRequestError","param":null,"code":400}'
    assert one(body).text == body


def test_partial_lines_of_a_container_runtime_are_joined() -> None:
    (line,) = clean(b"2026-01-02T00:00:05Z stderr P RuntimeError: CUDA \n2026-01-02T00:00:05Z stderr F out of memory\n")
    assert (line.text, line.number, line.last_number) == ("RuntimeError: CUDA out of memory", 1, 2)


def test_what_ray_folded_is_counted() -> None:
    line = one(HEADER + "boom [repeated 3x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 …)")
    assert (line.text, line.origin.repeats) == ("boom", 3)


CONTENT = [
    "|   0  NVIDIA H100 NVL                Off |   00000000:2A:00.0 Off |                    0 |",
    "+-----------------------------------------------------------------------------------------+",
    '  File "/app/vllm/core.py", line 12, in run',
    "    raise ValueError(",
    "           ^^^^^^^^^^",
    "0: NVIDIA GeForce RTX 5070 Ti 16303MiB",
    "GPU0\t X \tNODE\tSYS\t0-47",
    "  gpus: all",
    "INFO:     Started server process [2806]",
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
    "srv    load_model: loading model 'models/tiny.gguf'",
    "[TensorRT-LLM][ERROR] CUDA runtime error",
    "host1:909:910 [0] NCCL INFO Channel 00 : 0 -> 1 via P2P/IPC",
    "docker: Error response from daemon: could not select device driver",
    "dmesg | tail",
    "[...]",
    "# GPU blocks: 1478, # CPU blocks: 2048",
    "(24.0 GiB KV cache is needed, which is larger than the available KV cache memory (3.18 GiB).",
    "WARNING: Open failed on server.log",
]


@pytest.mark.parametrize("text", CONTENT)
def test_content_is_never_taken_for_a_prefix(text: str) -> None:
    _, line, _ = clean(f"x\n{text}\nx".encode())
    assert line.text == text
