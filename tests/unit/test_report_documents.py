# ruff: noqa: E501
"""Markdown, JSON and code, compared whole."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import msgspec
import pytest

from tests.runs import make_candidate, make_data, make_no_change, make_recommendation, make_run
from tfpipe.records import Candidate
from tfpipe.report.code import pipeline_code
from tfpipe.report.json_report import candidate_json, recommendation_json
from tfpipe.report.markdown import candidate_markdown, candidates_markdown, recommendation_markdown
from tfpipe.settings import PipelineSettings

DIRECTORY = Path("runs/x")

CANDIDATES = """\
## cifar100, batch 32, resnet18

- **data**: cifar100, 50,000 examples of uint8 32x32x3, int64, batch 32 (/data/cifar-100-python.tar.gz)
- **step**: ResNet18, width 64, 11,220,132 parameters, on CPU (2 cores)
- **floor**: 125 (122-128) ms per step: compute alone, no pipeline running, at most 256 (251-261) examples/s
- **fetch floor**: 250 us per batch: fetching one that is ready, not counted as waiting

| candidate | id | examples/s | step ms | compute ms | input wait ms | input % | contention ms | buffered | verdict |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| serial, as written | `shuffle5000-map-batch-norewrites` | 141 (138-144) | 227 | 125 | 100 | 44 % | 2.00 | 14.6 MiB | highly input-bound |
| serial, TensorFlow's defaults | `shuffle5000-map-batch` | 221 (217-226) | 145 | 125 | 15.6 | 11 % | 4.00 | 19.1 MiB | moderately input-bound |
| all AUTOTUNE | `shuffle5000-mapauto-batch-prefetchauto` | 239 (234-244) | 134 | 125 | 0.50 | 0.4 % | 8.50 | 19.1 MiB | compute-bound |
| seed recipe: batch first, AUTOTUNE | `shuffle5000-batch-mapauto-prefetchauto` | 254 (249-260) | 126 | 125 | 0.25 | 0.2 % | 0.50 | 20.0 MiB | compute-bound |

"serial, as written" is highly input-bound (44 % of a step waits for input); "seed recipe: batch first, AUTOTUNE" is compute-bound (0.2 % of a step waits for input).

> Warning: Each candidate was measured for 8 steps only. Give it more with --time-budget 10min.
"""

RECOMMENDATION = """\
## Recommended: seed recipe: batch first, AUTOTUNE

- **data**: cifar100, 50,000 examples of uint8 32x32x3, int64, batch 32 (/data/cifar-100-python.tar.gz)
- **step**: ResNet18, width 64, 11,220,132 parameters, on CPU (2 cores)

Use shuffle5000-batch-mapauto-prefetchauto: 1.81 times as fast as the serial pipeline as written.

