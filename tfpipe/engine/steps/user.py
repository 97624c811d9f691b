"""The user's own step: a function of one batch, or a compiled Keras model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfpipe.engine.frames import home_of, user_code_error
from tfpipe.engine.load_user import load_function
from tfpipe.errors import TfpipeError, UsageError, UserCodeError


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
        return UserStep(reference, *_keras_step(made), spec, batch, model=made)
    if callable(made):
        is_function = hasattr(made, "experimental_get_tracing_count")
        function = made if is_function else tf.function(made)
        what = "a tf.function" if is_function else "a Python function, wrapped in tf.function"
        return UserStep(reference, function, what, None, spec, batch)
    raise UsageError(
        f"{reference} returned a {type(made).__name__}, neither a function of one batch nor a Keras model.",
        "Return the function that trains on one batch, or a compiled keras.Model.",
    )


def _keras_step(model: Any) -> tuple[Callable[..., Any], str, int | None]:
    """The model's own ``train_step`` as ``fit`` runs it: one graph, by XLA or eagerly where it was compiled so."""

    def train_step(batch: Any) -> Any:
        return model.train_step(batch)

    parameters = sum(v.shape.num_elements() or 0 for v in model.trainable_variables)
    what = f"the train_step of {model.name}, a Keras model"
    if model.run_eagerly:
        return train_step, f"{what} that runs eagerly", parameters or None
    function = tf.function(train_step, autograph=False, reduce_retracing=True, jit_compile=model.jit_compile)
    return function, what, parameters or None


class UserStep:
    """A user's function of one batch, called as they would call it."""

    def __init__(
        self,
        reference: str,
        function: Callable[..., Any],
        what: str,
        parameters: int | None,
        spec: Any,
        batch: Any,
        *,
        model: Any = None,
    ) -> None:
        self._function = function
        self._spread = model is None and _takes_components(function, batch)
        self.parameters = parameters
        self.description = f"{reference}: {what}"
        self.synchronous = not tf.config.list_physical_devices("GPU") and not tf.config.list_physical_devices("TPU")
        error: UserCodeError
        try:
            self.finish(self(batch))
        except Exception as raised:
            error = user_code_error(f"{reference}'s step, on the first batch,", raised, home=home_of(function))
        else:
            return
        wanted = _keras_inputs(model, spec) if model is not None else _signature(function, spread=self._spread)
        # Outside the handler: an error that kept the user's traceback would keep their objects alive.
        raise misfit(reference, spec, wanted, error)

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


def _signature(function: Callable[..., Any], *, spread: bool) -> Any:
    """What an ``input_signature`` asks for, in the form of a batch; None without one."""
    signature = getattr(function, "input_signature", None)
    if signature is None:
        return None
    return signature[0] if len(signature) == 1 and not spread else tuple(signature)


def _keras_inputs(model: Any, spec: Any) -> Any:
    """``spec`` with the inputs that a functional or sequential model was made with in place of its first part."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return None
    given = spec[0] if isinstance(spec, tuple) else spec
    made = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
    if isinstance(given, dict):
        names = [tensor.name for tensor in inputs]
        wanted: Any = dict(zip(names, made, strict=True))
    else:
        wanted = made[0] if len(made) == 1 else tuple(made)
    return (wanted, *spec[1:]) if isinstance(spec, tuple) else wanted


def misfit(reference: str, given: Any, wanted: Any, error: UserCodeError) -> TfpipeError:
    """What to say of a step that did not take the first batch.

    Both specs side by side where they differ, with the leaf that does marked; else the error with what was given.
    """
    have, want = _leaves(given), _leaves(wanted)
    paths = list(dict.fromkeys([*have, *want]))
    rows = [("element", "the pipeline gives", "the step takes", "")]
    rows += [
        (path, _text(have.get(path)), _text(want.get(path)), _mark(have.get(path), want.get(path))) for path in paths
    ]
    if wanted is None or not any(mark for *_, mark in rows):
        listed = "\n".join(f"    {path}  {_text(leaf)}" for path, leaf in have.items())
        # A tf.function does not keep the object whose method it is.
        gone = "'NoneType' object has no attribute" in error.message
        hint = "If the step is a method, keep its object: return lambda batch: model.train(batch)." if gone else None
        return TfpipeError(f"{error.message}\n  The pipeline gives:\n{listed}", hint or "Run the step on one batch.")
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "    " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip()
        for row in rows
    ]
    return TfpipeError(
        f"The elements of the pipeline do not fit the step of {reference}:\n" + "\n".join(lines),
        "Change the map or the batch that makes them, or what the step takes.",
    )


def _leaves(spec: Any) -> dict[str, Any]:
    """Specs by where they are in a batch: ``[0]['image']``; ``(all)`` for a batch that is one tensor."""
    if spec is None:
        return {}
    found = keras.tree.flatten_with_path(spec)
    return {"".join(f"[{key!r}]" for key in path) or "(all)": leaf for path, leaf in found}


def _text(leaf: Any) -> str:
    if leaf is None:
        return "nothing"
    kind = "" if isinstance(leaf, tf.TensorSpec) else type(leaf).__name__.removesuffix("TensorSpec").lower() + " "
    return f"{kind}{leaf.dtype.name} {leaf.shape}"


def _mark(have: Any, want: Any) -> str:
    if have is None or want is None:
        return "<- differs"
    return "" if want.is_compatible_with(have) else "<- differs"
