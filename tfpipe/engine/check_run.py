"""``python -m tfpipe.engine.check_run DIRECTORY``: findings of ``tfpipe check`` confirmed by running the code.

A request as JSON on stdin, the answer as JSON on stdout; everything the user's code prints goes to stderr. Generated
files go into the directory, which the parent removes.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from tfpipe.check_records import CheckRun, Finding, FunctionTraces, RunAnswer, RunRequest
from tfpipe.engine.housekeeping import generated_code_in, import_quietly
from tfpipe.errors import TfpipeError, UsageError

_EFFECTS = frozenset({"python-print", "outer-state", "python-file", "python-time", "python-random"})
_CREATION = frozenset({"variable-in-function", "keras-object-in-function"})
# Rules whose mistake raises where it stands.
_RAISING = frozenset({"tensor-numpy", "tensor-to-bool", "tensor-assert", "tensor-to-number", "tensor-len"}) | _CREATION
_SIGNATURE = "missing-input-signature"
_UNREACHED = "the run did not come here"
# Mistakes outside traced code that only repetition makes costly.
_REPEATED = frozenset({"python-argument", "function-in-loop"})
_TWO_MODE_LAYERS = ("Dropout", "BatchNormalization", "GaussianNoise", "GaussianDropout", "AlphaDropout")


def run_check(request: RunRequest) -> RunAnswer:
    """Call the target with batches of the pipeline and tell which findings were seen.

    Raises:
        UsageError: target or pipeline are not what they should be.
        UserCodeError: importing them, or making the data set, raised.
    """
    import tensorflow as tf

    from tfpipe.engine.check_probes import Probes
    from tfpipe.engine.load_user import load_function

    probes = Probes(len(request.findings))
    for reference in (request.target, request.pipeline):
        _import_probed(reference, request.findings, probes)
    target = load_function(request.target, "the target")
    dataset = _make_dataset(load_function(request.pipeline))
    step = _make_step(target, request.target, dataset.element_spec)
    with _watch_training_flags() as modes:
        run = _drive(step, dataset, request.steps)
    eager = bool(tf.config.functions_run_eagerly())
    findings = tuple(
        _judge(finding, number, probes, run, modes, eager=eager) for number, finding in enumerate(request.findings)
    )
    return RunAnswer(findings=(*findings, *(_retraced(run, request, findings) if step.is_users else ())), run=run)


def _import_probed(reference: str, findings: Sequence[Finding], probes: Any) -> None:
    """Import the file of ``MODULE:NAME`` or ``FILE.py:NAME`` with probes, unless it has no finding or is there."""
    from tfpipe.engine.check_probes import load_probed
    from tfpipe.engine.frames import user_code_error

    where = reference.rpartition(":")[0]
    error: TfpipeError
    try:
        if where.endswith(".py"):
            path = Path(where).resolve()
            name = path.stem
            sys.path.insert(0, str(path.parent))
        else:
            sys.path.insert(0, os.getcwd())
            name = where
            specification = importlib.util.find_spec(where)
            path = Path(specification.origin if specification is not None and specification.origin else where)
        numbered = {
            number: finding for number, finding in enumerate(findings) if Path(finding.path).resolve() == path.resolve()
        }
        if numbered and name not in sys.modules:
            load_probed(path, name, numbered, probes)
        return
    except ModuleNotFoundError:
        # load_function says it better.
        return
    except (Exception, SystemExit) as raised:
        error = user_code_error(f"Importing {where}", raised)
    raise error


def _make_dataset(factory: Callable[..., Any]) -> Any:
    import tensorflow as tf

    from tfpipe.engine.frames import user_code_error

    error: TfpipeError
    try:
        dataset = factory()
    except (Exception, SystemExit) as raised:
        error = user_code_error("Making the pipeline", raised)
    else:
        if isinstance(dataset, tf.data.Dataset):
            return dataset
        error = UsageError(
            f"--pipeline returned a {type(dataset).__name__}, not a tf.data.Dataset.", "Return the data set itself."
        )
    raise error


# --- the step ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """``function`` is a tf.function; ``arguments`` makes its arguments from one element of the data set.

    ``is_users`` tells that the user may give it an ``input_signature``; a Keras step is wrapped by Keras itself.
    """

    name: str
    function: Any
    arguments: Callable[[Any], tuple[Any, ...]]
    is_users: bool = True


def _make_step(target: Any, text: str, spec: Any) -> Step:
    import keras
    import tensorflow as tf

    name = text.rpartition(":")[2]
    if inspect.isclass(target):
        target = _instance(target, text)
    elif "." in name and not isinstance(target, keras.Model):
        # Class.method: the method of an object.
        from tfpipe.engine.load_user import load_function

        owner_text = text.rpartition(".")[0] if "." in name else text
        owner = load_function(owner_text, "the target")
        if inspect.isclass(owner):
            target = getattr(_instance(owner, owner_text), name.rpartition(".")[2])
    elif _is_factory(target):
        target = _made_by(target, text, spec)
        python = getattr(target, "python_function", target)
        name = getattr(python, "__qualname__", name).replace("<locals>.", "")
    if isinstance(target, keras.Model) and target.compiled:
        # As Keras's fit wraps it.
        step: Any = tf.function(lambda data: target.train_step(data), autograph=False, reduce_retracing=True)
        return Step(
            name=f"{name}.train_step",
            function=step,
            arguments=lambda element: (element,),
            is_users=False,
        )
    if isinstance(target, keras.layers.Layer):
        step = tf.function(lambda inputs: target(inputs, training=True), autograph=False)
        return Step(
            name=f"{name}.call",
            function=step,
            arguments=lambda element: (_first(element),),
            is_users=False,
        )
    python = getattr(target, "python_function", target)
    function = target if isinstance(target, tf.types.experimental.PolymorphicFunction) else None
    if function is None and isinstance(target, tf.Module):
        call = target.__call__
        function = call if isinstance(call, tf.types.experimental.PolymorphicFunction) else None
        python = getattr(call, "python_function", call)
    return Step(
        name=name,
        function=function if function is not None else tf.function(target),
        arguments=lambda element: _spread(element, python, name),
    )


def _instance(target: Any, text: str) -> Any:
    from tfpipe.engine.frames import user_code_error

    error: TfpipeError
    try:
        return target()
    except TypeError as raised:
        error = UsageError(
            f"{text} cannot be made without arguments: {raised}.",
            "Make an object at module level and name that: FILE.py:NAME.",
        )
    except Exception as raised:
        error = user_code_error(f"Making {text}", raised)
    raise error


def _is_factory(target: Any) -> bool:
    """Whether it makes a step for ``tfpipe profile --step``: a function that takes the data set's element spec."""
    return inspect.isfunction(target) and list(inspect.signature(target).parameters) in (["element_spec"], ["spec"])


