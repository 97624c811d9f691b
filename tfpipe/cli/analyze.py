"""``tfpipe analyze``: what a profiler trace says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from tfpipe.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from tfpipe.trace_records import Comparison, SessionAnalysis

Format = Literal["text", "json", "markdown"]
SHOWN_CANDIDATES = 4


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH [OTHER]")
@click.option("--session", metavar="NAME", help="The profiling session of a log directory; default: the newest.")
@click.option("--candidate", metavar="ID", help="A candidate of a run of tfpipe; default: the recommended one.")
@click.option("--host", metavar="NAME", help="One host of a session; default: all, the slowest in full.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Text for the terminal, JSON for programs, Markdown for an issue.",
)
def analyze(
    paths: tuple[str, ...], session: str | None, candidate: str | None, host: str | None, output_format: Format
) -> None:
    """Verdict and bottleneck of a TensorFlow profiler trace.

    PATH is a .xplane.pb file (also gzipped), the directory of one session, a log directory, or a run of tfpipe. With
    OTHER, what changed from PATH to it.

    \b
    Examples:
      tfpipe analyze logs
      tfpipe analyze logs --session 2026_01_31_12_00_00 --host worker1
      tfpipe analyze before.xplane.pb after.xplane.pb
      tfpipe analyze runs/one --candidate 2
    """
    if session is not None and candidate is not None:
        raise UsageError("--session and --candidate name a trace each.", "Leave one of them out.")
    if len(paths) > 2:
        raise UsageError(f"{len(paths)} paths were given; at most two can be compared.", "Name one trace, or two.")

    from pathlib import Path

    from tfpipe.cli.terminal import show_text, write_exactly
    from tfpipe.trace.analysis import analyze_path

    sources = [Path(path) if session is not None else _source(Path(path), candidate) for path in paths]
    analyses = [analyze_path(source, session=session, host=host) for source in sources]
    if len(analyses) == 1:
        text = _render_trace(analyses[0], output_format)
    else:
        from tfpipe.trace.compare import compare

        text = _render_comparison(compare(analyses[0], analyses[1]), output_format)
    write_exactly(text + "\n") if output_format == "json" else show_text(text + "\n")


def _source(path: Path, candidate: str | None) -> Path:
    """``path``, or in a run of tfpipe the trace of one candidate; which one that is goes to standard error."""
    from tfpipe.printable import printable
    from tfpipe.runfile import find_trace

    found = find_trace(path, candidate)
    if found is None:
        if candidate is not None:
            raise UsageError(f"--candidate needs a run of tfpipe, and {path} is none.", "Name a run, or leave it out.")
        return path
    why = ", which this run recommends" if found.recommended else ""
    names = [*found.others[:SHOWN_CANDIDATES], *(["..."] if len(found.others) > SHOWN_CANDIDATES else [])]
    more = f" For another add --candidate ID: {', '.join(names)}" if names and candidate is None else ""
    click.echo(printable(f"tfpipe: the trace of {found.candidate}{why}.{more}"), err=True)
    return found.path


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
