"""``tfpipe recommend``: from a run file alone to the settings to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tfpipe.errors import UsageError

if TYPE_CHECKING:
    from tfpipe.records import Run


@click.command()
@click.argument("run", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown", "code", "patch"]),
    default="text",
    show_default=True,
    help="code prints nothing but the Python to paste, patch a diff of your own pipeline's files.",
)
@click.option("--max-memory", metavar="SIZE", help="Leave out candidates that buffer more than this, e.g. 2GiB.")
@click.option(
    "--what-if",
    "questions",
    multiple=True,
    metavar="WHAT=VALUE",
    help="Predict it elsewhere: cores=16, step=12ms, source-latency=20ms, batch-size=512, cache=memory|disk.",
)
def recommend(run: str | None, form: str, max_memory: str | None, questions: tuple[str, ...]) -> None:
    """The settings to use, why, what they bring, and the code to paste or the lines to change.

    RUN is a run directory or its run.json; left out, the newest under runs/.
    """
    from tfpipe.analysis.recommend import recommend as choose
    from tfpipe.cli.terminal import show_text, terminal_width, use_color, write_exactly
    from tfpipe.report.json_report import recommendation_json
    from tfpipe.report.markdown import recommendation_markdown
    from tfpipe.report.text import recommendation_report
    from tfpipe.runfile import find_run, load_run

    if questions:
        _answer(run, form, questions)
        return
    limit_bytes = None if max_memory is None else _parse_size(max_memory)
    directory = find_run(run)
    found = load_run(directory)
    recommendation = found.recommendation
    if limit_bytes is not None or recommendation is None:
        recommendation = choose(found, limit_bytes)
    if form in ("code", "patch"):
        write_exactly(_to_write(found, recommendation.candidate, form))
    elif form == "json":
        write_exactly(recommendation_json(found, recommendation))
    elif form == "markdown":
        show_text(recommendation_markdown(found, recommendation))
    else:
        color = use_color()
        text = recommendation_report(found, recommendation, directory, width=terminal_width(), color=color)
        show_text(text, color=color)


def _answer(run: str | None, form: str, questions: tuple[str, ...]) -> None:
    """What is predicted under other circumstances."""
    from tfpipe.cli.terminal import show_text, terminal_width, use_color, write_exactly
    from tfpipe.report.what_if import what_if_json, what_if_report
    from tfpipe.runfile import find_run, load_run
    from tfpipe.runner.what_if import parse_what_if, what_if

    if form not in ("text", "json"):
        raise UsageError(f"--what-if does not go with --format {form}.", "Use --format text or json.")
    circumstances = parse_what_if(questions)
    found = load_run(find_run(run))
    answer = what_if(found, circumstances)
    if form == "json":
        write_exactly(what_if_json(found, answer))
    else:
        color = use_color()
        show_text(what_if_report(found, answer, width=terminal_width(), color=color), color=color)


def _to_write(run: Run, candidate: str, form: str) -> str:
    """The code or the diff for stdout; what the diff cannot do goes to stderr."""
    from tfpipe.printable import printable
    from tfpipe.report.code import pipeline_code
    from tfpipe.report.user_pipeline import pipeline_patch

    settings = run.candidate(candidate).settings
    if form == "code":
        if run.pipeline is not None:
            raise UsageError(
                "This run is of your own pipeline: there is no code to paste, only lines to change.",
                "See them with --format text, or get a diff with --format patch.",
            )
        return printable(pipeline_code(run, settings))
    if run.pipeline is None:
        raise UsageError(
            f"This run is of {run.data.name}, a built-in data set: there is no file of yours to patch.",
            "Get the pipeline as Python with --format code.",
        )
    patch = pipeline_patch(run, settings)
    for instruction in patch.by_hand:
        click.echo(printable(f"by hand: {instruction}"), err=True)
    if not settings.overrides:
        click.echo("tfpipe: no change worth making, so the patch is empty.", err=True)
    return patch.diff


def _parse_size(text: str) -> int:
    from tfpipe.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"--max-memory: {error}.", "Write for example --max-memory 2GiB.") from None
