"""What AUTOTUNE's budgets really do (TensorFlow 2.21): one bounds its buffers, the other nothing."""

from __future__ import annotations

import time

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
    return tf.data.Dataset.range(10**6).map(lambda i: tf.fill((MIB // 4,), tf.cast(i, tf.float32))).prefetch(-1)


def make_work() -> tf.data.Dataset:
    def work(i: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.sort(tf.random.stateless_uniform((50_000,), (i, i))))

    return tf.data.Dataset.range(10**6).map(work, num_parallel_calls=tf.data.AUTOTUNE)


def test_a_ram_budget_ends_the_deepening_of_a_prefetch() -> None:
    def depth(budget: int) -> float:
        """After bursts of reading, before each of which the buffer fills."""
        iterator = iter(rebuild(make_mebibytes, {RAM_BUDGET: budget}))
        for _ in range(8):
            for _ in range(40):
                next(iterator)
            time.sleep(0.05)
        (size,) = [node.buffer_size for node in executed_nodes(iterator) if node.node.startswith("Prefetch")]
        assert size is not None
        return size

    assert depth(5 * MIB + MIB // 2) == 4
    assert depth(256 * MIB) > 4


def test_a_cpu_budget_changes_nothing() -> None:
    """The day that this fails, fewer calls beside a step on the same cores can be offered."""

    def calls(overrides: dict[str, OverrideValue]) -> float:
        iterator = iter(rebuild(make_work, {POOL: 4, **overrides}))
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            next(iterator)
        (number,) = [node.parallelism for node in executed_nodes(iterator) if node.node.startswith("ParallelMap")]
        assert number is not None
        return number

    assert calls({CPU_BUDGET: 1}) == calls({}) == 4
