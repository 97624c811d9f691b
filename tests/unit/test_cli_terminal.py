"""Colour and width follow the terminal and the user."""

from __future__ import annotations

import sys

import pytest

from tfpipe.cli.terminal import terminal_width, use_color


class Terminal:
    def __init__(self, *, interactive: bool) -> None:
        self.interactive = interactive

    def isatty(self) -> bool:
        return self.interactive


@pytest.mark.parametrize(
    ("interactive", "variables", "colour"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "dumb"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_colour(interactive: bool, variables: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal(interactive=interactive))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert use_color() is colour


def test_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "133")
    assert terminal_width() == 133
