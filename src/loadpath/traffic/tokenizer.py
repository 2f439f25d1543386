"""A local tokenizer, where one is there: for servers that do not count their tokens."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


class NoTokenizer(Exception):
    """It cannot be used; the message says why."""


class Tokenizer:
    """Counts tokens by a `tokenizer.json`."""

    def __init__(self, path: str) -> None:
        """`path`: the file, or the folder that holds it. Raises NoTokenizer."""
        file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
        if not file.exists():
            raise NoTokenizer(f"{file}: no such file; give a tokenizer.json or the folder that holds it")
        try:
            library: Any = import_module("tokenizers")
        except ImportError as error:
            raise NoTokenizer("counting locally needs the package `tokenizers`: pip install tokenizers") from error
        try:
            self._made: Any = library.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception for a file that it cannot read
            raise NoTokenizer(f"{file}: {error}") from error

    def count(self, text: str) -> int:
        return len(self._made.encode(text, add_special_tokens=False).ids)
