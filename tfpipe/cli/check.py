"""``tfpipe check``: what is wrong with code that TensorFlow traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from tfpipe.errors import GateError, TfpipeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tfpipe.check_records import CheckedFile, CheckReport, Finding, RunAnswer, RunRequest, Severity

Format = Literal["text", "json", "sarif", "github"]
SHOWN_PATHS = 3


@click.command()
@click.argument("targets", nargs=-1, metavar="TARGET...")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    show_default=True,
    help="Text for the terminal, JSON for programs, SARIF 2.1.0 for code scanning, annotations for GitHub Actions.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    help="End with code 3 when there is a finding of this severity or a worse one.  [default: never]",
)
@click.option(
    "--run", "run_it", is_flag=True, help="Call the target with batches of --pipeline and confirm the findings."
)
@click.option("--pipeline", metavar="MODULE:FACTORY", help="For --run: a function that returns the tf.data.Dataset.")
@click.option("--steps", default=5, show_default=True, type=click.IntRange(1), metavar="N", help="For --run: batches.")
@click.option("--rules", "list_rules", is_flag=True, help="Explain every rule, with an example of each side, and end.")
def check(
    targets: tuple[str, ...],
    output_format: Format,
    fail_on: Severity | None,
    run_it: bool,
    pipeline: str | None,
    steps: int,
    list_rules: bool,
) -> None:
    """What is wrong with a tf.function: side effects that vanish, loops that unroll, calls that retrace.

    TARGET is FILE.py, MODULE or a directory (all traced code in it), or FILE.py:NAME or MODULE:NAME (one function,
    tf.Module or Keras model and the code it leads to). The source is read, not imported, unless --run is given.

    A comment switches a rule off on its line: # tfpipe: ignore[rule-name]

    \b
    Examples:
      tfpipe check train.py
      tfpipe check train.py:train_step --run --pipeline train.py:make_dataset
      tfpipe check src --format github --fail-on error
    """
    from tfpipe.cli.terminal import require_utf8, show_text, terminal_width, write_exactly

    if list_rules:
        from tfpipe.check.rules import RULES
        from tfpipe.report.check_text import render_rules_text

        show_text(render_rules_text(RULES, terminal_width()))
        return
    if not targets:
        raise UsageError("Nothing to check was named.", "Write for example: tfpipe check train.py")
    if pipeline is not None and not run_it:
        raise UsageError("--pipeline is only used by --run.", "Add --run, or leave --pipeline out.")
    if run_it and (len(targets) != 1 or ":" not in targets[0]):
        raise UsageError(
            "--run calls one function or model.", "Name it: tfpipe check FILE.py:NAME --run --pipeline ..."
        )
    if run_it and pipeline is None:
        hint = "Add --pipeline MODULE:FACTORY, a function that returns a data set."
        raise UsageError("--run needs batches to call it with.", hint)
    if pipeline is not None:
        require_utf8(targets[0], pipeline)
    report = _read(targets if pipeline is None else (*targets, pipeline))
    if pipeline is not None:
        report = _run(report, targets[0], pipeline, steps)
    text = _render(report, output_format, terminal_width())
    show_text(text) if output_format in ("text", "github") else write_exactly(text)
    if fail_on is not None and (count := report.reached(fail_on)):
        findings = f"{count} finding{'' if count == 1 else 's'}"
        raise GateError(
            f"{findings} of severity {fail_on}{' or worse' if fail_on == 'warning' else ''}.",
            "Mend them, or switch a rule off on a line with: # tfpipe: ignore[rule-name]",
        )
    _complain_of_unread(report)


def _complain_of_unread(report: CheckReport) -> None:
    """Raises TfpipeError for files that could not be checked."""
    from tfpipe.check.rules import UNREADABLE

    unread = [finding.path for finding in report.findings if finding.rule == UNREADABLE.name]
    if unread:
        which = f"{', '.join(unread[:SHOWN_PATHS])}{', ...' if len(unread) > SHOWN_PATHS else ''}"
        files = f"{len(report.files)} file{'' if len(report.files) == 1 else 's'}"
        raise TfpipeError(f"{len(unread)} of {files} could not be checked: {which}.", UNREADABLE.instead)


def _read(targets: tuple[str, ...]) -> CheckReport:
    """All targets analysed; what several of them lead to is listed once."""
    from tfpipe import __version__
    from tfpipe.check.analyze import analyze_file
    from tfpipe.check.rules import RULES
    from tfpipe.check.target import find_target
    from tfpipe.check_records import CheckReport
    from tfpipe.printable import printable

    files: dict[Path, CheckedFile] = {}
    findings: dict[tuple[str, str, int, int], Finding] = {}
    for text in targets:
        target = find_target(text)
        for path in target.files:
            analysis = analyze_file(path, target.name)
            known = files.get(path)
            files[path] = analysis.file if known is None else _merged(known, analysis.file)
            for finding in analysis.findings:
                findings[finding.path, finding.rule, finding.line, finding.column] = finding
    return CheckReport(
        tfpipe_version=__version__,
        targets=tuple(map(printable, targets)),
        rules=RULES,
        files=tuple(files.values()),
        findings=_ordered(findings.values()),
    )


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: (finding.path, finding.line, finding.column)))


def _merged(first: CheckedFile, second: CheckedFile) -> CheckedFile:
    """Two readings of one file, for two functions in it."""
    from dataclasses import replace

    traced = {function.line: function for function in (*first.traced, *second.traced)}
    return replace(
        first,
        traced=tuple(traced[line] for line in sorted(traced)),
        suppressed=max(first.suppressed, second.suppressed),
    )


def _run(report: CheckReport, target: str, pipeline: str, steps: int) -> CheckReport:
    from dataclasses import replace

    from tfpipe.check_records import RunRequest

    request = RunRequest(target=target, pipeline=pipeline, steps=steps, file=report.files[0], findings=report.findings)
    answer = _ask(request)
    if answer.message is not None:
        kind = UsageError if answer.exit_code == UsageError.exit_code else TfpipeError
        raise kind(answer.message, answer.hint)
    return replace(report, findings=_ordered(answer.findings), run=answer.run)


def _ask(request: RunRequest) -> RunAnswer:
    """The answer of a process of its own: the user's code, and TensorFlow with it, may do what they like there."""
    import os
    import subprocess
    import sys
    import tempfile

    import msgspec

    from tfpipe.check_records import RunAnswer

    click.echo("tfpipe: starting TensorFlow ...", err=True)
    with tempfile.TemporaryDirectory(prefix="tfpipe-", ignore_cleanup_errors=True) as directory:
        finished = subprocess.run(
            [sys.executable, "-m", "tfpipe.engine.check_run", directory],
            input=msgspec.json.encode(request),
            stdout=subprocess.PIPE,
            env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
            # Ctrl-C is for this process, which then ends that one.
            start_new_session=True,
            check=False,
        )
    try:
        return msgspec.json.decode(finished.stdout, type=RunAnswer)
    except msgspec.DecodeError:
        raise TfpipeError(
            f"The process that ran {request.target} ended with code {finished.returncode} and without an answer.",
            "What it printed is above; without --run the findings can still be had.",
        ) from None


def _render(report: CheckReport, output_format: Format, width: int) -> str:
    if output_format == "json":
        from tfpipe.report.check_json import render_check_json

        return render_check_json(report)
    if output_format == "sarif":
        from tfpipe.report.check_sarif import render_check_sarif

        return render_check_sarif(report)
    if output_format == "github":
        from tfpipe.report.check_github import render_check_github

        return render_check_github(report)
    from tfpipe.report.check_text import render_check_text

    return render_check_text(report, width)
