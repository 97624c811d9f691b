"""One step in several ways to run it: the same training in each, and what is said where one cannot be."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import msgspec
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.machine import workload
from tfpipe.engine.in_process import InProcessExecutor
from tfpipe.engine.load_user import give_function, take_function_back
from tfpipe.engine.steps import check_step, resnet18
from tfpipe.engine.steps.keras_model import flat_layers
from tfpipe.engine.steps.running import is_function, seeded
from tfpipe.engine.steps.training import open_resnet18
from tfpipe.engine.steps.user import as_function, compiles_with_xla, open_user_step
from tfpipe.errors import TfpipeError, UsageError
from tfpipe.messages import Failed, Length, Measured, MeasureFloor, MeasureStep, Prepare, Prepared, Workload
from tfpipe.settings import Execution, Packaging, PipelineSettings

pytestmark = pytest.mark.tensorflow

IMAGES = tf.TensorSpec((8, 16, 16, 3), tf.float32), tf.TensorSpec((8,), tf.int64)
ROWS = tf.constant(np.random.default_rng(1).normal(size=(16, 8)), tf.float32)
TARGETS = tf.reduce_sum(ROWS, axis=1, keepdims=True)
SHORT = Length(warmup_steps=1, warmup_s=0.0, steps=3, seconds=0.0)
STEPS = 5
PACKAGINGS: tuple[Packaging, ...] = ("functional", "subclass", "module")


def images() -> Any:
    return tf.random.stateless_uniform((8, 16, 16, 3), seed=(1, 2)), tf.range(8, dtype=tf.int64)


def resnet_losses(**arguments: Any) -> list[float]:
    step: Any = open_resnet18(IMAGES, **{"width": 8, "classes": 10, "seed": 0, **arguments})
    return [float(step.first_call(images())), *(float(step(images())) for _ in range(STEPS - 1))]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ResNet of two blocks: 6 convolutions with the stem and a projection."""
    monkeypatch.setattr(resnet18, "STAGES", (1, 1))


# --- the built-in model ------------------------------------------------------------------------------------------


def test_resnet18_trains_the_same_in_each_execution() -> None:
    eager_losses = resnet_losses(execution="eager")
    assert eager_losses[-1] < eager_losses[0] / 2
    for execution in ("layer", "graph", "xla"):
        assert resnet_losses(execution=execution) == pytest.approx(eager_losses, rel=2e-3), execution


@pytest.mark.usefixtures("short")
def test_resnet18_trains_the_same_in_each_packaging() -> None:
    eager_losses = resnet_losses(execution="eager")
    for packaging in ("subclass", "module"):
        for execution in ("eager", "layer", "graph"):
            losses = resnet_losses(execution=execution, packaging=packaging)
            assert losses == pytest.approx(eager_losses, rel=2e-3), (packaging, execution)


@pytest.mark.usefixtures("short")
def test_a_seed_decides_the_weights() -> None:
    losses = resnet_losses(execution="eager")
    assert resnet_losses(execution="eager") == losses
    assert resnet_losses(execution="eager", seed=1)[0] != pytest.approx(losses[0], rel=1e-3)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_precision_changes_what_is_computed_in_and_nothing_else(precision: Any) -> None:
    before = keras.config.dtype_policy().name
    eager_losses = resnet_losses(execution="eager")
    losses = resnet_losses(execution="eager", precision=precision)
    assert losses[0] != eager_losses[0], "other rounding"
    assert losses[0] == pytest.approx(eager_losses[0], rel=0.05)
    assert losses[-1] < losses[0] * 0.9
    assert keras.config.dtype_policy().name == before


@pytest.mark.usefixtures("short")
def test_packagings_have_the_same_parameters_and_are_told_apart() -> None:
    steps = [
        open_resnet18(IMAGES, width=8, classes=10, seed=0, packaging=packaging, precision="mixed_bfloat16")
        for packaging in PACKAGINGS
    ]
    assert len({step.parameters for step in steps}) == 1
    assert len({step.description for step in steps}) == len(steps)
    assert all("mixed_bfloat16" in step.description for step in steps)


