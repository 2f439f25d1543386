"""Facts as lines: what a probe found in files, one JSON object a line, for the reader of kind `inventory`."""

from __future__ import annotations

from typing import Any

import msgspec

from loadpath.core.facts.base import Fact


def record(kind: type[Fact], **fields: Any) -> str:
    """The line of one fact: its type and its fields, without those that say nothing."""
    unknown = set(fields) - set(kind.__struct_fields__)
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    said = {name: value for name, value in fields.items() if value not in (None, "", (), {}, False)}
    return msgspec.json.encode({"type": kind.__name__, **said}).decode()
