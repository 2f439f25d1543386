"""`loadpath explain`: one page on a term or a finding."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("term", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the entry as JSON.")
@click.option("--no-color", is_flag=True, help="No colour (NO_COLOR is honoured too).")
def command(term: tuple[str, ...], as_json: bool, no_color: bool) -> None:
    """Explain TERM: a step, a boundary, a finding's id, or a figure of nvidia-smi, dmon or a start-up log.

    Without TERM, list what can be explained.

    \b
    Examples:
      loadpath explain GPU-Util
      loadpath explain "CUDA Version"
      loadpath explain kv-pool
      loadpath explain kv-cache-below-one-request
    """
    from loadpath.knowledge.tables import findings
    from loadpath.knowledge.terms import find_term, normal, similar, terms
    from loadpath.rendering.pages import finding_page, term_page

    name = " ".join(term)
    if not name:
        _list()
        return
    row = findings().get(normal(name))
    entry = row or find_term(name)
    if entry is None:
        near = similar(name)
        hint = f" Near to it: {', '.join(near)}." if near else " `loadpath explain` lists what there is."
        raise click.UsageError(f"nothing is called {name!r}.{hint}")
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(entry), indent=1))
        return
    page = finding_page(row) if row else term_page(terms()[entry.id])
    _print(page, no_color)


def _list() -> None:
    from loadpath.knowledge.terms import terms

    by_kind: dict[str, list[str]] = {}
    for term in terms().values():
        by_kind.setdefault(term.kind, []).append(term.id)
    for kind, ids in by_kind.items():
        click.echo(f"{kind}: {', '.join(ids)}")
    click.echo("finding: see `loadpath rules`")


def _print(page: str, no_color: bool) -> None:
    from loadpath.rendering.terminal import console

    to = console(color=False if no_color else None)
    if not to.is_terminal:
        click.echo(page, nl=False)
        return
    from rich.markdown import Markdown

    to.print(Markdown(page))
