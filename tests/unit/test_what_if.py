"""Questions on other circumstances: how they are read, answered and shown."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tests.runs import SERIAL, make_run
from tfpipe.errors import TfpipeError, UsageError
from tfpipe.records import Outlook, WhatIf
from tfpipe.report.phrases import outlook_rows
from tfpipe.report.what_if import circumstances, what_if_json, what_if_report
from tfpipe.runner.what_if import parse_what_if, what_if


def test_questions_are_read_one_by_one_or_as_a_list():
    asked = parse_what_if(["cores=16,step=12ms", "source-latency=20ms", "batch-size=512", "cache=memory"])
    assert asked == WhatIf(cores=16, step_s=0.012, source_latency_s=0.02, batch_size=512, cache="memory")
    assert circumstances(asked) == (
        "16 cores, a step of 12.0 ms, 20.0 ms more for each example from its source, batches of 512, "
        "the data cached in memory"
    )
    assert circumstances(parse_what_if(["cache=disk"])) == "the data cached on disk"


def test_a_cache_on_disk_brings_less_than_one_in_memory_and_says_what_it_would_hold():
    run = make_run()
    memory, disk = (what_if(run, WhatIf(cache=where, step_s=1e-4)) for where in ("memory", "disk"))
    assert memory.current.step_s < disk.current.step_s
    assert any("would hold about" in note and "while memory holds the file" in note for note in disk.notes)
    assert not any("while memory holds the file" in note for note in memory.notes)


def test_workers_are_counted_there_and_not_here():
    run = make_run()
    here, later = (what_if(run, WhatIf(step_s=1e-4, source_latency_s=latency_s)).notes for latency_s in (None, 0.1))
    workers = [int(re.search(r"about (\d+) tf.data", " ".join(notes))[1]) for notes in (here, later)]
    assert workers[0] < workers[1]


@pytest.mark.parametrize(
    "text", ["", "cores", "cores=", "cores=0", "cores=-1", "cores=1.5", "step=soon", "step=0ms", "cache=tape", "gpu=1"]
)
def test_a_question_that_makes_no_sense_names_itself(text):
    with pytest.raises(UsageError, match="--what-if"):
        parse_what_if([text])


def test_nothing_is_asked_twice():
    with pytest.raises(UsageError, match="cores twice"):
        parse_what_if(["cores=2", "cores=4"])


def test_a_faster_step_waits_no_less():
    run = make_run()
    fractions = [
        what_if(run, WhatIf(step_s=step_s)).current.input_fraction.value for step_s in (0.5, 0.125, 0.01, 1e-4)
    ]
    assert fractions == sorted(fractions)


def test_the_best_there_is_never_slower_than_what_you_have():
    for asked in (WhatIf(), WhatIf(cores=16), WhatIf(step_s=0.001), WhatIf(source_latency_s=0.01)):
        answer = what_if(make_run(), asked)
        assert answer.best.step_s <= answer.current.step_s
        assert answer.current.settings == SERIAL


def test_a_batch_of_another_size_takes_another_step_unless_it_is_given():
    assert what_if(make_run(), WhatIf(batch_size=64)).floor_s == pytest.approx(0.25)
    assert what_if(make_run(), WhatIf(batch_size=64, step_s=0.1)).floor_s == 0.1
    assert any("in proportion" in note for note in what_if(make_run(), WhatIf(batch_size=64)).notes)


def test_a_run_without_a_capacity_predicts_nothing():
    run = make_run()
    bare = replace(run, candidates=tuple(replace(c, capacity_examples_per_s=None) for c in run.candidates))
    with pytest.raises(TfpipeError, match="nothing to predict from"):
        what_if(bare, WhatIf())


def test_the_report_says_that_it_is_predicted():
    run = make_run()
    answer = what_if(run, WhatIf(cores=16))
    text = what_if_report(run, answer, width=80, color=False)
    assert text.startswith("What if: 16 cores\n")
    assert "Predicted, not measured" in text
    assert max(map(len, text.splitlines())) <= 80
    document = json.loads(what_if_json(run, answer))
    assert document["format"] == "tfpipe-what-if"
    assert document["predicted"] is True
    assert document["what_if"]["cores"] == 16


def test_how_far_the_pipeline_reaches_is_in_every_report():
    reach = Outlook(device_step_s=0.01, device_examples_per_s=3200.0, cores_needed=3, workers_needed=1)
    assert outlook_rows(reach, 2) == (("cores needed", "predicted: 3 to feed this step, where there are 2"),)
    latency = replace(reach, cores_needed=None, workers_needed=4, predictions=5, median_error=0.02, p90_error=0.1)
    cores, machine, predictions = outlook_rows(latency, 2)
    assert "more cores would not help" in cores[1]
    assert "about 4 tf.data service workers" in machine[1]
    assert predictions[1].startswith("of 5 candidates before measuring: off by 2.0 %")
    assert "does not fit" not in predictions[1]
    *_, (_, doubtful) = outlook_rows(replace(latency, median_error=0.3, fits=False), 2)
    assert "the model does not fit this pipeline" in doubtful
