"""What a run measures: a built-in data set with knobs, or the user's own factory with sites. One protocol for both."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import tensorflow as tf

from tfpipe.engine.caches import WarmDatasets, first_fill
from tfpipe.engine.capture import capture, rebuild
from tfpipe.engine.elements import size_bytes
from tfpipe.engine.environment import has_accelerator
from tfpipe.engine.frames import home_of, user_code_error, users_frames
from tfpipe.engine.load_user import bind_arguments, load_function
from tfpipe.engine.loop import EndOfDataError
from tfpipe.engine.moves import settle
from tfpipe.engine.pipeline import build_pipeline
from tfpipe.engine.reorder import check_batch_before_map
from tfpipe.engine.sources import Source, open_source
from tfpipe.engine.structure import never_filled, notice
from tfpipe.engine.whole_batches import WholeBatches, has_fixed_size, leading_size
from tfpipe.errors import DataError, TfpipeError, UsageError
from tfpipe.messages import Workload
from tfpipe.records import Data, Pipeline
from tfpipe.settings import PipelineSettings
from tfpipe.sites import Stage

ACCELERATOR_BATCH_SIZE = 128
CPU_BATCH_SIZE = 32
# A string of an example that is longer than this is no file's name but its content.
MAX_PATH = 4096


class Subject(Protocol):
    """Builds the pipeline of any candidate.

    ``data`` describes what comes out, ``pipeline`` the user's call sites (None for a built-in data set), ``classes``
    the number of labels where that is known, ``batch`` one batch, and ``spec`` its TensorSpecs.
    """

    @property
    def data(self) -> Data: ...

    @property
    def pipeline(self) -> Pipeline | None: ...

    @property
    def classes(self) -> int | None: ...

    @property
    def spec(self) -> Any: ...

    @property
    def batch(self) -> Any: ...

    @property
    def row_bytes(self) -> int:
        """Bytes of the largest part of a raw example that lies in an array in memory; 0 for none."""
        ...

    def build(self, settings: PipelineSettings) -> Any: ...

    def error(self, error: Exception) -> Exception:
        """``error``, raised while a candidate ran, as it should be told to the user."""
        ...


def open_subject(workload: Workload, progress: Callable[[int, int | None], None]) -> Subject:
    """The subject that ``workload`` names. Raises TfpipeError when it cannot be had."""
    if workload.pipeline is not None:
        return UserPipeline(workload)
    return BuiltInData(workload, progress)


class BuiltInData:
    """A built-in data set; candidates are its knobs."""

    pipeline = None

    def __init__(self, workload: Workload, progress: Callable[[int, int | None], None]) -> None:
        assert workload.dataset is not None
        source = open_source(
            workload.dataset,
            data_dir=Path(workload.data_dir) if workload.data_dir else None,
            require_data=workload.require_data,
            image_size=workload.image_size,
            seed=workload.seed,
            download=workload.download,
            progress=progress,
        )
        batch_size = workload.batch_size or (ACCELERATOR_BATCH_SIZE if has_accelerator() else CPU_BATCH_SIZE)
        if batch_size > source.examples:
            raise UsageError(
                f"A batch of {batch_size:,} is larger than the data set of {source.examples:,} examples.",
                f"Use --batch-size {source.examples} or less.",
            )
        self._source = source
        self._batch_size = batch_size
        self._seed = workload.seed
        self.classes = source.classes
        raw_images, *_ = tf.nest.flatten(source.dataset().element_spec)
        fixed = raw_images.shape.num_elements() if raw_images.dtype != tf.string else None
        self.row_bytes = 0 if fixed is None else fixed * raw_images.dtype.size
        plain = self.build(PipelineSettings(order=source.orders[0]))
        self.spec = plain.element_spec
        self.batch = _first_batch(source, plain)
        self.data = Data(
            name=source.name,
            origin=source.origin,
            generated=source.generated,
            examples=source.examples,
            batch_size=batch_size,
            element=source.element,
            example_bytes=source.example_bytes,
            code=source.code,
        )

    def build(self, settings: PipelineSettings) -> Any:
        return build_pipeline(self._source, settings, batch_size=self._batch_size, seed=self._seed)

    def error(self, error: Exception) -> Exception:
        return error


def _first_batch(source: Source, dataset: Any) -> Any:
    """One batch of a built-in data set. Raises DataError that names the first file that cannot be decoded."""
    try:
        return next(iter(dataset.take(1)))
    except tf.errors.OpError:
        pass
    for example in source.dataset():
        first = tf.nest.flatten(example)[0]
        path = first.numpy().decode(errors="replace") if first.dtype == tf.string else ""
        # A random crop may miss what is damaged: the whole file is decoded.
        if 0 < len(path) < MAX_PATH and os.path.isfile(path) and not _decodes(path):
            raise DataError(f"{path} cannot be decoded.", "It may be cut short: replace or remove it.") from None
    raise DataError(f"{source.name} cannot be read.", "Look at its files, or name others with --data-dir.")


def _decodes(path: str) -> bool:
    try:
        tf.io.decode_jpeg(tf.io.read_file(path))
    except tf.errors.OpError:
        return False
    return True


class UserPipeline:
    """A user's factory, run again for each candidate with other arguments at its call sites."""

    classes = None
    row_bytes = 0

    def __init__(self, workload: Workload) -> None:
        assert workload.pipeline is not None
        function = load_function(workload.pipeline)
        self._factory = bind_arguments(function, workload.arguments)
        self._home = home_of(self._factory)
        captured = capture(self._factory)
        self._sites = captured.sites
        self.spec = captured.dataset.element_spec
        self.batch = self._first_batch(captured.dataset)
        reorders = []
        for site in captured.sites:
            if site.axis == "order" and site.reaches_end and site.partner is not None:
                reorders.append(check_batch_before_map(captured, site.stage, site.partner))
        batches = int(captured.dataset.cardinality())
        # Batches of an epoch that stops before its end, which would fill no cache that is added.
        self._taken = _taken(workload.epoch_batches, batches)
        noticed = [one for one in notice(captured.stages) if self._taken is None or one.cache_before is None]
        settled = settle(captured, noticed)
        cache_fill = first_fill(captured.dataset) if self._taken is None else None
        # Where the caches fill too slowly, or never, every candidate is measured in its first epoch.
        fills = self._taken is None and (cache_fill is None or cache_fill.complete)
        self._warm = WarmDatasets() if fills else None
        self._batch_size = batch_size = leading_size(self.batch)
        self.data = Data(
            name=workload.pipeline,
            origin=_origin(batches, self._taken),
            generated=False,
            examples=_examples(captured.stages, self._taken or batches, batch_size),
            batch_size=batch_size,
            element=_element(self.spec),
            example_bytes=size_bytes(self.batch) // max(1, batch_size),
            code=None,
        )
        self.pipeline = Pipeline(
            reference=workload.pipeline,
            arguments=workload.arguments,
            root=self._home.root,
            sites=captured.sites + settled.sites,
            stages=captured.stages,
            findings=settled.findings + never_filled(captured.stages, self._taken),
            reorders=tuple(reorders),
            build_s=captured.build_s,
            cache_fill=cache_fill,
        )

    def _first_batch(self, dataset: Any) -> Any:
        error: Exception
        try:
            for batch in dataset.take(1):
                return batch
        except Exception as raised:
            error = self.error(raised)
        else:
            error = TfpipeError("The pipeline has no elements.", "Check its files and filters, then run it by itself.")
        # Outside the handler: an error that kept the user's traceback would keep their iterator alive.
        raise error

    def build(self, settings: PipelineSettings) -> Any:
        def make() -> Any:
            dataset = rebuild(self._factory, dict(settings.overrides or ()), expected=self._sites)
            return dataset if self._taken is None else dataset.take(self._taken)

        dataset = make() if self._warm is None else self._warm.get(settings.overrides, make)
        return dataset if has_fixed_size(self.spec) else WholeBatches(dataset, self._batch_size)

    def error(self, error: Exception) -> Exception:
        """Errors from TensorFlow or from their functions are the user's; ours stay as they are."""
        if isinstance(error, EndOfDataError):
            return TfpipeError(
                "An epoch of the pipeline has fewer than two whole batches, so there is no step between them to time.",
                "Put .repeat() before the batch, or make the batches smaller.",
            )
        theirs = isinstance(error, (tf.errors.OpError, MemoryError)) or users_frames(error, self._home)
        if isinstance(error, TfpipeError) or not theirs:
            return error
        return user_code_error("The pipeline or its step", error, home=self._home)


