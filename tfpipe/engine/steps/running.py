"""What all steps on TensorFlow's own devices share: being called, waited for, and their graphs counted."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfpipe.engine.environment import has_accelerator
from tfpipe.errors import TfpipeError
from tfpipe.settings import Execution

Explain = Callable[[Exception], Exception]


class FunctionStep:
    """A step that is a call from Python: of one ``tf.function``, of several, or of none.

    Args:
        call: takes a batch.
        functions: the ``tf.function``s behind it, whose graphs are counted.
        variables: what it trains, as far as that is known; called when asked.
        explain: turns what the first call raised into what to tell.
        state: the user's objects that it trains, as far as they can be found.
        unwrapped: the same without the ``tf.function`` that it was wrapped in unasked.
    """

    def __init__(
        self,
        call: Callable[[Any], Any],
        *,
        execution: Execution,
        description: str,
        functions: Sequence[Any] = (),
        variables: Callable[[], Iterable[Any]] = tuple,
        explain: Explain = lambda error: error,
        state: tuple[Any, ...] = (),
        unwrapped: FunctionStep | None = None,
    ) -> None:
        self.unwrapped = unwrapped
        self._call = call
        self._functions = functions
        self._variables = variables
        self._explain = explain
        self.execution = execution
        self.description = description
        self.state = state
        # A CPU runs a tf.function to its end before the call returns; a GPU or TPU only receives it.
        self.synchronous = not has_accelerator()

    def __call__(self, batch: Any) -> Any:
        return self._call(batch)

    def first_call(self, batch: Any) -> Any:
        """Call it for the first time, tracing and compiling, and wait. Raises what ``explain`` makes of an error."""
        try:
            result = self(batch)
            self.finish(result)
            return result
        except Exception as raised:
            error = self._explain(raised)
        # Outside the handler: an error that kept the user's traceback would keep their objects alive.
        raise error

    def finish(self, result: Any) -> None:
        for leaf in tf.nest.flatten(result):
            if hasattr(leaf, "numpy"):
                leaf.numpy()

    @property
    def parameters(self) -> int | None:
        return count_parameters(self._variables())

    @property
    def traces(self) -> int | None:
        if not self._functions:
            return None
        return sum(int(function.experimental_get_tracing_count()) for function in self._functions)


def count_parameters(variables: Iterable[Any]) -> int | None:
    """Numbers in ``variables``; None where there are none, or none yet."""
    return sum(variable.shape.num_elements() or 0 for variable in variables) or None


def with_functions_run(call: Callable[[Any], Any], *, eagerly: bool) -> Callable[[Any], Any]:
    """``call``, during which ``tf.config.run_functions_eagerly`` is ``eagerly``, whatever it is outside."""

    def run(batch: Any) -> Any:
        before = tf.config.functions_run_eagerly()
        if before == eagerly:
            return call(batch)
        tf.config.run_functions_eagerly(eagerly)
        try:
            return call(batch)
        finally:
            tf.config.run_functions_eagerly(before)

    return run


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The same random numbers each time from Python, NumPy, Keras and TensorFlow; afterwards those before go on."""
    python, numpy = random.getstate(), np.random.get_state()
    # The public way to read the global seed: it comes first.
    before = tf.compat.v1.get_seed(None)[0]
    keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        tf.random.set_seed(before)


def trace_each_call(parts: Iterable[Any]) -> list[Any]:
    """Make the ``call`` of each part a ``tf.function`` of its own; all of them, those that were it already included.

    Not converted by AutoGraph, as in Keras's own training loop.
    """
    functions = []
    for part in parts:
        if not is_function(part.call):
            part.call = tf.function(part.call, autograph=False, reduce_retracing=True)
        functions.append(part.call)
    return functions


def is_function(made: Any) -> bool:
    """Whether ``made`` is a ``tf.function``."""
    return isinstance(made, tf.types.experimental.PolymorphicFunction)


def xla_refusal(what: str, error: tf.errors.OpError) -> TfpipeError:
    """What to say when XLA does not compile or run ``what``: the first line of its reason, without names of graphs."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    reason = re.sub(r"__inference_(.+?)_\d+\[[^]]*\]", r"\1", reason)
    reason = re.sub(r"( compatible with node)?\s*\{\{node [^}]*\}\}", "", reason)
    return TfpipeError(
        f"XLA does not run {what} (--execution xla): {reason}",
        "Leave xla out of --execution, or keep what it names out of the step.",
    )
