"""The ways to run the step compared, the verdict host-bound, and what follows from it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.runs import SEED_RECIPE, SERIAL, interval, make_candidate, make_run
from tests.unit.executions import FLOORS_S, candidate_of, make_executed_run, make_result, step_blocks
from tfpipe.analysis.execution import compare_executions, pays_off, recommend_execution
from tfpipe.analysis.host import HOST_BOUND, classify_host, host_fraction, retracing_fraction
from tfpipe.records import ExecutionComparison, Floor, Interval, Retrace, Run, Step, Verdict

ALL = ("eager", "layer", "graph", "xla")
LITTLE = Interval(value=0.005, low=0.0, high=0.01)


def compared(run: Run) -> ExecutionComparison:
    comparison = compare_executions(run)
    assert comparison is not None
    return comparison


# --- side by side ----------------------------------------------------------------------------------------------


def test_each_way_behind_the_recommended_pipeline() -> None:
    comparison = compared(make_executed_run(*ALL))
    assert (comparison.first, comparison.reference, comparison.best) == ("eager", "eager", "xla")
    assert comparison.pipeline == SEED_RECIPE.id
    assert [f.execution for f in comparison.figures] == list(ALL)
    assert [f.speed_up and f.speed_up.value for f in comparison.figures] == pytest.approx([1, 2, 4, 8])
    assert [f.first_call_s for f in comparison.figures] == [0.5, 3.0, 5.0, 11.0]
    assert [f.epoch_s for f in comparison.figures] == [50_000 / 32 * FLOORS_S[e] for e in ALL]


def test_the_speed_up_is_paired_by_round() -> None:
    """Rounds that were slow for both say nothing about the ratio: without pairing it would be 1.9 to 8.4."""
    slow = (1.0, 4.0, 1.0, 4.0, 1.0)
    results = [
        replace(make_result(e, recommended=False), current=candidate_of(e, SERIAL, jitter=slow))
        for e in ("eager", "graph")
    ]
    graph = compared(make_run(executions=tuple(results))).figures[1]
    assert graph.speed_up == Interval(value=pytest.approx(4), low=pytest.approx(4), high=pytest.approx(4))


def test_a_gain_that_was_confirmed_is_told_from_the_rounds_that_confirmed_it() -> None:
    """In the three rounds of the search the recommended pipeline was twice as fast by luck."""
    lucky = candidate_of("graph", SEED_RECIPE, jitter=(0.5, 0.5, 0.5, 1, 1, 1))
    current = candidate_of("graph", SERIAL, wait_s=0.03125, jitter=(1,) * 6)
    graph = make_result("graph", current=current, recommended=lucky)
    eager = make_result("eager", recommended=candidate_of("eager", SEED_RECIPE, jitter=(1,) * 6))
    comparison = compared(make_run(executions=(graph, eager), confirmed_from=3))
    assert comparison.split is not None
    assert comparison.split.input.value == pytest.approx(1.5)
    assert comparison.figures[0].speed_up is not None
    assert comparison.figures[0].speed_up.value == pytest.approx(4)


def test_the_first_one_is_the_reference_where_eager_was_not_run() -> None:
    comparison = compared(make_executed_run("graph", "xla"))
    assert comparison.reference == "graph"
    assert comparison.figures[1].speed_up is not None
    assert comparison.figures[1].speed_up.value == pytest.approx(2)


def test_eager_is_the_reference_wherever_it_stands() -> None:
    comparison = compared(make_executed_run("graph", "eager", "xla"))
    assert (comparison.first, comparison.reference) == ("graph", "eager")
    assert comparison.figures[0].speed_up is not None
    assert comparison.figures[0].speed_up.value == pytest.approx(4)


def test_one_way_is_no_comparison() -> None:
    assert compare_executions(make_run()) is None
    assert compare_executions(make_run(executions=(make_result("graph"),))) is None
    unmeasured = make_result("eager", current=None, recommended=False)
    assert compare_executions(make_run(executions=(make_result("graph"), unmeasured))) is None


def test_one_that_was_not_measured_is_told_and_does_not_choose_the_pipeline() -> None:
    run = make_executed_run(*ALL)
    failed = replace(run.executions[3], current=None, recommended=None)
    comparison = compared(replace(run, executions=(*run.executions[:3], failed)))
    assert comparison.best == "graph"
    assert comparison.pipeline == SEED_RECIPE.id
    assert (comparison.figures[3].step_s, comparison.figures[3].note) == (None, "it was not measured")


def test_one_that_was_traced_anew_in_every_block_is_not_compared() -> None:
    run = make_executed_run("graph", "layer", "xla")
    host = Verdict(bound="host", statement="Host-bound: graphs anew.")
    retraced = candidate_of("graph", SERIAL, step_s=None, examples_per_s=None, verdict=host, status="skipped")
    first = replace(run.executions[0], current=retraced, recommended=None)
    run = replace(run, executions=(first, *run.executions[1:]))
    comparison = compared(run)
    assert (comparison.reference, comparison.best, comparison.split) == ("layer", "xla", None)
    assert comparison.figures[0].note == "it was not measured"
    advice = recommend_execution(run)
    assert advice is not None
    assert (advice.execution, advice.gain, advice.why) == ("xla", None, "Host-bound: graphs anew.")
    assert advice.summary.endswith("inside (xla).")


def test_all_behind_the_current_pipeline_where_one_lacks_the_recommended() -> None:
    """Else a pipeline's gain would be taken for an execution's."""
    run = make_executed_run("eager", "xla")
    comparison = compared(replace(run, executions=(run.executions[0], replace(run.executions[1], recommended=None))))
    assert comparison.pipeline == SERIAL.id
    assert comparison.figures[1].speed_up is not None
    assert comparison.figures[1].speed_up.value == pytest.approx((0.25 + 0.001953125) / 0.0625)


def test_what_the_user_has_stays_unless_something_is_surely_faster() -> None:
    noisy = replace(
        make_result("xla", recommended=False), current=candidate_of("graph", SERIAL, jitter=(0.7, 1.2, 0.8))
    )
    run = make_run(executions=(make_result("graph", recommended=False, current=candidate_of("graph", SERIAL)), noisy))
    assert compared(run).best == "graph"


def test_of_the_equally_fast_the_simplest() -> None:
    """``xla`` that is no faster than ``graph`` is not worth its compile time."""
    run = make_executed_run("eager", "layer", "graph")
    xla = make_result("xla", current=candidate_of("graph", SERIAL), recommended=False)
    xla = replace(xla, recommended=candidate_of("graph", SEED_RECIPE, jitter=(0.995, 1.0625, 0.99)))
    assert compared(replace(run, executions=(*run.executions[:2], xla, run.executions[2]))).best == "graph"


# --- when the first call has paid for itself ------------------------------------------------------------------


def steps_until_paid(**fields: object) -> tuple[int | None, str]:
    return pays_off(
        **{
            "first_call_s": 5.0,
            "step_s": 0.25,
            "reference": "eager",
            "reference_first_call_s": 0.5,
            "reference_step_s": 0.75,
            "speed_up": interval(3.0, 0.1),
            **fields,
        }
    )  # type: ignore[arg-type]


def test_pays_off_is_the_first_step_at_which_no_more_time_was_taken() -> None:
    steps, note = steps_until_paid()
    assert (steps, note) == (10, "")

    def elapsed_s(first_call_s: float, step_s: float, count: int) -> float:
        return first_call_s + (count - 1) * step_s

    paid = [n for n in range(1, 100) if elapsed_s(5.0, 0.25, n) <= elapsed_s(0.5, 0.75, n)]
    assert steps == paid[0]


def test_a_first_call_that_takes_no_longer_pays_at_once() -> None:
    assert steps_until_paid(first_call_s=0.5) == (1, "")


def test_never_has_a_reason() -> None:
    assert steps_until_paid(speed_up=interval(1.01, 0.1)) == (None, "never: its step is not surely faster than eager's")
    assert steps_until_paid(speed_up=interval(0.5, 0.1), step_s=1.5) == (
        None,
        "never: its step is slower than eager's",
    )
    assert steps_until_paid(first_call_s=None) == (None, "how long the first call takes was not measured")


# --- the two factors of a gain --------------------------------------------------------------------------------


def test_the_factors_multiply_to_the_whole() -> None:
    jitters = ((1.0, 1.1, 0.9, 1.3, 1.0, 0.7), (0.9, 1.0, 1.2, 1.0, 1.1, 1.0), (1.0, 1.0, 0.8, 1.0, 1.4, 1.0))
    eager = make_result(
        "eager",
        current=candidate_of("eager", SERIAL, wait_s=0.125, jitter=jitters[0]),
        recommended=candidate_of("eager", SEED_RECIPE, jitter=jitters[1]),
    )
    xla = replace(make_result("xla"), recommended=candidate_of("xla", SEED_RECIPE, jitter=jitters[2]))
    split = compared(make_run(executions=(eager, xla))).split
    assert split is not None
    assert split.total.value == pytest.approx(split.input.value * split.execution.value)
    assert split.total.low < split.total.value < split.total.high
    assert split.input.value == pytest.approx(1.5, rel=0.1)
    assert split.execution.value == pytest.approx(8, rel=0.1)


def test_the_sentence_names_both_parts() -> None:
    eager = make_result("eager", current=candidate_of("eager", SERIAL, wait_s=0.125))
    split = compared(make_run(executions=(eager, make_result("xla")))).split
    assert split is not None
    assert split.statement == (
        "12.00 times as fast as eager behind the current pipeline: 1.50 times from input, "
        "8.00 times from execution (eager to xla)."
    )


def test_a_part_that_stays_is_said_to_stay() -> None:
    stays = compared(make_executed_run("eager", "graph", recommended=False)).split
    assert stays is not None
    assert stays.input == interval(1.0)
    assert "nothing from input (the pipeline stays)" in stays.statement
    eager = make_result("graph", current=candidate_of("graph", SERIAL, wait_s=0.0625))
    slower = make_result("eager")
    same = compared(make_run(executions=(eager, slower))).split
    assert same is not None
    assert same.execution == interval(1.0)
    assert "2.00 times from input, nothing from execution (it stays graph)" in same.statement


def test_a_part_that_may_be_chance_is_nothing_sure() -> None:
    eager = make_result("eager", current=candidate_of("eager", SERIAL, jitter=(0.9, 1.1, 1.1)))
    split = compared(make_run(executions=(eager, make_result("xla")))).split
    assert split is not None
    assert "pipeline: nothing sure from input (1.01 times, 0.78-1.30), 8.00 times from execution" in split.statement


def test_no_gain_at_all_is_one_sentence() -> None:
    run = make_executed_run("xla", "graph", recommended=False)
    split = compared(run).split
    assert split is not None
    assert split.statement.startswith("None: neither")


def test_there_is_no_split_where_its_middle_was_not_measured() -> None:
    run = make_executed_run("eager", "xla")
    assert (
        compared(replace(run, executions=(replace(run.executions[0], recommended=None), run.executions[1]))).split
        is None
    )


# --- host-bound -----------------------------------------------------------------------------------------------


def test_host_fraction() -> None:
    assert host_fraction(0.5, 0.5, 0.125) == 0.75
    assert host_fraction(1.0, 0.5, 0.25) == 0.25
    assert host_fraction(0.5, 0.25, 0.5) == 0.0


def dispatch(**fields: object) -> Verdict | None:
    """Forty small dense layers run eagerly: 111 ms, 4.2 ms as one graph, hardly waiting."""
    return classify_host(
        step_blocks(0.111),
        **{
            "execution": "eager",
            "input_fraction": LITTLE,
            "step_s": 0.111,
            "floor_s": 0.111,
            "graph_floor_s": 0.0042,
            **fields,
        },
    )  # type: ignore[arg-type]


def test_a_step_of_dispatch_is_host_bound_and_says_what_to_do() -> None:
    verdict = dispatch()
    assert verdict is not None
    assert verdict.bound == "host"
    assert verdict.statement == (
        "Host-bound: 96 % of each step is Python dispatching operations one by one; the same step as one tf.function "
        "takes 4.20 ms instead of 111 ms: wrap it (26 times as fast). No change of the pipeline would help."
    )


def test_an_eager_step_that_mostly_computes_is_not() -> None:
    """ResNet18 of width 64 on two cores: 2.94 s eagerly, 2.14 s as one graph."""
    assert dispatch(step_s=2.94, floor_s=2.94, graph_floor_s=2.14) is None


def test_a_step_that_waits_is_not() -> None:
    assert dispatch(input_fraction=Interval(value=0.1, low=0.08, high=0.12)) is None
    assert dispatch(input_fraction=Interval(value=0.04, low=0.0, high=0.25)) is None, "it may wait for 25 %"
    assert dispatch(input_fraction=Interval(value=0.04, low=0.0, high=0.08)) is not None, "nothing beside the host"


def test_without_the_graphs_floor_nothing_is_said() -> None:
    assert dispatch(graph_floor_s=None) is None
    assert classify_host(step_blocks(0.111), execution="graph") is None


def test_layers_are_named_for_what_they_are() -> None:
    verdict = dispatch(execution="layer")
    assert verdict is not None
    assert "Python calling the tf.function of each layer" in verdict.statement


RETRACE = Retrace(function="train_step", cause="images: float32 (31, 8) after (32, 8).", seconds=0.375)


def test_retracing_for_most_of_the_time_is_host_bound_though_no_block_counts() -> None:
    blocks = step_blocks(0.125, jitter=(1, 1), retraced=1, retraces=(RETRACE,))
    assert retracing_fraction(blocks) == 0.75
    verdict = classify_host(blocks, execution="graph")
    assert verdict is not None
    assert verdict.bound == "host"
    assert verdict.statement.startswith(
        "Host-bound: 75 % of the time goes into building graphs anew, 2 times in 8 steps, mostly of train_step "
        "(images: float32 (31, 8) after (32, 8)). Give it an input_signature"
    )
    assert classify_host((*blocks, *step_blocks(1.0)), execution="graph") is None, "a small part of the time"


def test_time_outside_the_steps_does_not_count_as_retracing() -> None:
    floor = replace(step_blocks(0.125)[0], kind="floor", retraces=(RETRACE,))
    assert retracing_fraction([floor]) == 0.0


def test_the_threshold_lies_between_the_known_cases() -> None:
    """Dispatch of small operations 96 %, a ResNet18 that computes 27 %."""
    assert 0.27 < HOST_BOUND < 0.96


# --- what to recommend ----------------------------------------------------------------------------------------

HOST = Verdict(bound="host", statement="Host-bound: 96 % of each step is Python.")


def one_eager_run(**fields: object) -> Run:
    """Only the step as the user runs it was measured, and its twin as one graph alone."""
    current = make_candidate(
        SERIAL, floor_s=0.125, verdict=HOST, host_fraction=0.9375, **{"capacity_examples_per_s": 1e6, **fields}
    )
    return make_run(
        step=Step(name="s.py:step", description="a Python function", synchronous=True, execution="eager"),
        floor=Floor(step_s=interval(0.125), fetch_s=0.0, blocks=(), graph_step_s=interval(0.0078125)),
        candidates=(current, make_candidate(SEED_RECIPE, floor_s=0.12)),
    )


def test_a_host_bound_step_is_to_be_wrapped_and_no_pipeline_changed() -> None:
    advice = recommend_execution(one_eager_run())
    assert advice is not None
    assert (advice.execution, advice.change_pipeline, advice.gain) == ("graph", False, None)
    assert advice.summary == (
        "Run the step as one tf.function, with the model, the gradient and the optimiser inside (put @tf.function "
        "above it): compute alone is then 16 times as fast. No pipeline is worth changing before."
    )
    assert advice.why == HOST.statement
    assert advice.notes == ()


def test_a_pipeline_that_could_not_feed_the_wrapped_step_is_told() -> None:
    advice = recommend_execution(one_eager_run(capacity_examples_per_s=1000.0))
    assert advice is not None
    (note,) = advice.notes
    assert "could take 4,096 examples/s, and the pipeline alone delivers 1,000" in note
    assert "--execution graph" in note


def test_any_other_verdict_says_nothing_about_execution() -> None:
    assert recommend_execution(make_run()) is None


def test_retracing_has_to_stop_first() -> None:
    current = make_candidate(SERIAL, verdict=HOST, host_fraction=None)
    advice = recommend_execution(make_run(candidates=(current,)))
    assert advice is not None
    assert (advice.execution, advice.change_pipeline) == (None, False)
    assert "graphs anew" in advice.summary
    layered = replace(current, host_fraction=0.25)
    assert recommend_execution(make_run(candidates=(layered,))) == advice, "its own Python is not the larger part"
    nothing_counted = replace(current, step_s=None, floor_s=None, examples_per_s=None, status="skipped")
    assert recommend_execution(make_run(candidates=(nothing_counted,))) == advice


def test_a_measured_gain_is_recommended_with_its_interval() -> None:
    advice = recommend_execution(make_executed_run(*ALL))
    assert advice is not None
    assert advice.execution == "xla"
    assert advice.change_pipeline, "pipelines were compared behind the fast step"
    assert advice.gain is not None
    assert (advice.gain.over, advice.gain.label) == (SEED_RECIPE.id, "eager execution")
    assert advice.gain.ratio.value == pytest.approx(8)
    assert advice.summary.startswith("Run the step as one tf.function(jit_compile=True)")
    assert advice.summary.endswith("(xla): 8.00 times as fast as eager.")


def test_what_the_slow_step_hides_is_told() -> None:
    """Behind the serial pipeline eager waits 0.8 % of a step, and xla half of it."""
    advice = recommend_execution(make_executed_run(*ALL))
    assert advice is not None
    (note,) = advice.notes
    assert note.startswith("Behind the current pipeline xla waits for input 50 % of each step, which the slower eager")
    assert "there it is 4.03 times" in note
    assert note.endswith(f"Behind {SEED_RECIPE.id} it waits 0.0 %.")


def test_nothing_is_hidden_where_the_first_way_waits_as_much() -> None:
    waits = replace(make_result("xla"), current=candidate_of("xla", SERIAL, wait_s=0.0009765625))
    comparison = compared(make_run(executions=(make_result("eager"), waits)))
    assert comparison.notes == ()


def test_a_first_way_that_stays_best_is_no_advice() -> None:
    assert recommend_execution(make_executed_run("xla", "graph")) is None


def test_every_number_of_it_is_finite() -> None:
    comparison = compared(make_executed_run(*ALL))
    for figures in comparison.figures:
        assert figures.speed_up is not None
        assert all(math.isfinite(x) for x in (figures.speed_up.low, figures.speed_up.high))
