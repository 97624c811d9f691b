"""ResNet18, written in three ways: a functional Keras model, a subclassed one, a ``tf.Module`` of its own variables.

For 32x32 images: a 3x3 stem without pooling, basic blocks of two 3x3 convolutions with batch norm, a 1x1
projection with batch norm where the shape changes, no biases, Glorot-normal initialisation, L2 5e-5 on every
convolution kernel, global average pooling, one dense head. Larger images get the 7x7 stride-2 stem with pooling of
He et al., Deep Residual Learning for Image Recognition (CVPR 2016), table 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfpipe.settings import Packaging, Precision

L2 = 5e-5
STAGES = (2, 2, 2, 2)
# Above this image size the first convolution reduces the image, as in the paper; below, it would leave nothing.
LARGE_IMAGE = 64


def resnet18(
    images: Any, *, width: int, classes: int, precision: Precision = "float32", packaging: Packaging = "functional"
) -> Any:
    """The model, float32 logits out, with the same initial weights in each packaging.

    A subclassed model and a module only train: the signature of their ``call`` has the mode in it.

    Args:
        images: TensorSpec of a batch of images.
        width: channels of the first stage.
    """
    network = _Network(images.shape[1], width=width, classes=classes, precision=precision)
    inputs = keras.Input(images.shape[1:])
    outputs = network(inputs)
    if packaging == "subclass":
        return _subclassed(network, images)
    if packaging == "module":
        return _module(network, images)
    return keras.Model(inputs, outputs, name="resnet18")


# --- Keras -------------------------------------------------------------------------------------------------------


class _Convolution:
    """A convolution with batch norm and, unless it is left out, ReLU."""

    def __init__(
        self, channels: int, *, size: int, strides: int, precision: Precision, activation: bool = True
    ) -> None:
        self.convolution = keras.layers.Conv2D(
            channels,
            size,
            strides=strides,
            padding="same",
            use_bias=False,
            kernel_initializer="glorot_normal",
            kernel_regularizer=keras.regularizers.L2(L2),
            dtype=precision,
        )
        self.norm = keras.layers.BatchNormalization(dtype=precision)
        self.activation = keras.layers.ReLU(dtype=precision) if activation else None
        self.layers = [self.convolution, self.norm, *([self.activation] if self.activation else [])]

    def __call__(self, x: Any, training: bool | None) -> Any:
        x = self.norm(self.convolution(x), training=training)
        return x if self.activation is None else self.activation(x)


class _Block:
    """Two convolutions, and what came in added to what they made of it."""

    def __init__(self, channels: int, *, strides: int, project: bool, precision: Precision) -> None:
        self.projection = (
            _Convolution(channels, size=1, strides=strides, precision=precision, activation=False) if project else None
        )
        self.first = _Convolution(channels, size=3, strides=strides, precision=precision)
        self.second = _Convolution(channels, size=3, strides=1, precision=precision, activation=False)
        self.add = keras.layers.Add(dtype=precision)
        self.activation = keras.layers.ReLU(dtype=precision)
        self.layers = [
            *(self.projection.layers if self.projection else []),
            *self.first.layers,
            *self.second.layers,
            self.add,
            self.activation,
        ]

    def __call__(self, x: Any, training: bool | None) -> Any:
        shortcut = x if self.projection is None else self.projection(x, training)
        x = self.second(self.first(x, training), training)
        return self.activation(self.add([x, shortcut]))


class _Network:
    """All layers, made in the same order each time, so that one seed gives the same weights in each packaging."""

    def __init__(self, image_size: int, *, width: int, classes: int, precision: Precision) -> None:
        large = image_size > LARGE_IMAGE
        self.stem = _Convolution(width, size=7 if large else 3, strides=2 if large else 1, precision=precision)
        self.pool = keras.layers.MaxPooling2D(3, strides=2, padding="same", dtype=precision) if large else None
        self.blocks = []
        inside = width
        for stage, count in enumerate(STAGES):
            channels = width * 2**stage
            for block in range(count):
                strides = 2 if stage and not block else 1
                project = strides != 1 or inside != channels
                self.blocks.append(_Block(channels, strides=strides, project=project, precision=precision))
                inside = channels
        self.mean = keras.layers.GlobalAveragePooling2D(dtype=precision)
        # Logits in float32 whatever the precision: a softmax in float16 overflows.
        self.head = keras.layers.Dense(classes, dtype="float32")
        self.layers = [
            *self.stem.layers,
            *([self.pool] if self.pool else []),
            *(layer for block in self.blocks for layer in block.layers),
            self.mean,
            self.head,
        ]

    def __call__(self, x: Any, training: bool | None = None) -> Any:
        x = self.stem(x, training)
        if self.pool is not None:
            x = self.pool(x)
        for block in self.blocks:
            x = block(x, training)
        return self.head(self.mean(x))


def _subclassed(network: _Network, images: Any) -> Any:
    class ResNet18(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="resnet18")
            # Keras finds layers in a list; it does not look into other objects.
            self.all_layers = network.layers

        @tf.function(input_signature=[images], autograph=False)  # type: ignore[untyped-decorator]
        def call(self, images: Any, training: bool = True) -> Any:
            return network(images, training)

    return ResNet18()


# --- tf.Module ---------------------------------------------------------------------------------------------------


class _ConvolutionModule(tf.Module):  # type: ignore[misc]
    """The same as a ``_Convolution``, from TensorFlow's own operations and with variables of its own."""

    def __init__(self, part: _Convolution) -> None:
        super().__init__()
        self.kernel = tf.Variable(part.convolution.kernel)
        self.gamma, self.beta = tf.Variable(part.norm.gamma), tf.Variable(part.norm.beta)
        self.moving_mean = tf.Variable(part.norm.moving_mean, trainable=False)
        self.moving_variance = tf.Variable(part.norm.moving_variance, trainable=False)
        self._strides = part.convolution.strides
        self._momentum, self._epsilon = part.norm.momentum, part.norm.epsilon
        self._compute_dtype = part.convolution.compute_dtype
        self._activation: Callable[[Any], Any] = tf.identity if part.activation is None else tf.nn.relu

    def __call__(self, x: Any) -> Any:
        return self.call(x)

    def call(self, x: Any) -> Any:
        kernel = tf.cast(self.kernel, self._compute_dtype)
        # Statistics in float32: those of float16 numbers overflow.
        x = tf.cast(tf.nn.conv2d(tf.cast(x, self._compute_dtype), kernel, self._strides, "SAME"), tf.float32)
        mean, variance = tf.nn.moments(x, [0, 1, 2])
        for moving, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(moving * self._momentum + value * (1 - self._momentum))
        x = tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, self._epsilon)
        return self._activation(tf.cast(x, self._compute_dtype))


