"""The user's own step: a function of one batch, or a compiled Keras model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfpipe.engine.frames import home_of, user_code_error
from tfpipe.engine.load_user import load_function
from tfpipe.errors import TfpipeError, UsageError


def open_user_step(reference: str, spec: Any, batch: Any) -> UserStep:
    """The step that the function named by ``reference`` returns for elements of ``spec``.

    It is called once on ``batch``, so that what does not fit is told before anything is measured.

    Raises:
        UsageError: no such function.
        UserCodeError: it raised.
        TfpipeError: it returned neither a function nor a compiled model, or that does not take such batches.
    """
    maker = load_function(reference, "--step")
    home = home_of(maker)
    error: Exception
    try:
        made = maker(spec)
    except TfpipeError:
        raise
    except Exception as raised:
        error = user_code_error(reference, raised, "It is called once, with the dataset's element_spec.", home)
    else:
        return _wrap(reference, made, spec, batch)
    raise error


def _wrap(reference: str, made: Any, spec: Any, batch: Any) -> UserStep:
    if isinstance(made, keras.Model):
        if not made.compiled:
            raise UsageError(f"{reference} returned a model that is not compiled.", "Call model.compile(...) in it.")
        return UserStep(reference, *_keras_step(made), spec, batch)
    if callable(made):
        is_function = hasattr(made, "experimental_get_tracing_count")
        function = made if is_function else tf.function(made)
        what = "a tf.function" if is_function else "a Python function, wrapped in tf.function"
        return UserStep(reference, function, what, None, spec, batch)
    raise UsageError(
        f"{reference} returned a {type(made).__name__}, neither a function of one batch nor a Keras model.",
        "Return the function that trains on one batch, or a compiled keras.Model.",
    )


def _keras_step(model: Any) -> tuple[Callable[..., Any], str, int]:
    """The model's own ``train_step`` as one graph, as ``fit`` would run it."""

    def train_step(batch: Any) -> Any:
        return model.train_step(batch)

    parameters = int(sum(v.shape.num_elements() or 0 for v in model.trainable_variables))
    return tf.function(train_step, reduce_retracing=True), f"the train_step of {model.name}, a Keras model", parameters


class UserStep:
    """A user's function of one batch, called as they would call it."""

    def __init__(
        self, reference: str, function: Callable[..., Any], what: str, parameters: int | None, spec: Any, batch: Any
    ) -> None:
        self._function = function
        self._spread = _takes_components(function, batch)
        self.parameters = parameters
        self.description = f"{reference}: {what}"
        self.synchronous = not tf.config.list_physical_devices("GPU") and not tf.config.list_physical_devices("TPU")
        error: Exception
        try:
            self.finish(self(batch))
        except Exception as raised:
            error = _misfit(reference, raised, function, spec)
        else:
            return
        raise error

    def __call__(self, batch: Any) -> Any:
        return self._function(*batch) if self._spread else self._function(batch)

    def finish(self, result: Any) -> None:
        for leaf in tf.nest.flatten(result):
            if hasattr(leaf, "numpy"):
                leaf.numpy()

    @property
    def traces(self) -> int | None:
        count = getattr(self._function, "experimental_get_tracing_count", None)
        return None if count is None else int(count())


def _takes_components(function: Callable[..., Any], batch: Any) -> bool:
    """Whether a tuple batch is passed as several arguments: the function has that many and not just one."""
    if not isinstance(batch, tuple) or len(batch) < 2:
        return False
    python_function = getattr(function, "python_function", function)
    try:
        parameters = inspect.signature(python_function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    return len(required) > 1 and len(positional) >= len(batch) >= len(required)


def _misfit(reference: str, raised: Exception, function: Callable[..., Any], spec: Any) -> Exception:
    """What to say of a step that did not take the first batch: both specs side by side where the step has one."""
    error = user_code_error(f"{reference}'s step, on the first batch,", raised, home=home_of(function))
    signature = getattr(function, "input_signature", None)
    if signature is None:
        return error
    given = tf.nest.flatten(spec)
    wanted = tf.nest.flatten(signature)
    lines = ["The elements of the pipeline do not fit the step's input_signature:"]
    for index in range(max(len(given), len(wanted))):
        left = repr(given[index]) if index < len(given) else "(nothing)"
        right = repr(wanted[index]) if index < len(wanted) else "(nothing)"
        fits = index < len(given) and index < len(wanted) and wanted[index].is_compatible_with(given[index])
        lines.append(f"{' ' if fits else '>'} {left}  |  {right}")
    if all(line.startswith(" ") for line in lines[1:]):
        return error
    return TfpipeError(
        "\n".join(lines), "Left is what the pipeline gives, right what the step takes; > marks what differs."
    )
