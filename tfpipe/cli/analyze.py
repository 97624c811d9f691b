"""``tfpipe analyze``: what a profiler trace says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from tfpipe.errors import UsageError

if TYPE_CHECKING:
    from tfpipe.trace_records import Comparison, SessionAnalysis

Format = Literal["text", "json", "markdown"]


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH [OTHER]")
@click.option("--session", metavar="NAME", help="The profiling session of a log directory; default: the newest.")
@click.option("--host", metavar="NAME", help="One host of a session; default: all, the slowest in full.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Text for the terminal, JSON for programs, Markdown for an issue.",
)
def analyze(paths: tuple[str, ...], session: str | None, host: str | None, output_format: Format) -> None:
    """Verdict and bottleneck of a TensorFlow profiler trace.

    PATH is a .xplane.pb file (also gzipped), the directory of one session, or a log directory. With OTHER, what
    changed from PATH to it.

    \b
    Examples:
      tfpipe analyze logs
      tfpipe analyze logs --session 2026_01_31_12_00_00 --host worker1
      tfpipe analyze before.xplane.pb after.xplane.pb
    """
    if len(paths) > 2:
        raise UsageError(f"{len(paths)} paths were given; at most two can be compared.", "Name one trace, or two.")

    from pathlib import Path

    from tfpipe.trace.analysis import analyze_path

    analyses = [analyze_path(Path(path), session=session, host=host) for path in paths]
    if len(analyses) == 1:
        click.echo(_render_trace(analyses[0], output_format))
    else:
        from tfpipe.trace.compare import compare

        click.echo(_render_comparison(compare(analyses[0], analyses[1]), output_format))


def _render_trace(session: SessionAnalysis, output_format: Format) -> str:
    if output_format == "json":
        from tfpipe.report import trace_json

        return trace_json.render_trace(session)
    if output_format == "markdown":
        from tfpipe.report import trace_markdown

        return trace_markdown.render_trace(session)
    from tfpipe.cli.terminal import terminal_width
    from tfpipe.report import trace_text

    return trace_text.render_trace(session, terminal_width())


def _render_comparison(comparison: Comparison, output_format: Format) -> str:
    if output_format == "json":
        from tfpipe.report import trace_json

        return trace_json.render_comparison(comparison)
    if output_format == "markdown":
        from tfpipe.report import trace_markdown

        return trace_markdown.render_comparison(comparison)
    from tfpipe.cli.terminal import terminal_width
    from tfpipe.report import trace_text

    return trace_text.render_comparison(comparison, terminal_width())
