"""What is sent, and when: lengths, texts, files of prompts, traces, arrivals."""

from __future__ import annotations

import json
import math
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest

from loadpath.traffic.arrivals import arrivals
from loadpath.traffic.lengths import lengths_of
from loadpath.traffic.prompt_files import NoPrompts, prompts_of, trace_of
from loadpath.traffic.prompts import Synthetic
from loadpath.traffic.texts import Rate, TextMaker


@pytest.mark.parametrize(("text", "low", "high", "mean"), [
    ("1024", 1024, 1024, 1024), ("128:256", 128, 256, 192), ("normal:1000:100", 500, 1500, 1000), ("lognormal:100:0.5", 1, 800, 113),
])  # fmt: skip
def test_lengths_follow_their_distribution(text: str, low: int, high: int, mean: float) -> None:
    random = Random(1)
    drawn = [lengths_of(text).draw(random) for _ in range(5000)]
    assert low <= min(drawn) and max(drawn) <= high
    assert sum(drawn) / 5000 == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize("text", ["", "0", "9:3", "normal:5", "many", "-4"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"lengths begin|write 1024"):
        lengths_of(text)


def test_prompts_differ_from_their_first_words_and_repeat_by_seed() -> None:
    def heads(seed: int) -> list[str]:
        talks = Synthetic(lengths_of("64"), lengths_of("8")).talks(TextMaker(seed, Rate()))
        return [" ".join(t.turns[0].text.split()[:6]) for t in islice(talks, 500)]

    assert len(set(heads(1))) == 500
    assert heads(1) == heads(1) and not set(heads(1)) & set(heads(2))


def test_a_prompt_has_the_wanted_tokens_by_the_servers_own_rate() -> None:
    maker = TextMaker(1, Rate(per_word=1.25, overhead=20))
    assert len(maker.prompt(1020).split()) == 800


def test_a_shared_prefix_is_shared_and_the_rest_is_not() -> None:
    talks = Synthetic(lengths_of("100"), lengths_of("8"), prefix=60).talks(TextMaker(1, Rate()))
    one, two = (t.turns[0].text.split() for t in islice(talks, 2))
    assert one[:60] == two[:60] and one[60:66] != two[60:66] and len(one) == 100


def test_sharegpt_rows_become_turns(tmp_path: Path) -> None:
    said = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "a b c"}, {"from": "human", "value": "more"}]
    file = tmp_path / "chats.json"
    file.write_text(json.dumps([{"conversations": said}, {"prompt": "alone", "output_tokens": 7}]))
    first, second = prompts_of(file, None).all
    assert [t.messages[-1]["content"] for t in first.turns] == ["hi", "more"] and first.turns[0].output == 4
    assert second.turns[0].output == 7 and prompts_of(file, 50).all[0].turns[0].output == 50


def test_traces_keep_their_gaps(tmp_path: Path) -> None:
    jsonl, table = tmp_path / "t.jsonl", tmp_path / "t.csv"
    rows = [
        {"timestamp": 27_000 + 500 * n, "input_length": 10 + n, "output_length": 5, "hash_ids": [n]} for n in range(3)
    ]
    jsonl.write_text("\n".join(map(json.dumps, rows)))
    table.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:47.1805900,10,1\n"
    )
    assert trace_of(jsonl).calls == ((0.0, 10, 5), (0.5, 11, 5), (1.0, 12, 5))
    at, tokens, output = trace_of(table, speed=2.0).calls[1]
    assert at == pytest.approx(0.25, abs=1e-3) and (tokens, output) == (10, 1)


def test_files_without_prompts_are_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"a": 1}\n')
    for reads in (lambda: prompts_of(file, None), lambda: trace_of(file)):
        with pytest.raises(NoPrompts, match="needs"):
            reads()


def test_arrivals_keep_the_rate_and_their_burstiness() -> None:
    def gaps(kind: str, burstiness: float = 1.0) -> list[float]:
        return [b - a for a, b in pairwise(islice(arrivals(kind, 10.0, 1, burstiness), 20_000))]  # type: ignore[arg-type]

    def variation(values: list[float]) -> float:
        mean = sum(values) / len(values)
        assert mean == pytest.approx(0.1, rel=0.05)
        return math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)) / mean

    assert variation(gaps("constant")) < 1e-6
    assert variation(gaps("poisson")) == pytest.approx(1.0, rel=0.05)
    assert variation(gaps("gamma", 0.25)) == pytest.approx(2.0, rel=0.07)