@pytest.mark.usefixtures("short")
def test_packagings_have_the_same_l2_and_logits_in_float32() -> None:
    l2 = []
    for packaging in PACKAGINGS:
        with seeded(0):
            model = resnet18.resnet18(IMAGES[0], width=8, classes=10, packaging=packaging, precision="mixed_float16")
        assert model(images()[0]).dtype == tf.float32
        l2.append(float(tf.add_n(model.losses)))
    assert l2[0] > 0
    assert l2 == pytest.approx([l2[0]] * 3, rel=1e-6)


@pytest.mark.usefixtures("short")
def test_the_packaged_models_own_their_variables_and_fix_their_input() -> None:
    subclassed = resnet18.resnet18(IMAGES[0], width=8, classes=10, packaging="subclass")
    module = resnet18.resnet18(IMAGES[0], width=8, classes=10, packaging="module")
    assert type(subclassed).__mro__[1] is keras.Model
    assert type(module).__mro__[1] is tf.Module
    assert all(isinstance(variable, tf.Variable) for variable in module.variables)
    for model in (subclassed, module):
        assert model.call.input_signature == (IMAGES[0],)


@pytest.mark.usefixtures("short")
def test_a_layer_by_layer_resnet18_has_a_graph_for_each_layer_and_none_of_the_optimiser() -> None:
    step: Any = open_resnet18(IMAGES, width=8, classes=10, seed=0, execution="layer", packaging="module")
    step.first_call(images())
    # 6 convolutions, 2 blocks, the model, the gradient.
    assert step.traces == 10
    graphs = [
        f.get_concrete_function(*IMAGES).graph
        for f in step._functions
        if f.input_signature and len(f.input_signature) == 2
    ]
    assert len(graphs) == 1
    assert not [op for op in graphs[0].get_operations() if "momentum" in op.name.lower()]


# --- the user's Keras model --------------------------------------------------------------------------------------


def make_model(spec: Any, **arguments: Any) -> Any:
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu", kernel_regularizer="l2"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ],
        name="net",
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **arguments)
    return model


class OwnTrainStep(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def make_own(spec: Any) -> Any:
    model = OwnTrainStep()
    model.compile("sgd")
    return model


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    """A user's step, not called yet."""
    give: list[str] = []

    def open_it(make_step: Callable[[Any], Any], execution: Execution | None = None, **arguments: Any) -> Any:
        name = f"here:make_step{len(give)}"
        give_function(name, make_step)
        give.append(name)
        spec = tf.TensorSpec((16, 8)), tf.TensorSpec((16, 1))
        return open_user_step(name, spec, (ROWS, TARGETS), execution=execution, **arguments)

    yield open_it
    for name in give:
        take_function_back(name)


def losses_of(step: Any) -> list[float]:
    results = [step.first_call((ROWS, TARGETS)), *(step((ROWS, TARGETS)) for _ in range(STEPS - 1))]
    return [float(result["loss"] if isinstance(result, dict) else result) for result in results]


@pytest.mark.parametrize("make_step", [make_model, make_own])
def test_a_keras_model_trains_the_same_in_each_execution(opened: Callable[..., Any], make_step: Any) -> None:
    eager = opened(make_step, "eager")
    expected = losses_of(eager)
    assert eager.traces is None
    assert expected[-1] < expected[0]
    for execution in ("layer", "graph", "xla"):
        step = opened(make_step, execution)
        assert losses_of(step) == pytest.approx(expected, rel=1e-4), execution
        assert step.execution == execution
        assert step.traces


def test_fit_trains_as_the_others_do(opened: Callable[..., Any]) -> None:
    fit, graph = opened(make_model, "fit"), opened(make_model, "graph")
    fit.first_call((ROWS, TARGETS))
    block, _ = fit.drive(fit.constant((ROWS, TARGETS)), SHORT, kind="floor", round=0)
    graph.first_call((ROWS, TARGETS))
    # What fit ran: the first call; then the first batch, the warm-up, what counts, and one to end with.
    for _ in range(1 + block.warmup_steps + block.steps + 1):
        graph((ROWS, TARGETS))
    (own,) = graph.state
    for mine, theirs in zip(fit.model.get_weights(), own.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_a_layer_by_layer_model_has_a_graph_for_each_layer_and_one_for_the_gradient(opened: Callable[..., Any]) -> None:
    step = opened(make_model, "layer")
    step.first_call((ROWS, TARGETS))
    (model,) = step.state
    # Sequential keeps a functional model inside.
    assert {type(layer).__name__ for layer in flat_layers(model)} >= {"Sequential", "Dense", "BatchNormalization"}
    assert all(is_function(layer.call) for layer in flat_layers(model))
    assert (
        step.traces == len([layer for layer in flat_layers(model) if layer.call.experimental_get_tracing_count()]) + 1
    )


@pytest.mark.parametrize(
    ("arguments", "execution"),
    [({}, "graph"), ({"run_eagerly": True}, "eager"), ({"jit_compile": True}, "xla")],
)
def test_a_keras_model_runs_as_it_was_compiled(opened: Callable[..., Any], arguments: Any, execution: str) -> None:
    step = opened(lambda spec: make_model(spec, **arguments))
    assert step.execution == execution
    step.first_call((ROWS, TARGETS))
    assert (step.traces is None) == (execution == "eager")


# --- the user's function -----------------------------------------------------------------------------------------


def make_function(spec: Any, wrap: Callable[[Any], Any] = lambda function: function) -> Any:
    weights = tf.Variable(tf.random.normal((8, 1)))

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y) ** 2)
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        return loss

    return wrap(train)


