"""How fast a pipeline of known costs is, and how long a step takes that reads from it. Pure.

**Capacity.** Let X be examples per second and D_i the seconds that an example needs of resource i. In any interval of
length T, X T examples need X T D_i of it, and a resource with c_i servers has c_i T to give. So (utilisation law,
Denning and Buzen, "The Operational Analysis of Queueing Network Models", ACM Computing Surveys 10, 1978)

    X <= c_i / D_i    for every i

and the least of these, the bottleneck's, is what a pipeline with enough buffers comes to. The resources are

- *calls*: a stage with m calls at a time; D is the residence of a call, computing and waiting alike, since a call keeps
  its place while it waits (Little's law: X D calls are at work), and what it takes to get its input, for which it keeps
  its place too;
- *threads*: the pool that all map functions share; D is the sum of their residences;
- *processors*: D is processor time, waiting left out. This is the only bound that more cores move, so where waiting
  dominates, calls and threads must exceed the cores;
- *the lock*: one server; D is the processor time of Python code. Calls do not add to it;
- *a thread*: the stages between two that work ahead run one after the other in one thread, so D is the sum of their
  residences: Amdahl's serial part (AFIPS 1967), whose time no number of calls shortens.

Plumber (Kuchnik et al., MLSys 2022) bounds tf.data pipelines by the processors in this way. Of the processor time a
part goes into waking threads, the less the more calls queue for each (``asleep``).

**Order.** A stage that keeps the order of m calls holds finished results back until those before them are done, and
begins no new call meanwhile: of any m examples in a row the slowest delays all. There is no closed form;
``ordered_rate`` counts it out.

**Step.** With F the time of a step and of handing over a finished batch, B = b / X that of making b examples, and K the
examples that the stages behind hold ready (``ahead``): while a step runs at most K are made; the others are waited for.

    step = max(B, F + max(A, max(0, b - K) / X))

where A is what the stages behind all that work ahead take for a batch, as they run only when they are asked. That is F
+ B with nothing ahead (fetch stalls in full: DS-Analyzer, Mohan et al., VLDB 2021) and max(F, B) with a batch or more.
Uneven batches make it more unless the buffer is deep: ``buffered_step_s`` counts it out. A step that computes on the
host needs processors as well: work is conserved, so C processors give no step shorter than what step and batch need
together divided by C. F has a part that no constant batch shows: the loop's own Python waits for the lock that the
pipeline's Python holds (``interpreter_s``).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tfpipe.analysis.operational.costs import Costs
from tfpipe.analysis.operational.shape import Shape

Limit = Literal["processors", "calls", "threads", "lock", "thread", "order"]

# Batches that are counted out before those that count, and those: the buffer is filled or emptied by then.
SETTLING, COUNTED = 64, 192
# A thread that wants Python's lock takes it from another after this long (``sys.setswitchinterval``'s default).
SWITCH_S = 5e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One resource's bound in examples per second; ``stage`` names where, "" for what the whole pipeline shares."""

    limit: Limit
    stage: str
    rate: float


def bounds(shape: Shape, costs: Costs, *, cores: int) -> list[Bound]:
    """Every resource's, tightest first. Empty for a pipeline that costs nothing."""
    found = [
        _bound("processors", "", cores, costs.cpu_s),
        _bound("lock", "", 1, costs.lock_s),
        _bound("threads", "", shape.threads, sum(costs.residence_s(s.name) for s in shape.stages if s.pooled)),
    ]
    thread_s = 0.0
    for stage in shape.stages:
        if stage.ahead is None:
            thread_s += costs.residence_s(stage.name)
            continue
        if stage.kind != "prefetch":
            found.append(_bound("calls", stage.name, stage.calls, thread_s + costs.residence_s(stage.name)))
        # One thread of its own takes from the stages in front.
        found.append(_bound("thread", stage.name, 1, thread_s))
        thread_s = 0.0
    found.append(_bound("thread", "end", 1, thread_s))
    return sorted((bound for bound in found if bound is not None), key=lambda bound: bound.rate)