def _made_by(factory: Callable[[Any], Any], text: str, spec: Any) -> Any:
    from tfpipe.engine.frames import user_code_error

    error: TfpipeError
    try:
        made = factory(spec)
    except Exception as raised:
        error = user_code_error(text, raised, "It is called with the data set's element_spec.")
    else:
        if callable(made):
            return made
        error = UsageError(
            f"{text} returned a {type(made).__name__}, not a step.", "Return the function that trains on one batch."
        )
    raise error


def _first(element: Any) -> Any:
    return element[0] if isinstance(element, tuple) else element


def _spread(element: Any, python: Any, name: str) -> tuple[Any, ...]:
    """The arguments: the parts of a tuple where the function takes as many, else the whole element."""
    parts = element if isinstance(element, tuple) else (element,)
    signature = inspect.signature(python)
    leading = (None,) if next(iter(signature.parameters), "") == "self" else ()
    for arguments in (parts, (element,)):
        try:
            signature.bind(*leading, *arguments)
            return tuple(arguments)
        except TypeError:
            continue
    raise UsageError(
        f"{name}{signature} cannot be called with what the pipeline yields: {len(parts)} parts.",
        "Name a function of the batch alone, f(x, y) or f(batch).",
    )


# --- running -----------------------------------------------------------------------------------------------------


def _drive(step: Step, dataset: Any, steps: int) -> CheckRun:
    """Call the step with up to ``steps`` batches, counting the graphs that it builds and why."""
    from tfpipe.engine.retracing import FIRST_CALL, TraceWatch

    watch = TraceWatch()
    calls = 0
    error: str | None = None
    arguments: tuple[Any, ...] | None = None
    start = time.perf_counter()
    iterator: Iterator[Any] | None = iter(dataset)
    before = step.function.experimental_get_tracing_count()
    try:
        for _ in range(steps):
            try:
                assert iterator is not None
                element = next(iterator)
            except StopIteration:
                break
            arguments = step.arguments(element)
            with watch:
                step.function(*arguments)
            calls += 1
    except UsageError:
        raise
    except Exception as raised:
        message = _message(raised)
        error = f"{type(raised).__name__}: {message}".rstrip(".: ")
    finally:
        # A data set with Python in it hangs the interpreter's exit while an iterator over it lives.
        iterator = None
    traces = step.function.experimental_get_tracing_count() - before
    causes = tuple(retrace.cause for retrace in watch.retraces if retrace.cause != FIRST_CALL)
    operations = _graph_size(step.function, arguments) if error is None and arguments is not None and calls else None
    function = FunctionTraces(function=step.name, calls=calls, traces=traces, operations=operations, causes=causes)
    return CheckRun(steps=calls, elapsed_s=time.perf_counter() - start, functions=(function,), error=error)


