"""A CIFAR-100 training made faster step by step, each stage measured: first its input, then the way the step runs.

It begins as one writes it first: serial input, and a ResNet18 that Python runs operation by operation. Prefetching,
parallel maps and batching before mapping follow, then a ``tf.function`` on each layer, one over the whole step, and
XLA.

    python samples/seed_story.py --width 16 --data-dir data

Two runs are measured. In the first, three pipelines feed the eager step. The second looks for the best pipeline behind
the fastest way to run the step, and runs the step in all four ways behind that one and behind the serial one. Within a
run everything is measured in turns; the serial stage is in both, which shows whether the machine changed in between.
The shuffle buffer is there from the start, since nobody trains without one, and TensorFlow is kept from rewriting the
pipelines, so that each is what it is called.

What is not an argument of this script goes to ``tfpipe profile``, such as ``--no-download`` or ``--force``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tfpipe
from tfpipe.records import Candidate, ExecutionResult, Run

EXECUTIONS = {"layer": "a tf.function per layer", "graph": "one tf.function", "xla": "one tf.function, XLA"}
HEADS = ("stage", "step ms", "input wait", "compute", "device", "epoch s", "gain")


@dataclass(frozen=True)
class Stage:
    """``first`` is the serial stage of the same run, over which the gain is told."""

    name: str
    candidate: Candidate
    first: Candidate


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n\n")[0])
    parser.add_argument("--width", default="16", help="channels of ResNet18's first layer (64 is the published one)")
    parser.add_argument("--batch-size", default="32")
    parser.add_argument("--steps", default="9", help="counted steps of each stage; three rounds at least")
    parser.add_argument(
        "--data-dir", help="where CIFAR-100 is; without it, it is downloaded, or else random images are used"
    )
    parser.add_argument("--output", default="runs/seed_story", type=Path, help="the folder for the two runs")
    options, others = parser.parse_known_args(arguments)
    common = ["--width", options.width, "--batch-size", options.batch_size, "--steps", options.steps, *others]
    if options.data_dir is not None:
        common += ["--data-dir", options.data_dir]
    by_input = profile(options.output / "input", "map-batch", "eager", common)
    by_execution = profile(options.output / "execution", "map-batch,batch-map", "eager,layer,graph,xla", common)
    print(story(by_input, by_execution))
    print(f"\nMore:  tfpipe show {options.output / 'execution'}")


def profile(directory: Path, orders: str, executions: str, common: Sequence[str]) -> Run:
    """A run of the pipelines in ``orders`` behind the step in ``executions``; the serial pipeline is the first."""
    knobs = f"--shuffle-buffer 5000 --map-parallelism none,auto --prefetch 0,auto --order {orders} --rewrites off"
    command = ["profile", "--dataset", "cifar100", *knobs.split(), "--execution", executions, *common]
    subprocess.run(
        [sys.executable, "-m", "tfpipe", *command, "--output", str(directory)], check=True, stdout=subprocess.DEVNULL
    )
    return tfpipe.load_run(directory)


def story(by_input: Run, by_execution: Run) -> str:
    """The table of all stages, and what they come to."""
    rows = [HEADS, *map(cells, find_stages(by_input, by_execution))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    return "\n".join([*lines, "", *conclusions(by_execution)])


def find_stages(by_input: Run, by_execution: Run) -> list[Stage]:
    """The stages that were measured, from where one begins to the last."""
    names: dict[tuple[object, object], str] = {
        (None, 0): "serial input",
        (None, "auto"): "prefetch",
        ("auto", "auto"): "parallel map",
    }
    serial = by_input.candidate(by_input.current)
    found = []
    for candidate in by_input.candidates:
        name = names.get((candidate.settings.map_parallelism, candidate.settings.prefetch_depth))
        if name is not None:
            found.append(Stage(f"{name}, eager", candidate, serial))
    serial = by_execution.executions[0].current or serial
    for result in by_execution.executions:
        last = result.recommended or result.current
        if last is not None:
            name = EXECUTIONS.get(result.step.execution, f"{pipeline_name(result)}, eager")
            found.append(Stage(name, last, serial))
    return [stage for stage in found if stage.candidate.step_s is not None]


def pipeline_name(result: ExecutionResult) -> str:
    if result.recommended is None:
        return "no change pays"
    return "batch before map" if result.recommended.settings.order == "batch-map" else "recommended"


def cells(stage: Stage) -> tuple[str, ...]:
    candidate = stage.candidate
    assert candidate.step_s is not None
    step_s, wait_s, use = candidate.step_s.value, candidate.input_wait_s or 0.0, candidate.device_use
    return (
        stage.name,
        milliseconds(step_s),
        f"{milliseconds(wait_s)} ({wait_s / step_s:3.0%})",
        "-" if candidate.compute_s is None else milliseconds(candidate.compute_s),
        "-" if use is None else f"{use.mean_fraction:.0%} +-{use.deviation_fraction * 100:.0f}",
        "-" if candidate.epoch_s is None else f"{candidate.epoch_s:,.0f}",
        "-" if stage.first.step_s is None else f"{stage.first.step_s.value / step_s:.2f}",
    )


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.1f}"


def conclusions(run: Run) -> list[str]:
    """How far the two runs can be compared, and where the gain came from."""
    lines = ["Gains are over the serial stage of the same run; device: its use, and by how many points that varies."]
    first = run.executions[0]
    if first.current is not None and first.current.step_s is not None:
        lines.append(
            f"The serial stage took {milliseconds(first.current.step_s.value)} ms when measured beside the last four."
        )
    if first.recommended is not None:
        lines.append(f"The recommended pipeline is {first.recommended.id}.")
    comparison = run.execution_comparison
    if comparison is not None:
        split = [] if comparison.split is None else [f"Gain: {comparison.split.statement}"]
        lines += [*split, *comparison.notes]
    return [line for text in lines for line in textwrap.wrap(text, 80)]


if __name__ == "__main__":
    main()
