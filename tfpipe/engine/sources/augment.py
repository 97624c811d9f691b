"""The map functions of the built-in data sets.

Their text is what ``tfpipe recommend`` prints to paste, so each stands alone with ``import tensorflow as tf``, and
uses ``tf.cond`` where ``if`` would need AutoGraph, which cannot read what was typed at a Python prompt.
``draw`` is an element of ``tf.data.Dataset.random``: an int64, uniform over 32 bits, one for each example, so that
an example is cropped and flipped in the same way whether it is mapped alone or in a batch.
"""

from __future__ import annotations

import tensorflow as tf


def augment(example: tuple[tf.Tensor, tf.Tensor], draw: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Pad a uint8 32x32 image by 4, crop 32x32 at random, flip every other one, scale to 0..1."""
    image, label = example
    image = tf.pad(image, [[4, 4], [4, 4], [0, 0]])
    image = tf.slice(image, tf.stack([draw % 9, draw // 9 % 9, 0]), [32, 32, 3])
    image = tf.cond(draw // 81 % 2 == 1, lambda: tf.reverse(image, [1]), lambda: image)
    return tf.cast(image, tf.float32) * (1 / 255), label


def augment_batch(examples: tuple[tf.Tensor, tf.Tensor], draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What `augment` does, for a whole batch at once: every image has its own crop and flip."""
    images, labels = examples
    images = tf.pad(images, [[0, 0], [4, 4], [4, 4], [0, 0]])
    steps = tf.range(32, dtype=tf.int64)
    flipped = (draws // 81 % 2 == 1)[:, None]
    rows = (draws % 9)[:, None] + steps
    columns = (draws // 9 % 9)[:, None] + tf.where(flipped, steps[::-1], steps)
    # One gather picks the pixels of all crops: (image, row, column) as one index into 40x40 images.
    rows += 40 * tf.range(tf.size(draws, out_type=tf.int64))[:, None]
    pixels = 40 * rows[:, :, None] + columns[:, None, :]
    images = tf.gather(tf.reshape(images, [-1, 3]), pixels)
    return tf.cast(images, tf.float32) * (1 / 255), labels


def decode_photo(example: tuple[tf.Tensor, tf.Tensor], draw: tf.Tensor, image_size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode a random crop of a JPEG (8 to 100 % of its area), resize, flip every other one, scale to 0..1."""
    photo, label = example
    start, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(photo),
        bounding_boxes=tf.zeros([1, 0, 4]),
        seed=tf.stack([draw, 0]),
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([start[:2], size[:2]], axis=0)
    image = tf.io.decode_and_crop_jpeg(photo, window, channels=3)
    image = tf.image.resize(image, [image_size, image_size])
    image = tf.cond(draw % 2 == 1, lambda: tf.reverse(image, [1]), lambda: image)
    return image * (1 / 255), label


def read_photo(example: tuple[tf.Tensor, tf.Tensor], draw: tf.Tensor, image_size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`decode_photo` for an example that names its file."""
    file, label = example
    return decode_photo((tf.io.read_file(file), label), draw, image_size)


def parse_photo(record: tf.Tensor, draw: tf.Tensor, image_size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`decode_photo` for a serialised tf.train.Example with ImageNet's feature names."""
    features = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    example = features["image/encoded"], features["image/class/label"]
    return decode_photo(example, draw, image_size)
