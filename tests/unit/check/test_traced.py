"""Which code counts as traced, in every spelling, and which does not."""

from __future__ import annotations

import textwrap

import pytest

from tests.unit.check.finding import findings_in, rules_in
from tfpipe.check.analyze import analyze_source

TRACED = {
    "bare decorator": "@tf.function\ndef f(x):\n    print(x)\n",
    "decorator with options": "@tf.function(jit_compile=True)\ndef f(x):\n    print(x)\n",
    "imported by name": "from tensorflow import function as graph\n@graph\ndef f(x):\n    print(x)\n",
    "partial": "import functools\n@functools.partial(tf.function, jit_compile=True)\ndef f(x):\n    print(x)\n",
    "options under a name": "compiled = tf.function(jit_compile=True)\n@compiled\ndef f(x):\n    print(x)\n",
    "an alias": "graph = tf.function\n@graph\ndef f(x):\n    print(x)\n",
    "wrapped": "def f(x):\n    print(x)\nf = tf.function(f)\n",
    "wrapped with options": "def f(x):\n    print(x)\ng = tf.function(f, jit_compile=True)\n",
    "a lambda": "g = tf.function(lambda x: print(x))\n",
    "a method": """
        class M:
            def __init__(self):
                self.g = tf.function(self.f)
            def f(self, x):
                print(x)
        """,
    "an object": "class M:\n    def __call__(self, x):\n        print(x)\ng = tf.function(M())\n",
    "another spelling of tensorflow": "import tensorflow.compat.v2 as t2\n@t2.function\ndef f(x):\n    print(x)\n",
    "call of a layer": "class L(tf.keras.layers.Layer):\n    def call(self, x):\n        print(x)\n",
    "call of a derived layer": """
        from keras import layers
        class A(layers.Dense):
            pass
        class B(A):
            def call(self, x):
                print(x)
        """,
    "train_step": """
        from tensorflow.keras import Model
        class M(Model):
            def train_step(self, x):
                print(x)
        """,
    "Dataset.map": "def f(x):\n    print(x)\n    return x\nds = tf.data.Dataset.range(3).map(f)\n",
    "map of a name": "def f(x):\n    print(x)\n    return x\nds = tf.data.Dataset.range(3)\nds = ds.map(f)\n",
    "map in a chain": "def f(x):\n    print(x)\n    return x\ndef make(ds):\n    return ds.map(f).batch(8)\n",
    "map with num_parallel_calls": """
        def f(x):
            print(x)
        def make(ds):
            return ds.map(f, num_parallel_calls=4)
        """,
    "interleave": "def f(x):\n    print(x)\ndef make(ds):\n    return ds.interleave(f, cycle_length=4)\n",
    "map of a partial": """
        from functools import partial
        def f(x, k):
            print(x)
        ds = tf.data.Dataset.range(3).map(partial(f, k=3))
        """,
    "called from a map's lambda": "def f(x):\n    print(x)\nds = tf.data.Dataset.range(3).map(lambda x: f(x))\n",
    "a helper method": """
        class M(tf.Module):
            @tf.function
            def __call__(self, x):
                return self.helper(x)
            def helper(self, x):
                print(x)
        """,
    "handed on": "def body(x):\n    print(x)\n@tf.function\ndef f(x):\n    return tf.map_fn(body, x)\n",
    "two calls away": "def a(x):\n    print(x)\ndef b(x):\n    a(x)\n@tf.function\ndef f(x):\n    b(x)\n",
    "a Lambda layer": "layer = tf.keras.layers.Lambda(lambda x: print(x))\n",
}


@pytest.mark.parametrize("name", TRACED)
def test_traced(name: str) -> None:
    assert rules_in(TRACED[name]) == ["python-print"]


