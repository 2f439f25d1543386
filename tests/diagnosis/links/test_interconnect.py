"""Between the GPUs: who asked for peer access, who waited for whom, and what a link costs."""

from __future__ import annotations

from conftest import read_text

WATCHDOG = (
    "[rank{r}]:[E ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600031 milliseconds "
    "before timing out."
)


def test_custom_all_reduce_without_peer_access() -> None:
    root = read_text(
        "Failed: Cuda error /src/csrc/custom_all_reduce.cuh:364 'peer access is not supported between these two devices'"
    ).root
    assert root is not None and root.id == "peer-access-unsupported"
    assert "custom all-reduce" in root.cause and root.remedies[0].suffices


def test_nccl_that_chose_p2p_is_told_apart() -> None:
    root = read_text(
        "h:1:2 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access is not supported "
        "between these two devices\nRuntimeError: NCCL error in: x.cpp:784, unhandled cuda error, NCCL version 2.7.8"
    ).root
    assert root is not None and "P2P/IPC" in root.cause and root.remedies[0].command == "NCCL_P2P_DISABLE=1"
    assert "nccl-unhandled-cuda" in root.consequences


def test_the_rank_that_waits_is_not_the_cause() -> None:
    root = read_text(WATCHDOG.format(r=0, seq=1205)).root
    assert root is not None and root.id == "collective-timeout" and root.certainty == "likely"
    assert "Rank 0 waited 10 min" in root.cause and "missing" in root.cause


def test_when_all_wait_in_the_first_collective_the_path_itself_is_suspect() -> None:
    root = read_text("\n".join(WATCHDOG.format(r=r, seq=1) for r in (0, 1))).root
    assert root is not None and any(r.command == "NCCL_P2P_DISABLE=1" for r in root.remedies)


def test_the_unreachable_address_is_named() -> None:
    root = read_text(
        "node0:1:2 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 172.17.0.3<41321> failed : No route to host"
    ).root
    assert root is not None and "172.17.0.3" in root.title and "NCCL_SOCKET_IFNAME" in root.remedies[0].command


def test_tensor_parallel_that_is_slower() -> None:
    root = read_text("TP off: 900.0 T/s\nTP on: 300.0 T/s\n").root
    assert root is not None and root.id == "tensor-parallel-slower" and "33%" in root.cause
    assert read_text("TP off: 300.0 T/s\nTP on: 900.0 T/s\n").root is None


def test_a_polling_port_is_a_warning_a_disabled_one_is_not() -> None:
    port = "CA '{d}'\n\tPort 1:\n\t\tState: {s}\n\t\tPhysical state: {p}\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n"
    up = port.format(d="mlx5_0", s="Active", p="LinkUp")
    assert read_text(up + port.format(d="mlx5_1", s="Down", p="Disabled")).root is None
    root = read_text(up + port.format(d="mlx5_1", s="Down", p="Polling")).root
    assert root is not None and "mlx5_1" in root.title
