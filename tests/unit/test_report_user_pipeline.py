"""A run of a user's own pipeline: told at their lines, whole documents compared with what they must be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.runs import make_candidate, make_data, make_recommendation, make_run
from tfpipe.cli.main import main
from tfpipe.records import Gain, Interval, Pipeline, Run
from tfpipe.report.hparams_events import experiment_events
from tfpipe.report.json_report import recommendation_json
from tfpipe.report.markdown import recommendation_markdown, run_markdown
from tfpipe.report.text import profile_report, recommendation_report
from tfpipe.report.user_pipeline import change_lines, finding_rows, measured_findings, pipeline_patch, sites_report
from tfpipe.runfile import run_from_json, run_to_json, write_run
from tfpipe.settings import PipelineSettings
from tfpipe.sites import END_PREFETCH, Finding, Reorder, Site

SOURCE = """\
import tensorflow as tf


def make_dataset():
    dataset = tf.data.Dataset.range(100)
    dataset = dataset.map(decode, num_parallel_calls=2)
    return dataset.batch(8)
"""
CALLS, POOL = "data.py:6:map(num_parallel_calls)", "end:options(threading.private_threadpool_size)"
CURRENT = PipelineSettings(overrides=())
PARALLEL = PipelineSettings(overrides=((CALLS, 8), (END_PREFETCH, 2), (POOL, 16)))


def make_site(name: str, file: str, **fields: Any) -> Site:
    stage, _, argument = name.rstrip(")").partition("(")
    site = Site(
        id=name, stage=stage, kind="call", file=file, line=6, method=stage.split(":")[-1], argument=argument,
        axis="map_parallelism", value=None, written=False,
    )  # fmt: skip
    return replace(site, **fields)


def make_user_run(folder: Path, **fields: Any) -> Run:
    file = str(folder / "data.py")
    batch, end = "data.py:7:batch", {"kind": "end", "stage": "", "line": None}
    sites = (
        make_site(CALLS, file, value=2, written=True, end_line=6, end_column=55),
        make_site("data.py:6:map(deterministic)", file, axis="deterministic"),
        make_site("data.py:9:make_csv_dataset.shuffle(buffer_size)", file, line=9, method="shuffle",
                  axis="shuffle_buffer", value=10000, written=True, via="make_csv_dataset",
                  settable_as="shuffle_buffer_size"),
        make_site("data.py:9:make_csv_dataset.map(num_parallel_calls)", file, line=9, via="make_csv_dataset",
                  method="map", reaches_end=False),
        make_site("data.py:6:map(order)", file, kind="order", axis="order", argument="order", value="map-batch",
                  written=True, partner=batch),
        make_site(END_PREFETCH, file, kind="end", stage="", line=7, method="prefetch", argument="buffer_size",
                  axis="prefetch_depth", value=0, partner=batch, end_line=7, end_column=27),
        make_site(POOL, "", **end, method="Options", argument="threading.private_threadpool_size", axis="threadpool",
                  partner=batch),
        make_site("end:options(deterministic)", "", **end, method="Options", argument="deterministic",
                  axis="deterministic", value=False, written=True, partner=batch),
    )  # fmt: skip
    pipeline = Pipeline(
        reference="data.py:make_dataset",
        arguments=(),
        root=str(folder),
        sites=sites,
        stages=(),
        findings=(
            Finding(code="shuffle-after-batch", kind="wrong", stages=(batch,), text="data.py:8: shuffle behind batch.",
                    remedy="Move shuffle before batch."),
            Finding(code="take-late", kind="suggestion", stages=(batch,), text="data.py:8: take follows map.",
                    remedy="Move take before the map."),
        ),
        reorders=(
            Reorder(map_stage="data.py:6:map", batch_stage=batch, verdict="refused", reason="randomness",
                    text="augment draws random numbers.", remedy="Draw from per-example seeds."),
            Reorder(map_stage="data.py:5:map", batch_stage=batch, verdict="equal", reason=None, text="Equal."),
        ),
        build_s=0.1,
    )  # fmt: skip
    ratio = Interval(value=2.5, low=2.25, high=2.75)
    run = make_run(
        data=make_data(name="data.py:make_dataset", origin="your own pipeline", examples=None, code=None),
        pipeline=pipeline,
        current="current",
        candidates=(
            make_candidate(CURRENT, name="your pipeline as it is", input_wait_s=0.1875, bound="input-high"),
            make_candidate(PARALLEL, name="8 calls in parallel, prefetch 2"),
        ),
        recommendation=make_recommendation(
            candidate=PARALLEL.id,
            summary='Use "8 calls in parallel, prefetch 2": 2.50 times as fast as your pipeline as it is.',
            gains=(Gain(over="current", label="your pipeline as it is", ratio=ratio),),
            ties=(),
            why="It waits less.",
            fastest=PARALLEL.id,
        ),
        warnings=(),
    )
    return replace(run, **fields)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.py").write_text(SOURCE)
    return tmp_path


LINES = (
    "data.py:6  map(num_parallel_calls=2) -> 8",
    "data.py:7  behind batch: add .prefetch(2)",
    "at the end: set options.threading.private_threadpool_size = 16",
)
RECOMMENDATION = """\
data  data.py:make_dataset, examples of uint8 32x32x3, int64, batch 32 (your own
      pipeline)
