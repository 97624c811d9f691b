"""``python -m tfpipe.engine.board ...``: TensorBoard with its own arguments, and TensorFlow's remarks left out."""

from __future__ import annotations

import contextlib

from tfpipe.engine.housekeeping import import_quietly


def main() -> None:
    """What the command ``tensorboard`` does."""
    # TensorBoard imports TensorFlow where it is to be had.
    with contextlib.suppress(ImportError):
        import_quietly()
    from tensorboard.main import run_main

    run_main()


if __name__ == "__main__":
    main()
