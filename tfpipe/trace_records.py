"""What a profiler trace says: frozen plain data, with units in the names.

Seconds and fractions of 1 throughout; unknown is ``None``, never 0. These classes are the schema of
``tfpipe analyze --format json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StepBasis = Literal["marker", "keras", "device", "fetch", "span"]
Confidence = Literal["high", "lower", "low"]
TraceBound = Literal["compute", "input-moderate", "input-high", "host", "outside", "unknown"]
FindingCode = Literal[
    "slow-source",
    "sequential-map",
    "map-per-element",
    "python-in-pipeline",
    "shuffle-filling",
    "shuffle-after-decode",
    "no-prefetch",
    "starved-prefetch",
    "oversized-prefetch",
    "narrow-interleave",
    "cache-missing",
    "cache-incomplete",
    "batch-copy",
    "copy-not-overlapped",
    "data-service-behind",
    "retracing",
    "short-step",
    "host-python",
    "events-dropped",
    "slow-host",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Where the time of a step went. The parts are disjoint and sum to ``step_s``.

    ``device_compute_s`` is the accelerator's time in kernels, or the CPU's in operations of the step when there is no
    accelerator. ``input_wait_s`` is the time in which the step asked for its batch and nothing ran for it.
    ``host_s`` is launching and Python inside TensorFlow, ``compile_s`` building or compiling a graph, ``other_s`` is
    time of which nothing was recorded.
    """

    step_s: float
    device_compute_s: float
    input_wait_s: float
    host_to_device_s: float
    host_s: float
    compile_s: float
    other_s: float

    @property
    def input_fraction(self) -> float:
        """The part of the step that goes to input: waiting for the batch and copying it, as XProf counts it."""
        return (self.input_wait_s + self.host_to_device_s) / self.step_s if self.step_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the trace was cut into. ``basis`` says what told where a step begins, ``statement`` says it to people."""

    basis: StepBasis
    confidence: Confidence
    statement: str
    count: int
    mean_s: float
    median_s: float
    min_s: float
    max_s: float
    mean: Split
    each: tuple[Split, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost:
    """One type of operation inside a tf.data function. ``share`` is its part of all such time of the stage.

    ``time_s`` is summed over threads; ``python`` tells that it runs Python and needs the interpreter's lock.
    """

    operation: str
    calls: int
    time_s: float
    share: float
    python: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """How full a stage's buffer was when it was asked, over all its calls."""

    capacity: int | None
    mean_elements: float
    empty_fraction: float
    full_fraction: float | None
    first_elements: int
    last_elements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One iterator of a pipeline as executed; ``depth`` 0 is the one the consumer asks.

    ``total_s`` is time inside its calls, ``self_s`` the same without the calls it makes on the same thread, and
    ``function_s`` the time its function ran, summed over threads. ``blocking_s`` is the time the consumer waited for
    this stage and what lies below it, ``blocking_self_s`` for it alone: neither counts work done ahead of time.
    """

    path: str
    name: str
    node: str
    depth: int
    calls: int
    total_s: float
    self_s: float
    blocking_s: float
    blocking_self_s: float
    blocking_share: float
    threads: int
    function_s: float
    function_calls: int
    parallelism: int | None
    autotuned: bool | None
    buffer: Buffer | None
    element_bytes: int | None
    elements_per_call: float | None
    settings: dict[str, str | int | float]
    ops: tuple[OpCost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowCall:
    """One of the longest waits for a batch: its begin in the trace, its length, and the stage that held it up."""

    at_s: float
    duration_s: float
    stage: str
    stage_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One tf.data pipeline, its stages from the consumer to the sources, parents before children.

    ``wait_s`` is what its consumer waited for it in the steps, ``wait_fraction`` the part of the step time.
    """

    name: str
    calls: int
    wait_s: float
    wait_fraction: float
    batch_bytes: int | None
    stages: tuple[Stage, ...]
    slow_calls: tuple[SlowCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The stage that the consumer waited for most. ``share`` is its part of all waiting for its pipeline,
    ``step_fraction`` its part of the step time."""

    pipeline: str
    path: str
    stage: str
    blocking_self_s: float
    share: float
    step_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to know and do: what was seen, with numbers, and the action."""

    code: FindingCode
    evidence: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceVerdict:
    """``bound`` is for programs, ``statement`` is one plain sentence for people."""

    bound: TraceBound
    statement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAnalysis:
    """Everything that was found in the trace of one host."""

    path: str
    session: str | None
    host: str
    size_bytes: int
    events: int
    span_s: float
    device: Literal["CPU", "GPU", "TPU"]
    verdict: TraceVerdict
    input_fraction: float | None
    steps: Steps
    pipelines: tuple[Pipeline, ...]
    bottleneck: Bottleneck | None
    top_ops: tuple[OpCost, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """One host of a session beside the others."""

    host: str
    bound: TraceBound
    steps: int
    step_s: float
    input_fraction: float | None
    bottleneck: str | None
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAnalysis:
    """A profiling session. ``main`` is the host shown in full: the one asked for, else the slowest.

    ``hosts`` is empty when the session has only one. ``other_sessions`` names what the log directory also holds.
    """

    main: TraceAnalysis
    hosts: tuple[HostRow, ...] = ()
    other_sessions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One number in two traces, None where a trace does not have it. ``name`` is a field of ``Split`` or a stage."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two traces side by side: seconds per step for each part of the split and for what each stage blocked."""

    before: SessionAnalysis
    after: SessionAnalysis
    statement: str
    split: tuple[Change, ...]
    stages: tuple[Change, ...]