step  ResNet18, width 64, 11,220,132 parameters, on CPU (2 cores)

Use "8 calls in parallel, prefetch 2": 2.50 times as fast as your pipeline as it
is.

Recommended: 8 calls in parallel, prefetch 2
  data.py:6  map(num_parallel_calls=2) -> 8
  data.py:7  behind batch: add .prefetch(2)
  at the end: set options.threading.private_threadpool_size = 16

against your pipeline as it is  2.50 times as fast (2.25-2.75)
memory                          20.0 MiB in the pipeline's buffers
headspace                       1.01: a perfect input pipeline would make the
                                step at most 1.01 times as fast
faster device                   a device up to 3.5 times as fast would still be
                                fed, if its step leaves the cores to the
                                pipeline

Why
It waits less.

wrong       data.py:8: shuffle behind batch. Move shuffle before batch.
suggestion  data.py:8: take follows map. Move take before the map. (Not
            measured.)
order       data.py:6: batch before map was not tried. augment draws random
            numbers. Draw from per-example seeds.

To change it
  tfpipe recommend runs/x --format patch | patch -p1 -d {root}
  by hand  at the end: set options.threading.private_threadpool_size = 16:
           options = tf.data.Options(), set it there, and
           dataset.with_options(options) behind everything

run   runs/x
next  tfpipe tensorboard runs/x
"""


def test_the_recommendation_is_told_at_their_lines(folder: Path) -> None:
    run = make_user_run(folder)
    assert run.recommendation is not None
    text = recommendation_report(run, run.recommendation, Path("runs/x"), width=80, color=False)
    assert text == RECOMMENDATION.format(root=folder)
    assert change_lines(run, PARALLEL) == LINES
    assert change_lines(run, CURRENT) == ("nothing: the pipeline as it is",)


def test_markdown_and_json_say_the_same(folder: Path) -> None:
    run = make_user_run(folder)
    assert run.recommendation is not None
    markdown = recommendation_markdown(run, run.recommendation)
    assert "```text\n" + "\n".join(LINES) + "\n```" in markdown
    assert "```python" not in markdown
    assert "- **wrong**: data.py:8: shuffle behind batch. Move shuffle before batch." in markdown
    assert LINES[0] in run_markdown(run)
    document = json.loads(recommendation_json(run, run.recommendation))
    assert "code" not in document
    assert [change["text"] for change in document["changes"]] == list(LINES)
    assert document["changes"][0]["written"] == 2
    assert document["patch"] == pipeline_patch(run, PARALLEL).diff
    assert [finding["code"] for finding in document["findings"]] == ["shuffle-after-batch", "take-late"]


def test_the_profile_report_shows_what_was_noticed(folder: Path) -> None:
    text = profile_report(make_user_run(folder), Path("r"), width=80, color=False)
    assert "wrong       data.py:8: shuffle behind batch." in text
    assert "order       data.py:6: batch before map was not tried." in text
    assert "Equal." not in text, "what was proven is a candidate and needs no word"


def test_a_suggestion_says_how_it_was_proven_and_what_was_measured(folder: Path) -> None:
    run = make_user_run(folder)
    assert run.pipeline is not None
    site = "data.py:8:take(before data.py:6:map)"
    found = replace(run.pipeline.findings[1], sites=(site,), note="Both orders gave the same.")
    moved = make_candidate(
        PipelineSettings(overrides=((site, True),)),
        name="take before map",
        examples_per_s=Interval(value=300.0, low=290.0, high=310.0),
        buffered_bytes=2048,
    )
    run = replace(run, pipeline=replace(run.pipeline, findings=(found,)))
    assert dict(finding_rows(run))["suggestion"].endswith("Both orders gave the same. (Not measured.)")
    run = replace(run, candidates=(*run.candidates, moved))
    (finding,) = measured_findings(run)
    assert finding.measured
    both = replace(moved, settings=PipelineSettings(overrides=(*(PARALLEL.overrides or ()), (site, True))))
    together = replace(run, candidates=(*run.candidates[:-1], both))
    assert "Measured with other changes: " in dict(finding_rows(together))["suggestion"]
    words = dict(finding_rows(run))["suggestion"]
    now = run.candidate(run.current)
    assert now.examples_per_s is not None
    assert f"Measured: {300 / now.examples_per_s.value:.2f} times as fast, with 2.00 KiB in buffers" in words


def test_no_change_has_nothing_to_apply(folder: Path) -> None:
    run = make_user_run(folder)
    recommendation = make_recommendation(candidate="current", change=False, fastest=PARALLEL.id, ties=(), gains=())
    text = recommendation_report(run, recommendation, Path("r"), width=80, color=False)
    assert "nothing: the pipeline as it is" in text
    assert "To change it" not in text


SITES = """\
data.py:6  map(num_parallel_calls=2)
data.py:6  map(deterministic not given)
data.py:9  make_csv_dataset: shuffle(buffer_size=10000)
    Set it with make_csv_dataset(shuffle_buffer_size=...).
