"""`loadpath bundle` as its user meets it."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from loadpath.cli.bundle import command


def run(*args: str, stdin: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(args), input=stdin)
    return result.exit_code, result.output


def test_it_says_where_the_file_is_and_that_nothing_was_restarted(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    out = tmp_path / "b.tar.zst"
    status, text = run("--root", str(root), "-o", str(out))
    assert status == 0
    assert out.exists()
    assert f"wrote {out}" in text
    assert "Nothing was changed or restarted" in text
    assert out.stat().st_mode & 0o077 == 0, "evidence is for its owner alone"


def test_no_redact_has_to_be_meant(tmp_path: Path) -> None:
    status, text = run("--no-redact", "-o", str(tmp_path / "b.tar.zst"))
    assert status == 2
    assert "--yes" in text
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    status, text = run("--root", str(tmp_path), "-o", str(tmp_path / "no" / "such.tar.zst"))
    assert status == 2
    assert "cannot write the bundle" in text


def test_a_size_is_asked_for_in_words(tmp_path: Path) -> None:
    status, text = run("--max-size", "lots")
    assert status == 2
    assert "200MB" in text
