"""What the README tells to type in Python runs, on small stand-ins for the reader's own functions."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.tensorflow


def make_dataset(batch_size: int = 8) -> tf.data.Dataset:
    rows = tf.data.Dataset.range(400).map(lambda x: (tf.cast(x, tf.float32)[tf.newaxis] / 400, x % 2))
    return rows.batch(batch_size)


def make_model(element_spec: Any = None) -> Any:
    import keras

    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(2)])
    model.compile(optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_there_are_blocks() -> None:
    assert any("tfpipe.profile(" in block for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(next((ROOT / "samples" / "recorded_run" / "traces").glob("*/")), tmp_path / "logs")
    names: dict[str, Any] = {"make_dataset": make_dataset, "make_step": make_model, "model": make_model()}
    exec(block.replace("time_budget_s=60", "time_budget_s=1, steps=3, in_process=True, quiet=True"), names)
    if "run" in names:
        assert names["run"].directory.is_relative_to("runs")
        assert names["run"].recommendation is not None
