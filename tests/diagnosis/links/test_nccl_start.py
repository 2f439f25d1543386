"""A log whose last words are NCCL's."""

from __future__ import annotations

from conftest import read_text

START = (
    "INFO 05-06 10:40:24 [api_server.py:1034] vLLM API server version 0.8.4\n"
    "INFO 05-06 10:40:41 [core.py:61] Initializing a V1 LLM engine (v0.8.4) with config: model='org/m', "
    "tensor_parallel_size=2\n"
)
LOADED = "(VllmWorker rank={0} pid={0}) INFO 05-06 10:40:45 [pynccl.py:69] vLLM is using nccl==2.21.5\n"


def test_a_start_that_ends_there_may_hang_or_be_cut() -> None:
    report = read_text(START + LOADED.format(0) + LOADED.format(1))
    root = report.root
    assert root is not None and root.id == "nccl-start-unfinished"
    assert (root.severity, root.certainty, report.verdict.state) == ("warning", "possible", "starting")
    assert any("py-spy" in check.command for check in root.next_checks)


def test_a_start_that_goes_on_is_none() -> None:
    text = START + LOADED.format(0) + "INFO 05-06 10:40:50 [gpu_model_runner.py:1276] Starting to load model org/m...\n"
    assert read_text(text).root is None


def test_a_few_lines_of_nccl_by_themselves_are_no_log_that_breaks_off() -> None:
    assert read_text("node1:81:81 [0] NCCL INFO Channel 00/08 :    0   1   2   3\n").root is None
