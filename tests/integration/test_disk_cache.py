"""A cache on disk that a candidate adds: built in a temporary file that goes, and tried where memory is too small."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf

import tfpipe
from tfpipe.analysis.operational import build_model
from tfpipe.engine.capture import capture, rebuild
from tfpipe.engine.housekeeping import generated_code_in
from tfpipe.report.user_pipeline import change_lines
from tfpipe.runner import profile

pytestmark = pytest.mark.tensorflow

EXAMPLES, BYTES, BATCH = 192, 2**18, 8
# Memory there is for a cache of 48 MiB.
ROOM_BYTES = 24 * 2**20


def slow(number: Any) -> Any:
    """1 ms of computing that holds Python's lock, so that nothing but a cache spares it."""
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass
    return np.full(BYTES, number % 251, np.uint8)


def make() -> tf.data.Dataset:
    rows = tf.data.Dataset.range(EXAMPLES).map(
        lambda number: tf.ensure_shape(tf.numpy_function(slow, [number], tf.uint8), [BYTES])
    )
    return rows.shuffle(8, seed=1).batch(BATCH, drop_remainder=True)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the worker's temporary files go."""
    (tmp_path / "temporary").mkdir()
    with generated_code_in(str(tmp_path / "temporary")):
        yield tmp_path / "temporary"


def contents(dataset: Any) -> list[int]:
    return sorted(int(row[0]) for batch in dataset for row in batch.numpy())


def test_the_file_goes_with_its_dataset_and_lies_among_the_worker_s(folder: Path) -> None:
    (site,) = {f"{stage.id}(cache before)" for stage in capture(make).stages if stage.method == "shuffle"}
    first, second = rebuild(make, {site: "disk"}), rebuild(make, {site: "disk"})
    assert contents(first) == contents(second) == contents(first) == list(range(EXAMPLES))
    begin = time.perf_counter()
    contents(first)
    assert time.perf_counter() - begin < EXAMPLES * 0.001, "read and not made again"
    assert len(list(folder.glob("cache-*/cache.index"))) == 2, "each dataset has a file of its own"
    del first
    gc.collect()
    assert len(list(folder.glob("cache-*"))) == 1
    assert contents(second) == list(range(EXAMPLES))
    del second
    gc.collect()
    assert list(folder.glob("cache-*")) == []


def test_a_cache_too_large_for_memory_is_measured_on_disk_as_it_is_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "memory_limit_bytes", lambda: psutil.Process().memory_info().rss + ROOM_BYTES)
    run = tfpipe.profile(
        lambda: make(),
        step="simulated:3ms",
        search="grid",
        time_budget_s=5,
        output=tmp_path / "r",
        in_process=True,
        quiet=True,
    )
    assert run.pipeline is not None
    (suggestion,) = (one for one in run.pipeline.findings if one.code == "no-cache")
    assert "It is tried on disk" in suggestion.note
    alone = next(c for c in run.candidates if c.name == "a cache on disk before shuffle")
    others = [c for c in run.candidates if not any("cache before" in site for site, _ in c.settings.overrides or ())]
    current = run.candidate(run.current)
    assert alone.step_s is not None, alone.error
    assert current.step_s is not None
    assert alone.step_s.value < current.step_s.value / 1.5
    model = build_model(replace(run, candidates=tuple(others)))
    assert model is not None
    assert model.predict(alone.settings).step_s == pytest.approx(alone.step_s.value, rel=0.5)
    (line,) = change_lines(run, alone.settings)
    assert line.endswith('before shuffle: add .cache("FILENAME")')
