"""``python -m tfpipe`` is the command ``tfpipe``."""

from tfpipe.cli.start import main

main()
