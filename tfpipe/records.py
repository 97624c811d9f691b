"""What was measured and what was concluded: frozen plain data, with units in the names.

Seconds and fractions of 1 throughout; unknown is ``None``, never 0. These classes are the run file's schema:
``runfile`` turns them into JSON and back without a second description of the fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tfpipe.settings import Execution, PipelineSettings
from tfpipe.sites import Finding, Reorder, Site, Stage

BlockKind = Literal["step", "floor", "capacity", "fetch-floor", "trace"]
Status = Literal["complete", "failed", "skipped"]
Bound = Literal["compute", "input-moderate", "input-high", "contended", "host", "uncertain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its 95 % confidence interval; ``low == high == value`` when there is no spread to judge."""

    value: float
    low: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrace:
    """A graph that was built anew for a ``tf.function``: what was different from the calls before, and the seconds that
    the call with the building in it took."""

    function: str
    cause: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """How busy the device was during a block, from samples taken beside it.

    ``nvml``: the GPU's utilisation. ``process-cpu``: processor time of this process over all cores at hand.
    ``deviation_fraction`` is the samples' standard deviation, how much the use jumps. ``memory_bytes`` is the most that
    was taken on the GPU, by all programs; TensorFlow takes nearly all of it unless told to let it grow.
    """

    source: Literal["nvml", "process-cpu"]
    mean_fraction: float
    deviation_fraction: float
    samples: int
    memory_bytes: int | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One uninterrupted stretch of counted steps, nothing else measured meanwhile.

    ``step_s`` and ``fetch_s`` have one value per counted step: the whole step, and the part of it that the loop
    was blocked asking for the batch. ``step_s`` sums to ``elapsed_s`` up to the clock reads in between. On a
    device that runs asynchronously ``step_s`` are dispatch periods and only their sum means something.
    ``epoch_start_s`` has one value per epoch that ended inside the block: from asking for a batch that was not there to
    the first of the next epoch; the step it cut is not counted.
    ``capacity`` blocks run no step (``step_s == fetch_s``); ``floor`` blocks fetch nothing (``fetch_s`` all 0).
    ``retraces``, ``retraced`` of them, were built in the counted part, ``warmup_retraces`` before it. ``device_use`` is
    that of the counted part.
    """

    kind: BlockKind
    round: int
    warmup_steps: int
    steps: int
    elapsed_s: float
    step_s: tuple[float, ...]
    fetch_s: tuple[float, ...]
    cpu_s: float | None = None
    first_batch_s: float | None = None
    synchronous: bool = True
    retraced: int = 0
    epoch_start_s: tuple[float, ...] = ()
    retraces: tuple[Retrace, ...] = ()
    warmup_retraces: tuple[Retrace, ...] = ()
    device_use: DeviceUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One stage as tf.data ran it, after rewrites, source first.

    ``parallelism`` and ``buffer_size`` are the values in force at the end; ``tunable`` tells whether AUTOTUNE
    chose them. ``processing_s`` is CPU time inside the stage itself, summed over its threads.
    """

    node: str
    parallelism: float | None = None
    buffer_size: float | None = None
    tunable: bool = False
    elements: int | None = None
    processing_s: float | None = None
    buffered_bytes: int | None = None
    buffered_elements: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a candidate's trace says: the stage that the step waited for most, its share of the waiting, what its
    function spends its time on (operation and share), and what was found, each with its action."""

    bottleneck: str | None
    share: float | None
    top_ops: tuple[tuple[str, float], ...]
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """A profiled window: where it lies relative to the run directory and what the profiler added to a step.

    ``overhead_fraction`` is (profiled step - unprofiled step) / unprofiled step. ``disturbed`` says that the profiled
    steps waited for a share of their time that the unprofiled ones do not: such a trace explains nothing.
    """

    path: str
    steps: int
    step_s: float
    fetch_s: float
    size_bytes: int
    overhead_fraction: float | None = None
    input_fraction: Interval | None = None
    disturbed: bool = False
    explanation: Explanation | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``bound`` is for programs, ``statement`` is one plain sentence for people.

    ``more_steps`` would settle an uncertain one; None where it is certain, or where no number of them would.
    """

    bound: Bound
    statement: str
    more_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the model of the pipeline expected of a candidate before it was measured, or instead of it."""

    step_s: float
    capacity_examples_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One ``PipelineSettings`` and all that is known of it.

    ``compute_s + input_wait_s + contention_s == step_s`` whenever they are known; ``contention_s`` may come out
    slightly negative, by no more than the noise of the floor. It contains the run's fetch floor;
    ``contention_fraction`` does not. ``epoch_start_s`` is the mean time from the end of an epoch to the first batch of
    the next, None where no epoch ended. ``executed`` is from the last round, ``capacity_executed`` from the
    pipeline alone; ``autotune_moving`` says that AUTOTUNE chose clearly other values in the round before.
    ``host_fraction`` is the share of the step that its own Python takes: what it would be shorter as one
    ``tf.function``; None where that was not measured. ``dropped`` is why the search stopped measuring it.
    """

    id: str
    name: str
    settings: PipelineSettings
    status: Status
    error: str | None = None
    blocks: tuple[Block, ...] = ()
    step_s: Interval | None = None
    floor_s: float | None = None
    compute_s: float | None = None
    input_wait_s: float | None = None
    contention_s: float | None = None
    input_fraction: Interval | None = None
    contention_fraction: Interval | None = None
    host_fraction: float | None = None
    verdict: Verdict | None = None
    examples_per_s: Interval | None = None
    capacity_examples_per_s: float | None = None
    first_batch_s: float | None = None
    epoch_start_s: float | None = None
    cpu_s_per_example: float | None = None
    buffered_bytes: int | None = None
    peak_memory_bytes: int | None = None
    epoch_s: float | None = None
    executed: tuple[Node, ...] = ()
    capacity_executed: tuple[Node, ...] = ()
    autotune_moving: bool = False
    trace: TraceRecord | None = None
    profiler_overhead_fraction: float | None = None
    predicted: Prediction | None = None
    dropped: str | None = None
    device_use: DeviceUse | None = None

    @property
    def label(self) -> str:
        """What to call it in a sentence: the id, or, of a user's own pipeline, whose ids list call sites, the name."""
        return f'"{self.name}"' if self.settings.overrides is not None and self.name else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """``kind`` is TensorFlow's device type (CPU, GPU, TPU)."""

    name: str
    kind: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a number depends on besides the settings."""

    python: str
    tensorflow: str
    keras: str
    platform: str
    hostname: str
    cpu_model: str
    cores: int
    memory_bytes: int
    devices: tuple[Device, ...]
    flags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCode:
    """The data set's own code, as text to paste: everything a pipeline needs besides its settings.

    ``definitions`` holds imports and function definitions. ``source`` is an expression that yields the dataset of
    single raw examples, ``map_example`` and ``map_batch`` are expressions for the functions of either order
    (``map_batch`` is None where decoding cannot be batched), ``arguments`` are ``make_dataset``'s parameters.
    """

    definitions: str
    load: str
    source: str
    arguments: tuple[str, ...]
    map_example: str
    map_batch: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The data set of a run. ``generated`` says the pixels are a stand-in; ``origin`` says where it came from.

    ``examples`` is per epoch, None when endless or unknown; ``code`` is None for a user's own pipeline.
    """

    name: str
    origin: str
    generated: bool
    examples: int | None
    batch_size: int
    element: str
    example_bytes: int
    code: MapCode | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFill:
    """How long it took to read what a pipeline's caches keep; ``complete`` is False where that was given up."""

    seconds: float
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A user's own pipeline: how it was named, the knobs at its call sites, and what was noticed about it.

    ``root`` is the directory that site ids are relative to. ``reorders`` has a proof or a refusal for each place where
    ``batch`` could come before ``map``. ``cache_fill`` is of its caches that every epoch reads to their end, None where
    there are none; candidates are measured with such caches full.
    """

    reference: str
    arguments: tuple[str, ...]
    root: str
    sites: tuple[Site, ...]
    stages: tuple[Stage, ...]
    findings: tuple[Finding, ...]
    reorders: tuple[Reorder, ...]
    build_s: float
    cache_fill: CacheFill | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What was run on each batch. ``traces`` counts the graphs built for it in the whole run, ``function_traces`` those
    of every ``tf.function`` that it calls; ``first_call_s`` has the tracing and compiling in it."""

    name: str
    description: str
    synchronous: bool
    parameters: int | None = None
    first_call_s: float | None = None
    traces: int | None = None
    function_traces: tuple[tuple[str, int], ...] = ()
    execution: Execution = "graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Compute alone, and the cost of fetching a batch that is already there. None when there is no step.

    ``graph_step_s`` is compute alone of the same step as one ``tf.function``, where the step runs otherwise.
    """

    step_s: Interval | None
    fetch_s: float
    blocks: tuple[Block, ...]
    graph_step_s: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """The step in one of the ways to run it, alone and behind the current and the recommended pipeline.

    ``recommended`` is None where it is the current one. ``device_use`` is that behind the recommended pipeline.
    """

    step: Step
    floor: Floor
    current: Candidate | None
    recommended: Candidate | None
    device_use: DeviceUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFigures:
    """One way to run the step, behind the pipeline of its comparison.

    ``speed_up`` is over the comparison's reference. ``pays_off_steps`` is after how many steps its first call, with all
    tracing and compiling, is won back against the reference: 1 where it costs nothing more; None is never, or unknown,
    and ``note`` says which and why. ``host_fraction`` and ``input_fraction`` are the candidate's.
    """

    execution: Execution
    step_s: Interval | None
    speed_up: Interval | None
    first_call_s: float | None
    pays_off_steps: int | None
    examples_per_s: Interval | None
    epoch_s: float | None
    input_fraction: Interval | None
    host_fraction: float | None
    device_use: DeviceUse | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GainSplit:
    """Two factors of one gain: the pipeline, with the step run as now, then the step, behind that pipeline.

    ``total.value == input.value * execution.value``. ``statement`` is one plain sentence for people.
    """

    total: Interval
    input: Interval
    execution: Interval
    statement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionComparison:
    """The ways to run the step side by side, behind the candidate ``pipeline``.

    ``first`` is what the user has; ``reference`` is eager where that was run, else ``first``; ``best`` is the one to
    use, ``first`` itself where none is surely faster. ``split`` is None where its corners were not measured. ``notes``
    are sentences on what one number hides.
    """

    pipeline: str
    first: Execution
    reference: Execution
    best: Execution
    figures: tuple[ExecutionFigures, ...]
    split: GainSplit | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Warning:
    """A doubt about the run's own numbers; ``text`` ends in what to do about it."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How many times faster the recommended candidate is than candidate ``over``; ratios of examples/s."""

    over: str
    label: str
    ratio: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """``change`` is False when no setting is worth changing. ``ties`` are ids that could not be told apart from
    the fastest; the recommended one is the cheapest of them. ``headspace`` is step_s / floor_s. ``execution`` is how to
    run the step from now on, None where that is to stay or is not known."""

    candidate: str
    change: bool
    summary: str
    why: str
    gains: tuple[Gain, ...]
    ties: tuple[str, ...]
    fastest: str
    headspace: float | None
    memory_bytes: int | None
    device_speedup_before_input_bound: float | None
    notes: tuple[str, ...] = ()
    execution: Execution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What the model of the recommended pipeline says beyond this machine and this step; all of it is predicted.

    ``device_step_s`` is the shortest step that it could feed. ``cores_needed`` is the fewest cores at which the step of
    this run would not wait, None where no number of them is enough. ``workers_needed`` are machines like this one that
    would feed it together. The errors are those of the predictions that this run could check, ``predictions`` of them;
    ``fits`` says whether they are small enough to believe the rest.
    """

    device_step_s: float
    device_examples_per_s: float
    cores_needed: int | None
    workers_needed: int
    predictions: int = 0
    median_error: float | None = None
    p90_error: float | None = None
    fits: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Other circumstances than the run's; None leaves them as they were. ``source_latency_s`` is added to every
    example."""

    cores: int | None = None
    step_s: float | None = None
    source_latency_s: float | None = None
    batch_size: int | None = None
    cache: Literal["memory", "disk"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is predicted of one setting."""

    name: str
    settings: PipelineSettings
    step_s: float
    capacity_examples_per_s: float
    input_fraction: Interval
    bound: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """``current`` and ``best`` under ``what_if``; ``error`` is what every predicted step may be off by, as a share.

    ``checked`` predictions of this run are behind ``error``; 0 where none could be checked and it is only assumed.
    """

    what_if: WhatIf
    floor_s: float
    current: Expected
    best: Expected
    error: float
    checked: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleChoice:
    """One shuffle buffer: what it costs and what it buys.

    ``memory_bytes`` is what the full buffer holds at least; ``fill_s`` is how long the first batch waits for it, None
    while the rate of the source is unknown; ``quality`` runs from 0 (the source's order) to 1 (a uniform permutation).
    """

    buffer: int
    memory_bytes: int
    fill_s: float | None
    quality: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a user demands of the current candidate; ``tolerance`` is the share it may be slower than a baseline."""

    max_input_fraction: float | None = None
    min_examples_per_s: float | None = None
    tolerance: float = 0.05
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Whether the limits were kept. ``uncertain`` says that an interval straddles one."""

    passed: bool
    uncertain: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished or interrupted ``tfpipe profile``; ``complete`` is False when rounds are missing.

    ``current`` is the candidate that stands for what the user has. ``step``, ``floor`` and ``candidates`` are of the
    fastest execution; ``executions`` has all of them, in the order they were asked for, the first being what the user
    has; empty where only one was asked for. From round ``confirmed_from`` on only what the recommendation is between
    was measured; None where there was no such round. ``untried`` are the ids of what the search would have measured
    too, had there been time. ``notes`` are facts about the run that are no doubts.
    """

    tfpipe_version: str
    created: str
    command: tuple[str, ...]
    complete: bool
    environment: Environment
    data: Data
    step: Step
    floor: Floor
    pipeline: Pipeline | None
    current: str
    candidates: tuple[Candidate, ...]
    recommendation: Recommendation | None
    warnings: tuple[Warning, ...]
    gate: Gate | None = None
    shuffling: tuple[ShuffleChoice, ...] = ()
    executions: tuple[ExecutionResult, ...] = ()
    execution_comparison: ExecutionComparison | None = None
    outlook: Outlook | None = None
    confirmed_from: int | None = None
    untried: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    timings_s: dict[str, float] = field(default_factory=dict)

    def candidate(self, candidate_id: str) -> Candidate:
        """The candidate with that id. Raises KeyError."""
        for candidate in self.candidates:
            if candidate.id == candidate_id:
                return candidate
        raise KeyError(candidate_id)

    @property
    def first_epoch_input_fraction(self) -> float | None:
        """The least share of the first epoch that its steps wait, in which the cache is filled that was full when the
        candidates were measured; None where there is no such cache, or the length of an epoch is not known.

        Filling it takes ``cache_fill.seconds``, and the device computes in no more than one epoch's steps meanwhile.
        """
        fill = None if self.pipeline is None else self.pipeline.cache_fill
        if fill is None or not fill.complete or self.floor.step_s is None or self.data.examples is None:
            return None
        steps_s = self.floor.step_s.value * self.data.examples / self.data.batch_size
        return max(0.0, 1 - steps_s / fill.seconds) if fill.seconds else 0.0