class Trainer(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.random.normal((8, 1)))

    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([None, 1])], jit_compile=True)
    def train(self, x: Any, y: Any) -> Any:
        assert x.shape[0] is None or tf.executing_eagerly(), "the signature holds in graphs"
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ self.weights - y) ** 2)
        self.weights.assign_sub(0.05 * tape.gradient(loss, self.weights))
        return loss


def make_method(spec: Any) -> Any:
    trainer = Trainer()
    # A tf.function does not keep the object whose method it is.
    make_method.kept = trainer  # type: ignore[attr-defined]
    return trainer.train


@pytest.mark.parametrize(
    ("make_step", "written"),
    [
        (make_function, "graph"),
        (lambda spec: make_function(spec, tf.function), "graph"),
        (make_method, "xla"),
        (lambda spec: (lambda train: lambda batch: train(*batch))(make_function(spec, tf.function)), "graph"),
    ],
    ids=["function", "tf.function", "method", "around-tf.function"],
)
def test_a_function_trains_the_same_in_each_execution(
    opened: Callable[..., Any], make_step: Any, written: Execution
) -> None:
    expected = losses_of(opened(make_step, "eager"))
    for execution in (None, "graph", "xla"):
        step = opened(make_step, execution)
        assert step.execution == (execution or written)
        assert losses_of(step) == pytest.approx(expected, rel=1e-4), execution
        assert step.traces == 1


def test_an_eager_step_runs_python_each_time_and_its_inner_functions_too(opened: Callable[..., Any]) -> None:
    ran: list[bool] = []

    @tf.function
    def inner(x: Any) -> Any:
        ran.append(tf.executing_eagerly())
        return tf.reduce_sum(x)

    step = opened(lambda spec: lambda x, y: inner(x), "eager")
    for _ in range(3):
        step((ROWS, TARGETS))
    assert ran == [True] * 3
    assert not tf.config.functions_run_eagerly()


def test_a_step_behind_functions_that_run_eagerly_is_called_eager(opened: Callable[..., Any]) -> None:
    def make_step(spec: Any) -> Any:
        tf.config.run_functions_eagerly(True)
        return tf.function(lambda x, y: tf.reduce_sum(x))

    try:
        step = opened(make_step)
        assert (step.execution, step.traces) == ("eager", None)
        assert "run_functions_eagerly" in step.description
        graph = opened(make_step, "graph")
        graph.first_call((ROWS, TARGETS))
        assert graph.traces == 1
        assert tf.config.functions_run_eagerly(), "left as the user set it"
        assert opened(make_model).execution == "eager"
    finally:
        tf.config.run_functions_eagerly(False)


