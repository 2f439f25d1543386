"""Answers byte by byte: whatever the framing, the same tokens, counts and errors."""

from __future__ import annotations

import json

import pytest

from loadpath.traffic.stream import Answer
from loadpath.traffic.wire import AnswerParser, Broken

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHAT = [
    '{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}',
    '{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}',
    '{"choices":[{"index":0,"delta":{"content":"one"}}]}',
    '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]}',
    '{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}',
    '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}',
    "[DONE]",
]


def framed(events: list[str], newline: str = "\n") -> bytes:
    made = b""
    for event in events:
        data = f"data: {event}{newline}{newline}".encode()
        made += b"%x\r\n%b\r\n" % (len(data), data)
    return made + b"0\r\n\r\n"


def answer_to(data: bytes, pieces: int = 1 << 30) -> tuple[Answer, bool]:
    """The answer that comes of `data` in reads of `pieces` bytes, and whether it was complete."""
    parser, answer = AnswerParser(), Answer(lambda: None, keep_text=True)
    parser.reset(answer)
    complete = False
    for number, begin in enumerate(range(0, len(data), pieces)):
        complete = parser.feed(float(number), data[begin : begin + pieces])
    return answer, complete


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 50, 1 << 30])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_any_cut_gives_the_same_answer(pieces: int, newline: str) -> None:
    answer, complete = answer_to(HEAD + framed(CHAT, newline), pieces)
    assert complete and answer.finished and not answer.error
    assert len(answer.times) == 3  # the role alone is no token; reasoning, text and a tool call are
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == (9, 3, 4)
    assert answer.finish == "length" and answer.texts[1] == "one"


@pytest.mark.parametrize("piece", [
    'data: {"error":{"message":"the engine is dead","code":500}}\n\n',
    'error: {"message":"the engine is dead","code":500}\n\n',
    'data: {"object":"error","message":"the engine is dead"}\n\n',
    'data: {"choices":[{"index":0,"delta":{"content":"x"}}],"error":{"message":"the engine is dead"}}\n\n',
])  # fmt: skip
def test_an_error_inside_a_stream_is_told_even_if_it_goes_on(piece: str) -> None:
    data = piece.encode()
    body = b"%x\r\n%b\r\n" % (len(data), data) + framed(["[DONE]"])
    answer, _ = answer_to(HEAD + body)
    assert answer.error == "the engine is dead"


def test_a_chunk_of_an_unknown_shape_is_passed_over() -> None:
    answer, _ = answer_to(HEAD + framed(['{"choices":"later"}', '{"object":"ping"}', *CHAT]))
    assert not answer.error and len(answer.times) == 3


def test_secrets_in_an_error_are_masked() -> None:
    body = json.dumps({"error": {"message": "Incorrect API key provided: sk-proj-abcdefgh12345678"}}).encode()
    answer, _ = answer_to(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    assert answer.http_status == 401 and "abcdefgh" not in answer.error


def test_a_whole_answer_has_its_counts_and_one_time() -> None:
    said = {
        "choices": [{"message": {"content": "a b"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    body = json.dumps(said).encode()
    answer, complete = answer_to(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body), 5)
    assert complete and answer.finished and answer.output_tokens == 2 and len(answer.times) == 1


def test_interim_answers_are_passed_over() -> None:
    answer, complete = answer_to(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + framed(CHAT), 9)
    assert complete and answer.http_status == 200


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-OpenSSH\r\n", HEAD + b"zz\r\n", HEAD + b"-5\r\nxx\r\n", b"HTTP/1.1 abc OK\r\n\r\n"]
)
def test_what_is_no_http_is_refused(data: bytes) -> None:
    with pytest.raises(Broken):
        answer_to(data)