data.py:9  make_csv_dataset: map(num_parallel_calls not given)
    make_csv_dataset makes this call and has no argument for it: it can be
    overridden while measuring, but not be written on this line.
    It is no part of the dataset that the factory returns, so it is left alone.
data.py:6  map before batch

end  A prefetch can be added behind data.py:7:batch.
end  options.deterministic = False can be set otherwise.
end  Options can be set: threading.private_threadpool_size.

wrong       data.py:8: shuffle behind batch. Move shuffle before batch.
suggestion  data.py:8: take follows map. Move take before the map. (Not
            measured.)
order       data.py:6: batch before map was not tried. augment draws random
            numbers. Draw from per-example seeds.

root  /home/me
"""


def test_every_site_and_what_cannot_be_changed_there(folder: Path) -> None:
    run = make_user_run(folder)
    assert run.pipeline is not None
    run = replace(run, pipeline=replace(run.pipeline, root="/home/me"))
    assert sites_report(run, width=80, color=False) == SITES


def test_the_commands(folder: Path) -> None:
    write_run(folder, make_user_run(folder))
    run = CliRunner()
    patch = run.invoke(main, ["recommend", str(folder), "--format", "patch"])
    assert patch.exit_code == 0
    assert patch.stdout.startswith("--- a/data.py\n+++ b/data.py\n")
    assert "+    return dataset.batch(8).prefetch(2)\n" in patch.stdout
    assert "private_threadpool_size" in patch.stderr
    code = run.invoke(main, ["recommend", str(folder), "--format", "code"])
    assert (code.exit_code, code.stdout) == (2, "")
    assert "--format patch" in code.stderr
    sites = run.invoke(main, ["show", str(folder), "--sites", "--format", "json"])
    assert json.loads(sites.stdout)["format"] == "tfpipe-pipeline"
    one = run.invoke(main, ["show", str(folder), "--candidate", PARALLEL.id])
    assert LINES[0] in one.stdout

    (folder / "built-in").mkdir()
    write_run(folder / "built-in", make_run())
    for arguments in (["recommend", "--format", "patch"], ["show", "--sites"]):
        refused = run.invoke(main, [arguments[0], str(folder / "built-in"), *arguments[1:]])
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "built-in data set" in refused.stderr


def test_a_patch_of_files_that_changed_is_left_to_the_user(folder: Path) -> None:
    (folder / "data.py").write_text(SOURCE.replace("num_parallel_calls=2", "num_parallel_calls=4"))
    patch = pipeline_patch(make_user_run(folder), PARALLEL)
    assert "num_parallel_calls=8" not in patch.diff
    assert "the file has changed: 4 is written there now" in " ".join(patch.by_hand)
    (folder / "data.py").unlink()
    assert len(pipeline_patch(make_user_run(folder), PARALLEL).by_hand) == 3


def test_hparams_are_the_call_sites(folder: Path) -> None:
    events = experiment_events(make_user_run(folder))
    for column in (b"data.6.map", b"prefetch", b"private_threadpool_size"):
        assert column in events
    assert b"shuffle_buffer" not in events
    assert b"data.9" not in events, "a site that no candidate turns is no column"


def test_the_run_file_keeps_it_all(folder: Path) -> None:
    run = make_user_run(folder)
    assert run_from_json(run_to_json(run), "r") == run
