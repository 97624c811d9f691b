"""``samples/seed_story.py`` as its user starts it, on a network and a grid that are as small as they get."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfpipe.runfile import load_run

pytestmark = pytest.mark.tensorflow

STORY = Path(__file__).parents[2] / "samples" / "seed_story.py"
TINY = ["--width", "4", "--batch-size", "8", "--steps", "3"]
# Given again, an option of the script's own counts as given last: two pipelines and two ways to run the step.
LESS = ["--no-download", "--quiet", "--time-budget", "2s", "--map-parallelism", "none", "--order", "map-batch"]


def test_the_story_is_told_from_two_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(STORY), *TINY, *LESS, "--execution", "eager,graph", "--output", "story"],
        cwd=tmp_path,
        env={**os.environ, "KERAS_HOME": str(tmp_path / "keras")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[:3]] == ["stage", "serial input, eager", "prefetch, eager"]
    assert any(line.startswith("one tf.function ") for line in lines)
    assert "Gain: " in done.stdout
    assert max(map(len, lines)) <= 80
    run = load_run(tmp_path / "story" / "execution")
    assert [result.step.execution for result in run.executions] == ["eager", "graph"]
    assert run.candidate(run.current).settings.map_parallelism is None
