"""``tfpipe profile``: measure candidates, write a run, end with the table, the verdict and the next command."""

from __future__ import annotations

import math
import signal
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

T = TypeVar("T", int, float)
BESIDE_RESUME = {
    *("resume", "as_json", "quiet", "candidate_timeout", "max_memory"),
    *("max_input_fraction", "min_examples_per_s", "baseline", "tolerance", "strict"),
}
# What only a built-in data set has, and only the built-in model.
OF_DATASETS = ("data_dir", "require_data", "download", "image_size", "batch_size")
OF_RESNET18 = ("width", "precision", "packaging")
EXAMPLES = {"--time-budget": "60s", "--candidate-timeout": "5min", "--max-memory": "2GiB"}

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfpipe.records import Limits
    from tfpipe.runner.journal import Started
    from tfpipe.settings import Execution


@click.command(context_settings={"show_default": True, "max_content_width": 100})
@click.option("--dataset", metavar="NAME", help="Built-in data set: cifar100, cifar10 or photos.")
@click.option("--pipeline", metavar="MODULE:FACTORY", help="Your own: a function that returns a tf.data.Dataset.")
@click.option("--arg", "arguments", multiple=True, metavar="KEY=VALUE", help="An argument of the factory.")
@click.option(
    "--epoch-batches",
    type=click.IntRange(2),
    metavar="N",
    help="Batches after which your training begins a new iterator.  [default: all]",
)
@click.option("--data-dir", metavar="PATH", help="Where its files are; without it Keras's cache or a download.")
@click.option("--require-data", is_flag=True, help="Fail where real data cannot be had, instead of generating some.")
@click.option("--download/--no-download", default=True, help="Whether missing data may be downloaded.")
@click.option(
    "--image-size", default=224, type=click.IntRange(8, 4096), metavar="PIXELS", help="Size that photos are cropped to."
)
@click.option(
    "--step",
    metavar="STEP",
    help="resnet18, simulated:66ms, none or MODULE:FUNCTION.  [default: resnet18, for --pipeline simulated:66ms]",
)
@click.option(
    "--execution",
    metavar="LIST",
    help="How to run the step: eager, layer, graph, xla, fit.  [default: as it is written, resnet18 as graph]",
)
@click.option(
    "--precision",
    default="float32",
    type=click.Choice(["float32", "mixed_float16", "mixed_bfloat16"]),
    help="ResNet18's.",
)
@click.option(
    "--packaging",
    default="functional",
    type=click.Choice(["functional", "subclass", "module"]),
    help="How ResNet18 is written.",
)
@click.option(
    "--steps-per-execution", default=1, type=click.IntRange(1), metavar="N", help="Steps per call, of --execution fit."
)
@click.option("--width", default=64, type=click.IntRange(1, 4096), metavar="CHANNELS", help="ResNet18's base width.")
@click.option(
    "--batch-size", type=click.IntRange(1), metavar="N", help="Examples per step.  [default: 128, on a CPU 32]"
)
@click.option("--shuffle-buffer", metavar="LIST", help="Examples in the buffer: numbers, full, 0.")
@click.option("--map-parallelism", metavar="LIST", help="num_parallel_calls: numbers, auto, none (left out).")
@click.option("--prefetch", "prefetch_depth", metavar="LIST", help="Prefetch depth in batches: numbers, auto, 0.")
@click.option("--order", metavar="LIST", help="map-batch, batch-map.")
@click.option("--threadpool", metavar="LIST", help="Private thread pool size: numbers, none (left out).")
@click.option("--deterministic", metavar="LIST", help="true, false.")
@click.option("--rewrites", metavar="LIST", help="default (what TensorFlow does), off (as written).")
@click.option(
    "--candidates", "which", default="all", type=click.Choice(["all", "current"]), help="current: only the first."
)
@click.option("--yes", is_flag=True, help="Do not ask before a grid of hundreds of candidates.")
@click.option(
    "--time-budget",
    default="180s",
    metavar="TIME",
    help="Time for measuring, but three rounds at least; start-up comes on top.",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    metavar="N",
    help="Counted steps per candidate.  [default: what the budget allows]",
)
@click.option(
    "--search",
    type=click.Choice(["model", "grid", "random", "optuna"]),
    help="How candidates are chosen: model predicts and measures what is promising, grid measures all.  "
    "[default: model, with --steps grid]",
)
@click.option(
    "--search-tolerance",
    default=0.02,
    type=click.FloatRange(0, 1, max_open=True),
    metavar="SHARE",
    help="A search ends when nothing is likely to be faster by more.",
)
@click.option(
    "--seed",
    default=0,
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="For the data's order, augmentation and the rounds' order.",
)
@click.option("--max-input-fraction", type=click.FloatRange(0, 1), metavar="SHARE", help="Exit 3 if it waits more.")
@click.option("--min-examples-per-s", type=click.FloatRange(0), metavar="RATE", help="Exit 3 if it delivers less.")
@click.option("--baseline", metavar="RUN", help="Exit 3 if it is slower than in that run.")
@click.option(
    "--tolerance", default=0.05, type=click.FloatRange(0, 1), metavar="SHARE", help="How much slower it may be."
)
@click.option("--strict", is_flag=True, help="An uncertain limit counts as missed.")
@click.option("--candidate-timeout", default="10min", metavar="TIME", help="A request that takes longer has failed.")
@click.option("--max-memory", metavar="SIZE", help="Skip or stop candidates that need more resident memory.")
@click.option("--output", metavar="DIR", help="Run directory.  [default: runs/<data set>-<time>]")
@click.option("--force", is_flag=True, help="Replace an old run in the run directory.")
@click.option("--resume", metavar="DIR", help="Go on with a run that was cut off; takes its settings from there.")
@click.option("--json", "as_json", is_flag=True, help="Print the run file's content instead of the report.")
@click.option("--quiet", is_flag=True, help="No progress display.")
def profile(*, output: str | None, force: bool, resume: str | None, as_json: bool, quiet: bool, **options: Any) -> None:
    """Measure candidate pipelines through a training step and say what to use.

    Each knob takes a comma-separated list; the candidates are the lists' product, measured whole up to eight of them.
    Else a model of the pipeline chooses among them which to measure. With no knob given, the search begins with what
    is worth trying first, and chooses among everything around it.
    """
    from dataclasses import replace
    from pathlib import Path

    import msgspec

    from tfpipe.analysis.gate import check_gate
    from tfpipe.cli.display import ProgressDisplay
    from tfpipe.cli.explaining import trace_reading
    from tfpipe.cli.terminal import require_utf8, show_text, terminal_width, use_color, write_exactly
    from tfpipe.errors import EXIT_INTERRUPTED, GateError, TfpipeError
    from tfpipe.report.hparams import write_hparams
    from tfpipe.report.text import profile_report
    from tfpipe.runfile import (
        LOG_NAME,
        TRACES_NAME,
        find_run,
        load_run,
        new_run_directory,
        run_to_json,
        write_run,
    )
    from tfpipe.runner.conduct import begin, conduct, reopen
    from tfpipe.runner.process import WORKER_COMMAND, ProcessExecutor
    from tfpipe.units import parse_bytes, parse_seconds

    # Whoever ends the process, by Ctrl-C or by a batch system, gets the table of what there is.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    require_utf8(*sys.argv[1:])
    limits, baseline = _limits(options)
    timeout_s = _parsed("--candidate-timeout", options.pop("candidate_timeout"), parse_seconds)
    max_memory = options.pop("max_memory")
    max_memory_bytes = None if max_memory is None else _parsed("--max-memory", max_memory, parse_bytes)
    if resume is not None:
        _refuse_beside_resume()
        directory = Path(resume)
        journal = reopen(directory)
        limits, baseline = limits or journal.started.limits, baseline or journal.started.baseline
    earlier = None if baseline is None else load_run(find_run(baseline))
    if resume is None:
        started = msgspec.structs.replace(_started(options), limits=limits, baseline=baseline)
        directory = new_run_directory(output, _subject(started))
        journal = begin(directory, started, force=force)
    with ProgressDisplay(quiet=quiet) as display, open(directory / LOG_NAME, "ab") as log:
        executor = ProcessExecutor(
            WORKER_COMMAND, on_progress=display.on_progress, max_memory_bytes=max_memory_bytes, log=log
        )
        outcome = conduct(
            journal,
            directory,
            executor,
            display,
            candidate_timeout_s=timeout_s,
            max_memory_bytes=max_memory_bytes,
            reading=trace_reading(journal.started.workload.step),
        )
    run = outcome.run
    if run is None and outcome.interrupted:
        click.echo("tfpipe: interrupted before anything was measured.", err=True)
        raise SystemExit(EXIT_INTERRUPTED)
    if run is None:
        raise TfpipeError("Nothing was measured.", f"See {directory / LOG_NAME}.")
    if limits is not None:
        run = replace(run, gate=check_gate(run, limits, earlier))
        write_run(directory, run)
    write_hparams(run, directory / TRACES_NAME)
    if as_json:
        write_exactly(run_to_json(run).decode())
    else:
        color = use_color()
        show_text(profile_report(run, directory, width=terminal_width(), color=color), color=color)
    if outcome.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)
    if run.gate is not None and not run.gate.passed:
        raise GateError(run.gate.sentence, None)


