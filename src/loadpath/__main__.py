"""`python -m loadpath`."""

from loadpath.cli.main import main

main(prog_name="loadpath")
