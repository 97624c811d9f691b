"""``python -m tfpipe`` is the command ``tfpipe``."""

from tfpipe.cli.main import main

main(prog_name="tfpipe")
