"""What AUTOTUNE's budgets really do (TensorFlow 2.21): one bounds its buffers, the other nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import tensorflow as tf

from tfpipe.engine.capture import rebuild
from tfpipe.engine.pipeline import executed_nodes
from tfpipe.sites import END_OPTIONS, OverrideValue

pytestmark = pytest.mark.tensorflow

RAM_BUDGET, CPU_BUDGET = f"{END_OPTIONS}(autotune.ram_budget)", f"{END_OPTIONS}(autotune.cpu_budget)"
POOL = f"{END_OPTIONS}(threading.private_threadpool_size)"
MIB = 2**20


def make_mebibytes() -> tf.data.Dataset:
    """With calls that are not tuned: AUTOTUNE gives those a part of its budget, when it comes to them."""
    numbers = tf.data.Dataset.range(10**6)
    return numbers.map(lambda i: tf.fill((MIB // 4,), tf.cast(i, tf.float32)), num_parallel_calls=1).prefetch(-1)


def make_work() -> tf.data.Dataset:
    def work(i: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.sort(tf.random.stateless_uniform((50_000,), (i, i))))

    return tf.data.Dataset.range(10**6).map(work, num_parallel_calls=tf.data.AUTOTUNE)


def test_a_ram_budget_ends_the_deepening_of_a_prefetch() -> None:
    def deepened(iterator: Iterator[tf.Tensor]) -> float:
        """The depth after a burst of reading, before which the buffer had time to fill."""
        time.sleep(0.05)
        for _ in range(40):
            next(iterator)
        (size,) = [node.buffer_size for node in executed_nodes(iterator) if node.node.startswith("Prefetch")]
        assert size is not None
        return size

    def depths(budget: int, enough: int) -> list[float]:
        """Until it has ``enough``, however slow the machine is, and beyond."""
        iterator = iter(rebuild(make_mebibytes, {RAM_BUDGET: budget}))
        assert any(deepened(iterator) >= enough for _ in range(100))
        return [deepened(iterator) for _ in range(6)]

    assert set(depths(5 * MIB + MIB // 2, 4)) == {4}
    assert max(depths(256 * MIB, 8)) >= 8


def test_a_cpu_budget_changes_nothing() -> None:
    """The day that this fails, fewer calls beside a step on the same cores can be offered."""

    def reaches_every_thread(overrides: dict[str, OverrideValue]) -> bool:
        iterator = iter(rebuild(make_work, {POOL: 4, **overrides}))
        end = time.monotonic() + 30
        while time.monotonic() < end:
            next(iterator)
            (number,) = [node.parallelism for node in executed_nodes(iterator) if node.node.startswith("ParallelMap")]
            if number == 4:
                return True
        return False

    assert reaches_every_thread({CPU_BUDGET: 1})
    assert reaches_every_thread({})
