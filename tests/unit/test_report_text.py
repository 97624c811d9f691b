"""Whole reports for an 80-column terminal, compared with what they must be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs import (
    AUTOTUNE,
    DEFAULTS,
    SEED_RECIPE,
    make_candidate,
    make_candidates,
    make_data,
    make_no_change,
    make_recommendation,
    make_run,
)
from tfpipe.records import Gate, Run, ShuffleChoice
from tfpipe.report.candidate import candidate_report
from tfpipe.report.phrases import verdict_sentence
from tfpipe.report.text import candidates_report, profile_report, recommendation_report

DIRECTORY = Path("runs/x")
GENERATED = make_run(data=make_data(generated=True, origin="generated"), recommendation=make_no_change(), warnings=())

PROFILE = """\
data         cifar100, 50,000 examples of uint8 32x32x3, int64, batch 32
             (/data/cifar-100-python.tar.gz)
step         ResNet18, width 64, 11,220,132 parameters, on CPU (2 cores)
floor        125 (122-128) ms per step: compute alone, no pipeline running, at
             most 256 (251-261) examples/s
fetch floor  250 us per batch: fetching one that is ready, not counted as
             waiting

       examples/s  step  compute    input wait  contention  buffered
  1 serial, as written  shuffle5000-map-batch-norewrites      highly input-bound
    141 (138-144)   227      125   100  (44 %)        2.00  14.6 MiB
  2 serial, TensorFlow's defaults  shuffle5000-map-batch  moderately input-bound
    221 (217-226)   145      125  15.6  (11 %)        4.00  19.1 MiB
 =3 all AUTOTUNE  shuffle5000-mapauto-batch-prefetchauto           compute-bound
    239 (234-244)   134      125  0.50 (0.4 %)        8.50  19.1 MiB
>*4 seed recipe: batch first, AUTOTUNE                             compute-bound
    shuffle5000-batch-mapauto-prefetchauto
    254 (249-260)   126      125  0.25 (0.2 %)        0.50  20.0 MiB
Times are ms per step, ranges 95 % intervals.
> recommended  * fastest  = cannot be told apart from the fastest

verdict         "serial, as written" is highly input-bound (44 % of a step waits
                for input); "seed recipe: batch first, AUTOTUNE" is
                compute-bound (0.2 % of a step waits for input).
recommendation  Use shuffle5000-batch-mapauto-prefetchauto: 1.81 times as fast
                as the serial pipeline as written.

warning  Each candidate was measured for 8 steps only. Give it more with
         --time-budget 10min.

run   runs/x
next  tfpipe recommend runs/x
      tfpipe tensorboard runs/x
"""

RECOMMENDATION = """\
data  cifar100, 50,000 examples of uint8 32x32x3, int64, batch 32
      (/data/cifar-100-python.tar.gz)
step  ResNet18, width 64, 11,220,132 parameters, on CPU (2 cores)

Use shuffle5000-batch-mapauto-prefetchauto: 1.81 times as fast as the serial
pipeline as written.

