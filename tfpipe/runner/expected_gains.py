"""What the changes that were noticed, and that no candidate was measured with, are expected to bring. Pure."""

from __future__ import annotations

from dataclasses import replace

from tfpipe.analysis.operational import build_model
from tfpipe.records import Run
from tfpipe.settings import PipelineSettings
from tfpipe.sites import Finding


def with_expected_gains(run: Run) -> Run:
    """``run`` with ``predicted_gain`` in the findings of its pipeline, by the model of everything it has measured."""
    model = build_model(run) if run.pipeline is not None and any(f.sites for f in run.pipeline.findings) else None
    if run.pipeline is None or model is None:
        return run
    current = run.candidate(run.current).settings
    measured = {c.settings for c in run.candidates if c.step_s is not None}

    def told(finding: Finding) -> Finding:
        made = PipelineSettings(overrides=tuple(sorted((site, finding.value) for site in finding.sites)))
        if not finding.sites or made in measured or model.unknown(made) or model.unknown(current):
            return finding
        gain = model.predict(current).step_s / model.predict(made).step_s
        return replace(finding, predicted_gain=gain)

    return replace(run, pipeline=replace(run.pipeline, findings=tuple(map(told, run.pipeline.findings))))
