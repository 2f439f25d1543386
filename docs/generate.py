"""Write docs/findings.md, terms.md, cli.md and the README's sample from the tables and the command itself.

python docs/generate.py            # write them
python docs/generate.py --check    # exit 1 where a file differs from what would be written
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import click
from click.testing import CliRunner

import loadpath
from loadpath.cli.main import VERBS, main
from loadpath.core.report import Report
from loadpath.knowledge.tables import findings
from loadpath.knowledge.terms import terms
from loadpath.rendering.pages import rules_list, term_page
from loadpath.rendering.terminal import console, show

HERE = Path(__file__).parent
DEMO = HERE.parent / "src/loadpath/examples/kv-bf16-refused.log"
NOTE = "<!-- Written by docs/generate.py from the tables; edit those. -->\n\n"


def findings_page() -> str:
    return NOTE + rules_list(findings().values())


def terms_page() -> str:
    pages = [term_page(term).replace("# ", "## ", 1) for term in terms().values()]
    return NOTE + "# Terms\n\nWhat `loadpath explain` says.\n\n" + "\n".join(pages)


def cli_page() -> str:
    def help_of(*verb: str) -> str:
        text = CliRunner().invoke(main, [*verb, "--help"], prog_name="loadpath").output
        return f"```text\n{click.unstyle(text).rstrip()}\n```\n"

    parts = ["# The command\n", help_of()]
    parts += [f"## loadpath {verb}\n\n{help_of(verb)}" for verb in VERBS]
    return NOTE + "\n".join(parts)


def readme() -> str:
    """The README with what the commands print now between its markers."""
    text = (HERE.parent / "README.md").read_text("utf-8")
    read = printed(loadpath.read(DEMO))
    cause, change = read.index("\nEvidence"), read.index("What to change")
    text = marked(text, "demo", f"{read[:cause].rstrip()}\n\n{first_lines(read[change:], 8)}\n   …")
    planned = printed(loadpath.plan("Qwen/Qwen3-32B", gpu="H100 80GB", max_model_len=16384))
    return marked(text, "plan", f"{planned[: planned.index('The engine will print')].rstrip()}\n…")


def printed(report: Report) -> str:
    out = io.StringIO()
    show(report, console(color=False, width=100, file=out))
    return out.getvalue()


def first_lines(text: str, count: int) -> str:
    return "\n".join(text.splitlines()[:count])


def marked(text: str, name: str, shown: str) -> str:
    """`text` with `shown` in a fence between the markers of that name."""
    pattern = rf"(?s)(<!-- {name} -->\n).*?(<!-- /{name} -->)"
    return re.sub(pattern, lambda m: f"{m[1]}```text\n{shown}\n```\n{m[2]}", text)


PAGES = {"findings.md": findings_page, "terms.md": terms_page, "cli.md": cli_page, "../README.md": readme}


def stale() -> list[str]:
    """Names of the pages that differ from what would be written."""
    return [
        name for name, make in PAGES.items()
        if not (HERE / name).exists() or (HERE / name).read_text("utf-8") != make()
    ]  # fmt: skip


if __name__ == "__main__":
    if "--check" in sys.argv:
        if names := stale():
            sys.exit(f"stale: {', '.join(names)}; run: python docs/generate.py")
    else:
        for name, make in PAGES.items():
            (HERE / name).write_text(make(), "utf-8")
