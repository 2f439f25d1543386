"""`loadpath roofline` and `loadpath occupancy` as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loadpath.cli.main import main

TEXTBOOK = ("roofline", "--flops", "60T", "--bytes", "6T", "--peak", "90T", "--bandwidth", "4T")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_the_textbook_case_with_a_plot() -> None:
    done = run(*TEXTBOOK)
    assert done.exit_code == 0
    for part in ("10 FLOP/byte", "40 TFLOP/s", "bandwidth-bound", "ridge point 22.5 FLOP/byte", "no faster than 1.5 s"):
        assert part in done.stdout
    assert "intensity, FLOP/byte" in done.stdout
    assert done.stdout.isascii()


def test_json_has_the_figures_and_no_plot() -> None:
    body = json.loads(run(*TEXTBOOK, "--json").stdout)
    assert body["schema"] == "loadpath.roofline/1"
    assert body["roofline"]["work"][0]["floor_seconds"] == 1.5


def test_points_formats_and_a_power_limit_of_a_card() -> None:
    done = run(
        "roofline", "--gpu", "h100-sxm-80", "--dtype", "bf16", "--dtype", "fp8", "--no-plot",
        "--point", "decode=16G/16G", "--point", "prefill=115T/20G@200ms", "--power-limit", "500",
    )  # fmt: skip
    assert done.exit_code == 0
    for part in (
        "A decode",
        "B prefill",
        "under H100 80GB HBM3 fp8",
        "58% of the roof",
        "Power limit 500 W, 71% of 700 W",
    ):
        assert part in done.stdout


def test_files_are_written(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="PNG needs Pillow, the extra `plot`")
    svg, png = tmp_path / "r.svg", tmp_path / "r.png"
    done = run(*TEXTBOOK, "--no-plot", "--svg", str(svg), "--png", str(png))
    assert done.exit_code == 0
    assert svg.read_text("utf-8").startswith("<svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    missing = run(*TEXTBOOK, "--svg", str(tmp_path / "no" / "r.svg"))
    assert (missing.exit_code, "cannot write" in missing.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--flops", "6X", "--bytes", "1"), "write it like 60T"),
        (("--flops", "6T"), "give a roof"),
        (("--gpu", "l4", "--flops", "6T"), "belong together"),
        (("--gpu", "l4", "--time", "1s"), "needs --flops and --bytes"),
        (("--gpu", "l4", "--point", "x=1"), "write NAME=FLOP/BYTES"),
        (("--gpu", "l4", "--point", "x=1/1", "--point", "x=2/1"), "two points"),
        (("--gpu", "l4", "--point", "x=0/0"), "neither operations nor bytes"),
        (("--peak", "90T"), "needs --bandwidth"),
        (("--gpu", "a100-sxm4-80", "--dtype", "fp8"), "from 8.9 on"),
    ],
)
def test_bad_usage_says_how(words: tuple[str, ...], says: str) -> None:
    done = run("roofline", *words)
    assert done.exit_code == 2
    assert says in done.stderr


def test_occupancy_of_one_and_of_all() -> None:
    one = run("occupancy", "--threads", "256", "--registers", "64", "--gpu", "h100-sxm-80", "--grid", "1000")
    assert one.exit_code == 0
    for part in ("32 of 64 warps", "50%", "limited by registers", "__launch_bounds__(256, 5)", "2 waves"):
        assert part in " ".join(one.stdout.split())
    every = run("occupancy", "--threads", "1024", "--registers", "72")
    assert every.stdout.count("does not start") == 14
    assert "error 701" in every.stdout
    shared = run(
        "occupancy", "--threads", "128", "--registers", "32", "--dynamic-shared", "96KiB", "--sm", "9.0", "--json"
    )
    assert json.loads(shared.stdout)["occupancy"]["found"][0]["limiters"] == ["shared-memory"]
