"""Addresses as people type them."""

from __future__ import annotations

import pytest

from loadpath.traffic.wire import target_of


@pytest.mark.parametrize(("typed", "url"), [
    ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
    ("127.0.0.1:8000", "http://127.0.0.1:8000"),
    ("http://gpu1:8000/v1", "http://gpu1:8000"),
    ("http://gpu1:8000/v1/chat/completions", "http://gpu1:8000"),
    ("https://example.com/llm/v1/", "https://example.com/llm"),
    ("http://[::1]:8000/", "http://[::1]:8000"),
    ("http://user:secret@gpu1:8000", "http://gpu1:8000"),
])  # fmt: skip
def test_the_root_of_the_api_is_found(typed: str, url: str) -> None:
    assert target_of(typed).url == url


@pytest.mark.parametrize("typed", ["ftp://gpu1", "http://", ""])
def test_what_names_no_server_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match=r"host|asked"):
        target_of(typed)
