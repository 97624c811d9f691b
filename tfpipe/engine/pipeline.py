"""Settings and a source to a ``tf.data.Dataset``, and what TensorFlow made of it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfpipe.engine.sources.base import Source
from tfpipe.errors import UsageError
from tfpipe.records import Node
from tfpipe.settings import PipelineSettings


def build_pipeline(source: Source, settings: PipelineSettings, *, batch_size: int, seed: int) -> tf.data.Dataset:
    """The endless, batched pipeline that ``settings`` describe.

    Every example carries one random number of its own (``Dataset.random``, drawn after shuffling), so that
    augmentation is per example and the two orders deliver the same examples.

    Raises:
        UsageError: the source cannot be batched before its map.
    """
    if settings.order not in source.orders:
        raise UsageError(
            f"{source.name} cannot run {settings.order}: its examples differ in size until they are mapped.",
            f"Use --order {source.orders[0]}.",
        )
    dataset = source.dataset()
    if settings.shuffle_buffer:
        buffer = source.examples if settings.shuffle_buffer == "full" else settings.shuffle_buffer
        dataset = dataset.shuffle(buffer, seed=seed)
    dataset = dataset.repeat()
    dataset = tf.data.Dataset.zip(dataset, tf.data.Dataset.random(seed=seed))
    calls = {} if settings.map_parallelism is None else {"num_parallel_calls": _or_autotune(settings.map_parallelism)}
    if settings.order == "map-batch":
        dataset = dataset.map(source.map_example, **calls).batch(batch_size, drop_remainder=True)
    else:
        dataset = dataset.batch(batch_size, drop_remainder=True).map(source.map_batch, **calls)
    if settings.prefetch_depth:
        dataset = dataset.prefetch(_or_autotune(settings.prefetch_depth))
    return dataset.with_options(_options(settings))


def _or_autotune(value: int | str) -> int:
    return int(tf.data.AUTOTUNE) if value == "auto" else int(value)


def _options(settings: PipelineSettings) -> tf.data.Options:
    options = tf.data.Options()
    if settings.threadpool is not None:
        options.threading.private_threadpool_size = settings.threadpool
    if not settings.deterministic:
        options.deterministic = False
    if settings.rewrites == "off":
        options.experimental_optimization.apply_default_optimizations = False
        options.experimental_optimization.inject_prefetch = False
    return options


def executed_nodes(iterator: Any) -> tuple[Node, ...]:
    """The stages behind ``iterator`` as they ran, source first, with AUTOTUNE's values. Empty if AUTOTUNE is off.

    ``iterator`` is TensorFlow's, or one around it that has it as ``iterator``.
    """
    try:
        model = tf.data.experimental.get_model_proto(getattr(iterator, "iterator", iterator))
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, ValueError):
        return ()
    nodes = []
    for key in sorted(model.nodes, reverse=True):
        node = model.nodes[key]
        if node.name == "Root":
            continue
        # state_value is the value in force; value is the one that the model is trying.
        parameters = {parameter.name: parameter for parameter in node.parameters}
        parallelism, buffer_size = parameters.get("parallelism"), parameters.get("buffer_size")
        nodes.append(
            Node(
                node=node.name,
                parallelism=None if parallelism is None else parallelism.state_value,
                buffer_size=None if buffer_size is None else buffer_size.state_value,
                tunable=any(parameter.tunable for parameter in node.parameters),
                elements=node.num_elements,
                processing_s=node.processing_time / 1e9,
                buffered_bytes=node.buffered_bytes,
                buffered_elements=node.buffered_elements,
            )
        )
    return tuple(nodes)
