"""What the parent and the worker process say to each other, one JSON line each way.

The parent never imports TensorFlow; the worker never writes a run file. A request is answered by exactly one
reply, with any number of ``Progress`` lines before it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tfpipe.records import Block, Data, Environment, Node, Pipeline, Step
from tfpipe.settings import Execution, Packaging, PipelineSettings, Precision


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run measures apart from the candidates' knobs; a resumed run must have the same.

    Either ``dataset`` names a built-in data set or ``pipeline`` the user's factory, to be called with ``arguments``
    (``key=value`` texts). ``batch_size`` is None where the device decides. ``step`` is ``resnet18``, ``none``,
    ``simulated:66ms`` or the user's ``MODULE:FUNCTION``. ``executions`` are the ways to run the step; empty for the way
    it is written. ``precision`` and ``packaging`` are the built-in model's, ``steps_per_execution`` is ``fit``'s.
    ``epoch_batches`` is after how many batches the training begins a new iterator; None where it reads each to its end.
    """

    dataset: str | None
    pipeline: str | None = None
    arguments: tuple[str, ...] = ()
    data_dir: str | None
    require_data: bool
    download: bool
    image_size: int
    batch_size: int | None
    step: str
    width: int
    seed: int
    executions: tuple[Execution, ...] = ()
    precision: Precision = "float32"
    packaging: Packaging = "functional"
    steps_per_execution: int = 1
    epoch_batches: int | None = None


class Length(msgspec.Struct, frozen=True, kw_only=True):
    """How long a block is: until both minima are reached, first for the uncounted warm-up, then for what counts."""

    warmup_steps: int
    warmup_s: float
    steps: int
    seconds: float


# --- requests ----------------------------------------------------------------------------------------------
# ``execution`` is one of those that were prepared; None is the first.


class Prepare(_Message, frozen=True):
    """Load the data, build the step and trace it. First request to every worker."""

    workload: Workload


class MeasureFloor(_Message, frozen=True):
    """Every step gets the same batch, already on its device, and no pipeline is alive."""

    round: int
    length: Length
    execution: Execution | None = None


class MeasureFetchFloor(_Message, frozen=True):
    """A pipeline that repeats one finished batch, through the step: what fetching costs when nothing is awaited."""

    round: int
    length: Length
    execution: Execution | None = None


class MeasureCapacity(_Message, frozen=True):
    """The candidate's pipeline drained alone."""

    settings: PipelineSettings
    round: int
    length: Length


class MeasureStep(_Message, frozen=True):
    """The candidate's pipeline through the step."""

    settings: PipelineSettings
    round: int
    length: Length
    execution: Execution | None = None


class CaptureTrace(_Message, frozen=True):
    """The candidate's pipeline through the step under the profiler, written below ``logdir``."""

    settings: PipelineSettings
    warmup_steps: int
    steps: int
    logdir: str
    execution: Execution | None = None


Request: TypeAlias = Prepare | MeasureFloor | MeasureFetchFloor | MeasureCapacity | MeasureStep | CaptureTrace


# --- replies -----------------------------------------------------------------------------------------------


class Progress(_Message, frozen=True):
    """What is happening inside a long request. ``fraction`` is None where the end is not known."""

    text: str
    fraction: float | None = None


class MemoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a forecast of memory starts from.

    ``resident_bytes`` is the worker with TensorFlow, data and step; ``batch_bytes`` one mapped batch;
    ``row_bytes`` the part of a raw example that lies in an array in memory (0 for none), which a shuffle buffer
    may only point to.
    """

    resident_bytes: int
    batch_bytes: int
    row_bytes: int


class Prepared(_Message, frozen=True):
    """``step`` is the first of the executions asked for, ``other_steps`` are the rest. ``twin`` is the same step as one
    ``tf.function``, where no execution asked for is that, or called as it is, where it was wrapped in one unasked: only
    its floor is measured, to tell Python's share of it.
    ``notes`` are facts that the report repeats, such as why the device's use is not known.
    """

    environment: Environment
    data: Data
    step: Step
    pipeline: Pipeline | None
    memory: MemoryFacts
    timings_s: dict[str, float]
    other_steps: tuple[Step, ...] = ()
    twin: Step | None = None
    notes: tuple[str, ...] = ()


class Measured(_Message, frozen=True):
    """``executed`` is what ran, empty where there was no pipeline. ``function_traces`` are the graphs built since the
    step was made, by ``tf.function``."""

    block: Block
    executed: tuple[Node, ...] = ()
    peak_memory_bytes: int | None = None
    step_traces: int | None = None
    function_traces: tuple[tuple[str, int], ...] = ()


class Traced(_Message, frozen=True):
    """``path`` is the session folder that the profiler wrote."""

    path: str
    block: Block
    size_bytes: int


class Failed(_Message, frozen=True):
    """The request could not be carried out.

    ``cause`` is ``candidate`` when the pipeline or the step raised, ``request`` when what was asked for is the
    user's mistake, ``died`` when the worker ended by itself, ``timeout`` when it was ended for taking too long and
    ``memory`` for growing too large, ``bug`` when the fault is tfpipe's. ``detail`` is a traceback, trimmed for user
    code.
    """

    cause: Literal["candidate", "request", "died", "timeout", "memory", "bug"]
    message: str
    hint: str | None = None
    detail: str | None = None
    exit_code: int = 1


Reply: TypeAlias = Prepared | Measured | Traced | Failed
Line: TypeAlias = Progress | Prepared | Measured | Traced | Failed

encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(Request).decode
decode_line = msgspec.json.Decoder(Line).decode