def _refuse_beside_resume() -> None:
    """A resumed run has its settings already: whatever else was given would be ignored."""
    from tfpipe.errors import UsageError

    for parameter in click.get_current_context().command.params:
        if _was_given(parameter.name or "") and parameter.name not in BESIDE_RESUME:
            raise UsageError(
                f"{parameter.opts[0]} does not go with --resume, which takes its settings from the run.",
                "Leave it out, or start a new run.",
            )


def _limits(options: dict[str, Any]) -> tuple[Limits | None, str | None]:
    """The limits that were set, None for none, and the name of the baseline."""
    from tfpipe.errors import UsageError
    from tfpipe.records import Limits

    for flag in ("max_input_fraction", "min_examples_per_s", "tolerance"):
        if options[flag] is not None and not math.isfinite(options[flag]):
            raise UsageError(f"--{flag.replace('_', '-')} {options[flag]} is no limit.", "Give a number.")
    limits = Limits(
        max_input_fraction=options.pop("max_input_fraction"),
        min_examples_per_s=options.pop("min_examples_per_s"),
        tolerance=options.pop("tolerance"),
        strict=options.pop("strict"),
    )
    baseline = options.pop("baseline")
    wanted = limits.max_input_fraction is not None or limits.min_examples_per_s is not None or baseline is not None
    if limits.strict and not wanted:
        raise UsageError(
            "--strict is about limits, and none is set.",
            "Add --max-input-fraction, --min-examples-per-s or --baseline, or leave it out.",
        )
    if baseline is None and _was_given("tolerance"):
        raise UsageError("--tolerance is how much slower than a --baseline it may be.", "Add --baseline RUN.")
    return (limits if wanted else None), baseline


