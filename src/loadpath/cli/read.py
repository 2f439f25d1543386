"""`loadpath read`: logs and dumps in, a report out."""

from __future__ import annotations

import sys

import click

from loadpath.cli.options import Output, Unreadable, output_options, write


@click.command("read")
@click.argument("files", nargs=-1, metavar="[FILE|FOLDER|ARCHIVE|-]...", type=click.Path(allow_dash=True))
@click.option("--follow", is_flag=True, help="Keep reading one file or a pipe until the server is ready or fails.")
@output_options
def command(files: tuple[str, ...], follow: bool, **output: object) -> None:
    """Read logs and dumps: name what broke, why in figures, and what to change by how much.

    FILE may be a log, a pasted bug report, the output of nvidia-smi, dmesg, kubectl describe and their kin, a folder,
    or an archive (.gz .zst .xz .bz2 .zip .tar.*); - or a pipe is standard input. Nothing is run or changed.

    \b
    Examples:
      loadpath read vllm.log
      loadpath read incident.tar.gz --html report.html
      kubectl logs pod/vllm-0 --previous | loadpath read -
      (dmesg -T; nvidia-smi; docker logs vllm 2>&1) | loadpath read -
      docker logs -f vllm 2>&1 | loadpath read --follow -
      loadpath read --json server.log | jq .root_cause

    \b
    Exit status: 0 no error found, 1 an error found, 2 unreadable input, 3 not enough to judge.
    """
    from loadpath.reading.service import read_paths

    if not files and sys.stdin.isatty():
        raise click.UsageError("name a file, or pipe something in: docker logs vllm 2>&1 | loadpath read -")
    shown = Output(**output)  # type: ignore[arg-type]
    if follow:
        from loadpath.cli.following import follow_and_show

        sys.exit(follow_and_show(files, shown))
    try:
        report = read_paths(files or ("-",))
    except OSError as error:
        raise Unreadable(str(error)) from error
    sys.exit(write(report, shown))
