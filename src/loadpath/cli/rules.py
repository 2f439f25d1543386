"""`loadpath rules`: every finding there is."""

from __future__ import annotations

import click


@click.command("rules")
@click.option("--boundary", metavar="NAME", help="Only the findings of one boundary.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def command(boundary: str | None, as_json: bool) -> None:
    """List every finding that loadpath can make: its id, boundary, severity, and what it says.

    \b
    Examples:
      loadpath rules
      loadpath rules --boundary memory-fit
      loadpath rules --json | jq -r '.[].id'
    """
    from loadpath.core.vocabulary import BOUNDARIES
    from loadpath.knowledge.tables import findings
    from loadpath.rendering.pages import rules_list

    if boundary and boundary not in BOUNDARIES:
        raise click.UsageError(f"no boundary is called {boundary!r}; they are: {', '.join(BOUNDARIES)}")
    rows = [row for row in findings().values() if boundary in (None, row.boundary)]
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=1))
    else:
        click.echo(rules_list(rows), nl=False)