def _was_given(name: str) -> bool:
    """Whether a parameter was on the command line, as against its default."""
    from click.core import ParameterSource

    return click.get_current_context().get_parameter_source(name) == ParameterSource.COMMANDLINE


def _started(options: dict[str, Any]) -> Started:
    """The journal's first entry: what the command line asks for, checked before anything starts."""
    from datetime import datetime, timezone

    from tfpipe import __version__
    from tfpipe.conditions import usable_cores
    from tfpipe.errors import UsageError
    from tfpipe.messages import Workload
    from tfpipe.runner.candidates import KNOBS, choose_candidates, choose_search
    from tfpipe.runner.journal import VERSION, Started
    from tfpipe.settings import DATASETS, ORDERS, STEPS, parse_step
    from tfpipe.units import parse_seconds

    dataset, pipeline, step = options["dataset"], options["pipeline"], options["step"]
    if (dataset is None) == (pipeline is None):
        raise UsageError(
            "Name what to profile: a built-in data set or a pipeline of your own, one of the two.",
            "tfpipe profile --dataset cifar100, or --pipeline data.py:make_dataset",
        )
    if dataset is not None and dataset not in DATASETS:
        raise UsageError(f"There is no data set {dataset!r}.", f"Choose one of: {', '.join(DATASETS)}.")
    if dataset is not None and options["epoch_batches"] is not None:
        raise UsageError("--epoch-batches is about your own --pipeline: built-in data sets repeat.", "Leave it out.")
    if step is None:
        step = "resnet18" if dataset is not None else "simulated:66ms"
    if parse_step(step)[0] not in STEPS and ":" not in step:
        raise UsageError(f"There is no step {step!r}.", "Use --step resnet18, simulated:66ms, none or MODULE:FUNCTION.")
    _refuse_what_means_nothing(pipeline, step)
    time_budget_s = _parsed("--time-budget", options["time_budget"], parse_seconds)
    knobs = {knob: options[knob] for knob in KNOBS if options[knob] is not None}
    search = choose_search(options["search"], steps=options["steps"])
    large_grid_allowed = options["yes"] or search != "grid"
    candidates = None
    if dataset is not None:
        candidates = choose_candidates(knobs, orders=ORDERS[dataset], cores=usable_cores(), yes=large_grid_allowed)
    return Started(
        version=VERSION,
        tfpipe_version=__version__,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=("tfpipe", *sys.argv[1:]),
        workload=Workload(
            dataset=dataset,
            pipeline=pipeline,
            arguments=options["arguments"],
            data_dir=options["data_dir"],
            require_data=options["require_data"],
            download=options["download"],
            image_size=options["image_size"],
            batch_size=options["batch_size"],
            step=step,
            width=options["width"],
            seed=options["seed"],
            executions=_executions(options),
            precision=options["precision"],
            packaging=options["packaging"],
            steps_per_execution=options["steps_per_execution"],
            epoch_batches=options["epoch_batches"],
        ),
        knobs=knobs,
        candidates=candidates,
        only_current=options["which"] == "current",
        large_grid_allowed=large_grid_allowed,
        steps=options["steps"],
        time_budget_s=time_budget_s,
        search=search,
        search_tolerance=options["search_tolerance"],
    )


