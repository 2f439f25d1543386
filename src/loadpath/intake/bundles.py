"""What makes an archive one of loadpath's own bundles: its manifest comes first, and its files are named after their probes,
so that a report on it is the report that was made where it was written."""

from __future__ import annotations

import json

MANIFEST = "manifest.json"
FOLDER = "captures/"
SCHEMA = "loadpath.bundle/1"
MOST = 16 << 20
"""Bytes of a manifest."""


def is_manifest(text: bytes) -> bool:
    """Whether this is the manifest of a bundle."""
    if SCHEMA.encode() not in text[:4096]:
        return False
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("schema") == SCHEMA
