"""The ways to run the step as the report shows them, compared with what they must be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

from tests.runs import SEED_RECIPE, SERIAL, interval, make_candidate, make_recommendation, make_run
from tests.unit.executions import candidate_of, make_executed_run, step_blocks
from tfpipe.analysis.execution import compare_executions
from tfpipe.analysis.host import classify_host
from tfpipe.records import Candidate, DeviceUse, Retrace, Run, Verdict
from tfpipe.report.candidate import candidate_report
from tfpipe.report.executions import executions_markdown, executions_text
from tfpipe.report.json_report import recommendation_json
from tfpipe.report.markdown import candidates_markdown, recommendation_markdown, run_markdown
from tfpipe.report.phrases import verdict_sentence
from tfpipe.report.text import candidates_report, profile_report, recommendation_report

DIRECTORY = Path("runs/x")
# How long the blocks of each round took, relative to the same in a quiet machine.
JITTERS: dict[Any, tuple[float, ...]] = {
    "eager": (1, 1.03, 1.01), "layer": (1, 1.04, 0.97), "graph": (1.02, 1, 0.96), "xla": (0.97, 1.01, 1),
}  # fmt: skip


def full_run(**fields: Any) -> Run:
    """All four ways, with the first as host-bound as it comes."""
    run = make_executed_run("eager", "layer", "graph", "xla")
    results = [
        replace(
            result,
            current=candidate_of(e, SERIAL, wait_s=result.current.input_wait_s or 0.0, jitter=JITTERS[e]),
            recommended=candidate_of(e, SEED_RECIPE, jitter=JITTERS[e][::-1]),
        )
        for result in run.executions
        if (e := result.step.execution) and result.current is not None
    ]
    assert results[0].current is not None
    verdict = classify_host(
        results[0].current.blocks,
        execution="eager",
        input_fraction=interval(0.01),
        step_s=0.26,
        floor_s=0.25,
        graph_floor_s=0.0625,
    )
    results[0] = replace(results[0], current=replace(results[0].current, verdict=verdict))
    run = replace(run, executions=tuple(results))
    return with_comparison(replace(run, **fields))


def with_comparison(run: Run) -> Run:
    return replace(run, execution_comparison=compare_executions(run))


TEXT = """\
How the step runs, behind shuffle5000-batch-mapauto-prefetchauto
         step          speed-up   first   paid  examples               CPU
           ms        over eager    call  after        /s    epoch    use %
  eager   250                 -  500 ms      -       128  6.5 min  75 +-12
  layer   125  2.02 (1.89-2.16)  3.00 s     21       256  3.3 min  75 +-12
  graph  62.5  4.08 (3.73-4.47)  5.00 s     25       512   97.7 s  75 +-12
> xla    31.2  8.16 (7.96-8.37)  11.0 s     49     1,024   48.8 s  75 +-12
> the one to use. Speed-ups are with 95 % intervals. Paid after: so many steps
win back the longer first call (tracing, compiling). CPU use is this process's
share of all cores, +- the samples' standard deviation in points.

now    eager: Host-bound: 72 % of each step is Python dispatching operations one
       by one; the same step as one tf.function takes 62.5 ms instead of 250 ms:
       wrap it (4.0 times as fast). No change of the pipeline would help.
gain   8.23 times (7.82-8.65) as fast as eager behind the current pipeline:
       nothing sure from input (1.01 times, 0.98-1.03), 8.16 times (7.96-8.37)
       from execution (eager to xla).
input  Behind the current pipeline xla waits for input 50 % of each step, which
       the slower eager step hides: there it is 4.11 times (4.01-4.22) as fast.
       Behind shuffle5000-batch-mapauto-prefetchauto it waits 0.0 %.
"""

MARKDOWN = """\
**How the step runs**, behind shuffle5000-batch-mapauto-prefetchauto:

|  | step ms | speed-up over eager | first call | paid after | examples /s | epoch | CPU use % |
| --- | --- | --- | --- | --- | --- | --- | --- |
| eager | 250 | - | 500 ms | - | 128 | 6.5 min | 75 +-12 |
| layer | 125 | 2.02 (1.89-2.16) | 3.00 s | 21 | 256 | 3.3 min | 75 +-12 |
| graph | 62.5 | 4.08 (3.73-4.47) | 5.00 s | 25 | 512 | 97.7 s | 75 +-12 |
| > xla | 31.2 | 8.16 (7.96-8.37) | 11.0 s | 49 | 1,024 | 48.8 s | 75 +-12 |

