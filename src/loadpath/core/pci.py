"""PCI addresses: one spelling for what tools write in many."""

from __future__ import annotations

import re

ADDRESS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"
_PARTS = re.compile(
    r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?"
)


def pci_address(text: str) -> str:
    """`00000000:3B:00.0`, `PCI:0000:3b:00` and `3b:00.0` are all `0000:3b:00`; other text comes back as it is."""
    match = _PARTS.search(text)
    if match is None:
        return text.strip()
    return f"{(match['domain'] or '0000')[-4:]}:{match['bus']}:{match['device']}".lower()
