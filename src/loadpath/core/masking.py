"""Secrets masked wherever text is shown: tokens, keys, passwords, Authorization headers, credentials in URLs."""

from __future__ import annotations

import re
from typing import Any

import msgspec

MASK = "***"

# (what gives it away, pattern, replacement); the literal is looked for first, since most texts hold no secret.
_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (("-----begin",), re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.S), rf"[{MASK} private key]"),
    (("hf_", "sk-", "gh", "glpat-", "nvapi-", "xox", "pypi-", "r8_", "gsk_"), re.compile(
        r"\b(hf_|sk-(?:ant-|proj-)?|gh[pousr]_|github_pat_|glpat-|nvapi-|xox[abprs]-|pypi-|r8_|gsk_)"
        r"[A-Za-z0-9_\-]{8,}"), rf"\1{MASK}"),
    (("akia", "asia"), re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{12,}"), rf"\1{MASK}"),
    (("eyj",), re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?"), f"eyJ{MASK}"),
    (("authorization",), re.compile(
        r"(?i)(authorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic|token)?\s*)"
        r"[^\s'\",}]+(?:(?<=[:=])\s*\S+)?"), rf"\1{MASK}"),
    (("bearer",), re.compile(r"(?i)\b(bearer\s+)(?!\*)[A-Za-z0-9._~+/\-]{8,}=*"), rf"\1{MASK}"),
    (("://",), re.compile(r"(\b[a-z][a-z0-9+.\-]*://[^\s/:@]*:)[^\s/@]+(@)", re.I), rf"\1{MASK}\2"),
    (("key", "secret", "passw", "token"), re.compile(
        r"(?i)((?:(?:api[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|password|passwd|access[_-]?token|auth[_-]?token"
        r"|(?:hf|hugging_face_hub|hub|github|ngc|wandb|ray)[_-](?:api[_-]?)?(?:token|key)))['\"]?\s*(?:[:=]|(?<=key)\s|(?<=token)\s)\s*)"
        r"(\[?['\"]?)(?!(?:None|null|true|false)\b|\*\*\*|\$)([^\s'\",;\]})]{4,})"), rf"\1\2{MASK}"),
)  # fmt: skip


def mask(text: str) -> str:
    """`text` with what looks like a secret replaced by `***`; the words around it stay readable."""
    low = text.lower()
    for hints, pattern, replacement in _RULES:
        if any(hint in low for hint in hints):
            text = pattern.sub(replacement, text)
    return text


def mask_all(value: Any) -> Any:
    """`value` (nested lists, dicts, structs) with every string masked; keys and types stay."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {key: mask_all(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mask_all(item) for item in value)
    if isinstance(value, msgspec.Struct):
        changed = {name: mask_all(getattr(value, name)) for name in value.__struct_fields__}
        return type(value)(**changed)
    return value
