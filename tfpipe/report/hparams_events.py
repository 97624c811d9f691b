"""A run as TensorBoard events: one HParams session per candidate, its knobs and its metrics.

Built from tensorboard's own messages; TensorFlow is not imported. A candidate's session is its run in TensorBoard,
named by its id, the same name under which the Profile tab lists its trace.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.hparams import summary_v2 as hp
from tensorboard.plugins.scalar import summary_v2 as scalars
from tensorboard.summary.writer.record_writer import RecordWriter

from tfpipe.records import Candidate, Run
from tfpipe.settings import PipelineSettings, short_site

# The event file format that TensorBoard expects in a file's first record.
_FILE_VERSION = "brain.Event:2"
_KNOBS = {
    "shuffle_buffer": "examples in the shuffle buffer; full is the whole data set, 0 no shuffle",
    "map_parallelism": "num_parallel_calls of map; auto is AUTOTUNE, none leaves it out",
    "prefetch_depth": "batches; auto is AUTOTUNE, 0 no prefetch",
    "order": "map before batch, or batch before map",
    "threadpool": "private_threadpool_size; none leaves it out",
    "deterministic": "options.deterministic",
    "rewrites": "default: TensorFlow's rewrites; off: the pipeline as written",
}
_METRICS = {
    "examples_per_s": "examples per second through the step",
    "step_s": "seconds per step",
    "compute_s": "seconds of a step that are compute alone: the floor",
    "input_wait_s": "seconds of a step spent waiting for input",
    "input_fraction": "share of a step spent waiting for input, 0 to 1",
    "contention_s": "seconds by which a step is longer than compute and waiting",
    "capacity_examples_per_s": "examples per second of the pipeline drained alone",
    "first_batch_s": "seconds until the first batch",
    "cpu_s_per_example": "CPU seconds per example",
    "buffered_bytes": "bytes in the pipeline's buffers",
    "peak_memory_bytes": "highest resident memory of the process",
    "profiler_overhead_fraction": "share by which the profiler lengthened a step",
}


def experiment_events(run: Run) -> bytes:
    """The event file of the log directory's root: which knobs and metrics there are to compare."""
    rows = [_knobs(run, candidate.settings) for candidate in run.candidates]
    hparams = [
        hp.HParam(knob, hp.Discrete(sorted({row[knob] for row in rows})), description=text)
        for knob, text in _descriptions(run).items()
    ]
    metrics = [hp.Metric(tag, display_name=tag, description=text) for tag, text in _METRICS.items()]
    return _event_file(run, [hp.hparams_config_pb(hparams, metrics, time_created_secs=_created_s(run))])


def candidate_events(run: Run, candidate: Candidate) -> bytes:
    """The event file of one candidate: its knobs, its metrics as scalars, and whether it was measured to its end."""
    return _event_file(
        run,
        [
            hp.hparams_pb(_knobs(run, candidate.settings), trial_id=candidate.id, start_time_secs=_created_s(run)),
            *(scalars.scalar_pb(tag, value, _METRICS[tag]) for tag, value in _metrics(candidate)),
            _session_end(run, candidate),
        ],
    )


def _descriptions(run: Run) -> dict[str, str]:
    """What each column means; for a user's own pipeline one column per call site that any candidate turns."""
    if run.pipeline is None:
        return _KNOBS
    turned = {site for candidate in run.candidates for site, _ in candidate.settings.overrides or ()}
    return {short_site(site.id): site.id for site in run.pipeline.sites if site.id in turned}


def _knobs(run: Run, settings: PipelineSettings) -> dict[str, str | bool]:
    """The value in each column."""
    if run.pipeline is None:
        return {knob: _text(getattr(settings, knob)) for knob in _KNOBS}
    overrides = dict(settings.overrides or ())
    written = {site.id: site.value for site in run.pipeline.sites}
    # Always text: a column has one type, and the values of one site may be a number, a word and a truth.
    return {short: str(_text(overrides.get(site, written[site]))) for short, site in _descriptions(run).items()}


def _text(value: object) -> str | bool:
    """A column has one type, and most knobs have words among their numbers."""
    if isinstance(value, bool):
        return value
    return "none" if value is None else str(value)


def _metrics(candidate: Candidate) -> Iterator[tuple[str, float]]:
    for tag in _METRICS:
        value = getattr(candidate, tag)
        if value is not None:
            yield tag, float(getattr(value, "value", value))


def _session_end(run: Run, candidate: Candidate) -> Any:
    complete = candidate.status == "complete"
    end = plugin_data_pb2.SessionEndInfo(
        status=api_pb2.STATUS_SUCCESS if complete else api_pb2.STATUS_FAILURE,
        end_time_secs=_created_s(run) + sum(block.elapsed_s for block in candidate.blocks),
    )
    content = plugin_data_pb2.HParamsPluginData(session_end_info=end)
    value = summary_pb2.Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG,
        metadata=metadata.create_summary_metadata(content),
        tensor=metadata.NULL_TENSOR,
    )
    return summary_pb2.Summary(value=[value])


def _event_file(run: Run, summaries: list[Any]) -> bytes:
    file = io.BytesIO()
    writer = RecordWriter(file)
    wall_time = _created_s(run)
    writer.write(event_pb2.Event(wall_time=wall_time, file_version=_FILE_VERSION).SerializeToString())
    for summary in summaries:
        writer.write(event_pb2.Event(wall_time=wall_time, step=0, summary=summary).SerializeToString())
    return file.getvalue()


def _created_s(run: Run) -> float:
    # Python 3.10 does not read the Z that stands for UTC.
    return datetime.fromisoformat(run.created.replace("Z", "+00:00")).timestamp()