def _taken(epoch_batches: int | None, batches: int) -> int | None:
    """``epoch_batches`` where that is less than the ``batches`` there are (as ``cardinality`` tells them)."""
    return None if epoch_batches is None or 0 <= batches <= epoch_batches else epoch_batches


def _origin(batches: int, taken: int | None) -> str:
    per_epoch = f", {batches:,} batches per epoch" if batches >= 0 else ""
    return f"your own pipeline{per_epoch}" + (f", a new iterator after {taken:,}" if taken is not None else "")


def _examples(stages: Sequence[Stage], batches: int, batch_size: int) -> int | None:
    """Examples per epoch, None when endless or unknown; exact where a last batch is smaller and tf.data counts."""
    if batches < 0:
        return None
    counts = {stage.id: stage.cardinality for stage in stages}
    for stage in reversed(stages):
        if stage.reaches_end and stage.parent is None and stage.method.endswith("batch") and stage.inputs:
            count = counts.get(stage.inputs[0])
            if count is not None and math.ceil(count / batch_size) == batches:
                return count
    return batches * batch_size


def _element(spec: Any) -> str:
    """Types and shapes of one example of a batch, for people."""
    parts = [
        f"{leaf.dtype.name} {leaf.shape[1:] if leaf.shape.rank else leaf.shape}"
        if hasattr(leaf, "dtype")
        else type(leaf).__name__
        for leaf in tf.nest.flatten(spec)
    ]
    return ", ".join(parts)