Recommended: seed recipe: batch first, AUTOTUNE
  id               shuffle5000-batch-mapauto-prefetchauto
  shuffle_buffer   5,000 examples
  map_parallelism  auto (tf.data.AUTOTUNE)
  prefetch_depth   auto (tf.data.AUTOTUNE)
  order            batch-map
  threadpool       none (TensorFlow's own pool)
  deterministic    true
  rewrites         default (as TensorFlow does)

against the serial pipeline as written  1.81 times as fast (1.74-1.88)
against all AUTOTUNE                    1.06 times as fast (0.99-1.13), a tie
ties with                               "all AUTOTUNE"; recommended as the
                                        cheapest of them
memory                                  20.0 MiB in the pipeline's buffers
headspace                               1.01: a perfect input pipeline would
                                        make the step at most 1.01 times as fast
faster device                           a device up to 3.5 times as fast would
                                        still be fed, if its step leaves the
                                        cores to the pipeline

Why
As written, 44 % of a step waits for input. Batching before the map takes its
cost per example from 480 us to 90 us, so that one core prepares more than the
step uses.

warning  Each candidate was measured for 8 steps only. Give it more with
         --time-budget 10min.

Code to paste

import tensorflow as tf


def scale(image, seed):
    return tf.cast(image, tf.float32) / 255.0


def scale_batch(images, seeds):
    return tf.cast(images, tf.float32) / 255.0


def make_dataset(images, batch_size=32, seed=0):
    dataset = tf.data.Dataset.from_tensor_slices(images)
    dataset = dataset.shuffle(5000, seed=seed)
    dataset = dataset.repeat()
    # One random number per example, so that augmentation does not depend on the order of stages.
    dataset = tf.data.Dataset.zip(dataset, tf.data.Dataset.random(seed=seed))
    dataset = dataset.batch(batch_size, drop_remainder=True)
    dataset = dataset.map(scale_batch, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return dataset


images = tf.zeros([100, 32, 32, 3], tf.uint8)
dataset = make_dataset(images)
# It repeats for ever: with Keras, model.fit(dataset, steps_per_epoch=1562).

run   runs/x
next  tfpipe tensorboard runs/x
"""

NO_CHANGE = """\
GENERATED DATA: not the real cifar100, but a stand-in with its count, shapes and
types. Timing depends on those and not on the pixels; nothing here speaks about
accuracy.

data  cifar100, 50,000 examples of uint8 32x32x3, int64, batch 32 (generated)
step  ResNet18, width 64, 11,220,132 parameters, on CPU (2 cores)

No change worth making: shuffle5000-map-batch is as fast as anything measured.

Simplest settings: serial, TensorFlow's defaults
  id               shuffle5000-map-batch
  shuffle_buffer   5,000 examples
  map_parallelism  none (num_parallel_calls left out)
  prefetch_depth   none (no prefetch)
  order            map-batch
  threadpool       none (TensorFlow's own pool)
  deterministic    true
  rewrites         default (as TensorFlow does)

against the serial pipeline as written  1.00 times as fast (0.97-1.03), a tie
memory                                  14.6 MiB in the pipeline's buffers
headspace                               1.02: a perfect input pipeline would
                                        make the step at most 1.02 times as fast
faster device                           a device up to 8.2 times as fast would
                                        still be fed, if its step leaves the
                                        cores to the pipeline

Why
The slowest candidate waits 1.2 % of a step for input, the step itself takes 125
ms.

Code to paste

# GENERATED DATA: not the real cifar100, but a stand-in with its count, shapes and types. Timing
# depends on those and not on the pixels; nothing here speaks about accuracy.
import tensorflow as tf


def scale(image, seed):
    return tf.cast(image, tf.float32) / 255.0


def scale_batch(images, seeds):
    return tf.cast(images, tf.float32) / 255.0


def make_dataset(images, batch_size=32, seed=0):
    dataset = tf.data.Dataset.from_tensor_slices(images)
    dataset = dataset.shuffle(5000, seed=seed)
    dataset = dataset.repeat()
    # One random number per example, so that augmentation does not depend on the order of stages.
    dataset = tf.data.Dataset.zip(dataset, tf.data.Dataset.random(seed=seed))
    dataset = dataset.map(scale)
    dataset = dataset.batch(batch_size, drop_remainder=True)
    return dataset


images = tf.zeros([100, 32, 32, 3], tf.uint8)
dataset = make_dataset(images)
# It repeats for ever: with Keras, model.fit(dataset, steps_per_epoch=1562).

run   runs/x
next  tfpipe tensorboard runs/x
"""

CANDIDATE = """\
serial, as written

id               shuffle5000-map-batch-norewrites
shuffle_buffer   5,000 examples
map_parallelism  none (num_parallel_calls left out)
prefetch_depth   none (no prefetch)
order            map-batch
threadpool       none (TensorFlow's own pool)
deterministic    true
rewrites         off (exactly as written)

verdict          44.1% of a step waits for input.
examples/s       141 (138-144)
step ms          227 (222-232)
= compute ms     125
+ input wait ms  100, 44 % (40 %-48 %) of the step
+ contention ms  2.00, 0.9 % (0.8 %-1.0 %) of the step
drained alone    320 examples/s
first batch      250 ms
epoch            5.9 min, projected
CPU/example      500 us
buffered         14.6 MiB
peak memory      1.40 GiB

stage as executed  parallelism  buffer    set by  CPU/element  buffered
TensorSlice                  -       -         -         4 us         -
Shuffle                      -   5,000     fixed        39 us  14.6 MiB
MapAndBatch                  2       -  AUTOTUNE      16.0 ms     800 B

block  round  steps  warm-up  step ms  fetch ms  CPU s  first batch
step       0      4        2      227       100   0.50       250 ms
step       1      4        2      227       100   0.50       250 ms

trace          runs/x/traces/shuffle5000-map-batch-norewrites/plugins/profile/20
               26_01_02_03_04_05
profiled       4 steps, 1.43 MiB
profiled step  255 ms, of which fetching 100 ms
overhead       12 % on a step: times in the trace are that much too long
"""


def recommended(run: Run, *, width: int = 80, color: bool = False) -> str:
    assert run.recommendation is not None
    return recommendation_report(run, run.recommendation, DIRECTORY, width=width, color=color)


def test_the_end_of_a_profile() -> None:
    assert profile_report(make_run(), DIRECTORY, width=80, color=False) == PROFILE


def test_a_recommendation() -> None:
    assert recommended(make_run()) == RECOMMENDATION


def test_no_change_on_generated_data() -> None:
    assert recommended(GENERATED) == NO_CHANGE


def test_one_candidate() -> None:
    run = make_run()
    assert candidate_report(run, run.candidates[0], DIRECTORY, width=80, color=False) == CANDIDATE


def every_report(run: Run, *, width: int, color: bool = False) -> dict[str, str]:
    return {
        "profile": profile_report(run, DIRECTORY, width=width, color=color),
        "show": candidates_report(run, DIRECTORY, width=width, color=color),
        "candidate": candidate_report(run, run.candidates[0], DIRECTORY, width=width, color=color),
        "recommend": recommended(run, width=width, color=color),
    }


@pytest.mark.parametrize("width", [20, 37, 50, 59, 60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for name, report in every_report(make_run(), width=width).items():
        # Code is the exception: it is there to be pasted.
        prose = report.split("Code to paste")[0]
        assert [line for line in prose.splitlines() if len(line) > width] == [], name


@pytest.mark.parametrize("width", [50, 80, 120, 200])
def test_ids_and_commands_are_never_broken(width: int) -> None:
    report = profile_report(make_run(), DIRECTORY, width=width, color=False)
    for candidate in make_candidates():
        assert candidate.id in report
    assert "tfpipe tensorboard runs/x" in report


def test_colour_changes_no_letter() -> None:
    plain, coloured = every_report(make_run(), width=80), every_report(make_run(), width=80, color=True)
    for name, report in coloured.items():
        assert "\x1b[" in report, name
        bare = re.sub(r"\x1b\[[0-9;]*m", "", report)
        assert [line.rstrip() for line in bare.splitlines()] == plain[name].splitlines(), name


def test_generated_data_is_said_first() -> None:
    for name, report in every_report(GENERATED, width=80).items():
        assert report.startswith("GENERATED DATA: not the real cifar100"), name


def test_real_data_is_not_called_generated() -> None:
    assert "GENERATED" not in "".join(every_report(make_run(), width=80).values())


def test_a_directory_with_a_blank_is_quoted_in_commands() -> None:
    report = profile_report(make_run(), Path("my runs/x"), width=80, color=False)
    assert "tfpipe recommend 'my runs/x'" in report


def test_an_unfinished_run_says_so() -> None:
    assert "not finished" in profile_report(make_run(complete=False), DIRECTORY, width=80, color=False)


def test_limits_are_answered() -> None:
    gate = Gate(passed=False, uncertain=False, sentence="It waits 44 %, more than 5 %.")
    report = profile_report(make_run(gate=gate), DIRECTORY, width=80, color=False)
    assert "limits          It waits 44 %, more than 5 %." in report


def test_unknown_numbers_are_left_out_of_a_recommendation() -> None:
    unknown = make_recommendation(
        headspace=None, memory_bytes=None, device_speedup_before_input_bound=None, ties=(), gains=()
    )
    report = recommended(make_run(recommendation=unknown))
    for label in ("headspace", "memory", "faster device", "ties with", "against"):
        assert f"\n{label}" not in report


def test_of_many_ties_a_few_are_named() -> None:
    chosen, *others = make_run().candidates
    many = [replace(chosen, id=f"tie{number}", name=f"tie {number}") for number in range(5)]
    run = make_run(candidates=(chosen, *others, *many))
    recommendation = make_recommendation(candidate=chosen.id, ties=tuple(one.id for one in many))
    report = " ".join(recommended(replace(run, recommendation=recommendation)).split())
    assert '"tie 0", "tie 1", "tie 2" and 2 more; recommended as the cheapest of them' in report


def test_a_device_that_waits_already_is_not_called_fed() -> None:
    report = recommended(make_run(recommendation=make_recommendation(device_speedup_before_input_bound=0.5)))
    assert "input is the limit already" in report
    assert "would still be fed" not in report


class TestVerdictSentence:
    def test_what_the_user_has_and_what_is_recommended(self) -> None:
        run = make_run(current=DEFAULTS.id)
        assert verdict_sentence(run) == (
            '"serial, TensorFlow\'s defaults" is moderately input-bound (11 % of a step waits for input); '
            '"seed recipe: batch first, AUTOTUNE" is compute-bound (0.2 % of a step waits for input).'
        )

    def test_compute_bound_everywhere(self) -> None:
        run = make_run(candidates=make_candidates()[2:], current=AUTOTUNE.id)
        assert verdict_sentence(run) == "Every candidate is compute-bound: at most 0.4 % of a step waits for input."

    def test_the_users_own_is_recommended(self) -> None:
        run = make_run(current=SEED_RECIPE.id)
        assert verdict_sentence(run) == (
            '"seed recipe: batch first, AUTOTUNE" is compute-bound (0.2 % of a step waits for input).'
        )

    def test_nothing_was_measured(self) -> None:
        failed = replace(make_candidates()[0], status="failed", verdict=None)
        run = make_run(candidates=(failed,), recommendation=None)
        assert verdict_sentence(run) == "No candidate was measured to the end, so there is no verdict."

    def test_a_grid_candidate_goes_by_its_id(self) -> None:
        run = make_run(candidates=(make_candidate(DEFAULTS, bound="contended"),), recommendation=None)
        assert verdict_sentence(run).startswith('"shuffle5000-map-batch" is contended')


def test_a_recommendation_shows_what_a_shuffle_buffer_costs_and_buys() -> None:
    choices = (
        ShuffleChoice(buffer=5000, memory_bytes=2**20, fill_s=0.5, quality=0.228),
        ShuffleChoice(buffer=50_000, memory_bytes=10 * 2**20, fill_s=5.0, quality=1.0),
    )
    report = recommended(make_run(shuffling=choices))
    assert "shuffle buffer" in report
    assert re.search(r"5,000 +1\.00 MiB +500 ms +0\.23\n50,000 +10\.0 MiB +5\.00 s +1\.00\n", report)
