"""A run file that contradicts itself is refused by name; whatever is done to one, nothing meets it unprepared."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.runs import make_run
from tfpipe.analysis.gate import check_gate
from tfpipe.analysis.recommend import recommend
from tfpipe.cli.main import main
from tfpipe.consistency import find_contradiction
from tfpipe.errors import DataError, TfpipeError
from tfpipe.records import Interval, Limits, Run
from tfpipe.report import rendering, table
from tfpipe.report.candidate import candidate_report
from tfpipe.report.code import pipeline_code
from tfpipe.report.json_report import candidate_json, recommendation_json
from tfpipe.report.markdown import candidate_markdown, candidates_markdown, recommendation_markdown, run_markdown
from tfpipe.report.text import candidates_report, profile_report, recommendation_report
from tfpipe.runfile import load_run, run_from_json, run_to_json

RECORDED = Path(__file__).parents[2] / "samples" / "recorded_run"
HERE = Path("runs/one")


def test_runs_as_they_are_written_do_not_contradict_themselves():
    assert find_contradiction(make_run()) is None
    assert find_contradiction(load_run(RECORDED)) is None


def with_first(run: Run, **changes: Any) -> Run:
    return replace(run, candidates=(replace(run.candidates[0], **changes), *run.candidates[1:]))


def with_block(run: Run, **changes: Any) -> Run:
    return with_first(run, blocks=(replace(run.candidates[0].blocks[0], **changes),))


def with_recommendation(run: Run, **changes: Any) -> Run:
    assert run.recommendation is not None
    return replace(run, recommendation=replace(run.recommendation, **changes))


def interval(low: float, value: float, high: float) -> Interval:
    return Interval(value=value, low=low, high=high)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: replace(r, candidates=()), "candidates is empty"),
        (lambda r: replace(r, candidates=(*r.candidates, r.candidates[0])), "more than once"),
        (lambda r: replace(r, current="nosuch"), "current is 'nosuch'"),
        (lambda r: with_recommendation(r, candidate="nosuch"), "recommendation.candidate is 'nosuch'"),
        (lambda r: with_recommendation(r, fastest="nosuch"), "recommendation.fastest is 'nosuch'"),
        (lambda r: with_recommendation(r, ties=("nosuch",)), "recommendation.ties is 'nosuch'"),
        (lambda r: replace(r, floor=replace(r.floor, step_s=interval(0, 0, 0))), "floor.step_s is 0"),
        (lambda r: replace(r, floor=replace(r.floor, step_s=interval(-1, -1, -1))), "floor.step_s is -1"),
        (lambda r: replace(r, floor=replace(r.floor, fetch_s=float("nan"))), "floor.fetch_s is beyond"),
        (lambda r: replace(r, floor=replace(r.floor, fetch_s=float("inf"))), "floor.fetch_s is beyond"),
        (lambda r: replace(r, data=replace(r.data, batch_size=0)), "data.batch_size is 0"),
        (lambda r: replace(r, data=replace(r.data, code=None)), "neither a pipeline"),
        (lambda r: replace(r, data=replace(r.data, name="x")), "data.name is 'x'"),
        (lambda r: with_first(r, step_s=interval(2, 1, 3)), "candidates[0].step_s is not between"),
        (lambda r: with_first(r, buffered_bytes=-1), "candidates[0].buffered_bytes is -1"),
        (lambda r: with_first(r, peak_memory_bytes=10**400), "candidates[0].peak_memory_bytes is beyond"),
        (lambda r: with_first(r, blocks=()), "no block that it comes from"),
        (lambda r: with_block(r, steps=3), "candidates[0].blocks[0] does not have one step_s"),
        (lambda r: with_block(r, elapsed_s=0.0), "candidates[0].blocks[0] measured nothing"),
        (lambda r: with_first(r, settings=replace(r.candidates[0].settings, overrides=())), "another kind"),
    ],
)
def test_a_contradiction_is_named(change, words):
    found = find_contradiction(change(make_run()))
    assert found is not None
    assert words in found


def test_contention_may_be_negative():
    assert find_contradiction(with_first(make_run(), contention_s=-0.01)) is None


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``runs/one``, whose recommendation is of no candidate."""
    monkeypatch.chdir(tmp_path)
    HERE.mkdir(parents=True)
    (HERE / "traces" / "x").mkdir(parents=True)
    run = with_recommendation(make_run(), candidate="nosuch")
    (HERE / "run.json").write_bytes(run_to_json(run))
    return HERE


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", "--format", "json"],
        *(["recommend", "--format", form] for form in ("text", "json", "markdown", "code", "patch")),
        ["recommend", "--max-memory", "1GiB"],
        ["tensorboard"],
        ["analyze", "runs/one"],
        ["profile", "--dataset", "cifar100", "--baseline", "runs/one"],
    ],
    ids=" ".join,
)
def test_every_command_refuses_it_in_one_message(
    arguments: list[str], damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # TensorBoard would take the place of the tests.
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("it was opened"))
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0] == (
        "tfpipe: runs/one/run.json is damaged: recommendation.candidate is 'nosuch', which is no candidate of it."
    )


