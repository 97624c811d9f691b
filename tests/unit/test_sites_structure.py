"""What the order of stages gives away, each rule with its counter-example."""

from __future__ import annotations

from typing import Any

import pytest

from tfpipe.engine.structure import notice
from tfpipe.sites import Finding, Stage


def pipeline(*methods: str | tuple[str, dict[str, Any]]) -> list[Stage]:
    """Stages one behind the other; a pair adds fields."""
    stages: list[Stage] = []
    for line, item in enumerate(methods, start=1):
        method, fields = item if isinstance(item, tuple) else (item, {})
        inputs = (stages[-1].id,) if stages else ()
        stages.append(
            Stage(
                **{"id": f"d.py:{line}:{method}", "file": "d.py", "line": line, "method": method, "inputs": inputs}
                | fields
            )
        )
    return stages


def find_problems(stages: list[Stage]) -> tuple[Finding, ...]:
    return tuple(one.finding for one in notice(stages))


RANDOM = ("map", {"random": True, "calls": ("augment",)})
ENDLESS = ("repeat", {"infinite": True})
TEN = ("range", {"cardinality": 10})
IN_FOURS = ("batch", {"arguments": {"batch_size": 4}})
SMALL = ("from_tensor_slices", {"element_bytes": 10})
WIDE = ("map", {"element_bytes": 40})


@pytest.mark.parametrize(
    ("stages", "codes"),
    [
        (("range", "shuffle", "cache", "batch"), ["shuffle-before-cache"]),
        ((TEN, IN_FOURS), ["partial-batch"]),
        (("range", IN_FOURS), []),
        ((TEN, ("batch", {"arguments": {"batch_size": 5}})), []),
        ((TEN, ("batch", {"arguments": {"batch_size": 32}})), []),
        ((TEN, ("batch", {"arguments": {"batch_size": 4, "drop_remainder": True}})), []),
        (("range", "cache", "shuffle", "batch"), []),
        (("range", RANDOM, "cache"), ["random-before-cache"]),
        (("range", "cache", RANDOM), []),
        (("range", "cache", "take"), ["cache-never-completes"]),
        (("range", "take", "cache"), []),
        (("range", "cache", "repeat", "take"), []),
        (("range", ENDLESS, "cache"), ["cache-never-completes"]),
        (("range", "batch", "shuffle"), ["shuffle-after-batch"]),
        (("range", "batch", "unbatch", "shuffle"), []),
        (("range", "padded_batch", "shuffle"), ["shuffle-after-batch"]),
        (("range", "prefetch", "batch"), ["prefetch-not-last"]),
        (("range", "prefetch", "batch", "prefetch"), []),
        (("range", "prefetch", "with_options"), []),
        (("range", "repeat", "shuffle"), ["repeat-before-shuffle"]),
        (("range", "shuffle", "repeat"), []),
        ((SMALL, WIDE, "cache", "batch"), ["cast-before-buffer"]),
        ((SMALL, "cache", WIDE, "batch"), []),
        ((SMALL, "shuffle", "map"), ["no-batch"]),
        ((SMALL, "shuffle", "padded_batch"), []),
        (("range", "map", "take"), ["take-late"]),
        (("range", ("map", {"stateful": True}), "take"), []),
    ],
)
def test_rules(stages: tuple[Any, ...], codes: list[str]) -> None:
    assert [finding.code for finding in find_problems(pipeline(*stages))] == codes


def test_decoding_before_a_shuffle_is_a_suggestion_that_was_not_measured() -> None:
    read = ("TFRecordDataset", {"element": "TensorSpec(shape=(), dtype=tf.string, name=None)"})
    found = find_problems(pipeline(read, ("map", {"element_bytes": 3072, "calls": ("load.decode",)}), "shuffle"))
    codes = ["decode-before-shuffle", "no-cache"]
    assert [(one.code, one.kind, one.measured) for one in found] == [(code, "suggestion", False) for code in codes]
    assert "map(decode)" in found[0].remedy


def test_a_discarded_result_is_named_with_its_line() -> None:
    stages = pipeline("range", "batch")
    lost = Stage(
        id="d.py:9:shuffle",
        file="d.py",
        line=9,
        method="shuffle",
        inputs=(stages[0].id,),
        reaches_end=False,
        discarded=True,
    )
    found = find_problems([*stages, lost])
    assert [one.code for one in found] == ["result-thrown-away"]
    assert found[0].text.startswith("d.py:9:")


def test_stages_inside_functions_and_beside_the_pipeline_are_not_judged() -> None:
    inner = [("shuffle", {"parent": "x"}), ("cache", {"parent": "x"})]
    beside = [("shuffle", {"reaches_end": False}), ("cache", {"reaches_end": False})]
    assert find_problems(pipeline("range", *inner)) == ()
    assert find_problems(pipeline("range", *beside)) == ()


def test_branches_are_judged_each_by_itself() -> None:
    left = pipeline("range", "shuffle")
    right = [Stage(id=f"e.py:1:{m}", file="e.py", line=1, method=m, inputs=i) for m, i in
             (("range", ()), ("cache", ("e.py:1:range",)))]  # fmt: skip
    both = Stage(id="d.py:9:zip", file="d.py", line=9, method="zip", inputs=(left[-1].id, right[-1].id))
    assert find_problems([*left, *right, both]) == ()
