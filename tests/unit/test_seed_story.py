"""The table of ``samples/seed_story.py``, from runs that were made up."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.runs import SEED_RECIPE, make_data, make_run
from tests.unit.executions import candidate_of, make_executed_run
from tfpipe.analysis.execution import compare_executions
from tfpipe.records import Candidate, DeviceUse, Run
from tfpipe.settings import Depth, Parallelism, PipelineSettings

STORY = Path(__file__).parents[2] / "samples" / "seed_story.py"


@pytest.fixture(scope="module")
def story() -> Any:
    spec = importlib.util.spec_from_file_location("seed_story", STORY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its own module up.
    sys.modules["seed_story"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["seed_story"]


def eager(calls: Parallelism, depth: Depth, wait_s: float) -> Candidate:
    settings = PipelineSettings(shuffle_buffer=5000, map_parallelism=calls, prefetch_depth=depth, rewrites="off")
    use = DeviceUse(source="process-cpu", mean_fraction=0.625, deviation_fraction=0.125, samples=4)
    return candidate_of("eager", settings, wait_s=wait_s, device_use=use)


def run_of_inputs() -> Run:
    """The grid that the first run measures; of its four candidates three are stages."""
    grid = (
        eager(None, 0, 0.0625),
        eager(None, "auto", 0.0078125),
        eager("auto", 0, 0.03125),
        eager("auto", "auto", 0.0),
    )
    return make_run(candidates=grid, current=grid[0].id, recommendation=None)


def run_of_executions(**fields: Any) -> Run:
    run = make_executed_run("eager", "layer", "graph", "xla", **fields)
    return replace(run, execution_comparison=compare_executions(run))


TABLE = """\
stage                    step ms  input wait  compute    device  epoch s  gain
serial input, eager          312  62.5 (20%)      250  62% +-12      488  1.00
prefetch, eager              258   7.8 ( 3%)      250  62% +-12      403  1.21
parallel map, eager          250   0.0 ( 0%)      250  62% +-12      391  1.25
batch before map, eager      250   0.0 ( 0%)      250         -      391  1.01
a tf.function per layer      125   0.0 ( 0%)      125         -      195  2.02
one tf.function             62.5   0.0 ( 0%)     62.5         -       98  4.03
one tf.function, XLA        31.2   0.0 ( 0%)     31.2         -       49  8.06

Gains are over the serial stage of the same run; device: its use, and by how
many points that varies.
The serial stage took 252 ms when measured beside the last four.
The recommended pipeline is shuffle5000-batch-mapauto-prefetchauto.
Gain: 8.06 times as fast as eager behind the current pipeline: 1.01 times from
input, 8.00 times from execution (eager to xla).
Behind the current pipeline xla waits for input 50 % of each step, which the
slower eager step hides: there it is 4.03 times as fast. Behind
shuffle5000-batch-mapauto-prefetchauto it waits 0.0 %."""


def test_the_table_has_every_stage_and_where_the_gain_came_from(story: ModuleType) -> None:
    assert story.story(run_of_inputs(), run_of_executions()) == TABLE


def test_where_no_other_pipeline_is_faster_the_story_says_so(story: ModuleType) -> None:
    lines = story.story(run_of_inputs(), run_of_executions(recommended=False)).splitlines()
    assert lines[4].startswith("no change pays, eager")
    assert not any("recommended pipeline" in line for line in lines)


def test_a_stage_that_was_not_measured_is_left_out(story: ModuleType) -> None:
    run = run_of_executions()
    without = replace(run.executions[3], current=None, recommended=None)
    table = story.story(run_of_inputs(), replace(run, executions=(*run.executions[:3], without)))
    assert "XLA" not in table
    assert "one tf.function " in table


def test_numbers_of_a_slow_machine_still_fit_80_columns(story: ModuleType) -> None:
    def slower(candidate: Candidate | None) -> Candidate | None:
        if candidate is None or candidate.step_s is None:
            return candidate
        step_s = replace(candidate.step_s, value=candidate.step_s.value * 40)
        use = DeviceUse(source="nvml", mean_fraction=1.0, deviation_fraction=0.25, samples=4)
        return replace(candidate, step_s=step_s, compute_s=10.0, input_wait_s=0.25, epoch_s=72_345.0, device_use=use)

    run = run_of_executions()
    results = tuple(replace(r, current=slower(r.current), recommended=slower(r.recommended)) for r in run.executions)
    text = story.story(run_of_inputs(), replace(run, executions=results, data=make_data(examples=50_000)))
    assert max(map(len, text.splitlines())) <= 80


def test_the_two_runs_are_asked_for_what_the_table_needs(story: ModuleType, tmp_path: Path, monkeypatch: Any) -> None:
    commands = []
    runs = iter((run_of_inputs(), run_of_executions()))
    monkeypatch.setattr(story.subprocess, "run", lambda command, **_: commands.append(" ".join(command[1:])))
    monkeypatch.setattr(story.tfpipe, "load_run", lambda directory: next(runs))
    story.main(["--width", "4", "--data-dir", "data", "--output", str(tmp_path), "--no-download"])
    first, second = commands
    assert first.startswith("-m tfpipe profile --dataset cifar100 --shuffle-buffer 5000 --map-parallelism none,auto")
    assert "--order map-batch --rewrites off --execution eager --width 4" in first
    assert "--order map-batch,batch-map --rewrites off --execution eager,layer,graph,xla --width 4" in second
    assert first.endswith(f"--no-download --data-dir data --output {tmp_path / 'input'}")
    assert second.endswith(f"--no-download --data-dir data --output {tmp_path / 'execution'}")


def test_the_recipe_is_called_what_it_does(story: ModuleType) -> None:
    run = run_of_executions()
    assert run.executions[0].recommended is not None
    assert run.executions[0].recommended.settings == SEED_RECIPE
    assert story.pipeline_name(run.executions[0]) == "batch before map"
    other = replace(run.executions[0], recommended=eager("auto", "auto", 0.0))
    assert story.pipeline_name(other) == "recommended"
