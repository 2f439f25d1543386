"""Secrets never reach a report; words and figures around them do."""

from __future__ import annotations

import pytest

from loadpath.core.masking import mask


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWx docker run vllm", "AbCdEfGh"),
        ("--api-key sk-proj-1234567890abcdef --port 8000", "1234567890"),
        ("--api-key topsecretvalue --port 8000", "topsecretvalue"),
        ("'api_key': ['abc123456'], 'port': 8000", "abc123456"),
        ("curl -H 'Authorization: Bearer abc.def-ghi_jkl'", "abc.def"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("pip install --index-url https://user:hunter22@example.org/simple", "hunter22"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENG", "wJalrXUtnFEMI"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc", "eyJzdWIi"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----", "MIIEpAIB"),
        ("NGC_API_KEY=nvapi-abcdefghijklmnop", "abcdefghijklmnop"),
    ],
)
def test_secret_is_masked(text: str, secret: str) -> None:
    assert secret not in mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "GPU KV cache size: 176,128 tokens",
        "prompt_tokens=12 max_tokens=4096 tokens: 8192",
        "api_key=None, ssl_keyfile=None",
        "Maximum concurrency for 32,768 tokens per request: 5.37x",
        "http://0.0.0.0:8000/v1/models",
        "AssertionError: token id 32000 out of range",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


def test_words_around_stay() -> None:
    assert mask("--api-key abcdefgh --port 8000") == "--api-key *** --port 8000"