UNTRACED = {
    "plain Python": "def f(x):\n    print(x)\n",
    "a name that is not tf.function": "def function(f):\n    return f\n@function\ndef f(x):\n    print(x)\n",
    "__init__ and build": """
        class L(tf.keras.layers.Layer):
            def __init__(self):
                super().__init__()
                print("made")
                self.v = tf.Variable(1.0)
            def build(self, shape):
                print(shape)
                self.w = self.add_weight(shape=shape)
            def call(self, x):
                return x
        """,
    "call of another class": "class L:\n    def call(self, x):\n        print(x)\n",
    "a pandas map": "import pandas as pd\ndf = pd.Series([1])\ndf.map(lambda x: print(x))\n",
    "a pool's map": "def f(x):\n    print(x)\ndef run(pool):\n    pool.map(f, [1, 2])\n",
    "a Hugging Face map": "def f(x):\n    print(x)\ndef run(data):\n    return data.map(f, batched=True).shuffle()\n",
    "from_generator": "def f():\n    print('go')\n    yield 1\nds = tf.data.Dataset.from_generator(f, tf.int32)\n",
    "eager branch": "@tf.function\ndef f(x):\n    if tf.executing_eagerly():\n        print(x)\n    return x\n",
    "not inside a function": """
        @tf.function
        def f(x):
            if not tf.inside_function():
                print(x)
            return x
        """,
    "init_scope": "@tf.function\ndef f(x):\n    with tf.init_scope():\n        print('once')\n    return x\n",
    "a dynamic layer": """
        class L(tf.keras.layers.Layer):
            def __init__(self):
                super().__init__(dynamic=True)
            def call(self, x):
                print(x)
        """,
    "another Keras backend": """
        import os
        os.environ["KERAS_BACKEND"] = "jax"
        class L(tf.keras.layers.Layer):
            def call(self, x):
                print(x)
        """,
    "tf.print under the name print": "print = tf.print\n@tf.function\ndef f(x):\n    print(x)\n",
}


@pytest.mark.parametrize("name", UNTRACED)
def test_not_traced(name: str) -> None:
    assert rules_in(UNTRACED[name]) == []


def test_the_function_of_a_py_function_is_plain_python() -> None:
    code = """
        def load(path):
            print(path)
            return path.numpy()
        @tf.function
        def f(x):
            return tf.py_function(load, [x], tf.float32)
        """
    assert rules_in(code) == ["py-function"]


def test_a_decorator_of_the_file_that_uses_py_function() -> None:
    code = """
        import time
        def as_python(f):
            def wrapper(x):
                return tf.py_function(f, [x], tf.int64)
            return wrapper
        @as_python
        def slow(x):
            time.sleep(1)
            return x
        ds = tf.data.Dataset.range(3).map(slow)
        """
    assert "python-time" not in rules_in(code)


def test_eagerly_compiled_models_have_one_finding() -> None:
    code = """
        class M(tf.keras.Model):
            def train_step(self, data):
                print(data)
                return {}
        model = M()
        model.compile(run_eagerly=True)
        """
    assert rules_in(code) == ["eager-switched-on"]


def test_why_is_told() -> None:
    code = "def g(x):\n    print(x)\n@tf.function\ndef f(x):\n    g(x)\n"
    finding = findings_in(code)[0]
    assert finding.function == "g"
    assert finding.traced == "called from f, decorated with tf.function (line 4)"


def test_traced_functions_are_listed_by_line() -> None:
    text = "import tensorflow as tf\n@tf.function\ndef b(x):\n    return a(x)\ndef a(x):\n    return x\n"
    traced = analyze_source("code.py", text).file.traced
    assert [(item.name, item.line) for item in traced] == [("b", 3), ("a", 5)]


def test_one_function_only() -> None:
    code = textwrap.dedent(
        """
        @tf.function
        def f(x):
            print(x)
        @tf.function
        def g(x):
            helper(x)
        def helper(x):
            print(x)
        """
    )
    assert [finding.function for finding in findings_in(code, "f")] == ["f"]
    assert [finding.function for finding in findings_in(code, "g")] == ["helper"]
    assert [finding.function for finding in findings_in(code)] == ["f", "helper"]


def test_a_named_plain_function_is_taken_for_traced() -> None:
    finding = findings_in("def step(x):\n    print(x)\n", "step")[0]
    assert finding.traced == "named as the target"


def test_a_named_factory_leads_to_what_it_makes() -> None:
    code = """
        def augment(x):
            print(x)
            return x
        def make():
            print("making")
            return tf.data.Dataset.range(3).map(augment)
        """
    assert [finding.function for finding in findings_in(code, "make")] == ["augment"]


def test_a_model_factory_is_not_taken_for_a_step() -> None:
    code = "def make():\n    print('x')\n    return tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
    assert rules_in(code, "make") == []


@pytest.mark.parametrize("name", ["M", "M.__call__", "net", "step"])
def test_classes_objects_and_wrapped_names(name: str) -> None:
    code = """
        class M(tf.Module):
            @tf.function
            def __call__(self, x):
                print(x)
        net = M()
        step = tf.function(net)
        """
    assert rules_in(code, name) == ["python-print"]
