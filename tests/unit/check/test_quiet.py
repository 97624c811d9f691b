"""Code that looks like a mistake and is none: one test for each kind of false alarm met in code of others."""

from __future__ import annotations

import pytest

from tests.unit.check.finding import rules_in

QUIET = {
    "a list of the function's own": "@tf.function\ndef f(x):\n    parts = []\n    parts.append(x)\n    return parts\n",
    "a list of the enclosing traced function": """
        @tf.function
        def f(x):
            parts = []
            def add(y):
                parts.append(y)
            add(x)
            return parts
        """,
    "assign on a variable": "v = tf.Variable(0)\n@tf.function\ndef f():\n    v.assign_add(1)\n    return v\n",
    "update of a metric": "m = tf.keras.metrics.Mean()\n@tf.function\ndef f(x):\n    m.update_state(x)\n",
    "state set once": """
        class M:
            def __init__(self):
                self.v = None
            @tf.function
            def __call__(self, x):
                if self.v is None:
                    self.v = tf.Variable(x)
                if not hasattr(self, "w"):
                    self.w = tf.Variable(x)
                return self.v + self.w
        """,
    "state set once, asked by a method": """
        class L(tf.keras.layers.Layer):
            def call(self, x):
                if self.is_new():
                    self.set_up(x)
                return x
            def is_new(self):
                return self.size is None
            def set_up(self, x):
                self.size = x.shape
        """,
    "built behind a guard": """
        class L(tf.keras.layers.Layer):
            def build(self, shape):
                self.dense = tf.keras.layers.Dense(3)
            def call(self, x):
                if not self.built:
                    self.build(x.shape)
                return self.dense(x)
        """,
    "trainable is read while tracing": """
        class M(tf.keras.Model):
            def train_step(self, x):
                self.critic.trainable = True
                return {}
        """,
    "handed to a helper of the same graph": """
        class M(tf.keras.Model):
            def train_step(self, x):
                self.batch_size = tf.shape(x)[0]
                return {"loss": self.penalty(x)}
            def penalty(self, x):
                return tf.random.uniform([self.batch_size])
        """,
    "an object made inside": """
        class Parser:
            def __init__(self, image):
                self.image = image
            def scale(self):
                self.image = self.image / 255.0
                return self.image
        def parse(x):
            parser = Parser(x)
            return parser.scale()
        ds = tf.data.Dataset.range(3).map(parse)
        """,
    "a loop over layers": "@tf.function\ndef f(x):\n    for layer in layers:\n        x = layer(x)\n    return x\n",
    "a short range": "@tf.function\ndef f(x):\n    for _ in range(12):\n        x = tf.sin(x)\n    return x\n",
    "tf.range": "@tf.function\ndef f(x):\n    for _ in tf.range(1000):\n        x = tf.sin(x)\n    return x\n",
    "a long loop without operations": """
        @tf.function
        def f(x):
            names = [str(i) for i in range(999)]
            return x
        """,
    "numbers of the shape": """
        @tf.function
        def f(x, training=False, xs=()):
            assert training
            assert x.shape[0] == 3 and x.shape.rank == 2
            assert isinstance(xs, tuple)
            assert x.dtype == tf.float32
            return int(x.shape[0]) + len(x.shape) + len(xs)
        """,
    "len of what a model returns": "@tf.function\ndef f(x, model):\n    y = model(x)\n    return len(y)\n",
    "a parameter used as a list": """
        @tf.function
        def f(xs):
            n = len(xs)
            for x in xs:
                n = n + x
            return n
        """,
    "a parameter used as a dict": "@tf.function\ndef f(x):\n    return tf.reduce_sum(x['a']) / len(x)\n",
    "numpy() of a constant from outside": "c = tf.constant(3)\n@tf.function\ndef f(x):\n    return x * c.numpy()\n",
    "a stateless layer": "@tf.function\ndef f(x):\n    return tf.keras.layers.Flatten()(x)\n",
    "a stateless layer of the file": """
        class Sampling(tf.keras.layers.Layer):
            def call(self, x):
                return x + tf.random.normal(tf.shape(x))
        class M(tf.keras.Model):
            def call(self, x):
                return Sampling()(x)
        """,
    "batches of an enumerated data set": """
        @tf.function
        def f(x, y):
            return x
        for step, (x, y) in enumerate(tf.data.Dataset.range(3)):
            f(x, y)
        """,
    "shapes of different rank": "@tf.function\ndef f(x):\n    return x\nf(tf.zeros([3]))\nf(tf.zeros([3, 2]))\n",
    "a flag": "@tf.function\ndef f(x, training):\n    return x\nf(tf.zeros([3]), True)\nf(tf.zeros([3]), False)\n",
    "one number": "@tf.function\ndef f(x, n):\n    return x\nf(tf.zeros([3]), 2)\nf(tf.zeros([3]), 2)\n",
    "numbers inside the graph": """
        @tf.function
        def g(x, n):
            return x * n
        @tf.function
        def f(x):
            return g(x, 1) + g(x, 2)
        """,
    "functions collected in a loop": "fs = []\nfor name in 'ab':\n    fs.append(tf.function(lambda x: x))\n",
    "eager switched on and off": "tf.config.run_functions_eagerly(True)\ntf.config.run_functions_eagerly(False)\n",
    "random augmentation is on by default": """
        augment = tf.keras.Sequential([tf.keras.layers.RandomFlip()])
        @tf.function
        def train_step(x):
            with tf.GradientTape():
                return augment(x)
        """,
    "a flag of another name": """
        class Net(tf.keras.Model):
            def __init__(self):
                super().__init__()
                self.drop = tf.keras.layers.Dropout(0.5)
            def call(self, x, is_training):
                return self.drop(x, training=is_training)
        net = Net()
        @tf.function
        def train_step(x):
            with tf.GradientTape():
                return net(x, is_training=True)
        """,
    "Keras hands training on inside call": """
        class Net(tf.keras.Model):
            def __init__(self):
                super().__init__()
                self.drop = tf.keras.layers.Dropout(0.5)
            def call(self, x, training=None):
                return self.drop(x)
        """,
    "a property is no helper": """
        class L(tf.keras.layers.Layer):
            @property
            def states(self):
                return self._states
            @states.setter
            def states(self, value):
                self._states = value
            def call(self, x):
                return tf.add(x, self.states)
        """,
}


@pytest.mark.parametrize("name", QUIET)
def test_quiet(name: str) -> None:
    assert rules_in(QUIET[name]) == []
