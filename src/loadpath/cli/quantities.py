"""Options that take figures with units: `--bytes 27.31GiB`, `--peak 90T`."""

from __future__ import annotations

from collections.abc import Callable

import click

from loadpath.core.quantities import BadQuantity, Unit, parse_quantity


def quantity(unit: Unit, *, zero: bool = False) -> Callable[[str], float]:
    """The type of an option in `unit`: parses what was typed, or says how to write it."""

    def parse(text: str) -> float:
        try:
            return parse_quantity(text, unit, zero=zero)
        except BadQuantity as error:
            raise click.BadParameter(str(error)) from error

    return parse
