"""An option of ``tfpipe profile`` that means nothing beside the others is refused, not ignored."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tfpipe.cli.main import main

OWN = ("--pipeline", "data.py:make_dataset")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*OWN, "--data-dir", "photos"), "--data-dir means nothing with --pipeline"),
        ((*OWN, "--image-size", "64"), "--image-size means nothing with --pipeline"),
        ((*OWN, "--batch-size", "64"), "--batch-size means nothing with --pipeline"),
        ((*OWN, "--require-data"), "--require-data means nothing with --pipeline"),
        ((*OWN, "--no-download"), "--download means nothing with --pipeline"),
        ((*OWN, "--width", "16"), "--width means nothing with --step simulated:66ms"),
        (
            ("--dataset", "cifar100", "--step", "train.py:make_step", "--width", "16"),
            "--width means nothing with --step train.py:make_step",
        ),
        (("--dataset", "cifar100", "--step", "none", "--precision", "mixed_float16"), "--precision means nothing"),
        (("--dataset", "cifar100", "--arg", "batch_size=3"), "--arg means nothing with --dataset"),
    ],
)
def test_what_would_be_ignored_is_refused(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["profile", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was started"
