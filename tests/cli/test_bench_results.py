"""`loadpath bench --read` and `--compare`: results that were saved, ours and others'."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from bench_results import made_figures, made_result
from loadpath.cli.bench import command
from loadpath.core.traffic import Level
from loadpath.traffic.result_file import to_json

FRAGMENT = "300 requests, 3.41 req/s, 1746.2 tok/s, TTFT 387.4 ms, ITL 13.2 ms\n"


def bench(*words: str, piped: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(command, list(words), input=piped)
    return done.exit_code, " ".join(done.output.split())


def test_a_pasted_fragment_is_held_against_model_and_card() -> None:
    status, said = bench("--read", "-", "--checkpoint", "Qwen/Qwen3-14B", "--gpu", "RTX 5090", piped=FRAGMENT)
    assert status == 0 and "ITL 13.2 ms is impossible as one step a token" in said and "1,792 GB/s" in said


def test_our_own_result_is_held_against_the_card_named_later(tmp_path: Path) -> None:
    saved = tmp_path / "own.json"
    saved.write_bytes(to_json(made_result()))
    status, said = bench("--read", str(saved), "--gpu", "H100 80GB", "--no-plot")
    assert status == 0 and "Decode reaches 31% of the bandwidth roof" in said


def test_compare_and_refuse(tmp_path: Path) -> None:
    before, after, other = (tmp_path / name for name in ("before.json", "after.json", "other.json"))
    before.write_bytes(to_json(made_result()))
    after.write_bytes(to_json(made_result({"output_rate": 600.0})))
    other.write_bytes(to_json(made_result(levels=(Level(number=0, concurrency=64, figures=made_figures()),))))
    status, said = bench("--compare", str(before), str(after))
    assert status == 0 and "17.2% more output tokens/s" in said
    status, said = bench("--compare", str(before), str(other))
    assert status == 3 and "Not comparable: load (concurrency 16 against concurrency 64)" in said
    status, said = bench("--compare", str(before), str(tmp_path / "missing.json"))
    assert status == 2 and "missing.json" in said
