"""``tfpipe recommend``: from a run file alone to the settings to use."""

from __future__ import annotations

import click

from tfpipe.errors import UsageError


@click.command()
@click.argument("run", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown", "code"]),
    default="text",
    show_default=True,
    help="code prints nothing but the Python to paste.",
)
@click.option("--max-memory", metavar="SIZE", help="Leave out candidates that buffer more than this, e.g. 2GiB.")
def recommend(run: str | None, form: str, max_memory: str | None) -> None:
    """The settings to use, why, what they bring, and the code to paste.

    RUN is a run directory or its run.json; left out, the newest under runs/.
    """
    from tfpipe.analysis.recommend import recommend as choose
    from tfpipe.cli.terminal import terminal_width, use_color
    from tfpipe.report.code import pipeline_code
    from tfpipe.report.json_report import recommendation_json
    from tfpipe.report.markdown import recommendation_markdown
    from tfpipe.report.text import recommendation_report
    from tfpipe.runfile import find_run, load_run

    limit_bytes = None if max_memory is None else _parse_size(max_memory)
    directory = find_run(run)
    found = load_run(directory)
    recommendation = found.recommendation
    if limit_bytes is not None or recommendation is None:
        recommendation = choose(found, limit_bytes)
    if form == "code":
        text = pipeline_code(found, found.candidate(recommendation.candidate).settings)
    elif form == "json":
        text = recommendation_json(found, recommendation)
    elif form == "markdown":
        text = recommendation_markdown(found, recommendation)
    else:
        text = recommendation_report(found, recommendation, directory, width=terminal_width(), color=use_color())
    click.echo(text, nl=False, color=True)


def _parse_size(text: str) -> int:
    from tfpipe.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"--max-memory: {error}.", "Write for example --max-memory 2GiB.") from None