def test_wrapping_anew_keeps_what_was_asked_for() -> None:
    plain = tf.function(lambda x: x, input_signature=[tf.TensorSpec([3])], autograph=False)
    compiled = as_function(plain, jit_compile=True)
    assert (compiles_with_xla(plain), compiles_with_xla(compiled)) == (False, True)
    assert (compiled.input_signature, compiled._autograph) == (plain.input_signature, False)
    assert as_function(compiled, jit_compile=True) is compiled
    body = compiled.get_concrete_function().function_def
    assert body.attr["_XlaMustCompile"].b


def test_seeds_are_the_same_each_time_and_leave_no_trace() -> None:
    def draw() -> list[float]:
        numbers = random.random(), np.random.rand(), tf.random.uniform([]), keras.random.uniform([])
        return [float(number) for number in numbers]

    tf.random.set_seed(11)
    random.seed(5)
    np.random.seed(6)
    python, numpy = random.random(), np.random.rand()
    random.seed(5)
    np.random.seed(6)
    with seeded(3):
        first = draw()
    with seeded(3):
        assert draw() == first
    assert (random.random(), np.random.rand()) == (python, numpy)
    assert tf.compat.v1.get_seed(None)[0] == 11
    tf.random.set_seed(None)
    with seeded(3):
        pass
    assert tf.compat.v1.get_seed(None)[0] is None


# --- what cannot be ----------------------------------------------------------------------------------------------


def test_xla_s_reason_is_told(opened: Callable[..., Any]) -> None:
    step = opened(lambda spec: lambda x, y: tf.strings.length(tf.strings.as_string(x)), "xla")
    with pytest.raises(TfpipeError) as raised:
        step.first_call((ROWS, TARGETS))
    assert "XLA does not run the step of here:make_step0 (--execution xla): " in raised.value.message
    assert "AsString" in raised.value.message
    assert "\n" not in raised.value.message
    assert "__inference" not in raised.value.message


def test_a_mistake_of_the_user_s_is_not_blamed_on_xla(opened: Callable[..., Any]) -> None:
    step = opened(lambda spec: lambda batch: batch["image"], "xla")
    with pytest.raises(TfpipeError, match="with --execution xla, on the first batch, raised TypeError"):
        step.first_call((ROWS, TARGETS))


@pytest.mark.parametrize("execution", ["layer", "fit"])
def test_a_function_has_no_layers_and_no_fit(opened: Callable[..., Any], execution: Execution) -> None:
    with pytest.raises(UsageError, match=f"--execution {execution} takes a Keras model") as raised:
        opened(make_function, execution)
    assert "eager, graph or xla" in str(raised.value.hint)


@pytest.mark.parametrize("step", ["none", "simulated:5ms"])
def test_what_computes_nothing_has_no_execution(step: str) -> None:
    with pytest.raises(UsageError, match=f"--execution eager,xla: --step {step} has nothing to execute"):
        check_step(msgspec.structs.replace(workload(step=step), executions=("eager", "xla")))


@pytest.mark.parametrize(
    ("step", "arguments", "words"),
    [
        ("here:make_step", {"precision": "mixed_float16"}, "--precision and --packaging are the built-in model's"),
        ("simulated:5ms", {"packaging": "module"}, "--precision and --packaging are the built-in model's"),
        (
            "resnet18",
            {"steps_per_execution": 4, "executions": ("graph",)},
            "--steps-per-execution 4 is an option of fit",
        ),
    ],
)
def test_options_of_something_else_are_refused(step: str, arguments: Any, words: str) -> None:
    check_step(workload(step=step))
    with pytest.raises(UsageError, match=words):
        check_step(msgspec.structs.replace(workload(step=step), **arguments))


def test_a_module_has_no_fit() -> None:
    with pytest.raises(UsageError, match=r"a tf.Module has no fit"):
        open_resnet18(IMAGES, width=8, classes=10, seed=0, execution="fit", packaging="module")


# --- a session ---------------------------------------------------------------------------------------------------


def make_dataset() -> Any:
    return tf.data.Dataset.from_tensors((ROWS, TARGETS)).repeat().prefetch(1)