| knob | value |
| --- | --- |
| id | `shuffle5000-batch-mapauto-prefetchauto` |
| shuffle_buffer | 5,000 examples |
| map_parallelism | auto (tf.data.AUTOTUNE) |
| prefetch_depth | auto (tf.data.AUTOTUNE) |
| order | batch-map |
| threadpool | none (TensorFlow's own pool) |
| deterministic | true |
| rewrites | default (as TensorFlow does) |

- **against the serial pipeline as written**: 1.81 times as fast (1.74-1.88)
- **against all AUTOTUNE**: 1.06 times as fast (0.99-1.13), a tie
- **ties with**: "all AUTOTUNE"; recommended as the cheapest of them
- **memory**: 20.0 MiB in the pipeline's buffers
- **headspace**: 1.01: a perfect input pipeline would make the step at most 1.01 times as fast
- **faster device**: a device up to 3.5 times as fast would still be fed, if its step leaves the cores to the pipeline

**Why.** As written, 44 % of a step waits for input. Batching before the map takes its cost per example from 480 us to 90 us, so that one core prepares more than the step uses.

> Warning: Each candidate was measured for 8 steps only. Give it more with --time-budget 10min.

```python
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
```
"""

CODE = """\
# GENERATED DATA: not the real cifar100, but a stand-in with its count, shapes and types. Timing
# depends on those and not on the pixels; nothing here speaks about accuracy.
import tensorflow as tf


def scale(image, seed):
    return tf.cast(image, tf.float32) / 255.0


def scale_batch(images, seeds):
    return tf.cast(images, tf.float32) / 255.0


def make_dataset(images, batch_size=32, seed=0):
    dataset = tf.data.Dataset.from_tensor_slices(images)
    dataset = dataset.shuffle(50000, seed=seed)
    dataset = dataset.repeat()
    # One random number per example, so that augmentation does not depend on the order of stages.
    dataset = tf.data.Dataset.zip(dataset, tf.data.Dataset.random(seed=seed))
    dataset = dataset.map(scale, num_parallel_calls=4)
    dataset = dataset.batch(batch_size, drop_remainder=True)
    dataset = dataset.prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 8
    options.deterministic = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    dataset = dataset.with_options(options)
    return dataset


images = tf.zeros([100, 32, 32, 3], tf.uint8)
dataset = make_dataset(images)
# It repeats for ever: with Keras, model.fit(dataset, steps_per_epoch=1562).
"""

DOCUMENT = """\
{
  "format": "tfpipe-recommendation",
  "version": 1,
  "tfpipe_version": "0.1.0",
  "notice": null,
  "data": {
    "name": "cifar100",
    "generated": false,
    "examples": 50000,
    "batch_size": 32
  },
  "step": "resnet18",
  "candidate": "shuffle5000-map-batch",
  "change": false,
  "summary": "No change worth making: shuffle5000-map-batch is as fast as anything measured.",
  "why": "The slowest candidate waits 1.2 % of a step for input, the step itself takes 125 ms.",
  "gains": [
    {
      "over": "shuffle5000-map-batch-norewrites",
      "label": "the serial pipeline as written",
      "ratio": {
        "value": 1.0,
        "low": 0.97,
        "high": 1.03
      }
    }
  ],
  "ties": [],
  "fastest": "shuffle5000-map-batch",
  "headspace": 1.02,
  "memory_bytes": 15360000,
  "device_speedup_before_input_bound": 8.25,
  "notes": [
    "A note."
  ],
  "execution": null,
  "name": "serial, TensorFlow's defaults",
  "settings": {
    "shuffle_buffer": 5000,
    "map_parallelism": null,
    "prefetch_depth": 0,
    "order": "map-batch",
    "threadpool": null,
    "deterministic": true,
    "rewrites": "default",
    "overrides": null
  },
  "verdict": {
    "bound": "input-moderate",
    "statement": "10.8% of a step waits for input.",
    "more_steps": null
  },
  "examples_per_s": {
    "value": 221.2618841832325,
    "low": 216.83664649956785,
    "high": 225.68712186689714
  },
  "step_s": {
    "value": 0.144625,
    "low": 0.1417325,
    "high": 0.1475175
  },
  "input_fraction": {
    "value": 0.10803802938634399,
    "low": 0.0972342264477096,
    "high": 0.1188418323249784
  },
  "execution_comparison": null,
  "outlook": null,
  "warnings": [],
"""


def test_candidates_in_markdown() -> None:
    assert candidates_markdown(make_run()) == CANDIDATES


def test_a_recommendation_in_markdown() -> None:
    assert recommendation_markdown(make_run(), make_recommendation()) == RECOMMENDATION


def test_a_bar_does_not_end_a_cell() -> None:
    run = make_run(candidates=(make_candidate(PipelineSettings(), name="this|that"),), recommendation=None)
    assert "| this\\|that | `map-batch` |" in candidates_markdown(run)


def test_a_recommendation_in_json() -> None:
    chosen = make_no_change(notes=("A note.",))
    run = make_run(recommendation=chosen, warnings=())
    text = recommendation_json(run, chosen)
    head, code = text.split('  "code"')
    assert head == DOCUMENT
    assert json.loads("{" + '"code"' + code)["code"] == pipeline_code(run, run.candidates[1].settings)


def test_a_candidate_in_json_is_the_record() -> None:
    run = make_run()
    document = json.loads(candidate_json(run, run.candidates[0]))
    assert (document["format"], document["version"]) == ("tfpipe-candidate", 1)
    fields = {name: document[name] for name in Candidate.__dataclass_fields__}
    assert msgspec.convert(fields, Candidate) == run.candidates[0]


def test_generated_data_is_said_first_everywhere() -> None:
    run = make_run(data=make_data(generated=True))
    notice = "GENERATED DATA: not the real cifar100"
    assert candidates_markdown(run).startswith(f"> **{notice}")
    assert candidate_markdown(run, run.candidates[0], DIRECTORY).startswith(f"> **{notice}")
    assert recommendation_markdown(run, make_recommendation()).startswith(f"> **{notice}")
    assert pipeline_code(run, PipelineSettings()).startswith(f"# {notice}")
    for document in (candidate_json(run, run.candidates[0]), recommendation_json(run, make_recommendation())):
        assert json.loads(document)["notice"].startswith(notice)


def test_every_knob_in_code() -> None:
    settings = PipelineSettings(
        shuffle_buffer="full",
        map_parallelism=4,
        prefetch_depth=2,
        threadpool=8,
        deterministic=False,
        rewrites="off",
    )
    assert pipeline_code(make_run(data=make_data(generated=True)), settings) == CODE


@pytest.mark.parametrize(
    ("settings", "absent"),
    [
        (PipelineSettings(), ["shuffle", "num_parallel_calls", "prefetch", "options"]),
        (PipelineSettings(prefetch_depth="auto"), ["shuffle", "num_parallel_calls", "options"]),
    ],
)
def test_what_is_left_out_is_not_in_the_code(settings: PipelineSettings, absent: list[str]) -> None:
    code = pipeline_code(make_run(), settings)
    # A comment may say "shuffle"; statements must not.
    statements = ast.unparse(ast.parse(code))
    assert [word for word in absent if word in statements] == []


def test_fewer_examples_than_a_batch_is_one_step_per_epoch() -> None:
    assert "steps_per_epoch=1)" in pipeline_code(make_run(data=make_data(examples=3)), PipelineSettings())
