"""What a notebook shows: a run as tables, progress as one line that is replaced."""

from __future__ import annotations

import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tfpipe
from tests.runs import make_run
from tfpipe.api.notebook import NotebookDisplay, is_notebook
from tfpipe.messages import Progress
from tfpipe.records import Run
from tfpipe.report import trace_json
from tfpipe.report.rendering import render
from tfpipe.report.trace_text import render_trace
from tfpipe.runfile import run_to_json, write_run
from tfpipe.trace.analysis import analyze_path
from tfpipe.trace_records import SessionAnalysis

RECORDED = Path(__file__).parents[2] / "samples" / "recorded_run"


def test_a_run_is_shown_as_tables(tmp_path: Path) -> None:
    write_run(tmp_path, make_run())
    run = tfpipe.load_run(tmp_path)
    assert isinstance(run, Run)
    assert run.directory == tmp_path
    shown = run._repr_mimebundle_()
    assert "| seed recipe: batch first, AUTOTUNE |" in shown["text/markdown"]
    assert "**Recommended: seed recipe: batch first, AUTOTUNE.**" in shown["text/markdown"]
    assert shown["text/plain"] == repr(run)
    assert "verdict" in repr(run)
    assert str(tmp_path) in repr(run)
    # It is a run like any other: equal fields, the same file.
    assert run_to_json(run) == run_to_json(make_run())
    assert "seed recipe" in repr(replace(run, warnings=()))


def test_a_report_is_text_in_a_notebook_too(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = render("text", width=80, color=False)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert render("text", width=80, color=False) == outside == "text\n"


class FakeHandle:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, line: object) -> None:
        self.lines.append(repr(line))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeHandle:
    handle = FakeHandle()

    def display(line: object, *, display_id: bool) -> FakeHandle:
        assert display_id
        handle.update(line)
        return handle

    module: Any = types.ModuleType("IPython")
    module.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    displays: Any = types.ModuleType("IPython.display")
    displays.display = display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    return handle


def test_progress_is_one_line(kernel: FakeHandle) -> None:
    assert is_notebook()
    with NotebookDisplay(quiet=False) as display:
        display.on_progress(Progress(text="loading", fraction=0.5))
        display.show("round 1: current", elapsed_s=10.0, budget_s=70.0)
    assert kernel.lines == ["starting", "loading 50%", "round 1: current (at most 60.0 s left)", ""]


def test_quiet_shows_nothing(kernel: FakeHandle) -> None:
    with NotebookDisplay(quiet=True) as display:
        display.show("round 1", elapsed_s=0.0, budget_s=1.0)
    assert kernel.lines == []


def test_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not is_notebook()
    module: Any = types.ModuleType("IPython")
    module.get_ipython = lambda: types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert not is_notebook(), "IPython in a terminal has no kernel"


def test_importing_tfpipe_imports_nothing_heavy() -> None:
    script = (
        "import sys, tfpipe; heavy = {'tensorflow', 'numpy', 'rich', 'msgspec', 'click'}; "
        "assert heavy.isdisjoint(sys.modules), heavy & set(sys.modules); "
        "tfpipe.profile, tfpipe.analyze, tfpipe.tuned, tfpipe.load_run; "
        "sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_there_is_no_other_name() -> None:
    assert {"profile", "analyze", "tuned", "load_run"} <= set(dir(tfpipe))
    with pytest.raises(AttributeError, match="no attribute 'profil'"):
        tfpipe.profil  # noqa: B018


def test_an_analyzed_trace_is_shown_as_its_report() -> None:
    path = next((RECORDED / "traces").glob("*/plugins")).parent
    trace = tfpipe.analyze(path)
    assert isinstance(trace, SessionAnalysis)
    assert repr(trace) == str(trace) == render_trace(trace, 100)
    assert trace.main.verdict.statement.split(":")[0] in repr(trace)
    shown = trace._repr_mimebundle_()
    assert shown["text/plain"] == repr(trace)
    assert shown["text/markdown"].startswith(f"**{trace.main.verdict.statement.split(':')[0]}")
    assert trace_json.render_trace(trace) == trace_json.render_trace(analyze_path(path))
