"""What makes an archive one of loadpath's own bundles: its manifest comes first, and its files are named after their probes,
so that a report on it is the report that was made where it was written."""

from __future__ import annotations

import json

MANIFEST = "manifest.json"
FOLDER = "captures/"
SCHEMA = "loadpath.bundle/1"
MOST = 16 << 20
"""Bytes of a manifest."""


def names_a_bundle(head: bytes) -> bool:
    """Whether the beginning of a file is that of a bundle's manifest."""
    return SCHEMA.encode() in head[:4096]


def is_manifest(text: bytes) -> bool:
    """Whether this is the manifest of a bundle."""
    if not names_a_bundle(text):
        return False
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("schema") == SCHEMA