def _refuse_what_means_nothing(pipeline: str | None, step: str) -> None:
    """Options for what is not measured would be ignored without a word. Raises UsageError that names the first."""
    from tfpipe.errors import UsageError

    data = OF_DATASETS if pipeline is not None else ("arguments",)
    remedy = "Use --arg KEY=VALUE." if pipeline is not None else "It belongs to --pipeline."
    model = () if step == "resnet18" else OF_RESNET18
    for names, other, hint in (
        (data, "--dataset" if pipeline is None else "--pipeline", remedy),
        (model, f"--step {step}", "It belongs to --step resnet18."),
    ):
        for parameter in click.get_current_context().command.params:
            if parameter.name in names and _was_given(parameter.name or ""):
                raise UsageError(f"{parameter.opts[0]} means nothing with {other}.", hint)


def _executions(options: dict[str, Any]) -> tuple[Execution, ...]:
    """The ways to run the step that were asked for; none for as it is written."""
    from tfpipe.settings import parse_execution, parse_list

    text = options["execution"]
    return () if text is None else parse_list("--execution", text, parse_execution)


def _parsed(flag: str, text: str, parse: Callable[[str], T]) -> T:
    """``text`` as a number above 0. Raises UsageError that names ``flag``."""
    from tfpipe.errors import UsageError

    try:
        value = parse(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}.", f"Write for example {flag} {EXAMPLES[flag]}.") from None
    if not value:
        raise UsageError(f"{flag} must be more than nothing.", f"Write for example {flag} {EXAMPLES[flag]}.")
    return value


def _subject(started: Started) -> str:
    """What a run directory is named after."""
    work = started.workload
    if work.pipeline is None:
        return str(work.dataset)
    return work.pipeline.rpartition(":")[0].removesuffix(".py").replace("/", ".").rpartition(".")[2]
