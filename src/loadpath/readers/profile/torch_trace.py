"""The torch profiler's Chrome trace (`export_chrome_trace`, `tensorboard_trace_handler`, `/start_profile` of servers).

The file is one JSON document of hundreds of MB, most of it events of the host. It is decoded in pieces: the profiler
begins each event with its `"ph"`, so the text is cut before one; where another writer did not, it is decoded whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from loadpath.readers.profile.cuda_names import plain_call, role_of
from loadpath.readers.profile.gpu_work import Board, Copy, Interval, Kernel, Trace

PIECE = 8 << 20
MOST_ENDS = 12
"""Brackets, from the end, that are tried as the end of the events."""
LATEST = 1 << 62
"""Nanoseconds that no clock shows."""
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_CUT = re.compile(rb'\}\s*,\s*(?=\{\s*"ph")')
_COPY = re.compile(r"Mem(?:cpy|ory copy) (\w)to(\w)(?: \((\w+) -> (\w+)\))?", re.I)
_SIDES = {"h": "host", "d": "device", "p": "peer", "a": "array"}
_HEAD = re.compile(rb'"deviceProperties"\s*:\s*(\[.*?\])\s*,\s*"', re.S)


class NoTrace(ValueError):
    """The text is no Chrome trace that can be decoded; the message says where it breaks off."""


class _Event(msgspec.Struct):
    """What is looked at in an event; its arguments stay text until they are needed."""

    ph: str = ""
    cat: Any = ""
    name: Any = ""
    ts: Any = 0
    dur: Any = 0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Arguments(msgspec.Struct):
    device: Any = 0
    stream: Any = 0
    correlation: Any = 0
    bytes: Any = 0
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(name="registers per thread", default=0)
    graph: Any = msgspec.field(name="graph node id", default=0)


_EVENTS = msgspec.json.Decoder(list[_Event])
_ARGUMENTS = msgspec.json.Decoder(_Arguments)


def trace_of(chunks: Iterable[bytes]) -> Trace:
    """Everything that the trace holds. Raises NoTrace."""
    made = Trace(tool="torch")
    for piece in _pieces(iter(chunks), made):
        for event in _decoded(piece):
            _take(event, made)
    return made


def _pieces(chunks: Iterator[bytes], made: Trace) -> Iterator[bytes]:
    """The events as JSON lists of about `PIECE` bytes each."""
    held = b""
    for chunk in chunks:
        held += chunk
        if found := _LIST.search(held):
            break
    else:
        found = _LIST.search(held)
    if not found:
        if not held.lstrip().startswith(b"["):
            raise NoTrace('no "traceEvents" in it')
        head, held = b"", held.lstrip()[1:]
    else:
        head, held = held[: found.start()], held[found.end() :]
    made.boards = _boards(head)
    parts, size, enough = [held], len(held), PIECE
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size < enough:
            continue
        held = b"".join(parts)
        parts, enough = [held], 2 * size
        if cut := _last_cut(held):
            yield b"[" + held[: cut[0]] + b"]"
            parts, size, enough = [held[cut[1] :]], len(held) - cut[1], PIECE
    yield b"[" + b"".join(parts)


def _last_cut(held: bytes) -> tuple[int, int] | None:
    """Where the last whole event ends and the next begins."""
    for back in (1 << 16, 1 << 20, len(held)):
        begin = max(0, len(held) - back)
        last = None
        for last in _CUT.finditer(held, begin):  # noqa: B007 (the last one is wanted)
            pass
        if last is not None:
            return last.start() + 1, last.end()
    return None


def _decoded(piece: bytes) -> list[_Event]:
    """The events of a piece. The last one has no end of its own: behind the list stand other members of the document,
    or it breaks off inside an event."""
    ends = [len(piece)]
    for _ in range(MOST_ENDS):
        ends.append(piece.rfind(b"]", 0, ends[-1] - 1) + 1)
    for end in ends:
        try:
            return _EVENTS.decode(piece[:end])
        except msgspec.ValidationError as error:
            raise NoTrace(str(error)) from error
        except msgspec.DecodeError:
            continue
    cut = _last_cut(piece)
    try:
        return _EVENTS.decode(piece[: cut[0]] + b"]") if cut else []
    except msgspec.DecodeError as error:
        raise NoTrace(f"its events are no JSON: {error}") from error


def _boards(head: bytes) -> dict[int, Board]:
    """What stands before the events of the GPUs: `"deviceProperties": [{"id": 0, "name": …, "computeMajor": …}]`."""
    found = _HEAD.search(head + b'"')
    try:
        told = msgspec.json.decode(found[1]) if found else []
    except msgspec.DecodeError:
        return {}
    boards = {}
    for one in told:
        if isinstance(one, dict) and isinstance(one.get("id"), int):
            major = one.get("computeMajor")
            capability = "" if major is None else f"{major}.{one.get('computeMinor', 0)}"
            boards[one["id"]] = Board(str(one.get("name", "")), capability)
    return boards


def _take(event: _Event, made: Trace) -> None:
    if event.ph != "X":
        return
    match str(event.cat).lower():
        case "kernel" | "gpu_memcpy" | "gpu_memset" | "cuda_runtime" | "cuda_driver" as kind:
            if (times := _times(event)) is None:
                return
            told = _arguments(event)
            if kind == "kernel":
                _kernel(event, times, told, made)
            elif kind.startswith("gpu_"):
                _copy(event, times, told, made)
            else:
                name = plain_call(str(event.name))
                made.call(*times, name, role_of(name), _int(told.correlation))
        case "cpu_op" | "operator" | "python_function" | "user_annotation":
            made.cpu_events += 1


def _times(event: _Event) -> Interval | None:
    """Start and end in nanoseconds; the trace has microseconds with decimals (or text of them). None: no times."""
    try:
        start, took = round(float(event.ts) * 1000), round(float(event.dur or 0) * 1000)
    except (TypeError, ValueError, OverflowError):
        return None
    return (start, start + took) if took >= 0 and abs(start) + took < LATEST else None


def _arguments(event: _Event) -> _Arguments:
    try:
        return _ARGUMENTS.decode(event.args)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Arguments()


def _kernel(event: _Event, times: Interval, told: _Arguments, made: Trace) -> None:
    shape = (_product(told.grid), _product(told.block), _int(told.registers))
    gpu = _int(told.device)
    made.kernels.setdefault(gpu, []).append(
        Kernel(*times, str(event.name), _int(told.correlation), _int(told.stream), 1 if told.graph else 0, shape)
    )


def _copy(event: _Event, times: Interval, told: _Arguments, made: Trace) -> None:
    direction, memory = ("set", "") if event.cat == "gpu_memset" else _direction(str(event.name))
    copy = Copy(*times, direction, memory, _int(told.bytes), _int(told.correlation))
    made.copies.setdefault(_int(told.device), []).append(copy)


def _direction(name: str) -> tuple[str, str]:
    """`Memcpy HtoD (Pageable -> Device)` → `host-to-device` and `pageable`."""
    found = _COPY.search(name)
    if not found:
        return "copy", ""
    source, target = (_SIDES.get(side.lower(), side) for side in found.group(1, 2))
    memory = (found[4] if target == "host" else found[3]) or ""
    return f"{source}-to-{target}", memory.lower()


def _product(value: object) -> int:
    if not isinstance(value, list) or not all(isinstance(n, int) for n in value):
        return 0
    product = 1
    for n in value:
        product *= n
    return product


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
