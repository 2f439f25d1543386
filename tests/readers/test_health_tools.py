"""dcgmi, Fabric Manager, exporters' pages, alerts and gpud."""

from __future__ import annotations

from types import ModuleType

from conftest import shared_file
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import ServingStats
from loadpath.core.facts.gpu import GpuHealth
from loadpath.core.facts.health import Alert, DiagResult, GpusFound, HealthReport, Metric
from loadpath.core.facts.kernel import SxidEvent
from loadpath.core.text import Capture
from loadpath.intake.clean import clean
from loadpath.readers import alerts, prometheus_text
from loadpath.readers.nvidia import dcgm_diag, fabric_manager


def block(reader: ModuleType, text: str) -> list[Fact]:
    lines = clean(text.encode())
    end = reader.extent(lines, 0)
    assert end > 0, "claims the block"
    return list(reader.read(Capture("block", "paste", tuple(lines[:end]))))


BOX = """\
| Diagnostic                | Result                                         |
+===========================+================================================+
| GPU Memory                | Pass - GPUs: 0, 2, 3                           |
|                           | Fail - GPU: 1                                  |
| Warning                   | GPU 1 Thermal violations totaling 4.5 seconds  |
|                           |  started at 9.7 seconds into the test for GPU  |
|                           |  1 Verify that the cooling on this machine is  |
| Inforom                   | Pass                                           |
"""


def test_words_broken_at_the_edge_of_a_column_are_whole_again() -> None:
    (result,) = (f for f in block(dcgm_diag, BOX) if isinstance(f, DiagResult) and f.outcome == "fail")
    assert (result.test, result.gpus) == ("GPU Memory", (1,))
    assert "totaling 4.5 seconds started at 9.7 seconds into the test for GPU 1" in result.words


def test_newer_layout_names_the_gpu_before_the_outcome() -> None:
    results = [f for f in block(dcgm_diag, """\
| Diagnostic                | Result                                         |
+===========================+================================================+
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
| memory                    | Fail                                           |
|                           | GPU3: Fail                                     |
""") if isinstance(f, DiagResult)]  # fmt: skip
    assert [(r.test, r.outcome, r.gpus) for r in results if r.gpus] == [
        ("software", "pass", (0,)), ("memory", "fail", (3,)),
    ]  # fmt: skip


def test_health_monitor() -> None:
    reports = [f for f in block(dcgm_diag, """\
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 3                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> NVLink system    | Failure                                                  |
|                           | GPU 3's NvLink link 5 is currently down.                 |
""") if isinstance(f, HealthReport)]  # fmt: skip
    worst = reports[-1]
    assert (worst.gpu, worst.component, worst.state) == (3, "NVLink system", "unhealthy")
    assert "link 5 is currently down" in worst.words


def test_listing_that_was_cut() -> None:
    path = shared_file("captures", "nvidia", "dcgm", "discovery-l-h800-cut.txt")
    (found,) = block(dcgm_diag, path.read_text())
    assert isinstance(found, GpusFound) and (found.count, found.listed) == (8, 3)


def test_fabric_manager_error() -> None:
    line = ("[Dec 19 2024 19:17:49] [ERROR] [tid 1374] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch "
            "pci bus id 00000000:83:00.0 physical id 0 port 34")  # fmt: skip
    (event,) = fabric_manager.read(Capture("log", "paste", tuple(clean(line.encode()))))
    assert isinstance(event, SxidEvent)
    assert (event.code, event.fatal, event.pci, event.switch, event.link) == (12028, False, "0000:83:00", 0, 34)


def test_pages_of_engines_and_of_the_dcgm_exporter() -> None:
    facts = block(prometheus_text, """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 6.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.93
vllm:num_preemptions_total{engine="0",model_name="m"} 43.0
DCGM_FI_DEV_XID_ERRORS{gpu="3",pci_bus_id="00000000:5D:00.0"} 79
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="2",pci_bus_id="00000000:4D:00.0"} 1
""")  # fmt: skip
    (stats,) = (f for f in facts if isinstance(f, ServingStats))
    assert (stats.running, stats.waiting, stats.kv_usage, stats.preemptions) == (5, 6, 0.93, 43)
    (health,) = (f for f in facts if isinstance(f, GpuHealth))
    assert health.remap_failed and health.bus_id == "00000000:4D:00.0"
    (metric,) = (f for f in facts if isinstance(f, Metric))
    assert metric.value == 79


def test_own_pages_of_the_engines_are_read() -> None:
    for parts, waiting in (
        (("vllm", "load-preempt-kill-worker.metrics-full-kv.txt"), 6),
        (("sglang", "load-retract.metrics-during.txt"), 0),
    ):
        facts = block(prometheus_text, shared_file("captures", *parts).read_text())
        (stats,) = (f for f in facts if isinstance(f, ServingStats))
        assert stats.waiting == waiting and stats.running


def test_alerts_of_prometheus_and_states_of_gpud() -> None:
    found = block(alerts, shared_file("captures", "prometheus", "alerts.json").read_text())
    assert {(f.name, f.state, f.words) for f in found if isinstance(f, Alert)} == {
        ("Down", "firing", "llama is down"), ("Down", "firing", "vllm is down"),
    }  # fmt: skip
    text = '[{"component":"accelerator-nvidia-error-xid","states":[{"health":"Unhealthy","reason":"XID 79 on GPU-1"}]}]'
    (report,) = block(alerts, text)
    assert isinstance(report, HealthReport) and (report.state, report.tool) == ("unhealthy", "gpud")