class _BlockModule(tf.Module):  # type: ignore[misc]
    def __init__(self, part: _Block) -> None:
        super().__init__()
        self.projection = None if part.projection is None else _ConvolutionModule(part.projection)
        self.first, self.second = _ConvolutionModule(part.first), _ConvolutionModule(part.second)

    def __call__(self, x: Any) -> Any:
        return self.call(x)

    def call(self, x: Any) -> Any:
        shortcut = x if self.projection is None else self.projection(x)
        return tf.nn.relu(self.second(self.first(x)) + shortcut)


def _module(network: _Network, images: Any) -> Any:
    class ResNet18Module(tf.Module):  # type: ignore[misc]
        """Owns its variables, which begin as the weights of ``network``'s layers."""

        def __init__(self, network: _Network) -> None:
            super().__init__(name="resnet18")
            self.stem = _ConvolutionModule(network.stem)
            self.blocks = [_BlockModule(block) for block in network.blocks]
            self.weight, self.bias = tf.Variable(network.head.kernel), tf.Variable(network.head.bias)
            self._pools = network.pool is not None

        def __call__(self, images: Any) -> Any:
            return self.call(images)

        @tf.function(input_signature=[images], autograph=False)  # type: ignore[untyped-decorator]
        def call(self, images: Any) -> Any:
            x = self.stem(images)
            if self._pools:
                x = tf.nn.max_pool2d(x, 3, 2, "SAME")
            for block in self.blocks:
                x = block(x)
            x = tf.cast(tf.reduce_mean(x, [1, 2]), tf.float32)
            return x @ self.weight + self.bias

        @property
        def layers(self) -> list[Any]:
            parts = (_ConvolutionModule, _BlockModule)
            return [part for part in self.submodules if isinstance(part, parts)]

        @property
        def losses(self) -> list[Any]:
            return [
                L2 * tf.reduce_sum(tf.square(part.kernel))
                for part in self.layers
                if isinstance(part, _ConvolutionModule)
            ]

    # As an argument, which the class does not keep alive.
    return ResNet18Module(network)
