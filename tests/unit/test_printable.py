"""What a name may do to a terminal: nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.runs import make_run
from tfpipe.printable import printable
from tfpipe.report.rendering import columns, pairs, paragraph
from tfpipe.report.table import candidate_table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with\ttab\nand line", "plain, with\ttab\nand line"),
        ("Größe 日本 🙂", "Größe 日本 🙂"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("hidden\rshown\x08\x7f", r"hidden\rshown\x08\x7f"),
        ("\x9b31m\x85\u2028", r"\x9b31m\x85\u2028"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        # A file's name as Python has it: UTF-8 that the locale could not decode, and a byte that is none.
        (b"caf\xc3\xa9-\xff".decode("ascii", "surrogateescape"), r"café-\xff"),
        ("\ud800", r"\ud800"),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown
    printable(text).encode()


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [30, 120])
def test_rendered_text_has_no_escape_codes_but_rich_s_own(color, width):
    evil = "e\x1b[2J\x1b]8;;http://evil\x07v\x9b0mil"
    for text in (
        paragraph(evil, width=width, color=color, style="bold"),
        pairs([(evil, evil)], width=width, color=color),
        columns(("a", evil), [(evil, "1")], width=width, color=color),
    ):
        assert r"\x1b[2J" in text.replace("\n", "")
        assert "\x1b[2J" not in text
        assert "\x1b]" not in text
        assert "\x9b" not in text
        assert color or "\x1b" not in text


def test_a_table_of_candidates_with_evil_names():
    run = make_run()
    named = tuple(replace(candidate, name="\x1b[31mred\x1b[0m") for candidate in run.candidates)
    for width in (40, 80, 200):
        assert "\x1b" not in candidate_table(replace(run, candidates=named), width=width, color=False)