def _bound(limit: Limit, stage: str, servers: float, demand_s: float) -> Bound | None:
    return Bound(limit=limit, stage=stage, rate=servers / demand_s) if demand_s > 0 else None


def ordered_rate(durations_s: Sequence[float], *, calls: int, threads: int) -> float:
    """Examples per second of a stage that keeps the order of ``calls``, ``threads`` of which run at a time.

    An example's call begins when a thread is free and the example ``calls`` before it was handed out; it is handed out
    when it and all before it are done.

    Args:
        durations_s: of examples in a row, repeated until the stage has settled.
    """
    free = [0.0] * min(calls, threads)
    count = len(durations_s) * math.ceil(8 * calls / len(durations_s))
    out: list[float] = []
    for number in range(2 * count):
        begin = max(heapq.heappop(free), out[number - calls] if number >= calls else 0.0)
        done = begin + durations_s[number % len(durations_s)]
        heapq.heappush(free, done)
        out.append(max(done, out[-1]) if out else done)
    return count / (out[-1] - out[count - 1])


def asleep(shape: Shape) -> float:
    """The chance that a thread of the pool has run out of calls and must be woken for the next; 0 without any calls.

    ``C`` calls go round between ``T`` threads and the one that begins and hands out. In a closed network of N stations
    that are alike each is idle for (N - 1) / (C + N - 1) of the time (Gordon and Newell, "Closed Queuing Systems with
    Exponential Servers", Operations Research 15, 1967; the bound of Zahorjan et al., "Balanced Job Bound Analysis of
    Queueing Networks", CACM 25, 1982), here T / (T + C). Where the function does little, waking is most of what an
    example costs: ``tests/unit/test_operational.py`` has what was measured for ten pairs of calls and threads.
    """
    calls = sum(stage.calls for stage in shape.stages if stage.pooled and stage.ahead and stage.kind != "batch")
    return shape.threads / (shape.threads + calls) if calls else 0.0


def held_ahead(shape: Shape) -> float:
    """Examples that are ready, or being made, while the step runs: what all stages that work ahead hold together."""
    return sum(stage.ahead or 0.0 for stage in shape.stages)


def asked_s(shape: Shape, costs: Costs) -> float:
    """Seconds per example of what runs only when the step asks for a batch: the stages behind all that work ahead."""
    last = max((index for index, stage in enumerate(shape.stages) if stage.ahead is not None), default=-1)
    return sum(costs.residence_s(stage.name) for stage in shape.stages[last + 1 :])


def interpreter_s(costs: Costs, *, held: float) -> float:
    """Seconds per step that a loop in Python waits for the lock that the pipeline's Python holds for the share ``held``
    of the time: when a step returns and when a batch does, each for as long as a call keeps the lock."""
    call_s = max((stage.lock_s for stage in costs.stages), default=0.0)
    return 2 * held * min(call_s, SWITCH_S)


def buffered_step_s(production_s: Sequence[float], consumer_s: float, *, depth: int) -> float:
    """Mean seconds per step of a consumer that takes ``consumer_s`` per batch from a buffer of ``depth`` batches.

    The producer begins a batch when there is a place for it, the consumer when it has one (Lindley's recursion, Proc.
    Cambridge Phil. Soc. 48, 1952, with a finite buffer).

    Args:
        production_s: of batches in a row; they recur.
    """
    done = 0.0
    asked = 0.0
    taken: list[float] = []
    for number in range(SETTLING + COUNTED):
        place = taken[number - depth] if number >= depth else 0.0
        done = max(done, place) + production_s[number % len(production_s)]
        taken.append(max(done, asked))
        asked = taken[-1] + consumer_s
    return (taken[-1] - taken[SETTLING - 1]) / COUNTED
