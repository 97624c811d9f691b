"""Photos in one folder per class, decoded, resized and augmented: the usual image classifier's input.

The mistake in it: ``cache`` stands behind the random augmentation, so every epoch sees the same flips and crops.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

FOLDER = Path(tempfile.gettempdir()) / "tfpipe-samples" / "image_folder"
CLASSES = ("cat", "dog")
SIZE = 64


def make_dataset(folder: str = str(FOLDER), batch_size: int = 16) -> tf.data.Dataset:
    write_photos(Path(folder))
    files = tf.data.Dataset.list_files(f"{folder}/*/*.jpg", seed=1)
    dataset = files.map(load)
    dataset = dataset.map(augment, num_parallel_calls=2)
    dataset = dataset.cache()
    dataset = dataset.shuffle(64)
    return dataset.batch(batch_size)


def load(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    image = tf.image.resize(image, [SIZE + 8, SIZE + 8])
    label = tf.argmax(tf.strings.split(path, "/")[-2] == tf.constant(CLASSES))
    return image / 255.0, label


def augment(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.image.random_crop(image, [SIZE, SIZE, 3])
    return tf.image.random_flip_left_right(image), label


def write_photos(folder: Path, per_class: int = 24) -> None:
    """Photo-like files of different sizes, written once."""
    random = np.random.default_rng(1)
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(per_class):
            file = folder / name / f"{index}.jpg"
            if not file.exists():
                height, width = random.integers(90, 160, 2)
                coarse = random.uniform(0, 255, (1, 8, 8, 3))
                photo = tf.cast(tf.image.resize(coarse, [height, width], "bicubic")[0], tf.uint8)
                file.write_bytes(tf.io.encode_jpeg(photo).numpy())
