"""``tfpipe show``: the candidates of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tfpipe.errors import UsageError

if TYPE_CHECKING:
    from tfpipe.records import Run


@click.command()
@click.argument("run", required=False)
@click.option("--candidate", "wanted", metavar="ID", help="Everything about one candidate: its id, name or number.")
@click.option("--sites", is_flag=True, help="Every call site of your own pipeline, and what can be changed there.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="json is the run file itself, or one candidate of it.",
)
def show(run: str | None, wanted: str | None, sites: bool, form: str) -> None:
    """Every candidate of a run, or one with all details.

    RUN is a run directory or its run.json; left out, the newest under runs/.
    """
    from tfpipe.cli.terminal import show_text, terminal_width, use_color, write_exactly
    from tfpipe.report.candidate import candidate_report
    from tfpipe.report.json_report import candidate_json
    from tfpipe.report.markdown import candidate_markdown, candidates_markdown
    from tfpipe.report.text import candidates_report
    from tfpipe.runfile import find_candidate, find_run, load_run, run_to_json

    directory = find_run(run)
    found = load_run(directory)
    width, color = terminal_width(), use_color()
    candidate = None if wanted is None else find_candidate(found, wanted)
    if sites:
        _show_sites(found, form)
    elif form == "json":
        write_exactly(run_to_json(found).decode() if candidate is None else candidate_json(found, candidate))
    elif form == "markdown":
        show_text(candidates_markdown(found) if candidate is None else candidate_markdown(found, candidate, directory))
    elif candidate is None:
        show_text(candidates_report(found, directory, width=width, color=color), color=color)
    else:
        show_text(candidate_report(found, candidate, directory, width=width, color=color), color=color)


def _show_sites(run: Run, form: str) -> None:
    from tfpipe.cli.terminal import show_text, terminal_width, use_color, write_exactly
    from tfpipe.report.user_pipeline import sites_json, sites_markdown, sites_report

    if run.pipeline is None:
        raise UsageError(
            f"This run is of {run.data.name}, a built-in data set, which has no call sites.",
            "See its candidates with tfpipe show.",
        )
    if form == "json":
        write_exactly(sites_json(run))
    elif form == "markdown":
        show_text(sites_markdown(run))
    else:
        color = use_color()
        show_text(sites_report(run, width=terminal_width(), color=color), color=color)
