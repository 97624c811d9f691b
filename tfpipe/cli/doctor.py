"""``tfpipe doctor``: would the main job work here, and if not, what to do."""

from __future__ import annotations

import click

from tfpipe.errors import EXIT_FAILED


@click.command()
def doctor() -> None:
    """Versions, devices, profiler: what would fail here and how to mend it.

    The exit code is 1 when something that tfpipe needs is broken.
    """
    from tfpipe.cli.health import check_machine, check_tensorflow, check_versions, run_probe
    from tfpipe.cli.terminal import show_text, terminal_width, use_color
    from tfpipe.report.doctor import doctor_report

    checks = [*check_versions(), *check_machine()]
    click.echo("tfpipe: starting TensorFlow ...", err=True)
    checks += check_tensorflow(run_probe())
    color = use_color()
    show_text(doctor_report(checks, width=terminal_width(), color=color), color=color)
    if any(check.state == "broken" for check in checks):
        click.get_current_context().exit(EXIT_FAILED)
