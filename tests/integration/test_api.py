"""The Python API: its documented examples, measuring in a process of its own, and training with what was found."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tfpipe
import tfpipe.api
from tests.runs import make_candidate, make_recommendation, make_run
from tfpipe.engine.capture import capture
from tfpipe.errors import TfpipeError, UsageError
from tfpipe.records import Pipeline, Run
from tfpipe.settings import PipelineSettings
from tfpipe.sites import OverrideValue

pytestmark = pytest.mark.tensorflow


def test_the_documented_examples(tmp_path: Path) -> None:
    assert doctest.testmod(tfpipe.api, extraglobs={"folder": tmp_path}) == doctest.TestResults(failed=0, attempted=14)


SCRIPT = """
import functools
import sys
import time

import tensorflow as tf
import tfpipe


def make_dataset(examples=10, batch_size=2):
    print("building")
    return tf.data.Dataset.range(examples).map(lambda x: x + 1).batch(batch_size)


def make_step(spec):
    return lambda batch: tf.reduce_sum(batch)


if {guard}:
    run = tfpipe.profile(
        functools.partial(make_dataset, examples=400, batch_size=4),
        step=make_step,
        knobs={{"prefetch_depth": "2"}},
        steps=3,
        time_budget_s=2,
        output="run",
        in_process=False,
        quiet=True,
    )
    print([candidate.status for candidate in run.candidates], run.data.batch_size, run.pipeline.arguments)
"""


def run_script(folder: Path, guard: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT.format(guard=guard))
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_scripts_own_functions_are_measured_in_another_process(tmp_path: Path) -> None:
    done = run_script(tmp_path, "__name__ == '__main__'")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['complete', 'complete'] 4 ('examples=400', 'batch_size=4')\n"
    assert "building" in (tmp_path / "run" / "worker.log").read_text()


def test_a_script_without_a_guard_is_told_to_have_one(tmp_path: Path) -> None:
    done = run_script(tmp_path, "True")
    assert done.returncode == 1
    assert "if __name__ == '__main__':" in done.stderr
    assert done.stdout == ""


def test_what_only_lives_here_is_not_measured_elsewhere() -> None:
    with pytest.raises(UsageError, match="No other process can import"):
        tfpipe.profile(lambda: tf.data.Dataset.range(3), in_process=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"step": "vgg"}, "no step 'vgg'"),
        ({"knobs": {"buffer": "3"}}, "no knob 'buffer'"),
        ({"time_budget_s": 0}, "time_budget_s"),
    ],
)
def test_mistakes_start_nothing(
    arguments: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        tfpipe.profile(lambda: tf.data.Dataset.range(3), **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_pipeline_that_fails_raises_with_its_own_frames(tmp_path: Path) -> None:
    def make_dataset() -> Any:
        raise ConnectionError("no route")

    with pytest.raises(TfpipeError, match="ConnectionError: no route") as raised:
        tfpipe.profile(make_dataset, output=tmp_path / "r", quiet=True)
    assert __file__ in raised.value.message


# --- tuned -------------------------------------------------------------------------------------------------------


def make_dataset(examples: int = 100, *, extra: bool = False, refuse: bool = False) -> Any:
    dataset = tf.data.Dataset.range(examples)
    if extra:
        dataset = dataset.shuffle(4)
    dataset = dataset.map(lambda x: x * 2, num_parallel_calls=1)
    if refuse and dataset._num_parallel_calls.numpy() == 3:
        raise RuntimeError("not three")
    return dataset.batch(4)


def saved(overrides: dict[str, OverrideValue]) -> Run:
    captured = capture(make_dataset)
    sites = {site.argument if site.method == "map" else site.id: site.id for site in captured.sites}
    settings = PipelineSettings(overrides=tuple((sites.get(name, name), value) for name, value in overrides.items()))
    pipeline = Pipeline(
        reference="here", arguments=(), root="/", sites=captured.sites, stages=captured.stages, findings=(),
        reorders=(), build_s=0.1,
    )  # fmt: skip
    candidate = make_candidate(settings)
    return make_run(
        pipeline=pipeline, candidates=(candidate,), recommendation=make_recommendation(candidate=candidate.id)
    )


def parallelism(dataset: Any) -> int:
    (mapped,) = dataset._inputs()
    return int(getattr(mapped, "_num_parallel_calls", 0))


def test_a_tuned_factory_builds_with_the_recommended_settings() -> None:
    make_tuned = tfpipe.tuned(make_dataset, saved({"num_parallel_calls": 3}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = make_tuned(40)
    assert parallelism(dataset) == 3
    assert int(dataset.cardinality()) == 10
    assert parallelism(make_dataset()) == 1, "the function itself is as it was"
    assert make_tuned.__name__ == "make_dataset"


def test_a_tuned_factory_moves_stages() -> None:
    captured = capture(make_dataset)
    mapped, batched = (next(s.id for s in captured.stages if s.method == name) for name in ("map", "batch"))
    move = f"{mapped}(behind {batched})"
    run = saved({move: True})
    assert run.pipeline is not None
    place = replace(captured.calls[mapped].site, id=move, argument=f"behind {batched}", partner=batched)
    run = replace(run, pipeline=replace(run.pipeline, sites=(*run.pipeline.sites, place)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = tfpipe.tuned(make_dataset, run)(40)
    assert parallelism(dataset) == 0, "the map is the last stage now, and reads the batch"
    assert type(dataset).__name__.strip("_").startswith("ParallelMap")


def test_a_tuned_factory_falls_back_where_the_call_sites_changed() -> None:
    make_tuned = tfpipe.tuned(make_dataset, saved({"num_parallel_calls": 3}))
    with pytest.warns(RuntimeWarning, match=r"make_dataset is built as it is written.*shuffle.*is new"):
        dataset = make_tuned(extra=True)
    assert parallelism(dataset) == 1


def test_a_tuned_factory_falls_back_where_the_settings_do_not_work() -> None:
    make_tuned = tfpipe.tuned(make_dataset, saved({"num_parallel_calls": 3}))
    with pytest.warns(RuntimeWarning, match="not three"):
        assert parallelism(make_tuned(refuse=True)) == 1


def test_a_tuned_factory_with_nothing_to_change_is_the_factory() -> None:
    assert parallelism(tfpipe.tuned(make_dataset, saved({}))()) == 1


def test_only_a_run_of_ones_own_pipeline_can_tune_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="built-in data set"):
        tfpipe.tuned(make_dataset, make_run())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no run yet"):
        tfpipe.tuned(make_dataset)
