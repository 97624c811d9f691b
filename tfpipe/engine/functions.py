"""What a dataset's own functions contain: random numbers, Python, changing state. And its private neighbourhood.

What tfpipe needs of ``tf.data.Dataset`` that is private is used here and nowhere else.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops.readers import ParallelInterleaveDataset  # how make_csv_dataset reads several files
from tensorflow.python.framework import op_def_registry  # no public way to ask whether an op is stateful

__all__ = [
    "FunctionFacts",
    "ParallelInterleaveDataset",
    "caches_that_complete",
    "casting_of",
    "components_kept",
    "components_read",
    "function_facts",
    "input_datasets",
]

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


def components_read(dataset: Any) -> frozenset[int]:
    """Which components of its elements, by number, the outermost stage's function looks at (a ``filter``'s)."""
    graph = _only_graph(dataset)
    arguments = {id(tensor.op): index for index, tensor in enumerate(graph.inputs)}
    seen: dict[int, Any] = {}
    waiting = [tensor.op for tensor in graph.outputs]
    while waiting:
        op = waiting.pop()
        if id(op) not in seen:
            seen[id(op)] = op
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return frozenset(arguments[key] for key in seen if key in arguments)


def components_kept(dataset: Any) -> dict[int, int]:
    """The components that the outermost stage's function (a ``map``'s) hands on unchanged: number of the output to
    number of the input."""
    graph = _only_graph(dataset)
    arguments = {id(tensor): index for index, tensor in enumerate(graph.inputs)}
    kept = {}
    for index, tensor in enumerate(graph.outputs):
        while tensor.op.type == "Identity":
            tensor = tensor.op.inputs[0]
        if id(tensor) in arguments:
            kept[index] = arguments[id(tensor)]
    return kept


# Operations that scale: with a constant they do to a whole batch what they do to one of its elements.
_SCALING = {"AddV2": "+", "Sub": "-", "Mul": "*", "RealDiv": "/"}
# Of constants with more values than a colour image has channels, nobody wants to read the code.
_MAX_CONSTANTS = 4


def casting_of(dataset: Any, function: Any) -> tuple[str, ...]:
    """Statements that do to a batch what the outermost stage, a ``map`` of ``function``, does to each element.

    They assign to the function's own parameters. () where it does anything but cast its components and scale them by
    constants, or hands them on in another structure.
    """
    (source,) = input_datasets(dataset)
    names = _assignable(source.element_spec, function)
    graph = _only_graph(dataset)
    try:
        tf.nest.assert_same_structure(source.element_spec, dataset.element_spec)
    except (ValueError, TypeError):
        return ()
    if not len(names) == len(graph.inputs) == len(graph.outputs):  # what else it reads is no constant
        return ()
    statements = []
    for name, argument, result in zip(names, graph.inputs, graph.outputs, strict=True):
        expression = _scaled(result, argument, name)
        if expression is None:
            return ()
        if expression != name:
            statements.append(f"{name} = {_bare(expression)}")
    return tuple(statements)


def _assignable(spec: Any, function: Any) -> list[str]:
    """What each component of ``function``'s arguments is called in it, in ``tf.nest``'s order; [] where one of them
    cannot be assigned to."""
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []
    # As tf.data hands elements over: only plain tuples are unpacked.
    arguments = spec if type(spec) is tuple else (spec,)
    if len(parameters) != len(arguments):
        return []
    names: list[str] = []
    for parameter, argument in zip(parameters, arguments, strict=True):
        components = argument if isinstance(argument, dict) else {None: argument}
        if not all(isinstance(component, tf.TensorSpec) for component in components.values()):
            return []
        names += [parameter if key is None else f"{parameter}[{key!r}]" for key in sorted(components, key=str)]
    return names


def _scaled(tensor: Any, argument: Any, name: str) -> str | None:
    """``tensor`` as Python, computed from ``argument``, which is called ``name``; None where more is done to it."""
    if tensor is argument:
        return name
    op = tensor.op
    if op.type == "Identity":
        return _scaled(op.inputs[0], argument, name)
    if op.type == "Cast":
        inner = _scaled(op.inputs[0], argument, name)
        return None if inner is None else f"tf.cast({_bare(inner)}, tf.{tensor.dtype.name})"
    if op.type not in _SCALING:
        return None
    sides = [_constant(side, argument) or _scaled(side, argument, name) for side in op.inputs]
    constants = sum(_constant(side, argument) is not None for side in op.inputs)
    return f"({sides[0]} {_SCALING[op.type]} {sides[1]})" if constants == 1 and None not in sides else None


def _bare(expression: str) -> str:
    """Without the brackets around the whole."""
    return expression[1:-1] if expression.startswith("(") else expression


def _constant(tensor: Any, argument: Any) -> str | None:
    """A number, or one for each of the last dimension of ``argument``; None for anything else."""
    value = tf.get_static_value(tensor)
    if value is None or value.ndim > 1 or value.size > _MAX_CONSTANTS:
        return None
    if value.ndim == 0:
        return str(value)
    return f"[{', '.join(map(str, value))}]" if argument.shape.rank else None


def _only_graph(dataset: Any) -> Any:
    (wrapper,) = dataset._functions()
    return wrapper.function.graph


# Kinds of datasets (class names of TensorFlow 2.21) that matter to whether a cache is ever read to its end.
_CACHE = "CacheDataset"
_REPEAT = "RepeatDataset"
_STOPS = frozenset({"TakeDataset", "TakeWhileDataset"})
_CONCATENATE = "ConcatenateDataset"


def caches_that_complete(dataset: Any) -> tuple[Any, ...]:
    """The caches behind ``dataset`` that every epoch reads to their end, the first to be filled first.

    One that a ``take``, or another dataset that ends earlier, cuts short is none, unless a ``repeat`` in between reads
    it to its end; nor is one of an endless dataset.
    """
    found: dict[int, Any] = {}
    _find_caches(dataset, False, found)
    return tuple(found.values())


def _find_caches(dataset: Any, cut: bool, found: dict[int, Any]) -> None:
    kind = type(dataset).__name__.lstrip("_")
    inputs = input_datasets(dataset)
    if kind == _REPEAT:
        cut = False
    elif kind in _STOPS or (len(inputs) > 1 and kind != _CONCATENATE):
        cut = True
    for one in inputs:
        _find_caches(one, cut, found)
    if kind == _CACHE and not cut and int(dataset.cardinality()) != tf.data.INFINITE_CARDINALITY:
        found.setdefault(id(dataset), dataset)
