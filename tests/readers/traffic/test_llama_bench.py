"""llama-bench in its three forms."""

from __future__ import annotations

import json

import pytest

from loadpath.core.facts.traffic import LlamaBenchTest
from loadpath.intake.clean import clean
from loadpath.reading.service import captures_of, case_of

TABLE = """\
| model                  |       size |  params | backend | ngl |           test |            t/s |
| ---------------------- | ---------: | ------: | ------- | --: | -------------: | -------------: |
| acme 7B Q4_K - Medium  |   4.00 GiB |  7.00 B | CUDA    |  99 |          pp512 | 2500.00 ± 5.00 |
| acme 7B Q4_K - Medium  |   4.00 GiB |  7.00 B | CUDA    |  99 | tg128 @ d1024  |  100.00 ± 0.50 |
"""
RECORD = {"build_commit": "abc", "gpu_info": "NVIDIA L4", "model_type": "acme 7B Q4_K", "model_size": 4 << 30,
          "model_n_params": 7_000_000_000, "n_gpu_layers": 99, "n_prompt": 0, "n_gen": 128, "n_depth": 0, "avg_ts": 60.0,
          "stddev_ts": 0.1}  # fmt: skip
BATCHED = """\
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   512 |    128 |    4 |   2560 |    0.800 |  2560.00 |    2.560 |   200.00 |    3.360 |   761.90 |
"""


def rows_of(text: str) -> list[LlamaBenchTest]:
    return case_of(captures_of("bench.txt", clean(text.encode())), []).all(LlamaBenchTest)


def test_the_table_tells_prompt_and_generation_after_a_depth() -> None:
    prompt, made = rows_of(TABLE)
    assert (prompt.prompt, prompt.generated, prompt.rate, prompt.deviation) == (512, 0, 2500.0, 5.0)
    assert (made.generated, made.depth, made.rate, made.size_bytes) == (128, 1024, 100.0, 4 << 30)


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_json_and_csv_tell_the_same(form: str) -> None:
    text = {
        "json": json.dumps([RECORD], indent=2),
        "jsonl": json.dumps(RECORD),
        "csv": ",".join(RECORD) + "\n" + ",".join(f'"{value}"' for value in RECORD.values()),
    }[form]
    (found,) = rows_of(text)
    assert (found.gpu, found.generated, found.rate, found.size_bytes) == ("NVIDIA L4", 128, 60.0, 4 << 30)


def test_batched_rows_have_both_rates() -> None:
    prompt, made = rows_of(BATCHED)
    assert (prompt.rate, made.rate, made.batch) == (2560.0, 200.0, 4)
