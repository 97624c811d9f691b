"""A recommendation as Python that can be pasted: the pipeline exactly as it was measured."""

from __future__ import annotations

import textwrap

from tfpipe.records import MapCode, Run
from tfpipe.report.phrases import generated_notice
from tfpipe.settings import PipelineSettings


def pipeline_code(run: Run, settings: PipelineSettings) -> str:
    """A module that defines ``make_dataset`` with ``settings`` and calls it once on the run's data.

    It runs as it stands. Options that the settings leave to TensorFlow are left out.

    Raises:
        ValueError: the run is of a user's own pipeline, which has call sites and no code of ours.
    """
    code = run.data.code
    if code is None:
        raise ValueError("a user's own pipeline has no code to paste")
    parameters = ", ".join([*code.arguments, f"batch_size={run.data.batch_size}", "seed=0"])
    lines = [f"dataset = {code.source}", *_stages(run, code, settings), "return dataset"]
    body = "\n".join(f"    {line}" for line in lines)
    notice = generated_notice(run)
    parts = [
        *([_comment(notice)] if notice else []),
        code.definitions.strip("\n"),
        f"\n\ndef make_dataset({parameters}):\n{body}\n\n",
        code.load.strip("\n"),
        f"dataset = make_dataset({', '.join(code.arguments)})",
        f"# It repeats for ever: with Keras, model.fit(dataset, steps_per_epoch={steps_per_epoch(run)}).",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def steps_per_epoch(run: Run) -> int:
    """Whole batches in one pass over the data, at least one."""
    return max(1, (run.data.examples or 0) // run.data.batch_size)


def _stages(run: Run, code: MapCode, settings: PipelineSettings) -> list[str]:
    lines = []
    if settings.shuffle_buffer:
        buffer = run.data.examples if settings.shuffle_buffer == "full" else settings.shuffle_buffer
        lines.append(f"dataset = dataset.shuffle({buffer}, seed=seed)")
    lines.append("dataset = dataset.repeat()")
    lines.append("# One random number per example, so that augmentation does not depend on the order of stages.")
    lines.append("dataset = tf.data.Dataset.zip(dataset, tf.data.Dataset.random(seed=seed))")
    function = code.map_example if settings.order == "map-batch" else code.map_batch
    calls = "" if settings.map_parallelism is None else f", num_parallel_calls={_value(settings.map_parallelism)}"
    stages = [f"dataset = dataset.map({function}{calls})", "dataset = dataset.batch(batch_size, drop_remainder=True)"]
    lines += stages if settings.order == "map-batch" else reversed(stages)
    if settings.prefetch_depth:
        lines.append(f"dataset = dataset.prefetch({_value(settings.prefetch_depth)})")
    return lines + _options(settings)


def _value(value: int | str) -> str:
    return "tf.data.AUTOTUNE" if value == "auto" else str(value)


def _options(settings: PipelineSettings) -> list[str]:
    lines = []
    if settings.threadpool is not None:
        lines.append(f"options.threading.private_threadpool_size = {settings.threadpool}")
    if not settings.deterministic:
        lines.append("options.deterministic = False")
    if settings.rewrites == "off":
        # AUTOTUNE stays on. The first line alone stops every rewrite in TensorFlow 2.21; the second makes sure
        # that no prefetch is injected where a later version lists it apart.
        lines.append("options.experimental_optimization.apply_default_optimizations = False")
        lines.append("options.experimental_optimization.inject_prefetch = False")
    if not lines:
        return []
    return ["options = tf.data.Options()", *lines, "dataset = dataset.with_options(options)"]


def _comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in textwrap.wrap(text, 100))
