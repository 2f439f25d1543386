"""`loadpath bench` as it is typed."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loadpath.core.traffic import BENCH_SCHEMA
from loadpath.traffic.result_file import from_json
from sse_server import running


def loadpath(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loadpath", *words], capture_output=True, text=True, timeout=60, env=env
    )


def test_the_usage_of_the_manual_works_verbatim() -> None:
    with running(ttft=0.01, itl=0.0, tokens=4) as url:
        typed = "--requests 300 --concurrency 24 --input-tokens 2048 --output-tokens 512 --json"
        ran = loadpath("bench", url, *typed.split())
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    rates = next(t for t in report["tables"] if t["id"] == "bench-rates")
    assert report["verdict"]["state"] in ("healthy", "degraded") and "requests/s" in report["verdict"]["sentence"]
    assert any("2,048 in" in str(row) for row in rates["rows"])
    assert "asking the server" in ran.stderr
    measured = report["bench"]["levels"][0]
    assert measured["concurrency"] == 24 and measured["figures"]["requests"] >= 300
    assert measured["figures"]["ttft"]["p99"] > 0.01 and report["bench"]["schema"] == BENCH_SCHEMA


def test_a_saved_result_reads_the_same_and_keeps_no_secret(tmp_path: Path) -> None:
    saved, table, page = tmp_path / "r.json", tmp_path / "r.csv", tmp_path / "r.html"
    with running(ttft=0.01, itl=0.001) as url:
        ran = loadpath(
            "bench", url, "--requests", "30", "--output-tokens", "8", "--input-tokens", "32", "--api-key", "sk-very-secret-123",
            "--header", "X-Team: hush-hush", "--save", str(saved), "--csv", str(table), "--html", str(page),
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    result = from_json(saved.read_bytes())
    assert result.schema == BENCH_SCHEMA and len(result.exchanges) >= 32
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == len(result.exchanges) and float(rows[-1]["ttft"]) > 0.009
    everything = ran.stdout + ran.stderr + saved.read_text() + page.read_text()
    assert "very-secret" not in everything and "hush-hush" not in everything
    assert "<svg" in page.read_text() and page.read_text().count("</html>") == 1
    again = loadpath("bench", "--read", str(saved))
    assert "requests/s" in again.stdout and again.returncode == 0


def test_interrupting_gives_the_result_so_far() -> None:
    with running(ttft=0.05, itl=0.01) as url:
        words = ["bench", url, "--requests", "100000", "--output-tokens", "8", "--input-tokens", "32", "--json"]
        with subprocess.Popen([sys.executable, "-m", "loadpath", *words], stdout=subprocess.PIPE, text=True) as process:
            time.sleep(3)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=20)
    report = json.loads(out)
    assert "interrupted" in report["verdict"]["sentence"] and "requests/s" in report["verdict"]["sentence"]


def test_embeddings_are_measured_without_tokens_that_stream() -> None:
    with running(ttft=0.01, chat=False, completions=False, embeddings=True) as url:
        ran = loadpath("bench", url, "--requests", "20", "--api", "embeddings", "--input-tokens", "32", "--json")
    assert ran.returncode == 0, ran.stderr
    rows = next(t for t in json.loads(ran.stdout)["tables"] if t["id"] == "bench-latency")["rows"]
    assert {row[0] for row in rows} == {"E2E"}


def test_a_key_is_asked_for_and_sent() -> None:
    with running(ttft=0.01, itl=0.001, key="letmein") as url:
        without = loadpath("bench", url, "--requests", "5", "--output-tokens", "4")
        given = loadpath("bench", url, "--requests", "5", "--output-tokens", "4", "--api-key", "letmein")
    assert without.returncode == 2 and "--api-key" in without.stderr
    assert given.returncode == 0 and "letmein" not in given.stdout + given.stderr


@pytest.mark.parametrize(("words", "told"), [
    (["http://127.0.0.1:9", "--requests", "1"], "nothing listens there"),
    (["ftp://x"], "http://"),
    ([], "give the server's URL"),
    (["http://x", "--rate", "1", "--concurrency", "2"], "exclude each other"),
    (["http://x", "--search"], "--slo ttft=500ms"),
    (["http://x", "--slo", "speed=1"], "NAME=TIME"),
    (["http://x", "--input-tokens", "lots"], "write 1024"),
    (["http://x", "--request-timeout", "5 parsecs"], "500ms, 60s or 5m"),
    (["http://x", "--concurrency", "0"], "1,4,16"),
    (["--read", "/nowhere.json"], "No such file"),
])  # fmt: skip
def test_what_cannot_be_run_says_why(words: list[str], told: str) -> None:
    ran = loadpath("bench", *words)
    assert ran.returncode == 2 and told in ran.stderr and "Traceback" not in ran.stderr
