"""The steps: ResNet18 as described, traced once, learning something; the simulated device; no step."""

from __future__ import annotations

import time

import pytest

from tests.unit.machine import workload

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def spec():
    import tensorflow as tf

    return tf.TensorSpec((8, 32, 32, 3), tf.float32), tf.TensorSpec((8,), tf.int64)


@pytest.fixture(scope="module")
def resnet(spec):
    from tfpipe.engine.steps.training import open_resnet18

    return open_resnet18(spec, width=8, classes=10, seed=0)


def batch():
    import tensorflow as tf

    images = tf.random.stateless_uniform((8, 32, 32, 3), seed=(1, 2))
    return images, tf.constant([0, 1, 2, 3, 4, 5, 6, 7], tf.int64)


def test_the_full_model_has_the_parameters_of_resnet18_for_small_images():
    import tensorflow as tf

    from tfpipe.engine.steps.resnet18 import resnet18

    model = resnet18(tf.TensorSpec((8, 32, 32, 3)), width=64, classes=100)
    # 3x3 stem, four stages of two basic blocks without biases, three projections, 100-way head with bias.
    convolutions = 3 * 64 * 9 + 4 * 64 * 64 * 9
    for width in (128, 256, 512):
        convolutions += width // 2 * width * 9 + 3 * width * width * 9 + width // 2 * width
    norms = 2 * (64 * 5 + 128 * 5 + 256 * 5 + 512 * 5)
    assert sum(variable.shape.num_elements() for variable in model.trainable_variables) == (
        convolutions + norms + 512 * 100 + 100
    )
    assert not any(layer.use_bias for layer in model.layers if layer.__class__.__name__ == "Conv2D")
    # One L2 term for every convolution kernel.
    assert len(model.losses) == sum(layer.__class__.__name__ == "Conv2D" for layer in model.layers) == 20


def test_it_is_traced_once_and_learns(resnet):
    losses = [float(resnet(batch())) for _ in range(8)]
    assert losses[-1] < losses[0]
    assert resnet.traces == 1


def test_other_shapes_are_refused_and_not_retraced(resnet):
    images, labels = batch()
    with pytest.raises((TypeError, ValueError)):
        resnet((images[:4], labels[:4]))
    assert resnet.traces == 1


def test_the_simulated_device_takes_its_time_and_none_of_the_cores(spec):
    from tfpipe.engine.steps import open_step

    step = open_step(workload(step="simulated:50ms"), None, spec=spec, batch=None, classes=1)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(4):
        step(batch)
    assert time.perf_counter() - wall >= 0.2
    assert time.process_time() - cpu < 0.1


def test_an_unknown_step_is_refused(spec):
    from tfpipe.engine.steps import open_step
    from tfpipe.errors import UsageError

    with pytest.raises(UsageError, match="'resnet19' names no function"):
        open_step(workload(step="resnet19"), None, spec=spec, batch=None, classes=1)
