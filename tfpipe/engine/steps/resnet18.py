"""ResNet18 and its training step.

For 32x32 images: a 3x3 stem without pooling, basic blocks of two 3x3 convolutions with batch norm, a 1x1
projection with batch norm where the shape changes, no biases, Glorot-normal initialisation, L2 5e-5 on every
convolution kernel, global average pooling, one dense head. Larger images get the 7x7 stride-2 stem with pooling of
He et al., Deep Residual Learning for Image Recognition (CVPR 2016), table 1.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

L2 = 5e-5
LEARNING_RATE = 0.1
MOMENTUM = 0.9
STAGES = (2, 2, 2, 2)
# Above this image size the first convolution reduces the image, as in the paper; below, it would leave nothing.
LARGE_IMAGE = 64


def resnet18(image_shape: tuple[int, int, int], *, width: int, classes: int, seed: int) -> keras.Model:
    """The model, logits out; ``width`` is the number of channels of the first stage."""
    keras.utils.set_random_seed(seed)
    inputs = keras.Input(image_shape)
    if image_shape[0] > LARGE_IMAGE:
        x = _convolution(inputs, width, size=7, strides=2)
        x = keras.layers.MaxPooling2D(3, strides=2, padding="same")(x)
    else:
        x = _convolution(inputs, width, size=3, strides=1)
    for stage, blocks in enumerate(STAGES):
        for block in range(blocks):
            x = _basic_block(x, width * 2**stage, strides=2 if stage and not block else 1)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(classes)(x), name="resnet18")


def _convolution(x: Any, channels: int, *, size: int, strides: int, activation: bool = True) -> Any:
    x = keras.layers.Conv2D(
        channels,
        size,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="glorot_normal",
        kernel_regularizer=keras.regularizers.L2(L2),
    )(x)
    x = keras.layers.BatchNormalization()(x)
    return keras.layers.ReLU()(x) if activation else x


def _basic_block(x: Any, channels: int, *, strides: int) -> Any:
    shortcut = x
    if strides != 1 or x.shape[-1] != channels:
        shortcut = _convolution(x, channels, size=1, strides=strides, activation=False)
    x = _convolution(x, channels, size=3, strides=strides)
    x = _convolution(x, channels, size=3, strides=1, activation=False)
    return keras.layers.ReLU()(keras.layers.Add()([x, shortcut]))


class ResNet18Step:
    """Forward, loss with L2, gradient and SGD-with-momentum update in one ``tf.function``, traced once."""

    def __init__(self, element_spec: Any, *, width: int, classes: int, seed: int) -> None:
        images, labels = element_spec
        height, image_width, channels = images.shape[1:]
        self.model = resnet18((height, image_width, channels), width=width, classes=classes, seed=seed)
        self.parameters = int(sum(variable.shape.num_elements() for variable in self.model.trainable_variables))
        self.description = f"ResNet18, width {width}, one tf.function"
        # A CPU runs a tf.function to its end before the call returns; a GPU or TPU only receives it.
        self.synchronous = not tf.config.list_physical_devices("GPU") and not tf.config.list_physical_devices("TPU")
        optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
        optimizer.build(self.model.trainable_variables)
        loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model = self.model

        @tf.function(input_signature=[images, labels])  # type: ignore[untyped-decorator]
        def train_step(images: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                loss = loss_function(labels, logits) + tf.add_n(model.losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            return loss

        self._train_step = train_step

    def __call__(self, batch: Any) -> Any:
        images, labels = batch
        return self._train_step(images, labels)

    def finish(self, result: Any) -> None:
        result.numpy()

    @property
    def traces(self) -> int:
        return int(self._train_step.experimental_get_tracing_count())
