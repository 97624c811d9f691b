"""Rows of a CSV file, scaled, with a category looked up in a table.

The mistake in it: ``map`` works on one row at a time. The function treats every row alike, so it can work on whole
batches: ``batch`` before ``map``.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import tensorflow as tf

FOLDER = Path(tempfile.gettempdir()) / "tfpipe-samples" / "tabular_csv"
CITIES = ("Berlin", "Paris", "Rome", "Oslo")
COLUMNS = ("city", "age", "income", "bought")


def make_dataset(folder: str = str(FOLDER), batch_size: int = 128) -> tf.data.Dataset:
    file = write_table(Path(folder))
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(CITIES), tf.range(len(CITIES))), default_value=-1
    )

    def features(city: tf.Tensor, age: tf.Tensor, income: tf.Tensor, bought: tf.Tensor) -> tuple:
        inputs = {"city": table.lookup(city), "age": age / 100.0, "income": tf.math.log1p(income) / 12.0}
        return inputs, bought

    defaults = ["", 0.0, 0.0, tf.constant(0)]
    rows = tf.data.experimental.CsvDataset(str(file), defaults, header=True)
    rows = rows.shuffle(2000)
    rows = rows.map(features)
    rows = rows.batch(batch_size)
    return rows.prefetch(tf.data.AUTOTUNE)


def write_table(folder: Path, rows: int = 4000) -> Path:
    """Invented customers, written once."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "customers.csv"
    if not file.exists():
        chance = random.Random(1)
        lines = [",".join(COLUMNS)]
        for _ in range(rows):
            income = chance.randint(10_000, 90_000)
            lines.append(f"{chance.choice(CITIES)},{chance.randint(18, 90)},{income},{chance.randint(0, 1)}")
        file.write_text("\n".join(lines) + "\n")
    return file
