"""llama-bench's results (Markdown table, CSV, JSON), and llama-batched-bench's table → one fact a test.

| model         |     size |  params | backend | ngl |  test |            t/s |
| ------------- | -------: | ------: | ------- | --: | ----: | -------------: |
| llama 8B Q4_0 | 4.33 GiB |  8.03 B | CUDA    |  99 | tg128 | 120.50 ± 0.80  |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.traffic import LlamaBenchTest
from loadpath.core.text import Capture, Line
from loadpath.core.units import parse_size
from loadpath.readers.documents import Broken, json_extent, parse_json
from loadpath.readers.traffic.words import columns, number, whole

LOOK_AHEAD = 80
_BATCHED = ("PP", "TG", "B", "N_KV")


def extent(lines: Sequence[Line], i: int) -> int:
    text = lines[i].text.strip()
    if text.startswith(("[", "{")):
        head = " ".join(line.text for line in lines[i : i + LOOK_AHEAD])[:50_000]
        return json_extent(lines, i) if '"avg_ts"' in head and '"n_gen"' in head else i
    if not _is_head(columns(text)):
        return i
    end = i + 1
    for j in range(i + 1, len(lines)):
        if len(columns(lines[j].text)) < 3:
            break
        end = j + 1
    return end


def _is_head(names: list[str]) -> bool:
    plain = [name.strip('"') for name in names]
    is_table = "t/s" in plain and "test" in plain and "model" in plain
    return is_table or {"avg_ts", "n_prompt", "n_gen"} <= set(plain) or tuple(plain[:4]) == _BATCHED


def read(capture: Capture) -> Iterator[Fact]:
    lines = capture.lines
    if lines[0].text.strip().startswith(("[", "{")):
        yield from _documents(capture)
        return
    names = columns(lines[0].text)
    for line in lines[1:]:
        cells = columns(line.text)
        if len(cells) != len(names):
            continue
        row = dict(zip(names, cells, strict=True))
        if "avg_ts" in row:
            made = _of_record(row)
        elif "t/s" in row:
            made = _of_table(row)
        else:
            yield from (LlamaBenchTest(**at(capture, line), **fields) for fields in _of_batch(row))
            continue
        if made:
            yield LlamaBenchTest(**at(capture, line), **made)


def _documents(capture: Capture) -> Iterator[Fact]:
    try:
        document = parse_json(capture.text)
    except Broken:
        return
    common = at(capture, capture.lines[0], capture.lines[-1])
    for record in document if isinstance(document, list) else [document]:
        if isinstance(record, dict) and (made := _of_record(record)):
            shown = f"{made['model']} {_test(made)}: {made['rate']:.2f} t/s"
            yield LlamaBenchTest(**{**common, "text": shown}, **made)


def _test(made: Mapping[str, Any]) -> str:
    return "+".join(f"{name}{made[field]}" for name, field in (("pp", "prompt"), ("tg", "generated")) if made[field])


def _of_record(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """A row of llama-bench's CSV or JSON."""
    rate = number(row.get("avg_ts"))
    if not rate:
        return None
    return {
        "model": str(row.get("model_type") or row.get("model_filename") or ""),
        "size_bytes": whole(row.get("model_size")),
        "parameters": number(row.get("model_n_params")),
        "backend": str(row.get("backends") or ""),
        "gpu": str(row.get("gpu_info") or ""),
        "gpu_layers": whole(row.get("n_gpu_layers")),
        "prompt": whole(row.get("n_prompt")) or 0,
        "generated": whole(row.get("n_gen")) or 0,
        "depth": whole(row.get("n_depth")) or 0,
        "rate": rate,
        "deviation": number(row.get("stddev_ts")),
        "build": str(row.get("build_commit") or ""),
    }


@cache
def _tested() -> re.Pattern[str]:
    return re.compile(r"^(?:pp(?P<pp>\d+))?\+?(?:tg(?P<tg>\d+))?(?: @ d(?P<depth>\d+))?$")


def _of_table(row: Mapping[str, str]) -> dict[str, Any] | None:
    test = _tested().match(row["test"])
    figure, _, deviation = row["t/s"].partition("±")
    rate = number(figure)
    if test is None or not rate or not (test["pp"] or test["tg"]):
        return None
    params = re.match(r"([\d.]+) ([BM])", row.get("params", ""))
    return {
        "model": row["model"],
        "size_bytes": parse_size(row.get("size", "")),
        "parameters": float(params[1]) * (1e9 if params[2] == "B" else 1e6) if params else None,
        "backend": row.get("backend", ""),
        "gpu_layers": whole(row.get("ngl")),
        "prompt": int(test["pp"] or 0),
        "generated": int(test["tg"] or 0),
        "depth": int(test["depth"] or 0),
        "rate": rate,
        "deviation": number(deviation),
    }


def _of_batch(row: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """llama-batched-bench prints both rates of all its sequences together."""
    prompt, made, batch = whole(row.get("PP")) or 0, whole(row.get("TG")) or 0, whole(row.get("B")) or 1
    if rate := number(row.get("S_PP t/s")):
        yield {"prompt": prompt, "rate": rate, "batch": batch}
    if rate := number(row.get("S_TG t/s")):
        yield {"generated": made, "rate": rate, "batch": batch, "depth": prompt}
