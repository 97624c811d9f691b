"""What an event of the host plane is, by its name alone. Names are TensorFlow's TraceMe names."""

from __future__ import annotations

import re
from enum import IntEnum


class Role(IntEnum):
    """The part an event plays in the analysis."""

    NOISE = 0  # instantaneous bookkeeping of thread pools: never read
    OTHER = 1
    ITERATOR = 2  # one GetNext call of one tf.data iterator
    PRODUCE = 3  # a background thread makes one element
    CONSUME = 4  # the element is taken over by the iterator that waited for it
    CAPTURED = 5  # a tf.data stage starts its function
    FETCH = 6  # somebody asks a data set for its next batch
    EXECUTOR = 7  # a thread works on one run of a graph
    OP = 8  # one operation of a graph
    EAGER_OP = 9  # one operation called from Python
    EAGER_FUNCTION = 10  # one tf.function called from Python
    KERNEL = 11  # the kernel of an eager call
    COMPUTE = 12  # compiled code
    COMPILE = 13  # building a graph or compiling it
    MARKER = 14  # may be a step marker: decided by its statistics
    RUN_FUNCTION = 15
    LOOP = 16  # a training loop that AutoGraph made part of the data set: it asks for batches and runs the step


_OP = re.compile(r"[^:]+:(_?[A-Z]\w*)")
_BRACKETS = re.compile(r"\[\d+\]")
_PRODUCER = re.compile(r"\w+(Produce|Consume)")
_COMPILE = re.compile(r"tf\.function-graph_building|(?i:.*xla.?compil|.*buildexecutable|.*jitcompil|.*backend_compile)")
_COMPUTE = ("CpuExecutable::Execute", "ThunkExecutor::Execute", "TfrtCpuExecutable::Execute")
# Operations that only call a graph: the graph's own operations are counted instead.
_CALLS = frozenset(
    {
        "PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf", "Case",
        "StatelessCase", "RemoteCall", "SymbolicGradient", "ReduceDataset",
    }
)  # fmt: skip
_FETCH_OPS = ("IteratorGetNext", "MultiDeviceIteratorGetNext")
_ITERATORS = ("Iterator::", "ReduceIterator::")
_LOOP = re.compile(r"ReduceIterator::Root(::TakeWhile)?(::Scan)?")
_PYTHON_OPS = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless"})


def canonical(name: str) -> str:
    """``name`` without what differs from call to call: the index of a sub-iterator, the number of a function."""
    return _BRACKETS.sub("", name) if name.startswith(_ITERATORS) else name


def role_of(name: str) -> Role:
    """The role of the events called ``name``."""
    if name.startswith("ThreadpoolListener::"):
        return Role.NOISE
    if name.startswith(_ITERATORS):
        return Role.LOOP if _LOOP.fullmatch(name) else Role.ITERATOR
    if name.startswith(_FETCH_OPS):
        return Role.FETCH
    if name.startswith("InstantiatedCapturedFunction::"):
        return Role.CAPTURED
    if name.startswith("ExecutorState::Process"):
        return Role.EXECUTOR if name == "ExecutorState::Process" else Role.OTHER
    if name == "FunctionRun":
        return Role.RUN_FUNCTION
    if name.startswith("EagerLocalExecute: "):
        called = name.removeprefix("EagerLocalExecute: ")
        return Role.EAGER_FUNCTION if called.startswith(("__", *_FETCH_OPS)) else Role.EAGER_OP
    if name == "EagerKernelExecute":
        return Role.KERNEL
    if _COMPILE.match(name):
        return Role.COMPILE
    if name.startswith(_COMPUTE):
        return Role.COMPUTE
    if match := _PRODUCER.fullmatch(name):
        return Role.PRODUCE if match[1] == "Produce" else Role.CONSUME
    operation = op_type(name)
    if operation is not None:
        if operation.startswith(_FETCH_OPS):
            return Role.FETCH
        return Role.OTHER if operation in _CALLS else Role.OP
    return Role.OTHER


def op_type(name: str) -> str | None:
    """``DecodeJpeg`` from ``path/to/decode:DecodeJpeg``; None when ``name`` is no operation."""
    match = _OP.fullmatch(name)
    return match[1] if match else None


def holds_interpreter(operation: str) -> bool:
    """Whether operations of this type run Python and so hold the interpreter's lock."""
    return operation in _PYTHON_OPS
