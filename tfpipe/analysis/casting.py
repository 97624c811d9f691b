"""What casting in the step, instead of in the pipeline, is predicted to bring. Pure."""

from __future__ import annotations

from tfpipe.analysis.host import computes_on_host
from tfpipe.analysis.operational import build_model, prediction_errors
from tfpipe.analysis.operational.shape import bytes_before
from tfpipe.analysis.ranking import WORTHWHILE
from tfpipe.records import Candidate, Pipeline, Run
from tfpipe.sites import Stage
from tfpipe.units import format_bytes

# What these predictions may be off by at least: of a pipeline without its map nothing like it was measured. On three
# pipelines (rows of 16 bytes, images of 3 KiB and 147 KiB) they came to 0.49, 0.97 and 1.5 times the measured gain.
UNSEEN_ERROR = 0.5
# Stages behind the cast that hand elements on, or copy them, whatever their type.
_PASSING = {"batch", "cache", "prefetch", "repeat", "shuffle", "skip", "take", "with_options"}


def casting_note(run: Run, chosen: Candidate) -> str | None:
    """What leaving the data as it is and casting in the step would make of ``chosen``; None where it is not worth it.

    Only for a step whose batch is waited for and that leaves the host's processors alone: on a CPU the same work would
    only change its place. The interval is the error of the predictions that the run could check, UNSEEN_ERROR at least.
    """
    pipeline, floor = run.pipeline, run.floor.step_s
    stage = None if pipeline is None else _last_cast(pipeline)
    if pipeline is None or stage is None or floor is None or chosen.step_s is None or computes_on_host(run):
        return None
    if chosen.verdict is None or chosen.verdict.bound in ("compute", "host"):
        return None
    before, after = bytes_before(pipeline, stage.id), stage.element_bytes
    model = build_model(run)
    if model is None or model.unknown(chosen.settings) is not None or not before or not after or before > after:
        return None
    errors = prediction_errors(run)
    error = UNSEEN_ERROR if errors is None else max(errors.p90, UNSEEN_ERROR)
    # A step is never shorter than compute alone, nor a pipeline slower for less work.
    most = max(1.0, chosen.step_s.value / floor.value)
    gain = min(most, model.gain_without_map(chosen.settings, stage.id, before=before, after=after))
    if gain < WORTHWHILE:
        return None
    low, high = max(1.0, gain / (1 + error)), min(most, gain * (1 + error))
    held = run.data.example_bytes * run.data.batch_size
    smaller = f", batches of {format_bytes(held * before / after)} instead of {format_bytes(held)}"
    return (
        f"{stage.where}: this map only casts and scales. Cast in the step: predicted, not measured, {gain:.2f} times "
        f"as fast ({low:.2f}-{high:.2f}){smaller if before < after else ''}; the step then has to cast, which a GPU "
        f"does in microseconds. Leave out the map and begin the step with: {'; '.join(stage.casting)}"
    )


def _last_cast(pipeline: Pipeline) -> Stage | None:
    """The map whose elements reach the step as it made them, where all it does is casting on a line of the user's."""
    for stage in reversed(pipeline.stages):
        if stage.parent is not None or not stage.reaches_end:
            continue
        if stage.method == "map":
            return stage if stage.casting and stage.via is None else None
        if stage.method not in _PASSING or len(stage.inputs) != 1:
            return None
    return None
