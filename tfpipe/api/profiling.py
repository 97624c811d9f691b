"""``tfpipe.profile`` and ``tfpipe.load_run``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfpipe import __version__
from tfpipe.api.references import importable_reference, split_arguments
from tfpipe.errors import UsageError
from tfpipe.records import Run
from tfpipe.runfile import LOG_NAME, TRACES_NAME, find_run, new_run_directory
from tfpipe.runfile import load_run as read_run
from tfpipe.settings import STEPS, parse_step

if TYPE_CHECKING:
    from tfpipe.runner.executor import Executor, OnProgress
    from tfpipe.runner.journal import Started

# Where a report is not in a terminal that could be asked for its width.
REPORT_WIDTH = 100
WORKER_MODULE = "tfpipe.engine.worker"


class ProfiledRun(Run):
    """A ``Run`` with the directory it is saved in; a notebook shows it as tables, an interpreter as its report."""

    __slots__ = ("directory",)
    directory: Path

    def __repr__(self) -> str:
        from tfpipe.report.text import profile_report

        # One that was made by dataclasses.replace is saved nowhere.
        directory = getattr(self, "directory", Path())
        return profile_report(self, directory, width=REPORT_WIDTH, color=False).rstrip()

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        from tfpipe.report.markdown import run_markdown

        return {"text/plain": repr(self), "text/markdown": run_markdown(self)}


def _profiled(run: Run, directory: Path) -> ProfiledRun:
    found = ProfiledRun(**{field.name: getattr(run, field.name) for field in fields(Run)})
    object.__setattr__(found, "directory", directory)
    return found


def load_run(run: str | os.PathLike[str] | None = None) -> ProfiledRun:
    """A saved run: a run directory, its ``run.json``, or the newest under ``runs/``.

    Raises:
        UsageError: there is none.
        DataError: it is damaged or of another version.
    """
    directory = find_run(None if run is None else os.fspath(run))
    return _profiled(read_run(directory), directory)


def profile(
    make_dataset: Callable[..., Any],
    *,
    step: str | Callable[..., Any] = "simulated:66ms",
    knobs: Mapping[str, str] | None = None,
    time_budget_s: float = 180.0,
    steps: int | None = None,
    seed: int = 0,
    search: str | None = None,
    search_tolerance: float = 0.02,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    in_process: bool | None = None,
    quiet: bool = False,
) -> ProfiledRun:
    """Measure your own pipeline and what could be better, as ``tfpipe profile --pipeline`` does.

    A function that another process can import is measured in one of its own, which no setting of this process
    can disturb; it sees your files, but not what was changed after they were imported. What lives only here (a
    notebook's function, a lambda, a closure) is measured in this process.

    Args:
        make_dataset: returns a ``tf.data.Dataset``. Arguments are given by ``functools.partial``.
        step: ``simulated:66ms``, ``none``, ``MODULE:FUNCTION``, or a function that is called with the dataset's
            ``element_spec`` and returns what trains: a function of one batch or a compiled Keras model.
        knobs: lists as on the command line, such as ``{"map_parallelism": "2,auto"}``; what is worth trying if left
            out.
        time_budget_s: seconds of measuring; start-up comes on top.
        steps: counted steps per candidate; what the time allows if left out.
        search: ``model`` predicts and measures what is promising, ``grid`` measures everything, ``random`` and
            ``optuna`` draw; ``model`` if left out, with ``steps`` ``grid``. Lists of up to eight are measured whole.
        search_tolerance: a search ends when nothing is likely to be faster by more than this share.
        output: the run directory; a new one under ``runs/`` if left out.
        force: replace an old run there.
        in_process: True measures in this process, False never does; decided as above if left out.

    Returns:
        The run, saved in its ``directory``. After Ctrl-C, what was measured until then.

    Raises:
        UsageError: something was asked for that makes no sense.
        UserCodeError, TfpipeError: the pipeline or the step failed for every candidate.
    """
    if getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None) == WORKER_MODULE:
        raise UsageError(
            "The process that measures imported your file, which called tfpipe.profile again: put that call below "
            "if __name__ == '__main__':"
        )
    from tfpipe.report.hparams import write_hparams
    from tfpipe.runner.conduct import begin, conduct

    plan = _Plan(make_dataset, step, in_process)
    started = _started(plan, knobs or {}, time_budget_s, steps, seed, search, search_tolerance)
    name = getattr(plan.make_dataset, "__name__", "pipeline").strip("<>")
    directory = new_run_directory(None if output is None else os.fspath(output), name)
    journal = begin(directory, started, force=force)
    with _display(quiet) as display, open(directory / LOG_NAME, "ab") as log:
        executor = plan.executor(display.on_progress, log)
        outcome = conduct(journal, directory, executor, display)
    if outcome.run is None:
        raise KeyboardInterrupt
    write_hparams(outcome.run, directory / TRACES_NAME)
    return _profiled(outcome.run, directory)


class _Plan:
    """Which functions, by which names, in which process."""

    def __init__(
        self, make_dataset: Callable[..., Any], step: str | Callable[..., Any], in_process: bool | None
    ) -> None:
        split = split_arguments(make_dataset)
        self.make_dataset, self.arguments = (make_dataset, ()) if split is None else split
        pipeline = None if split is None else importable_reference(self.make_dataset)
        step_name = step if isinstance(step, str) else importable_reference(step)
        self.in_process = pipeline is None or step_name is None if in_process is None else in_process
        if not self.in_process:
            missing = self.make_dataset if pipeline is None else step
            if pipeline is None or step_name is None:
                raise UsageError(
                    f"No other process can import {getattr(missing, '__qualname__', missing)}.",
                    "Leave in_process out, or put the function into a file.",
                )
            self.pipeline, self.step = pipeline, step_name
            return
        self.make_dataset, self.arguments = make_dataset, ()
        self.pipeline = _local_reference(make_dataset)
        self.functions: dict[str, Callable[..., Any]] = {self.pipeline: make_dataset}
        if isinstance(step, str):
            self.step = step
        else:
            self.step = _local_reference(step)
            if self.step in self.functions:
                self.step += " (step)"
            self.functions[self.step] = step

    def executor(self, on_progress: OnProgress, log: Any) -> Executor:
        if self.in_process:
            from tfpipe.engine.in_process import InProcessExecutor

            return InProcessExecutor(self.functions, on_progress=on_progress)
        from tfpipe.runner.process import WORKER_COMMAND, ProcessExecutor

        return ProcessExecutor(WORKER_COMMAND, on_progress=on_progress, log=log)


def _local_reference(function: Callable[..., Any]) -> str:
    """A name for people; nothing is imported by it."""
    inner: Any = function
    while hasattr(inner, "func"):
        inner = inner.func
    return f"{getattr(inner, '__module__', None) or '__main__'}:{getattr(inner, '__qualname__', type(inner).__name__)}"


def _display(quiet: bool) -> Any:
    from tfpipe.api.notebook import NotebookDisplay, is_notebook
    from tfpipe.cli.display import ProgressDisplay

    return NotebookDisplay(quiet=quiet) if is_notebook() else ProgressDisplay(quiet=quiet)


def _started(
    plan: _Plan,
    knobs: Mapping[str, str],
    time_budget_s: float,
    steps: int | None,
    seed: int,
    search: str | None,
    search_tolerance: float,
) -> Started:
    from tfpipe.messages import Workload
    from tfpipe.runner.candidates import KNOBS, choose_search
    from tfpipe.runner.journal import VERSION, Started

    unknown = [knob for knob in knobs if knob not in KNOBS]
    if unknown:
        raise UsageError(f"There is no knob {unknown[0]!r}.", f"Choose among: {', '.join(KNOBS)}.")
    if parse_step(plan.step)[0] not in STEPS and ":" not in plan.step:
        raise UsageError(f"There is no step {plan.step!r}.", "Use simulated:66ms, none, MODULE:FUNCTION or a function.")
    if time_budget_s <= 0:
        raise UsageError("time_budget_s must be more than nothing.", "Give for example time_budget_s=60.")
    if not 0 <= search_tolerance < 1:
        raise UsageError(
            f"search_tolerance is {search_tolerance} and not a share.", "Give for example search_tolerance=0.02."
        )
    return Started(
        version=VERSION,
        tfpipe_version=__version__,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=("tfpipe.profile", plan.pipeline),
        workload=Workload(
            dataset=None,
            pipeline=plan.pipeline,
            arguments=plan.arguments,
            data_dir=None,
            require_data=False,
            download=False,
            image_size=0,
            batch_size=None,
            step=plan.step,
            width=0,
            seed=seed,
        ),
        knobs=dict(knobs),
        candidates=None,
        only_current=False,
        large_grid_allowed=True,
        steps=steps,
        time_budget_s=time_budget_s,
        search=choose_search(search, steps=steps),
        search_tolerance=search_tolerance,
    )