# --- whatever is in the file -------------------------------------------------------------------------------

VALUES = (None, -1, 0, 0.0, 1, 1.5, 1e308, -1e308, 2**63, True, "", "x", "auto", "full", "step", [], {}, [None], [-1])
# Mutations per field; of all of them the seed draws others when it is changed.
DRAWN = 3


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a document; of a list its first two items."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, item in items:
        yield from fields_of(item, (*path, key))


def mutations(document: dict[str, Any], draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """What was done, and the file after it: each kind of field removed, or given a few values that it cannot have."""
    for path in {tuple("*" if isinstance(key, int) else key for key in p): p for p in fields_of(document)}.values():
        *above, last = path
        owner: Any = document
        for key in above:
            owner = owner[key]
        old = owner[last]
        for value in draw.sample(VALUES, DRAWN):
            owner[last] = value
            yield f"{path} = {value!r}", msgspec.json.encode(document)
        owner[last] = old
        if isinstance(owner, dict):
            kept = dict(owner)
            del owner[last]
            yield f"without {path}", msgspec.json.encode(document)
            owner.clear()
            owner.update(kept)


def show_all(run: Run) -> None:
    """Everything that any command makes of a run."""
    candidates_report(run, HERE, width=40, color=False)
    profile_report(run, HERE, width=80, color=True)
    candidates_markdown(run)
    run_markdown(run)
    candidate = run.candidates[0]
    candidate_report(run, candidate, HERE, width=80, color=False)
    candidate_markdown(run, candidate, HERE)
    candidate_json(run, candidate)
    recommendations = [] if run.recommendation is None else [run.recommendation]
    with suppress(TfpipeError):
        recommendations.append(recommend(run))
    for recommendation in recommendations:
        recommendation_report(run, recommendation, HERE, width=80, color=False)
        recommendation_markdown(run, recommendation)
        recommendation_json(run, recommendation)
        pipeline_code(run, run.candidate(recommendation.candidate).settings)
    with suppress(TfpipeError):
        check_gate(make_run(), Limits(max_input_fraction=0.5), run)
    run_to_json(run)


def test_no_change_of_a_field_is_met_unprepared(monkeypatch: pytest.MonkeyPatch) -> None:
    # Laying text out takes most of the time, and has nothing to do with what is in a run.
    for module in (rendering, table):
        monkeypatch.setattr(module, "render", lambda renderable, *, width, color: "")
    document = json.loads((RECORDED / "run.json").read_text())
    shown = 0
    for what, content in mutations(document, random.Random(0)):
        try:
            run = run_from_json(content, "there")
        except DataError:
            continue
        shown += 1
        try:
            show_all(run)
        except Exception as error:
            raise AssertionError(what) from error
    assert shown > 80


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b'{"format": "\xff"}',
        b'{"format": "tfpipe-run", "x": "\\ud800"}',
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"format": "tfpipe-run", "version": ' + b"1" * 10_000 + b"}",
        b'{"format": "tfpipe-run", "version": 1e999}',
        b'{"format": "tfpipe-run", "version": NaN}',
        run_to_json(make_run()).replace(b'"fetch_s": ', b'"fetch_s": Infinity, "": ', 1),
    ],
)
def test_what_is_no_run_at_all(content):
    with pytest.raises(DataError, match=r"^there "):
        run_from_json(content, "there")


def test_no_cut_and_no_changed_byte_is_met_unprepared():
    whole = run_to_json(make_run())
    draw = random.Random(0)
    for _ in range(300):
        content = bytearray(whole[: draw.randrange(len(whole))] if draw.random() < 0.2 else whole)
        for _ in range(draw.randrange(4)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        with suppress(DataError):
            run_from_json(bytes(content), "there")
