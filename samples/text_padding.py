"""Lines of text as word numbers, padded to the longest line of each batch.

The mistake in it: ``prefetch`` is not the last stage, so padding and batching wait until the step asks.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import tensorflow as tf

FOLDER = Path(tempfile.gettempdir()) / "tfpipe-samples" / "text_padding"
WORDS = ("the", "a", "model", "reads", "data", "waits", "for", "trains", "on", "fast", "slow", "pipeline", "batch")


def make_dataset(folder: str = str(FOLDER), batch_size: int = 32) -> tf.data.Dataset:
    file = write_lines(Path(folder))
    keys = tf.constant(WORDS)
    numbers = tf.range(1, len(WORDS) + 1, dtype=tf.int64)
    vocabulary = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, numbers), default_value=0)

    def encode(line: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        text, label = tf.unstack(tf.strings.split(line, "\t"), num=2)
        return vocabulary.lookup(tf.strings.split(text)), tf.strings.to_number(label, tf.int32)

    lines = tf.data.TextLineDataset(str(file))
    dataset = lines.shuffle(1000).map(encode, num_parallel_calls=1).prefetch(2)
    return dataset.padded_batch(batch_size, padded_shapes=([None], []))


def write_lines(folder: Path, lines: int = 600) -> Path:
    """Sentences of 3 to 20 words and a label, written once."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "lines.tsv"
    if not file.exists():
        chance = random.Random(1)
        sentences = (" ".join(chance.choices(WORDS, k=chance.randint(3, 20))) for _ in range(lines))
        file.write_text("".join(f"{sentence}\t{chance.randint(0, 1)}\n" for sentence in sentences))
    return file
