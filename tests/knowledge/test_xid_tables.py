"""The Xid, SXid and NVLink 5 tables hold together."""

from __future__ import annotations

import pytest

from loadpath.core.vocabulary import OperatorAction
from loadpath.knowledge import xid


def test_tables_are_complete() -> None:
    assert len(xid.xids()) > 100 and len(xid.sxids()) > 400
    assert all(row.app in ("yes", "possible", "no") and row.what for row in xid.xids().values())


@pytest.mark.parametrize(
    ("words", "action"),
    [
        ("None", "none"), ("GPU Reset Required", "reset_gpu"), ("Reset", "reset_gpu"), ("OS Reboot", "reboot_node"),
        ("Node Reboot Required", "reboot_node"), ("Drain and Reset", "drain_and_reset"), ("Drain P2P", "drain_p2p"),
    ],
)  # fmt: skip
def test_recovery_action_of_the_driver(words: str, action: str) -> None:
    row = xid.recovery(words)
    assert row is not None and row.action == action


def test_every_recovery_action_has_a_response() -> None:
    for words, does in (("Reset", "reset-gpu"), ("Reboot", "reboot"), ("Drain P2P", "drain")):
        row = xid.recovery(words)
        assert row is not None
        response = xid.response(row.action)
        expected: OperatorAction = does  # type: ignore[assignment]
        assert response is not None and response.does == expected
    assert xid.response("none") is None


@pytest.mark.parametrize(
    ("code", "unit", "words", "severity", "action"),
    [
        (149, "NETIR_LINK_EVT", (0x021425C6, 0), "link_fatal", "reset_gpu"),
        (149, "NETIR", (0x000FE406, 0), "link_fatal", "reset_gpu"),
        (149, "NETIR_BER_EVENT", (0x00086226, 1), "nonfatal", "none"),
        (145, "RLW_RXPIPE", (0x0409A0C2, 8), "nonfatal", "none"),
    ],
)
def test_nvlink5_words_decode(code: int, unit: str, words: tuple[int, ...], severity: str, action: str) -> None:
    rule = xid.link_rule(code, unit, words)
    assert rule is not None and (rule.severity, rule.action) == (severity, action)


def test_words_that_no_row_knows_decode_to_nothing() -> None:
    assert xid.link_rule(149, "NETIR_LINK_EVT", (0xFFFFFFFF, 0)) is None
    assert xid.link_rule(149, "NETIR_LINK_EVT", ()) is None
