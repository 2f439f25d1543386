"""`loadpath plan`, `launch` from the command line: what is printed, where, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loadpath.cli.main import main

FITS = ("Qwen/Qwen3-8B", "--gpu", "L4", "--max-model-len", "8192")
TOO_LONG = ("meta-llama/Llama-3.1-8B-Instruct", "--gpu", "RTX 4090", "--max-model-len", "131072")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.mark.parametrize(
    ("words", "status"), [(FITS, 0), (TOO_LONG, 1), (("Qwen/Qwen9-8B", "--gpu", "L4"), 2), (FITS[:1], 2)]
)
def test_the_exit_status_says_whether_it_fits(words: tuple[str, ...], status: int) -> None:
    assert run("plan", *words).exit_code == status


def test_the_json_has_the_figures_of_the_contract() -> None:
    plan = json.loads(run("plan", *FITS, "--json").stdout)["plan"]
    for name in ("weights_bytes", "activation_peak_bytes", "non_torch_bytes", "graph_bytes", "kv_bytes", "kv_tokens",
                 "max_concurrency"):  # fmt: skip
        assert plan[name] > 0, name
    assert {part["basis"] for part in plan["gpus_planned"][0]["parts"]} <= {"exact", "modelled", "assumed", "given"}


def test_kv_memory_that_is_given_gives_its_tokens() -> None:
    plan = json.loads(run("plan", *FITS, "--available-kv-gib", "4.5", "--json").stdout)["plan"]
    per_token = 2 * 8 * 128 * 2 * 36  # keys and values, 8 heads of 128, BF16, 36 layers
    assert plan["kv_tokens"] == pytest.approx(4.5 * 2**30 / per_token, rel=0.002)


def test_a_whole_command_is_taken_after_two_dashes() -> None:
    words = ("plan", "--gpu", "L4", "--json", "--", "vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "8192")
    assert json.loads(run(*words).stdout)["plan"]["max_model_len"] == 8192


def test_every_rendering_shows_the_same_figures(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    tokens = f"{json.loads(run('plan', *FITS, '--json').stdout)['plan']['kv_tokens']:,}"
    run("plan", *FITS, "--html", str(page))
    for text in (run("plan", *FITS).stdout, run("plan", *FITS, "--markdown").stdout, page.read_text()):
        assert tokens in text and "The engine will print" in text


def test_a_plan_fits_eighty_columns() -> None:
    for words in (
        FITS,
        (*TOO_LONG, "--solve"),
        (*FITS, "--sweep", "max-model-len=4096:65536:*2", "--sweep", "gpus=1,2"),
    ):
        lines = run("plan", *words, "--width", "80").stdout.splitlines()
        assert max(map(len, lines)) <= 80


def test_a_sweep_is_written_as_csv_with_units_in_its_head(tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    assert run("plan", *FITS, "--sweep", "max-model-len=4096,8192", "--csv", str(file)).exit_code == 0
    head, *rows = file.read_text().splitlines()
    assert "weights_bytes" in head.split(",") and len(rows) == 2


def test_a_plot_is_written_as_svg(tmp_path: Path) -> None:
    file = tmp_path / "sweep.svg"
    assert run("plan", *FITS, "--sweep", "max-model-len=4096:65536:*2", "--svg", str(file)).exit_code == 0
    assert file.read_text().lstrip().startswith("<svg")


def test_two_models_beside_each_other_say_what_differs() -> None:
    text = run("plan", "Qwen/Qwen3-8B-AWQ", *FITS[1:], "--beside", "Qwen/Qwen3-8B-GPTQ-Int4").stdout
    assert "Side by side" in text and "They differ in" in text


def test_a_log_stands_beside_the_plan(tmp_path: Path) -> None:
    log = tmp_path / "start.log"
    lines = json.loads(run("plan", *FITS, "--json").stdout)["plan"]["lines"]
    log.write_text("\n".join(lines))
    report = json.loads(run("plan", "--gpu", "L4", "--against", str(log), "--json").stdout)
    rows = {row[0]: row[3] for row in next(t for t in report["tables"] if t["id"] == "against")["rows"]}
    assert abs(rows["weights"]) < 0.001 and abs(rows["KV tokens"]) < 0.001


def test_a_launch_that_does_not_fit_is_refused_with_the_finding() -> None:
    refused = run("launch", *TOO_LONG)
    assert refused.exit_code == 1 and "Does not fit" in refused.stdout and "docker run" not in refused.stdout
    forced = run("launch", *TOO_LONG, "--force")
    assert forced.exit_code == 0 and "docker run" in forced.stdout


def test_a_launch_writes_the_file_that_was_named(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    assert run("launch", *FITS, "--as", "compose", "-o", str(file)).exit_code == 0
    assert "Qwen/Qwen3-8B" in file.read_text()


def test_a_misspelt_option_of_ours_is_not_passed_on_to_the_engine() -> None:
    refused = run("plan", *FITS, "--solv")
    assert refused.exit_code == 2 and "did you mean --solve?" in refused.stderr


def test_a_card_that_can_only_unpack_the_weights_is_said_to() -> None:
    text = run("plan", "Qwen/Qwen3-8B-FP8", "--gpu", "RTX 3090", "--max-model-len", "8192").stdout
    assert "fallback kernel" in text and "not the native path" in text


@pytest.mark.parametrize("words", [
    ("--concurrency", "4"), ("--rank", "8"), ("--svg", "x.svg"), ("--train", "lora", "--solve"),
    ("--which-gpu", "--sweep", "gpus=1,2"),
])  # fmt: skip
def test_an_option_that_would_do_nothing_is_refused(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["plan", "Qwen/Qwen3-8B", "--gpu", "L4", *words])
    assert result.exit_code == 2
    assert words[0] in result.output


def test_what_was_asked_to_be_solved_is_answered_first() -> None:
    result = CliRunner().invoke(
        main, ["plan", "Qwen/Qwen3-8B", "--gpu", "L4", "--solve", "--concurrency", "8", "--length", "8192"]
    )
    assert "What fits 8 x 8,192 tokens" in "\n".join(result.output.splitlines()[:14])
    assert "What to change" not in result.output
