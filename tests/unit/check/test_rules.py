"""Every rule on its own examples, and the registry as a whole."""

from __future__ import annotations

import ast

import pytest

from tests.unit.check.finding import rules_in
from tfpipe.check.analyze import analyze_source
from tfpipe.check.rules import RULES, UNREADABLE
from tfpipe.check_records import Rule

NAMES = [
    "python-print",
    "outer-state",
    "python-file",
    "python-time",
    "python-random",
    "unrolled-loop",
    "tensor-numpy",
    "tensor-to-number",
    "tensor-to-bool",
    "tensor-assert",
    "tensor-len",
    "variable-in-function",
    "keras-object-in-function",
    "missing-input-signature",
    "python-argument",
    "function-in-loop",
    "eager-switched-on",
    "missing-training-flag",
    "py-function",
    "unreadable-file",
]
# The one whose bad example cannot be looked at.
READABLE = [rule for rule in RULES if rule is not UNREADABLE]


def test_the_registry_is_closed() -> None:
    assert [rule.name for rule in RULES] == NAMES


@pytest.mark.parametrize("rule", READABLE, ids=lambda rule: rule.name)
def test_the_bad_example_breaks_exactly_its_rule(rule: Rule) -> None:
    findings = analyze_source("bad.py", rule.bad).findings
    assert [(finding.rule, finding.severity) for finding in findings] == [(rule.name, rule.severity)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_good_example_is_quiet(rule: Rule) -> None:
    assert analyze_source("good.py", rule.good).findings == ()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_examples_are_whole_files(rule: Rule) -> None:
    if rule is UNREADABLE:
        with pytest.raises(SyntaxError):
            ast.parse(rule.bad)
    else:
        ast.parse(rule.bad)
    ast.parse(rule.good)
    assert rule.reason.endswith(".")
    assert rule.instead.endswith(".")


BROKEN = {
    "a global counter": (
        ["outer-state"],
        """
        count = 0
        @tf.function
        def f(x):
            global count
            count += 1
            return x
        """,
    ),
    "a nonlocal name": (
        ["outer-state"],
        """
        def make():
            count = 0
            @tf.function
            def f(x):
                nonlocal count
                count = count + 1
                return x
            return f
        """,
    ),
    "an item of a dict": (["outer-state"], "seen = {}\n@tf.function\ndef f(x):\n    seen['x'] = x\n"),
    "a set": (["outer-state"], "seen = set()\n@tf.function\ndef f(x):\n    seen.add(1)\n    return x\n"),
    "a counter attribute": (
        ["outer-state"],
        "class M(tf.Module):\n    @tf.function\n    def __call__(self, x):\n        self.n += 1\n        return x\n",
    ),
    "an attribute": (
        ["outer-state"],
        "class M(tf.Module):\n    @tf.function\n    def __call__(self, x):\n        self.last = x\n        return x\n",
    ),
    "from random import": (
        ["python-random"],
        "from random import choice\n@tf.function\ndef f(x):\n    return x * choice([1, 2])\n",
    ),
    "a NumPy generator": (
        ["python-random"],
        "import numpy as np\nrng = np.random.default_rng(0)\n@tf.function\ndef f(x):\n    return x * rng.normal()\n",
    ),
    "the clock under another name": (
        ["python-time"],
        "from time import perf_counter as clock\n@tf.function\ndef f(x):\n    return x, clock()\n",
    ),
    "the date": (
        ["python-time"],
        "from datetime import datetime\n@tf.function\ndef f(x):\n    return x, str(datetime.now())\n",
    ),
    "enumerate over a range": (
        ["unrolled-loop"],
        "@tf.function\ndef f(x):\n    for i, j in enumerate(range(500)):\n        x = tf.sin(x)\n    return x\n",
    ),
    "a count from the constructor": (
        ["unrolled-loop"],
        """
        class M(tf.keras.Model):
            def __init__(self, n=1000):
                super().__init__()
                self.n = n
            def call(self, x):
                for i in range(self.n):
                    x = x * 2.0
                return x
        """,
    ),
    "a count from the call": (
        ["unrolled-loop"],
        """
            @tf.function
            def f(x, n):
                for i in range(n):
                    x = tf.sin(x)
                return x
            f(tf.zeros([3]), 200)
            """,
    ),
    "nested loops": (
        ["unrolled-loop"],
        """
        @tf.function
        def f(x):
            for i in range(40):
                for j in range(40):
                    x = tf.sin(x)
            return x
        """,
    ),
    "a comprehension": (["unrolled-loop"], "@tf.function\ndef f(x):\n    return [tf.sin(x) for i in range(500)]\n"),
    "numpy() of a parameter": (["tensor-numpy"], "@tf.function\ndef f(x):\n    return x.numpy()\n"),
    "float() of a parameter": (["tensor-to-number"], "@tf.function\ndef f(x):\n    return float(x)\n"),
    "int() of a local": (
        ["tensor-to-number"],
        "@tf.function\ndef f(x):\n    y = tf.reduce_sum(x)\n    return int(y)\n",
    ),
    "bool() of a comparison": (["tensor-to-bool"], "@tf.function\ndef f(x):\n    return bool(x > 0)\n"),
    "assert with a message": (
        ["tensor-assert"],
        "@tf.function\ndef f(x):\n    assert x > 0, 'positive'\n    return x\n",
    ),
    "len in a map": (["tensor-len"], "ds = tf.data.Dataset.range(3).batch(2).map(lambda x: len(x))\n"),
    "layer, optimiser and metric": (
        ["keras-object-in-function"] * 3,
        """
        from tensorflow.keras import layers, optimizers
        @tf.function
        def f(x):
            metric = tf.keras.metrics.Mean()
            optimizer = optimizers.Adam()
            return layers.Dense(3)(x), metric, optimizer
        """,
    ),
    "add_weight in call": (
        ["variable-in-function"],
        "class L(tf.keras.layers.Layer):\n    def call(self, x):\n        return x * self.add_weight(shape=[])\n",
    ),
    "shapes from a loop": (
        ["missing-input-signature"],
        "@tf.function\ndef f(x):\n    return x\nfor n in range(10):\n    f(tf.zeros([n, 3]))\n",
    ),
    "shapes of literals": (
        ["missing-input-signature"],
        "@tf.function\ndef f(x):\n    return x\nf(tf.constant([1, 2]))\nf(tf.constant([1, 2, 3]))\n",
    ),
    "two numbers": (["python-argument"], "@tf.function\ndef f(x):\n    return x\nf(1)\nf(2)\n"),
    "two list lengths": (["python-argument"], "@tf.function\ndef f(x):\n    return x\nf([1])\nf([1, 2])\n"),
    "a counter of a while loop": (
        ["python-argument"],
        "@tf.function\ndef f(x):\n    return x\nstep = 0\nwhile step < 10:\n    f(step)\n    step += 1\n",
    ),
    "numbers to a method": (
        ["python-argument"],
        """
        class T:
            @tf.function
            def step(self, x, rate):
                return x
            def fit(self, x):
                self.step(x, 0.1)
                self.step(x, 0.01)
        """,
    ),
    "eager by another import": (
        ["eager-switched-on"],
        "from tensorflow.config import run_functions_eagerly\nrun_functions_eagerly(True)\n",
    ),
    "eager as an attribute": (["eager-switched-on"], "model = tf.keras.Sequential()\nmodel.run_eagerly = True\n"),
    "no training flag in train_step": (
        ["missing-training-flag"],
        """
        class Net(tf.keras.Model):
            def __init__(self):
                super().__init__()
                self.norm = tf.keras.layers.BatchNormalization()
            def call(self, x, training=None):
                return self.norm(x, training=training)
            def train_step(self, data):
                with tf.GradientTape():
                    y = self(data)
                return {"y": y}
        """,
    ),
    "no training flag, functional model": (
        ["missing-training-flag"],
        """
        inputs = tf.keras.Input([3])
        x = tf.keras.layers.Dense(3)(inputs)
        x = tf.keras.layers.Dropout(0.3)(x)
        model = tf.keras.Model(inputs, x)
        @tf.function
        def train_step(x):
            with tf.GradientTape() as tape:
                y = model(x)
            return tape.gradient(y, model.trainable_variables)
        """,
    ),
    "no training flag, model as an argument": (
        ["missing-training-flag"],
        """
        net = tf.keras.Sequential()
        net.add(tf.keras.layers.Dropout(0.3))
        @tf.function
        def train_step(model, x):
            with tf.GradientTape() as tape:
                y = model(x)
            return tape.gradient(y, model.trainable_variables)
        train_step(net, tf.zeros([3, 3]))
        """,
    ),
    "py_function as a decorator": (
        ["py-function"],
        """
        @tf.py_function(Tout=tf.float32)
        def load(path):
            print(path)
            return 1.0
        ds = tf.data.Dataset.list_files("*").map(lambda path: load(path))
        """,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_found(name: str) -> None:
    expected, code = BROKEN[name]
    assert rules_in(code) == expected
