"""The user's own step: a function of one batch, or a compiled Keras model, in each way to run it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfpipe.engine.frames import Home, home_of, user_code_error
from tfpipe.engine.load_user import load_function
from tfpipe.engine.steps.fit import FitStep
from tfpipe.engine.steps.keras_model import train_function, written_execution
from tfpipe.engine.steps.running import FunctionStep, is_function, seeded, with_functions_run, xla_refusal
from tfpipe.engine.steps.sharing import held_by
from tfpipe.errors import TfpipeError, UsageError, UserCodeError
from tfpipe.settings import Execution

_HOW: dict[Execution, str] = {
    "eager": ", run eagerly",
    "layer": ", a tf.function per layer",
    "graph": "",
    "xla": ", compiled by XLA",
    "fit": "",
}


def open_user_step(
    reference: str,
    spec: Any,
    batch: Any,
    *,
    execution: Execution | None = None,
    seed: int = 0,
    steps_per_execution: int = 1,
) -> FunctionStep | FitStep:
    """The step that the function named by ``reference`` returns for elements of ``spec``, not yet called.

    That function is called anew for each execution, with random numbers from ``seed``: all start from the same weights.

    Args:
        batch: one batch, to see how the step takes it.
        execution: how to run it; None for as it is written.
        steps_per_execution: of ``fit``, where it is not 1; else the model's own.

    Raises:
        UsageError: no such function, or one whose step cannot be run in that way.
        UserCodeError: it raised.
        TfpipeError: it returned neither a function nor a compiled model.
    """
    maker = load_function(reference, "--step")
    home = home_of(maker)
    error: Exception
    try:
        with seeded(seed):
            made = maker(spec)
    except TfpipeError:
        raise
    except Exception as raised:
        error = user_code_error(reference, raised, "It is called once, with the dataset's element_spec.", home)
    else:
        if isinstance(made, keras.Model):
            return _keras_step(reference, home, made, spec, execution, steps_per_execution)
        return _function_step(reference, home, made, spec, batch, execution)
    raise error


def _keras_step(
    reference: str, home: Home, model: Any, spec: Any, execution: Execution | None, steps_per_execution: int
) -> FunctionStep | FitStep:
    if not model.compiled:
        raise UsageError(f"{reference} returned a model that is not compiled.", "Call model.compile(...) in it.")
    explain = _Explanation(reference, home, spec, _keras_inputs(model, spec), execution)
    what = f"the train_step of {model.name}, a Keras model"
    if execution == "fit":
        if steps_per_execution != 1:
            model.steps_per_execution = steps_per_execution
        return FitStep(model, f"{reference}: {_fit_text(model)}", spec, explain)
    mode = execution or written_execution(model)
    call, functions = train_function(model, mode)
    return FunctionStep(
        call if execution is None else with_functions_run(call, eagerly=mode == "eager"),
        execution=mode,
        description=f"{reference}: {what}{_HOW[mode]}",
        functions=functions,
        variables=lambda: model.trainable_variables,
        explain=explain,
        state=(model,),
    )


def _fit_text(model: Any) -> str:
    parts = [f"the fit of {model.name}, a Keras model"]
    if model.steps_per_execution != 1:
        parts.append(f"{model.steps_per_execution} steps per execution")
    if model.run_eagerly or tf.config.functions_run_eagerly():
        parts.append("run eagerly")
    elif model.jit_compile:
        parts.append("compiled by XLA")
    return ", ".join(parts)


def _function_step(
    reference: str, home: Home, made: Any, spec: Any, batch: Any, execution: Execution | None
) -> FunctionStep:
    if not callable(made):
        raise UsageError(
            f"{reference} returned a {type(made).__name__}, neither a function of one batch nor a Keras model.",
            "Return the function that trains on one batch, or a compiled keras.Model.",
        )
    if execution in ("layer", "fit"):
        raise UsageError(
            f"--execution {execution} takes a Keras model, and {reference} returns a function.",
            "Return a compiled keras.Model instead, or use eager, graph or xla.",
        )
    written: Execution = "graph"
    if tf.config.functions_run_eagerly():
        written = "eager"
    elif is_function(made) and compiles_with_xla(made):
        written = "xla"
    mode = execution or written
    function = as_function(made, jit_compile=mode == "xla") if mode != "eager" else made
    spread = _takes_components(made, batch)

    def call(batch: Any) -> Any:
        return function(*batch) if spread else function(batch)

    explain = _Explanation(reference, home, spec, _signature(made, spread=spread), execution)
    unwrapped = None
    if execution is None and mode == "graph" and not is_function(made):
        unwrapped = FunctionStep(
            lambda batch: made(*batch) if spread else made(batch),
            execution="eager",
            description=f"{reference}: a Python function, called as it is",
            explain=explain,
        )
    what = "a tf.function" if is_function(made) else "a Python function"
    how = _HOW[mode]
    if mode != "eager" and not is_function(made):
        how = f", wrapped in tf.function{how}"
    elif execution is None and mode == "eager":
        how = ", run eagerly since tf.config.run_functions_eagerly is on"
    return FunctionStep(
        call if execution is None else with_functions_run(call, eagerly=mode == "eager"),
        execution=mode,
        description=f"{reference}: {what}{how}",
        functions=() if mode == "eager" else (function,),
        explain=explain,
        state=held_by(made),
        unwrapped=unwrapped,
    )


def compiles_with_xla(function: Any) -> bool:
    """Whether a ``tf.function`` was made with ``jit_compile=True``; TensorFlow has no public way to ask."""
    return bool(function._jit_compile)


def as_function(made: Any, *, jit_compile: bool) -> Any:
    """``made`` as a ``tf.function`` with or without XLA: itself where it is that already."""
    if not is_function(made):
        return tf.function(made, jit_compile=jit_compile or None)
    if compiles_with_xla(made) == jit_compile:
        return made
    return tf.function(
        made.python_function,
        input_signature=made.input_signature,
        # As private as the question whether it is compiled.
        autograph=made._autograph,
        jit_compile=jit_compile or None,
    )


def reason_in(message: str) -> str:
    """What a step's first call raised, in one line, from what ``_Explanation`` tells of it."""
    first, *rest = message.splitlines()
    # AutoGraph writes a whole traceback into the message, the error itself last.
    errors = [line.strip() for line in rest if re.match(r"\s*[\w.]+(Error|Exception): ", line)]
    if first.endswith(" in user code:") and errors:
        return errors[-1]
    return first.partition(" raised ")[2] or first


class _Explanation:
    """What to tell of an error that the step's first call raised."""

    def __init__(self, reference: str, home: Home, spec: Any, wanted: Any, execution: Execution | None) -> None:
        self._reference = reference
        self._home = home
        self._spec = spec
        self._wanted = wanted
        self._execution = execution

    def __call__(self, error: Exception) -> Exception:
        if self._execution == "xla" and isinstance(error, tf.errors.OpError):
            return xla_refusal(f"the step of {self._reference}", error)
        run = "" if self._execution is None else f" with --execution {self._execution}"
        told = user_code_error(f"{self._reference}'s step{run}, on the first batch,", error, home=self._home)
        return misfit(self._reference, self._spec, self._wanted, told)


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
