"""The ports of RDMA cards: which are up, and which are down without having been switched off."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.collective import RdmaPort
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding


def judge(case: Case) -> Iterator[Finding]:
    """A port that polls looks for a peer that does not answer; a disabled one is usually just not used."""
    ports = case.all(RdmaPort)
    up = [p for p in ports if p.state == "Active"]
    looking = [p for p in ports if p.state != "Active" and p.physical not in ("Disabled", "")]
    disabled = [p for p in ports if p.state != "Active" and p.physical == "Disabled"]
    rates = sorted({f"{p.gbps:g}" for p in up if p.gbps}, key=float)
    values = {
        "names": ", ".join(p.device for p in looking), "up": str(len(up)), "all": str(len(ports)),
        "rates": " and ".join(rates), "state": looking[0].physical if looking else "",
    }  # fmt: skip
    cause = f"{len(up)} of {len(ports)} ports are Active" + (f", at {values['rates']} Gb/s." if rates else ".")
    if looking:
        cause += (
            f" Down and {looking[0].physical}: {values['names']}, no link to a peer (cable, transceiver, switch port)."
        )
    if disabled:
        cause += (
            f" {', '.join(p.device for p in disabled)} is switched off (Disabled), usual for a card that is not used."
        )
    slow = [p for p in up if p.gbps and rates and p.gbps < float(rates[-1]) / 2]
    if slow and len(slow) < len(up):
        cause += f" Slower than the others, on purpose or by a bad cable: {', '.join(p.device for p in slow)}."
    row = "rdma-port-down" if looking else "rdma-ports-up"
    yield finding(row, [*looking, *up][:4], case=case, values=values, cause=cause)


RULES = (Rule(judge, (RdmaPort,), ("rdma-port-down", "rdma-ports-up")),)
