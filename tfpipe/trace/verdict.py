"""Input-bound or not, and which stage it is."""

from __future__ import annotations

from tfpipe.trace_records import Bottleneck, Pipeline, Split, Steps, TraceBound, TraceVerdict
from tfpipe.units import format_percent

# Fractions of the step; the cuts of TensorBoard's Input Pipeline Analyzer.
MODERATELY_INPUT_BOUND = 0.05
HIGHLY_INPUT_BOUND = 0.20
# Fraction of the step: what takes more than half of it decides what the step is bound by.
DOMINANT = 0.5


def judge(steps: Steps, device: str) -> TraceVerdict:
    """The verdict on a trace; its bound is ``unknown`` only when there was no time to look at."""
    split = steps.mean
    if split.step_s <= 0:
        return TraceVerdict(bound="unknown", statement="The trace holds nothing that could be judged.")
    bound = _bound(split, device)
    fraction = format_percent(split.input_fraction)
    what = "the recorded span" if steps.basis == "span" else "each step"
    parts = {
        "input-high": f"Highly input-bound: {fraction} of {what} is waiting for input.",
        "input-moderate": f"Moderately input-bound: {fraction} of {what} is waiting for input.",
        "compute": f"Not input-bound: {fraction} of {what} is waiting for input, "
        f"{format_percent(split.device_compute_s / split.step_s)} is computing.",
        "host": f"Not input-bound but host-bound: {fraction} of {what} is waiting for input, "
        f"{format_percent((split.host_s + split.compile_s) / split.step_s)} is launching, Python and compiling.",
        "outside": f"Not input-bound: {fraction} of {what} is waiting for input, "
        f"{format_percent(split.other_s / split.step_s)} is time in which TensorFlow did nothing.",
    }
    return TraceVerdict(bound=bound, statement=parts[bound])


def _bound(split: Split, device: str) -> TraceBound:
    if split.input_fraction >= HIGHLY_INPUT_BOUND:
        return "input-high"
    if split.input_fraction >= MODERATELY_INPUT_BOUND:
        return "input-moderate"
    host_s = split.host_s + split.compile_s
    idle_s = host_s + split.other_s
    if idle_s <= DOMINANT * split.step_s:
        return "compute"
    # Beside an accelerator that idles although its input is there, it is the host that keeps it waiting.
    return "host" if host_s >= split.other_s or device == "GPU" else "outside"


def find_bottleneck(pipelines: tuple[Pipeline, ...], step_s: float, steps: int) -> Bottleneck | None:
    """The stage that blocked the steps longest by itself, in the pipeline that they waited for longest.

    None when that is only the handing over of a batch that was ready: the call of the root, or a prefetch.
    """
    pipeline = next((pipeline for pipeline in pipelines if pipeline.wait_s > 0), None)
    if pipeline is None:
        return None
    worst = max(pipeline.stages, key=lambda stage: stage.blocking_self_s)
    if worst.blocking_self_s <= 0 or worst.name == "Prefetch" or (worst.depth == 0 and len(pipeline.stages) > 1):
        return None
    whole_s = step_s * steps
    return Bottleneck(
        pipeline=pipeline.name,
        path=worst.path,
        stage=worst.name,
        blocking_self_s=worst.blocking_self_s,
        share=worst.blocking_share,
        step_fraction=worst.blocking_self_s / whole_s if whole_s else 0.0,
    )
