"""What a candidate of a user's own pipeline will hold, from its call sites."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.test_report_user_pipeline import make_site
from tfpipe.analysis.memory import ELEMENT_OVERHEAD_BYTES
from tfpipe.messages import MemoryFacts, Prepared
from tfpipe.records import Pipeline
from tfpipe.runner.forecast import forecast_candidate
from tfpipe.settings import PipelineSettings
from tfpipe.sites import Finding, Stage

CACHE = make_site("d.py:2:cache(filename)", "d.py", method="cache", argument="filename", axis="cache", value="")
STAGE = Stage(id=CACHE.stage, file="d.py", line=2, method="cache", element_bytes=1000, cardinality=50)
ADDED = "d.py:3:shuffle(cache before)"


def held_bytes(pipeline: Pipeline, **overrides: Any) -> int:
    prepared = Prepared(
        environment=None, data=None, step=None, pipeline=pipeline,  # type: ignore[arg-type]
        memory=MemoryFacts(resident_bytes=0, batch_bytes=0, row_bytes=0), timings_s={},
    )  # fmt: skip
    forecast = forecast_candidate(PipelineSettings(overrides=tuple(overrides.items())), prepared)
    assert forecast is not None
    return forecast.total_bytes


@pytest.fixture
def cached() -> Pipeline:
    return Pipeline(
        reference="d.py:make", arguments=(), root="/", sites=(CACHE,), stages=(STAGE,), findings=(), reorders=(),
        build_s=0.1,
    )  # fmt: skip


def test_a_cache_in_memory_counts(cached: Pipeline) -> None:
    whole = 50 * (1000 + ELEMENT_OVERHEAD_BYTES)
    assert held_bytes(cached) == whole
    assert held_bytes(cached, **{CACHE.id: False}) == 0
    on_disk = replace(cached, sites=(replace(CACHE, value="/tmp/there"),))
    assert held_bytes(on_disk) == 0
    assert held_bytes(replace(cached, stages=(replace(STAGE, cardinality=None),))) == 0


def test_a_cache_that_would_be_added_counts_where_it_is_added(cached: Pipeline) -> None:
    finding = Finding(
        code="no-cache", kind="suggestion", stages=(), text="", remedy="", sites=(ADDED,), memory_bytes=10**9
    )
    bare = replace(cached, sites=(), findings=(finding,))
    assert held_bytes(bare) == 0
    assert held_bytes(bare, **{ADDED: True}) == 10**9 + ELEMENT_OVERHEAD_BYTES
