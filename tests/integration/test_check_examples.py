"""The examples that ``tfpipe check --rules`` prints do in TensorFlow what the rules say of them."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tensorflow as tf

from tfpipe.check.rules import RULES
from tfpipe.check_records import Rule

pytestmark = pytest.mark.tensorflow

BY_NAME = {rule.name: rule for rule in RULES}
# Rules on code that TensorFlow refuses to trace.
REFUSED = ["tensor-numpy", "tensor-to-bool", "tensor-assert", "variable-in-function", "keras-object-in-function"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the examples read: a file of labels, and a picture."""
    monkeypatch.chdir(tmp_path)
    Path("labels.txt").write_text("cat dog")
    tf.io.write_file("a.png", tf.io.encode_png(tf.zeros([4, 4, 3], tf.uint8)))
    return tmp_path


def run(source: str) -> ModuleType:
    """The example as a module of its own: AutoGraph reads its file."""
    path = Path("example.py")
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functions(module: ModuleType) -> list[Any]:
    """Its tf.functions, as functions that take no argument."""
    made = [value for value in vars(module).values() if hasattr(value, "experimental_get_tracing_count")]
    methods = [vars(module)["Count"]()] if "Count" in vars(module) else []
    return [*(_called(function) for function in made), *(lambda m=m: m(tf.ones([8])) for m in methods)]


def _called(function: Any) -> Any:
    parameters = inspect.signature(function.python_function).parameters.values()
    shape = [8] if function.python_function.__name__ == "root" else [8, 3]
    arguments = [tf.ones(shape) for parameter in parameters if parameter.default is parameter.empty]
    return lambda: function(*arguments)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_good_example_runs(rule: Rule) -> None:
    for call in functions(run(rule.good)):
        call()
        call()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_said_to_raise_raises(name: str) -> None:
    (call,) = functions(run(BY_NAME[name].bad))
    with pytest.raises((ValueError, TypeError, AttributeError, tf.errors.OperatorNotAllowedInGraphError)):
        call()


def twice(name: str) -> tuple[ModuleType, list[Any]]:
    module = run(BY_NAME[name].bad)
    (call,) = functions(module)
    return module, [call(), call()]


def test_a_print_shows_a_symbol_once(capsys: pytest.CaptureFixture[str]) -> None:
    twice("python-print")
    assert capsys.readouterr().out.count("loss Tensor(") == 1


def test_a_change_of_a_list_happens_once_and_holds_no_value() -> None:
    module, _ = twice("outer-state")
    (loss,) = module.losses
    assert not hasattr(loss, "numpy")


def test_the_clock_is_read_once() -> None:
    _, ((_, first), (_, second)) = twice("python-time")
    assert float(first) == float(second)


def test_a_random_number_is_the_same_for_all_elements() -> None:
    source = BY_NAME["python-random"].bad.replace("tf.zeros", "tf.ones")
    assert len({float(image[0, 0, 0]) for image in run(source).images}) == 1
    good = BY_NAME["python-random"].good
    assert len({float(tf.reduce_sum(image)) for image in run(good).images}) == 8


def test_a_loop_is_unrolled_and_tf_range_is_not() -> None:
    def operations(source: str) -> int:
        graph = run(source).integrate.get_concrete_function(tf.ones([8])).graph
        return len(graph.get_operations())

    assert operations(BY_NAME["unrolled-loop"].bad) > 1000
    assert operations(BY_NAME["unrolled-loop"].good) < 100


def graphs(source: str) -> Iterator[int]:
    for value in vars(run(source)).values():
        if hasattr(value, "experimental_get_tracing_count"):
            yield value.experimental_get_tracing_count()


@pytest.mark.parametrize(("name", "bad", "good"), [("missing-input-signature", 2, 1), ("python-argument", 100, 1)])
def test_calls_retrace_and_then_do_not(name: str, bad: int, good: int) -> None:
    assert list(graphs(BY_NAME[name].bad)) == [bad]
    assert list(graphs(BY_NAME[name].good)) == [good]
