"""``tfpipe check --rules`` leaves no rule and no example out."""

from __future__ import annotations

import textwrap

import pytest
from click.testing import CliRunner

from tfpipe.check.rules import RULES
from tfpipe.check_records import Rule
from tfpipe.cli.main import main


@pytest.fixture(scope="module")
def printed() -> str:
    done = CliRunner().invoke(main, ["check", "--rules"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_is_printed_with_both_examples(rule: Rule, printed: str) -> None:
    start = printed.index(f"{rule.name} ({rule.severity}): ")
    whole = printed[start:]
    found = textwrap.indent(rule.bad, "        ")
    fine = textwrap.indent(rule.good, "        ")
    assert f"    Found:\n{found}\n    Fine:\n{fine}" in whole


def test_prose_is_wrapped_and_code_is_not(printed: str) -> None:
    assert all(len(line) <= 80 for line in printed.splitlines() if not line.startswith("        "))
