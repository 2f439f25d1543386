"""A report as JSON, and the schema of that JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from loadpath.core.report import Report


def to_json(report: Report, indent: int = 1) -> bytes:
    """The report by the contract `loadpath.report/1`, UTF-8, one line feed at the end."""
    return msgspec.json.format(msgspec.json.encode(report), indent=indent) + b"\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a report."""
    made = msgspec.json.schema(Report)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "loadpath.report/1", **made}
