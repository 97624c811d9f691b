"""Examples in several compressed TFRecord files, read in turn.

The mistake in it: ``shuffle`` stands behind ``batch`` and moves whole batches about. The files are read one by one
as well, because ``interleave`` was given ``cycle_length=1``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

FOLDER = Path(tempfile.gettempdir()) / "tfpipe-samples" / "tfrecord_interleave"
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def make_dataset(folder: str = str(FOLDER), batch_size: int = 32) -> tf.data.Dataset:
    write_records(Path(folder))
    return (
        tf.data.Dataset.list_files(f"{folder}/*.tfrecord.gz", shuffle=False)
        .interleave(read_file, cycle_length=1)
        .map(parse, num_parallel_calls=1)
        .batch(batch_size, drop_remainder=True)
        .shuffle(buffer_size=8)
        .prefetch(1)
    )


def read_file(file: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(file, compression_type="GZIP", buffer_size=1_000_000)


def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), [32, 32, 3])
    return {"image": tf.cast(image, tf.float32) / 255.0, "label": example["label"]}


def write_records(folder: Path, files: int = 4, per_file: int = 64) -> None:
    """Random images, written once."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for index in range(files):
        file = folder / f"part-{index}.tfrecord.gz"
        if file.exists():
            continue
        part = file.with_suffix(".part")
        with tf.io.TFRecordWriter(str(part), tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
            for _ in range(per_file):
                pixels = random.integers(0, 256, 32 * 32 * 3, np.uint8).tobytes()
                image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[pixels]))
                label = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(random.integers(10))]))
                features = tf.train.Features(feature={"image": image, "label": label})
                writer.write(tf.train.Example(features=features).SerializeToString())
        part.rename(file)