def _message(error: BaseException) -> str:
    """The line of a TensorFlow error that says what went wrong; AutoGraph wraps it into a traceback of its own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    name = f"{type(error).__name__}: "
    for line in lines:
        if line.startswith(name):
            return line.removeprefix(name)
    return lines[0] if lines else ""


def _graph_size(function: Any, arguments: tuple[Any, ...]) -> int | None:
    """Operations of the graph for these arguments, those of the functions that it calls included."""
    try:
        graph = function.get_concrete_function(*arguments).graph
        library = graph.as_graph_def().library.function
    except Exception:  # a graph that cannot be had or serialised (over 2 GB) has no size to report
        return None
    return len(graph.get_operations()) + sum(len(item.node_def) for item in library)


@contextmanager
def _watch_training_flags() -> Iterator[dict[str, set[bool]]]:
    """Which values of ``training`` the layers with two modes were called with, by the layer's class."""
    import keras

    modes: dict[str, set[bool]] = {}
    originals: list[tuple[Any, Any]] = []

    def watched(name: str, original: Any) -> Any:
        signature = inspect.signature(original)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(self, *args, **kwargs)
            value = bound.arguments.get("training")
            if value is None or isinstance(value, bool):
                modes.setdefault(name, set()).add(bool(value))
            return original(self, *args, **kwargs)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    for name in _TWO_MODE_LAYERS:
        layer = getattr(keras.layers, name)
        if "call" in vars(layer):
            originals.append((layer, layer.call))
            layer.call = watched(name, layer.call)
    try:
        yield modes
    finally:
        for layer, original in originals:
            layer.call = original


# --- judging -----------------------------------------------------------------------------------------------------


def _judge(
    finding: Finding, number: int, probes: Any, run: CheckRun, modes: dict[str, set[bool]], *, eager: bool
) -> Finding:
    observation = probes.observations[number]
    rule = finding.rule
    evidence: str | None = None
    seen = False
    if rule == _SIGNATURE:
        function = run.functions[0]
        seen = function.traces > 1 and finding.function == function.function
        evidence = f"{function.traces} graphs were built in {function.calls} calls" if seen else None
    elif rule == "eager-switched-on":
        seen = observation.eager > 0
        in_force = ", and every tf.function ran eagerly" if eager else ""
        evidence = f"it was switched on{in_force}" if seen else _UNREACHED
    elif rule in _REPEATED:
        times = observation.eager + observation.traced
        seen = times > 1
        evidence = f"it ran {times} times" if seen else "it ran once" if times else _UNREACHED
    elif observation.traced == 0:
        evidence = "it ran, but not while a graph was built" if observation.eager else _UNREACHED
    elif rule in _RAISING and probes.last == number and run.error is not None:
        seen, evidence = True, f"it raised {run.error}"
    elif rule == "unrolled-loop":
        seen = observation.passes > 1 or (observation.passes == 0 and bool(observation.operations))
        size = f"{observation.operations:,} operations" if observation.operations is not None else "it did not end"
        times = f"unrolled {observation.passes:,} times, " if observation.passes else ""
        evidence = f"{times}{size} in the graph" if seen else "TensorFlow made it one loop in the graph"
    elif rule == "missing-training-flag":
        inference = sorted(name for name, values in modes.items() if False in values)
        seen = bool(inference)
        evidence = (
            f"{', '.join(inference)} ran with training=False" if seen else "every such layer ran in training mode"
        )
    elif rule in _RAISING - _CREATION:
        seen = observation.symbolic is not None
        what = f"the value was a symbolic tensor, {observation.symbolic}"
        evidence = what if seen else f"the value was a Python {observation.other} here"
    else:
        seen = True
        times = "once" if observation.traced == 1 else f"{observation.traced:,} times"
        calls = f"in {run.steps} call{'' if run.steps == 1 else 's'}"
        evidence = f"ran {times} {calls}" if rule in _EFFECTS else f"happened {times} while the graph was built"
    return replace(finding, status="seen" if seen else "suspected", evidence=evidence)


def _retraced(run: CheckRun, request: RunRequest, findings: Sequence[Finding]) -> Iterator[Finding]:
    """The finding that only a run can make: other batches than the first built graphs of their own."""
    from tfpipe.engine.retracing import NOW

    function = run.functions[0]
    again = [cause for cause in function.causes if NOW in cause]
    if not again or any(finding.rule == _SIGNATURE for finding in findings):
        return
    traced = request.file.traced
    place = next((item for item in traced if item.name == function.function), traced[0] if traced else None)
    yield Finding(
        rule=_SIGNATURE,
        severity="warning",
        path=request.file.path,
        line=place.line if place is not None else 1,
        column=1,
        end_line=place.line if place is not None else 1,
        end_column=1,
        function=function.function,
        traced=place.why if place is not None else "run as the target",
        message="the batches of the pipeline do not all fit one graph",
        status="seen",
        evidence=f"{function.traces} graphs were built in {function.calls} calls; {again[0]}",
    )


def main() -> None:
    """Answer one request."""
    answer_file = os.dup(1)
    # TensorFlow and the user's code may write to stdout; the answer must stand alone.
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=RunRequest)
    import_quietly()
    try:
        with generated_code_in(sys.argv[1]):
            answer = run_check(request)
    except TfpipeError as error:
        # The probed module is known under a spelling of its path of its own.
        message = error.message.replace(os.sep + os.curdir + os.sep, os.sep)
        answer = RunAnswer(message=message, hint=error.hint, exit_code=error.exit_code)
    with os.fdopen(answer_file, "wb") as file:
        file.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
