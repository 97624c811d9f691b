"""HParams events, read back with tensorboard's own reader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.util import tensor_util

from tests.runs import AUTOTUNE, SERIAL, make_candidates, make_run
from tfpipe.errors import TfpipeError
from tfpipe.report.hparams import EVENT_FILE_NAME, write_hparams
from tfpipe.settings import PipelineSettings


def values(directory: Path) -> dict[str, Any]:
    """Tag -> summary value of the one event file in ``directory``."""
    loader = EventFileLoader(str(directory / EVENT_FILE_NAME))
    return {value.tag: value for event in loader.Load() for value in event.summary.value}


def hparams_data(value: Any) -> Any:
    return metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)


def test_a_candidate_is_a_session(tmp_path: Path) -> None:
    write_hparams(make_run(), tmp_path)
    found = values(tmp_path / AUTOTUNE.id)
    start = hparams_data(found[metadata.SESSION_START_INFO_TAG])
    assert start.group_name == AUTOTUNE.id
    knobs = {name: value.string_value or value.bool_value for name, value in start.hparams.items()}
    assert knobs == {
        "shuffle_buffer": "5000",
        "map_parallelism": "auto",
        "prefetch_depth": "auto",
        "order": "map-batch",
        "threadpool": "none",
        "deterministic": True,
        "rewrites": "default",
    }


def test_metrics_are_scalars_of_the_same_session(tmp_path: Path) -> None:
    write_hparams(make_run(), tmp_path)
    found = values(tmp_path / SERIAL.id)
    serial = make_candidates()[0]
    for tag, expected in [
        ("examples_per_s", serial.examples_per_s.value if serial.examples_per_s else None),
        ("input_wait_s", serial.input_wait_s),
        ("buffered_bytes", 15_360_000),
    ]:
        assert float(tensor_util.make_ndarray(found[tag].tensor)) == pytest.approx(expected), tag


def test_the_experiment_lists_knobs_and_metrics(tmp_path: Path) -> None:
    write_hparams(make_run(), tmp_path)
    content = values(tmp_path)[metadata.EXPERIMENT_TAG].metadata.plugin_data.content
    experiment = metadata.parse_experiment_plugin_data(content)
    assert [info.name for info in experiment.hparam_infos] == [
        name for name in PipelineSettings.__dataclass_fields__ if name != "overrides"
    ]
    tags = [info.name.tag for info in experiment.metric_infos]
    assert tags[:5] == ["examples_per_s", "step_s", "compute_s", "input_wait_s", "input_fraction"]
    assert set(tags) >= set(values(tmp_path / SERIAL.id)) - {
        metadata.SESSION_START_INFO_TAG,
        metadata.SESSION_END_INFO_TAG,
    }


@pytest.mark.parametrize(("status", "expected"), [("complete", "STATUS_SUCCESS"), ("failed", "STATUS_FAILURE")])
def test_how_a_candidate_ended(status: Any, expected: str, tmp_path: Path) -> None:
    from dataclasses import replace

    candidate = replace(make_candidates()[0], status=status, step_s=None)
    write_hparams(make_run(candidates=(candidate,), recommendation=None), tmp_path)
    found = values(tmp_path / candidate.id)
    content = found[metadata.SESSION_END_INFO_TAG].metadata.plugin_data.content
    assert api_pb2.Status.Name(metadata.parse_session_end_info_plugin_data(content).status) == expected
    assert "step_s" not in found


def test_writing_again_replaces(tmp_path: Path) -> None:
    write_hparams(make_run(), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    write_hparams(make_run(), tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_utc_time_written_with_z(tmp_path: Path) -> None:
    write_hparams(make_run(created="2026-01-02T03:04:05Z"), tmp_path)
    loader = EventFileLoader(str(tmp_path / EVENT_FILE_NAME))
    assert {event.wall_time for event in loader.Load()} == {1767323045.0}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(TfpipeError, match="could not be written"):
        write_hparams(make_run(), tmp_path / "traces")


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("")
    with pytest.raises(TfpipeError, match="could not be written"):
        write_hparams(make_run(), tmp_path / "traces")
