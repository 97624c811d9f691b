"""A run's answers as versioned JSON documents, for programs.

Every document has ``format`` and ``version``; fields may be added within a version, never renamed or removed.
Seconds, bytes and fractions of 1; ``null`` is unknown. Format history: 1, the first.
"""

from __future__ import annotations

import msgspec

from tfpipe.records import Candidate, Recommendation, Run
from tfpipe.report.code import pipeline_code
from tfpipe.report.patch import describe_change
from tfpipe.report.phrases import generated_notice
from tfpipe.report.user_pipeline import changes_of, measured_findings, pipeline_patch

VERSION = 1


def recommendation_json(run: Run, recommendation: Recommendation) -> str:
    """``tfpipe-recommendation``: the settings, gains, ties, numbers behind them and what to write."""
    chosen = run.candidate(recommendation.candidate)
    fields = msgspec.to_builtins(recommendation)
    return document(
        "tfpipe-recommendation",
        run,
        {
            **fields,
            "name": chosen.name,
            "settings": chosen.settings,
            "verdict": chosen.verdict,
            "examples_per_s": chosen.examples_per_s,
            "step_s": chosen.step_s,
            "input_fraction": chosen.input_fraction,
            "execution_comparison": run.execution_comparison,
            "outlook": run.outlook,
            "warnings": run.warnings,
            **_what_to_write(run, chosen),
        },
    )


def _what_to_write(run: Run, chosen: Candidate) -> dict[str, object]:
    """``code`` for a built-in data set; ``changes``, ``patch`` and ``findings`` for a user's own pipeline."""
    if run.pipeline is None:
        return {"code": pipeline_code(run, chosen.settings)}
    patch = pipeline_patch(run, chosen.settings)
    changes = [
        {
            "site": change.site.id,
            "file": change.site.file or None,
            "line": change.site.line,
            "method": change.site.method,
            "argument": change.site.argument,
            "written": change.site.value if change.site.written else None,
            "value": change.value,
            "text": describe_change(change),
        }
        for change in changes_of(run.pipeline, chosen.settings)
    ]
    return {
        "changes": changes,
        "root": run.pipeline.root,
        "patch": patch.diff,
        "by_hand": patch.by_hand,
        "findings": measured_findings(run),
        "reorders": run.pipeline.reorders,
    }


def candidate_json(run: Run, candidate: Candidate) -> str:
    """``tfpipe-candidate``: one candidate as it stands in the run file."""
    return document("tfpipe-candidate", run, msgspec.to_builtins(candidate))


def document(kind: str, run: Run, content: dict[str, object]) -> str:
    """``content`` below what every document begins with."""
    head = {
        "format": kind,
        "version": VERSION,
        "tfpipe_version": run.tfpipe_version,
        "notice": generated_notice(run) or None,
        "data": {
            "name": run.data.name,
            "generated": run.data.generated,
            "examples": run.data.examples,
            "batch_size": run.data.batch_size,
        },
        "step": run.step.name,
    }
    return msgspec.json.format(msgspec.json.encode({**head, **content}), indent=2).decode() + "\n"
