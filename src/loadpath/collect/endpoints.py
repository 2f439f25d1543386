"""One question to a server on this machine's own address: two seconds, one page, nothing followed."""

from __future__ import annotations

import http.client
import time
from typing import Literal

import msgspec

from loadpath.collect.probe import now

SECONDS = 2.0
MOST_BODY = 4 << 20

Error = Literal["", "refused", "timeout", "reset", "no-http", "other"]


class Answer(msgspec.Struct, frozen=True):
    url: str
    started: str
    seconds: float
    status: int | None = None
    error: Error = ""
    body: bytes = b""


def ask(port: int, path: str) -> Answer:
    """GET a page of 127.0.0.1. Never raises; `error` says why there is no status."""
    url, started, began = f"http://127.0.0.1:{port}{path}", now(), time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    error: Error = ""
    status, body = None, b""
    try:
        connection.request("GET", path, headers={"User-Agent": "loadpath", "Connection": "close"})
        response = connection.getresponse()
        status = response.status
        while len(body) < MOST_BODY and time.monotonic() - began < 2 * SECONDS and (piece := response.read(1 << 16)):
            body += piece
    except ConnectionRefusedError:
        error = "refused"
    except TimeoutError:
        error = "" if status is not None else "timeout"
    except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
        error = "" if status is not None else "reset"
    except http.client.HTTPException:
        error = "" if status is not None else "no-http"
    except OSError:
        error = "" if status is not None else "other"
    finally:
        connection.close()
    return Answer(url, started, time.monotonic() - began, status, error, body)
