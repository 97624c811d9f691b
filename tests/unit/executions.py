"""Made-up runs of a step in several ways, behind a serial and a recommended pipeline, on binary-exact times.

Eager 250 ms, ``graph`` 62.5 ms, ``xla`` 31.25 ms. The serial pipeline makes ``xla`` wait as long again and the slower
steps less: work done ahead hides it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.runs import SEED_RECIPE, SERIAL, interval, make_candidate, make_run
from tfpipe.records import Block, Candidate, DeviceUse, ExecutionResult, Floor, Run, Step
from tfpipe.settings import Execution, PipelineSettings

FLOORS_S: dict[Execution, float] = {"eager": 0.25, "layer": 0.125, "graph": 0.0625, "xla": 0.03125, "fit": 0.0625}
FIRST_CALLS_S: dict[Execution, float] = {"eager": 0.5, "layer": 3.0, "graph": 5.0, "xla": 11.0, "fit": 5.5}
# What the serial pipeline makes each of them wait.
WAITS_S: dict[Execution, float] = {"eager": 0.001953125, "layer": 0.0078125, "graph": 0.015625, "xla": 0.03125}


def step_blocks(step_s: float, fetch_s: float = 0.0, *, jitter: Sequence[float] = (1.0,), **fields: Any) -> Any:
    """A block of four steps per round; in round r every step takes ``step_s`` times the r-th of ``jitter``."""
    return tuple(
        Block(
            kind="step",
            round=number,
            warmup_steps=2,
            steps=4,
            elapsed_s=4 * step_s * factor,
            step_s=(step_s * factor,) * 4,
            fetch_s=(fetch_s * factor,) * 4,
            first_batch_s=0.25,
            **fields,
        )
        for number, factor in enumerate(jitter)
    )


def candidate_of(
    execution: Execution,
    settings: PipelineSettings,
    *,
    wait_s: float = 0.0,
    jitter: Sequence[float] = (1.0, 1.0625, 1.0),
    **fields: Any,
) -> Candidate:
    floor_s = FLOORS_S[execution]
    candidate = make_candidate(
        settings,
        floor_s=floor_s,
        input_wait_s=wait_s,
        bound="input-high" if wait_s > 0.2 * floor_s else "compute",
        blocks=step_blocks(floor_s + wait_s, wait_s, jitter=jitter),
        host_fraction=max(0.0, floor_s - FLOORS_S["graph"]) / (floor_s + wait_s),
    )
    return replace(candidate, **fields)


def make_result(execution: Execution, *, recommended: Candidate | bool = True, **fields: Any) -> ExecutionResult:
    """The step in one way, behind the serial pipeline and, unless ``recommended`` is False, behind the seed recipe."""
    behind = candidate_of(execution, SEED_RECIPE) if recommended is True else recommended or None
    result = ExecutionResult(
        step=Step(
            name="resnet18",
            description="ResNet18, width 16",
            synchronous=True,
            first_call_s=FIRST_CALLS_S[execution],
            traces=None if execution == "eager" else 1,
            execution=execution,
        ),
        floor=Floor(
            step_s=interval(FLOORS_S[execution]),
            fetch_s=0.00025,
            blocks=(),
            graph_step_s=None if execution in ("graph", "xla", "fit") else interval(FLOORS_S["graph"]),
        ),
        current=candidate_of(execution, SERIAL, wait_s=WAITS_S.get(execution, 0.0)),
        recommended=behind,
        device_use=DeviceUse(source="process-cpu", mean_fraction=0.75, deviation_fraction=0.125, samples=40),
    )
    return replace(result, **fields)


def make_executed_run(*executions: Execution, recommended: bool = True, **fields: Any) -> Run:
    """A run of ``executions``, the last of them being the one behind which pipelines are compared."""
    results = tuple(make_result(execution, recommended=recommended) for execution in executions)
    main = results[-1]
    candidates = tuple(candidate for candidate in (main.current, main.recommended) if candidate is not None)
    return make_run(
        **{
            "step": main.step,
            "floor": main.floor,
            "current": SERIAL.id,
            "candidates": candidates,
            "executions": results,
            **fields,
        }
    )