The one to use: xla. Speed-ups are with 95 % intervals. Paid after: so"""


def test_the_table_at_80_columns() -> None:
    assert executions_text(full_run(), width=80, color=False) == TEXT


@pytest.mark.parametrize("width", [20, 40, 79, 80, 100, 120])
@pytest.mark.parametrize("color", [False, True])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_lost(width: int, color: bool) -> None:
    text = executions_text(full_run(), width=width, color=color)
    plain = "".join(part if n == 0 else part.partition("m")[2] for n, part in enumerate(text.split("\x1b[")))
    assert max(cell_len(line) for line in plain.splitlines()) <= width
    assert (text != plain) == color
    words = plain.split()
    assert all(number in words or f"{number}," in words for number in ("250", "62.5", "31.2", "1,024", "49"))


def test_slow_steps_and_long_intervals_still_fit_80_columns() -> None:
    run = full_run()
    comparison = run.execution_comparison
    assert comparison is not None
    long = replace(
        comparison.figures[3],
        step_s=interval(2.945),
        speed_up=interval(26.43, 0.06),
        first_call_s=125.0,
        pays_off_steps=1234,
        epoch_s=76.66 * 60,
        device_use=DeviceUse(source="nvml", mean_fraction=1.0, deviation_fraction=0.125, samples=9),
    )
    figures = (*comparison.figures[:3], long)
    text = executions_text(
        replace(run, execution_comparison=replace(comparison, figures=figures)), width=80, color=False
    )
    assert "> xla    2,945  26.4 (24.8-28.0)  2.1 min  1,234     1,024  76.7 min  100 +-12\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_table_as_markdown() -> None:
    markdown = executions_markdown(full_run())
    assert markdown.startswith(MARKDOWN)
    assert "- **gain**: 8.23 times (7.82-8.65) as fast as eager" in markdown


def test_a_gpu_is_named_and_told_with_its_memory_and_power() -> None:
    run = full_run()
    use = DeviceUse(
        source="nvml", mean_fraction=0.98, deviation_fraction=0.01, samples=40, memory_bytes=3 * 2**30, power_w=211.4
    )
    run = with_comparison(replace(run, executions=tuple(replace(r, device_use=use) for r in run.executions)))
    text = " ".join(executions_text(run, width=80, color=False).split())
    assert "GPU use is as NVML reports it" in text
    assert "98 +-1" in text
    assert "GPU eager 3.00 GiB, 211 W; layer 3.00 GiB, 211 W" in text


def test_without_samples_there_is_no_column() -> None:
    run = full_run()
    run = with_comparison(replace(run, executions=tuple(replace(r, device_use=None) for r in run.executions)))
    assert " use" not in executions_text(run, width=80, color=False).replace("to use", "")


def test_never_and_not_measured_are_told_with_their_reason() -> None:
    run = full_run()
    first, layer, graph, xla = run.executions
    as_slow = replace(layer, recommended=first.recommended)
    failed = replace(graph, current=None, recommended=None)
    text = executions_text(
        with_comparison(replace(run, executions=(first, as_slow, failed, xla))), width=80, color=False
    )
    assert "  layer   250              1.00  3.00 s  never       128" in text
    assert "  graph     -                 -  5.00 s      -         -        -        -\n" in text
    assert "layer  Never: its step is not surely faster than eager's.\n" in text
    assert "graph  It was not measured.\n" in text


def test_a_run_in_one_way_has_no_section() -> None:
    assert executions_text(make_run(), width=80, color=False) == ""
    assert executions_markdown(make_run()) == ""


def test_one_way_to_run_the_step_shows_the_use_of_the_device_before_and_after() -> None:
    use = DeviceUse(source="nvml", mean_fraction=0.62, deviation_fraction=0.18, samples=9)
    before = make_candidate(SERIAL, name="serial, as written", device_use=use)
    after = make_candidate(SEED_RECIPE, device_use=replace(use, mean_fraction=0.99, deviation_fraction=0.01))
    run = make_run(candidates=(before, after), recommendation=make_recommendation(ties=()))
    assert executions_text(run, width=130, color=False) == (
        f'GPU use  "serial, as written" 62 % +-18 points, "{SEED_RECIPE.id}" 99 % +-1 points (as NVML reports it)\n'
    )
    alone = executions_text(replace(run, recommendation=None), width=120, color=False)
    assert alone == "GPU use  62 % +-18 points (as NVML reports it)\n"


# --- retracing -------------------------------------------------------------------------------------------------


def retraced(cause: str, seconds: float, rounds: int = 1) -> Candidate:
    retrace = Retrace(function="train_step", cause=cause, seconds=seconds)
    blocks = step_blocks(0.125, jitter=(1,) * rounds, retraced=1, retraces=(retrace,))
    return replace(make_candidate(SERIAL), blocks=blocks)


def test_what_was_traced_anew_is_told_once_per_cause() -> None:
    run = make_run(candidates=(retraced("images: (31, 8) after (32, 8)", 1.5, 2), retraced("step: 2 after 1", 4.5)))
    assert executions_text(run, width=80, color=False) == (
        "traced anew  train_step, once in 4.50 s: step: 2 after 1\n"
        "traced anew  train_step, 2 times in 3.00 s: images: (31, 8) after (32, 8)\n"
        "not counted  3 blocks are not counted, because a graph was built in the middle\n"
        "             of it\n"
    )


def test_graphs_built_in_the_warm_up_are_told_and_the_block_counts() -> None:
    retrace = Retrace(function="train_step", cause="its second shape", seconds=0.5)
    candidate = replace(make_candidate(SERIAL), blocks=step_blocks(0.125, warmup_retraces=(retrace,)))
    text = executions_text(make_run(candidates=(candidate,)), width=80, color=False)
    assert text == "traced anew  train_step, once in 500 ms: its second shape\n"


def test_graphs_are_counted_by_function() -> None:
    run = make_run()
    one = replace(run, step=replace(run.step, function_traces=(("train_step", 2),)))
    assert executions_text(one, width=80, color=False) == "graphs  train_step 2\n"
    first, layer, *others = full_run().executions
    many = tuple((f"Layer{n}.call", 1 + (n == 7)) for n in range(40))
    layer = replace(layer, step=replace(layer.step, function_traces=many))
    run = with_comparison(replace(full_run(), executions=(first, layer, *others)))
    text = executions_text(run, width=80, color=False)
    assert "graphs  layer: 41, 2 of them for Layer7.call\n" in text


def test_changing_values_of_one_argument_are_one_cause() -> None:
    run = make_run(candidates=tuple(retraced(f"n is now {n + 1}, was {n}", 1.0 + n) for n in range(8)))
    text = executions_text(run, width=80, color=False)
    assert text.startswith("traced anew  train_step, 8 times in 36.0 s, such as: n is now 8, was 7\n")


def test_many_causes_are_summed_up() -> None:
    run = make_run(candidates=tuple(retraced(f"x{n} is now 2, was 1", 1.0 + n) for n in range(8)))
    text = executions_text(run, width=80, color=False)
    assert text.count("traced anew") == 6
    assert "for 3 other reasons, 3 times in 6.00 s" in text


def test_retracing_is_told_with_the_way_it_happened_in_and_not_twice() -> None:
    """The candidates of the fastest way are listed in two places of a run."""
    run = full_run()
    candidate = retraced("images: (31, 8) after (32, 8)", 1.5)
    xla = replace(run.executions[3], current=candidate)
    run = replace(run, executions=(*run.executions[:3], xla), candidates=(candidate, *run.candidates[1:]))
    assert "traced anew  xla: train_step, once in 1.50 s: images" in executions_text(run, width=80, color=False)


# --- where it stands in the reports ----------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_every_report_of_a_run_has_it(width: int) -> None:
    run = full_run()
    section = executions_text(run, width=width, color=False)
    recommendation = make_recommendation(candidate=SEED_RECIPE.id, ties=())
    run = replace(run, recommendation=recommendation)
    assert section in profile_report(run, DIRECTORY, width=width, color=False)
    assert section in candidates_report(run, DIRECTORY, width=width, color=False)
    assert section in recommendation_report(run, recommendation, DIRECTORY, width=width, color=False)
    markdown = executions_markdown(run)
    assert markdown in candidates_markdown(run)
    assert markdown in recommendation_markdown(run, recommendation)
    assert run_markdown(run).count(markdown) == 1


def test_notes_on_the_run_stand_below_its_warnings() -> None:
    note = "The use of the GPU is not known: no NVIDIA driver."
    run = make_run(notes=(note,))
    assert f"note     {note}\n" in candidates_report(run, DIRECTORY, width=80, color=False)
    assert f"> Note: {note}\n" in candidates_markdown(run)


def test_json_has_the_derived_figures() -> None:
    run = full_run()
    document = json.loads(recommendation_json(run, make_recommendation(execution="xla", ties=())))
    assert document["execution"] == "xla"
    assert document["execution_comparison"] == json.loads(msgspec.json.encode(run.execution_comparison))
    assert document["execution_comparison"]["figures"][3]["pays_off_steps"] == 49


def test_a_candidate_tells_its_own_python_its_retraces_and_the_devices_use() -> None:
    use = DeviceUse(source="process-cpu", mean_fraction=0.52, deviation_fraction=0.07, samples=40)
    candidate = replace(retraced("step: 2 after 1", 1.5), host_fraction=0.96, device_use=use)
    text = candidate_report(make_run(candidates=(candidate,)), candidate, DIRECTORY, width=80, color=False)
    assert "its own Python   96 % of the step: what it would be shorter as one tf.function\n" in text
    assert "traced anew      train_step, once in 1.50 s: step: 2 after 1\n" in text
    assert "device use       52 % +-7 points (this process's share of all cores)\n" in text


def test_a_host_bound_run_says_what_the_host_takes() -> None:
    verdict = Verdict(bound="host", statement="Host-bound.")
    candidate = make_candidate(SERIAL, name="mine", verdict=verdict, host_fraction=0.96)
    run = make_run(candidates=(candidate,), recommendation=None)
    assert verdict_sentence(run) == '"mine" is host-bound (96 % of a step is its own Python).'