@pytest.fixture
def session() -> Iterator[Callable[..., tuple[InProcessExecutor, Prepared | Failed]]]:
    executors: list[InProcessExecutor] = []

    def prepare(make_step: Callable[[Any], Any], executions: Sequence[Execution] = ()) -> Any:
        functions: dict[str, Callable[..., Any]] = {"here:make_dataset": make_dataset, "here:make_step": make_step}
        executor = InProcessExecutor(functions, on_progress=lambda progress: None)
        executors.append(executor)
        work = Workload(
            dataset=None,
            pipeline="here:make_dataset",
            data_dir=None,
            require_data=False,
            download=False,
            image_size=0,
            batch_size=None,
            step="here:make_step",
            width=0,
            seed=0,
            executions=tuple(executions),
        )
        return executor, executor.execute(Prepare(workload=work))

    yield prepare
    for executor in executors:
        executor.close()


def test_a_session_keeps_a_step_for_each_execution(session: Callable[..., Any]) -> None:
    executions: tuple[Execution, ...] = ("eager", "layer", "graph", "fit")
    executor, prepared = session(make_model, executions)
    steps = (prepared.step, *prepared.other_steps)
    assert tuple(step.execution for step in steps) == executions
    assert len({step.description for step in steps}) == len(steps)
    assert all(step.first_call_s > 0 and step.parameters == 193 for step in steps)
    assert steps[0].traces is None
    assert sum(step.first_call_s for step in steps) == pytest.approx(prepared.timings_s["first_call"], rel=0.01)
    assert prepared.twin is None
    assert prepared.notes == ()
    for execution in (None, *executions):
        floor = executor.execute(MeasureFloor(round=0, length=SHORT, execution=execution))
        assert isinstance(floor, Measured)
        assert floor.step_traces == next(s for s in steps if s.execution == (execution or "eager")).traces
        measured = executor.execute(
            MeasureStep(settings=PipelineSettings(overrides=()), round=1, length=SHORT, execution=execution)
        )
        assert isinstance(measured, Measured)
        assert measured.block.steps >= SHORT.steps
        assert measured.block.retraced == 0
        assert measured.executed[-1].node.startswith("Prefetch"), "also of an iterator that Keras keeps"


@pytest.mark.parametrize(
    ("make_step", "executions"),
    [(make_function, ["eager"]), (lambda spec: make_model(spec, run_eagerly=True), []), (make_model, ["layer", "fit"])],
)
def test_a_step_without_a_graph_has_a_twin_that_is_one(
    session: Callable[..., Any], make_step: Any, executions: list[Execution]
) -> None:
    executor, prepared = session(make_step, executions)
    assert prepared.step.execution == (executions or ["eager"])[0]
    assert prepared.twin.execution == "graph"
    assert prepared.twin.traces >= 1
    assert len(prepared.other_steps) == max(0, len(executions) - 1)
    floor = executor.execute(MeasureFloor(round=0, length=SHORT, execution="graph"))
    assert floor.step_traces == prepared.twin.traces


def test_a_step_that_cannot_be_a_graph_has_no_twin_and_a_note_why(session: Callable[..., Any]) -> None:
    def step(x: Any, y: Any) -> float:
        return float(x.numpy().sum())

    _, prepared = session(lambda spec: step, ["eager"])
    assert prepared.twin is None
    assert prepared.notes == (
        "How much of the step is its own Python is not known, since it does not run as one graph: "
        "AttributeError: 'SymbolicTensor' object has no attribute 'numpy'",
    )


def test_weights_that_all_executions_share_are_noted(session: Callable[..., Any]) -> None:
    shared = make_model(None)
    _, prepared = session(lambda spec: shared, ["eager", "graph"])
    (note,) = prepared.notes
    assert "here:make_step trains the same variables each time it is called" in note
    weights = tf.Variable(tf.zeros((8, 1)))
    _, prepared = session(lambda spec: lambda x, y: weights.assign_add(tf.transpose(x[:1])), ["eager", "graph"])
    assert len(prepared.notes) == 1
    _, prepared = session(lambda spec: make_function(spec), ["eager", "graph"])
    assert prepared.notes == ()


def test_an_execution_that_fails_ends_the_preparation_and_is_named(session: Callable[..., Any]) -> None:
    _, failed = session(lambda spec: lambda x, y: tf.strings.length(tf.strings.as_string(x)), ["graph", "xla"])
    assert isinstance(failed, Failed)
    assert failed.cause == "request"
    assert "--execution xla" in failed.message
