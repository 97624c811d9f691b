"""What the commands do, for Python programs and notebooks. The functions are names of ``tfpipe`` itself.

Measure a pipeline, see what is recommended, and train with it without changing a line:

>>> import tensorflow as tf
>>> import tfpipe
>>> def make_dataset(batch_size=16):
...     numbers = tf.data.Dataset.range(2000)
...     return numbers.map(lambda x: x * 2).batch(batch_size)
>>> run = tfpipe.profile(
...     make_dataset, step="simulated:2ms", knobs={"prefetch_depth": "0,2"}, time_budget_s=2, output=folder / "run"
... )
>>> [candidate.name or candidate.id for candidate in run.candidates]
['your pipeline as it is', 'prefetch=0', 'prefetch=2']
>>> run.recommendation.candidate in {candidate.id for candidate in run.candidates}
True
>>> training = tfpipe.tuned(make_dataset, run)
>>> training(batch_size=32).element_spec
TensorSpec(shape=(None,), dtype=tf.int64, name=None)

The run is saved as the command saves it, and so are its traces:

>>> tfpipe.load_run(run.directory).current
'current'
>>> trace = tfpipe.analyze(run.directory / run.candidates[0].trace.path)
>>> trace.main.steps.count > 0
True

A step of your own is a function that is called with the elements' specs and returns what trains:

>>> def make_step(element_spec):
...     weight = tf.Variable(0.0)
...     return lambda batch: weight.assign_add(tf.reduce_sum(tf.cast(batch, tf.float32)))
>>> run = tfpipe.profile(make_dataset, step=make_step, knobs={"prefetch_depth": "2"}, time_budget_s=2,
...                      output=folder / "own")
>>> run.step.traces
1
"""
