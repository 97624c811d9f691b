"""What a dataset's own functions contain: random numbers, Python, changing state. And its private neighbourhood.

The three private methods of ``tf.data.Dataset`` that tfpipe needs are called here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry  # no public way to ask whether an op is stateful

_PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
# Stateful random ops beside those whose names start with "Random" (TensorFlow's op registry, 2.21).
_RANDOM = frozenset(
    {
        "TruncatedNormal",
        "ParameterizedTruncatedNormal",
        "Multinomial",
        "SampleDistortedBoundingBox",
        "SampleDistortedBoundingBoxV2",
        "AnonymousRandomSeedGenerator",
        "StatefulRandomBinomial",
        "StatefulStandardNormal",
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
        "StatefulUniform",
        "StatefulUniformFullInt",
        "StatefulUniformInt",
        "RngReadAndSkip",
        "RngSkip",
    }
)
# Stateful by their registration, yet the same input gives the same output: reads of what nothing here writes,
# calls of functions (their bodies are looked at), and messages.
_HARMLESS = frozenset(
    {
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "VarHandleOp",
        "VarIsInitializedOp",
        "HashTableV2",
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "LookupTableExportV2",
        "AnonymousHashTable",
        "InitializeTableV2",
        "InitializeTableFromTextFileV2",
        "StatefulPartitionedCall",
        "PartitionedCall",
        "If",
        "While",
        "Case",
        "ParallelMapDatasetV2",
        "Assert",
        "Print",
        "PrintV2",
        "Placeholder",
        "ReadFile",
        "MatchingFiles",
        "RaggedTensorToVariant",
        "NoOp",
        "DummySeedGenerator",
        "DummyMemoryCache",
    }
)


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """What the graph of a function contains, the functions that it calls included. Op types, sorted."""

    random: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    state: tuple[str, ...] = ()


def function_facts(dataset: Any) -> FunctionFacts:
    """The facts about the functions that the outermost stage of ``dataset`` was given."""
    random, drawn, python, state = set[str](), set[str](), set[str](), set[str]()
    for op_type, stateful in _ops(dataset):
        if op_type in _PYTHON:
            python.add(op_type)
        elif op_type in _RANDOM or op_type.startswith(("Random", "ShuffleDataset", "ShuffleAndRepeat")):
            random.add(op_type)
        elif op_type.startswith("StatelessRandom"):
            drawn.add(op_type)
        elif stateful and op_type not in _HARMLESS and "Dataset" not in op_type:
            state.add(op_type)
    if state and drawn:
        # Keras 3 draws stateless numbers from a seed that it keeps in a variable.
        random |= drawn
    return FunctionFacts(tuple(sorted(random)), tuple(sorted(python)), tuple(sorted(state)))


def _ops(dataset: Any) -> Iterator[tuple[str, bool]]:
    for wrapper in dataset._functions():
        graph = getattr(wrapper.function, "graph", None)
        if graph is None:
            continue
        for op in graph.get_operations():
            yield op.type, bool(op.op_def is not None and op.op_def.is_stateful)
        for function in _library(graph):
            for node in function.node_def:
                yield node.op, _is_stateful(node.op)


def _library(graph: Any) -> list[Any]:
    try:
        return list(graph.as_graph_def().library.function)
    except (ValueError, tf.errors.OpError):  # above protobuf's 2 GiB: constants as large as that have no nested calls
        return []


def _is_stateful(op_type: str) -> bool:
    definition: Any = op_def_registry.get(op_type)
    return definition is not None and bool(definition.is_stateful)


def input_datasets(dataset: Any) -> tuple[Any, ...]:
    """The datasets that ``dataset`` reads, outermost first."""
    return tuple(dataset._inputs())
