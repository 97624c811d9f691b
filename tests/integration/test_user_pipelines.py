"""Every kind of data set that people have, measured in this process: as it is, and with each candidate proposed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf

from tfpipe.engine.in_process import InProcessExecutor
from tfpipe.messages import (
    Failed,
    Length,
    Measured,
    MeasureFetchFloor,
    MeasureFloor,
    MeasureStep,
    Prepare,
    Prepared,
    Workload,
)
from tfpipe.runner.proposals import propose_candidates
from tfpipe.settings import PipelineSettings

pytestmark = pytest.mark.tensorflow

Factory = Callable[[], Any]
CURRENT = PipelineSettings(overrides=())
SHORT = Length(warmup_steps=1, warmup_s=0.0, steps=3, seconds=0.0)
NAME = "here:make_dataset"


class Here:
    """A pipeline and a step of this file, prepared and ready to measure."""

    def __init__(self, factory: Factory, step: str | Callable[[Any], Any] = "none") -> None:
        functions: dict[str, Callable[..., Any]] = {NAME: factory}
        if not isinstance(step, str):
            functions["here:make_step"] = step
        self.executor = InProcessExecutor(functions, on_progress=lambda progress: None)
        reply = self.executor.execute(
            Prepare(
                workload=Workload(
                    dataset=None,
                    pipeline=NAME,
                    data_dir=None,
                    require_data=False,
                    download=False,
                    image_size=0,
                    batch_size=None,
                    step=step if isinstance(step, str) else "here:make_step",
                    width=0,
                    seed=0,
                )
            )
        )
        self.failed = reply if isinstance(reply, Failed) else None
        self.prepared: Any = reply if isinstance(reply, Prepared) else None

    def measure(self, settings: PipelineSettings = CURRENT, *, steps: int = 3) -> Measured | Failed:
        length = Length(warmup_steps=1, warmup_s=0.0, steps=steps, seconds=0.0)
        reply = self.executor.execute(MeasureStep(settings=settings, round=0, length=length))
        assert isinstance(reply, Measured | Failed)
        return reply

    def measured(self, settings: PipelineSettings = CURRENT, *, steps: int = 3) -> Measured:
        reply = self.measure(settings, steps=steps)
        assert isinstance(reply, Measured), f"{reply.message}\n{reply.detail}"
        return reply

    def failure(self, settings: PipelineSettings = CURRENT) -> Failed:
        reply = self.measure(settings)
        assert isinstance(reply, Failed)
        return reply


@pytest.fixture
def here() -> Iterator[Callable[..., Here]]:
    made: list[Here] = []

    def make(factory: Factory, step: str | Callable[[Any], Any] = "none") -> Here:
        made.append(Here(factory, step))
        return made[-1]

    yield make
    for one in made:
        one.executor.close()


# --- elements, lengths, sources ----------------------------------------------------------------------------------


def dicts(folder: Path) -> Any:
    return tf.data.Dataset.range(100).map(lambda x: {"a": x, "b": {"c": tf.cast(x, tf.float32)}}).batch(4)


def tuples(folder: Path) -> Any:
    return tf.data.Dataset.range(100).map(lambda x: (x, -x, tf.strings.as_string(x))).shuffle(10).batch(4)


def nested(folder: Path) -> Any:
    return tf.data.Dataset.range(100).map(lambda x: ((x, {"y": [x, x]}), (x,))).batch(4).prefetch(1)


def ragged(folder: Path) -> Any:
    return tf.data.Dataset.range(100).map(lambda x: tf.range(x % 5)).ragged_batch(4)


def sparse(folder: Path) -> Any:
    return tf.data.Dataset.range(100).map(lambda x: tf.sparse.from_dense(tf.one_hot(x % 5, 5))).batch(4)


def scalars_without_a_batch(folder: Path) -> Any:
    return tf.data.Dataset.range(100).map(lambda x: x + 1)


def endless(folder: Path) -> Any:
    return tf.data.Dataset.range(10).repeat().shuffle(5).map(lambda x: x + 1).batch(4)


def of_unknown_size(folder: Path) -> Any:
    return tf.data.Dataset.range(100).filter(lambda x: x % 2 == 0).batch(4)


def shorter_than_the_run(folder: Path) -> Any:
    return tf.data.Dataset.range(8).map(lambda x: x + 1).batch(4)


def ending_in_a_partial_batch(folder: Path) -> Any:
    return tf.data.Dataset.range(10).map(lambda x: x + 1).batch(4)


def smaller_than_one_batch(folder: Path) -> Any:
    return tf.data.Dataset.range(3).batch(32).repeat()


def buckets(folder: Path) -> Any:
    lines = tf.data.Dataset.range(200).map(lambda x: tf.ones([x % 7 + 1]))
    return lines.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3, 5], [4, 3, 2])


def records(folder: Path) -> Any:
    for part in range(3):
        options = tf.io.TFRecordOptions(compression_type="GZIP")
        with tf.io.TFRecordWriter(str(folder / f"{part}.tfrecord"), options) as writer:
            for number in range(20):
                writer.write(f"{part}-{number}".encode())
    files = tf.data.Dataset.list_files(f"{folder}/*.tfrecord")
    return files.interleave(lambda file: tf.data.TFRecordDataset(file, compression_type="GZIP"), cycle_length=2).batch(
        4
    )


def text(folder: Path) -> Any:
    (folder / "lines.txt").write_text("".join(f"line {number}\n" for number in range(50)))
    return tf.data.TextLineDataset(str(folder / "lines.txt")).map(tf.strings.length).batch(4)


def csv(folder: Path) -> Any:
    (folder / "rows.csv").write_text("a,b\n" + "".join(f"{n},{n / 2}\n" for n in range(50)))
    return tf.data.experimental.make_csv_dataset(str(folder / "rows.csv"), 4, label_name="b", num_epochs=1)


def images(folder: Path) -> Any:
    for name, number in itertools.product(("cat", "dog"), range(6)):
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
        image = tf.io.encode_png(np.full((9, 9, 3), number, np.uint8))
        (folder / "photos" / name / f"{number}.png").write_bytes(image.numpy())
    from keras.utils import image_dataset_from_directory

    return image_dataset_from_directory(folder / "photos", image_size=(8, 8), batch_size=4, verbose=False)


def generator(folder: Path) -> Any:
    signature = tf.TensorSpec([2], tf.float32)
    numbers = tf.data.Dataset.from_generator(lambda: (np.ones(2) for _ in range(40)), output_signature=signature)
    return numbers.map(lambda x: x * 2).batch(4)


def python_function(folder: Path) -> Any:
    def double(x: Any) -> Any:
        return tf.ensure_shape(tf.py_function(lambda value: value * 2, [x], tf.int64), [])

    return tf.data.Dataset.range(40).map(double, num_parallel_calls=2).batch(4).prefetch(1)


def tables_and_variables(folder: Path) -> Any:
    keys = tf.constant(["a", "b"])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([1, 2])), 0)
    scale = tf.Variable(3)
    words = tf.data.Dataset.from_tensor_slices(["a", "b", "c"] * 20)
    return words.map(lambda word: table.lookup(word) * scale).batch(4)


def own_options(folder: Path) -> Any:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    options.deterministic = False
    options.experimental_optimization.apply_default_optimizations = False
    return tf.data.Dataset.range(40).map(lambda x: x + 1).batch(4).with_options(options)


def several_sources(folder: Path) -> Any:
    numbers = tf.data.Dataset.range(40)
    pairs = tf.data.Dataset.zip(numbers.map(lambda x: x + 1), numbers.map(lambda x: x * 2))
    return pairs.concatenate(pairs).batch(4)


KINDS = (
    dicts, tuples, nested, ragged, sparse, scalars_without_a_batch, endless, of_unknown_size, shorter_than_the_run,
    ending_in_a_partial_batch, smaller_than_one_batch, buckets, records, text, csv, images, generator,
    python_function, tables_and_variables, own_options, several_sources,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_kind_is_measured_as_it_is_and_with_every_candidate(
    kind: Callable[[Path], Any], here: Callable[..., Here], tmp_path: Path
) -> None:
    folder = tmp_path
    one = here(lambda: kind(folder))
    assert one.failed is None, one.failed
    assert one.prepared.pipeline.sites
    candidates = propose_candidates(one.prepared.pipeline, {}, cores=2, yes=False)
    assert candidates[0].settings == CURRENT
    assert len(candidates) >= 2
    for candidate in candidates:
        block = one.measured(candidate.settings).block
        assert block.steps >= 3, candidate.settings.id
        assert block.first_batch_s is not None


@pytest.mark.parametrize(
    ("kind", "batch_size", "examples"),
    [
        (ragged, 4, 100),
        (sparse, 4, 100),
        (scalars_without_a_batch, 1, 100),
        (endless, 4, None),
        (of_unknown_size, 4, None),
        (shorter_than_the_run, 4, 8),
        (ending_in_a_partial_batch, 4, 10),
        (smaller_than_one_batch, 3, None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_said_about_its_size(
    kind: Any, batch_size: int, examples: int | None, here: Callable[..., Here], tmp_path: Path
) -> None:
    data = here(lambda: kind(tmp_path)).prepared.data
    assert (data.batch_size, data.examples, data.code) == (batch_size, examples, None)
    assert data.element
    assert data.example_bytes > 0


# --- the batch that ends an epoch --------------------------------------------------------------------------------


def free_step(spec: Any) -> Any:
    return tf.function(lambda batch: tf.reduce_sum(batch))


def fixed_step(spec: Any) -> Any:
    return tf.function(lambda batch: tf.reduce_sum(batch), input_signature=[tf.TensorSpec([4], tf.int64)])


@pytest.mark.parametrize("step", [free_step, fixed_step])
@pytest.mark.parametrize("repeated", [False, True])
def test_a_partial_batch_is_no_step(step: Any, repeated: bool, here: Callable[..., Here]) -> None:
    def factory() -> Any:
        dataset = tf.data.Dataset.range(10).batch(4)
        return dataset.repeat() if repeated else dataset

    one = here(factory, step)
    block = one.measured(steps=7).block
    assert block.retraced == 0
    assert one.prepared.step.traces == 1
    assert (len(block.epoch_start_s) >= 2) is not repeated
    (finding,) = (f for f in one.prepared.pipeline.findings if f.code == "partial-batch")
    assert "2 of 4" in finding.text
    assert "drop_remainder=True" in finding.remedy


def test_one_batch_per_epoch_has_no_step_between_batches(here: Callable[..., Here]) -> None:
    failed = here(lambda: tf.data.Dataset.range(6).batch(4)).failure()
    assert "fewer than two whole batches" in failed.message
    assert ".repeat()" in str(failed.hint)


def test_whole_batches_keeps_a_stream_whose_batches_differ() -> None:
    from tfpipe.engine.whole_batches import WholeBatches

    sizes = tf.data.Dataset.from_tensor_slices([4, 3, 2, 4, 4, 1]).map(lambda n: tf.zeros([n]))
    seen = [int(batch.shape[0]) for batch in WholeBatches(sizes, 4)]
    # 3 is followed by another odd one, so this is no epoch's end; the 2 stands before a whole one, the 1 last.
    assert seen == [4, 3, 4, 4]
    assert [int(b.shape[0]) for b in WholeBatches(sizes, 4).repeat().dataset.take(2)] == [4, 3]


# --- what factories do -------------------------------------------------------------------------------------------


def test_a_large_array_is_not_copied_for_each_candidate(here: Callable[..., Here]) -> None:
    array = np.random.default_rng(1).integers(0, 256, (1024, 65536), np.uint8)

    def factory() -> Any:
        return tf.data.Dataset.from_tensor_slices(array).map(lambda row: row[:8]).batch(8)

    one = here(factory)
    one.measured()
    before = psutil.Process().memory_info().rss
    for candidate in propose_candidates(one.prepared.pipeline, {}, cores=2, yes=False):
        one.measured(candidate.settings)
    grown = psutil.Process().memory_info().rss - before
    assert grown < array.nbytes, f"grew by {grown:,} bytes"


def test_other_data_each_time_is_fine(here: Callable[..., Here]) -> None:
    draw = np.random.default_rng(1)
    one = here(lambda: tf.data.Dataset.from_tensor_slices(draw.normal(size=(40, 2))).map(lambda x: x).batch(4))
    for candidate in propose_candidates(one.prepared.pipeline, {}, cores=2, yes=False):
        assert one.measured(candidate.settings).block.steps >= 3


def test_other_calls_each_time_are_told(here: Callable[..., Here]) -> None:
    times = itertools.count()

    def factory() -> Any:
        dataset = tf.data.Dataset.range(40)
        if next(times):
            dataset = dataset.shuffle(10)
        return dataset.batch(4)

    failed = here(factory).failure()
    assert failed.cause == "request"
    assert "shuffle(buffer_size=10) is new" in failed.message


def test_building_is_no_part_of_the_first_batch(here: Callable[..., Here]) -> None:
    import time

    def factory() -> Any:
        time.sleep(0.5)
        return tf.data.Dataset.range(40).batch(4)

    one = here(factory)
    assert one.prepared.pipeline.build_s >= 0.5
    first_batch_s = one.measured().block.first_batch_s
    assert first_batch_s is not None
    assert first_batch_s < 0.5


def test_stdout_stays_clean(here: Callable[..., Here], capsys: pytest.CaptureFixture[str]) -> None:
    def factory() -> Any:
        print("loading")
        return tf.data.Dataset.range(40).batch(4)

    here(factory).measured()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "loading" in captured.err


def test_two_pipelines_do_not_meet(here: Callable[..., Here]) -> None:
    first = here(lambda: tf.data.Dataset.range(40).map(lambda x: x + 1).batch(4))
    first_sites = first.prepared.pipeline.sites
    second = InProcessExecutor({"other:make": lambda: tf.data.Dataset.range(60).batch(3)}, on_progress=print)
    reply = second.execute(
        Prepare(
            workload=Workload(
                dataset=None, pipeline="other:make", data_dir=None, require_data=False, download=False, image_size=0,
                batch_size=None, step="none", width=0, seed=0,
            )
        )
    )  # fmt: skip
    assert isinstance(reply, Prepared)
    assert reply.data.batch_size == 3
    assert not {site.id for site in first_sites} & {site.id for site in reply.pipeline.sites if site.kind != "end"}
    assert first.measured().block.steps >= 3
    assert isinstance(second.execute(MeasureStep(settings=CURRENT, round=0, length=SHORT)), Measured)
    second.close()
    assert first.measured().block.steps >= 3


def test_two_files_with_the_same_functions_are_told_apart(tmp_path: Path) -> None:
    """AutoGraph keeps one converted copy for functions whose code is equal."""
    from tfpipe.engine.capture import capture
    from tfpipe.engine.load_user import load_function

    source = (
        "import tensorflow as tf\n"
        "def make_dataset():\n"
        "    return tf.data.Dataset.range(4).interleave(inner, cycle_length=2).batch(2)\n"
        "def inner(number):\n"
        "    return tf.data.Dataset.from_tensors(number).shuffle(3)\n"
    )
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "twins.py").write_text(source)
        captured = capture(load_function(f"{folder}/twins.py:make_dataset"))
        shuffle = next(site for site in captured.sites if site.method == "shuffle")
        assert (shuffle.file, shuffle.line) == (str(folder / "twins.py"), 5)
        assert shuffle.id == "twins.py:5:shuffle(buffer_size)"


# --- errors ------------------------------------------------------------------------------------------------------


def test_an_error_names_the_users_lines_and_leaves_the_next_candidate_alone(here: Callable[..., Here]) -> None:
    calls = itertools.count()

    def factory() -> Any:
        dataset = tf.data.Dataset.range(40)
        if next(calls) == 1:
            raise RuntimeError("no such bucket")
        return dataset.batch(4)

    one = here(factory)
    failed = one.failure()
    assert "RuntimeError: no such bucket" in failed.message
    assert f'File "{__file__}"' in failed.message
    assert "in factory" in failed.message
    assert "tfpipe/" not in failed.message
    assert "tensorflow/python" not in failed.message
    assert one.measured().block.steps >= 3


def test_a_candidate_that_tensorflow_refuses_fails_alone(here: Callable[..., Here]) -> None:
    one = here(lambda: tf.data.Dataset.range(40).map(lambda x: x + 1).batch(4))
    site = next(site for site in one.prepared.pipeline.sites if site.axis == "map_parallelism")
    failed = one.failure(PipelineSettings(overrides=((site.id, -7),)))
    assert failed.cause == "request"
    assert "num_parallel_calls" in failed.message
    assert one.measured().block.steps >= 3


def test_a_map_that_raises_only_in_parallel(here: Callable[..., Here]) -> None:
    import threading
    import time

    inside = threading.Semaphore(1)

    def alone(x: Any) -> Any:
        if not inside.acquire(blocking=False):
            raise ValueError("somebody else is here")
        time.sleep(0.01)
        inside.release()
        return x

    def factory() -> Any:
        numbers = tf.data.Dataset.range(400)
        return numbers.map(lambda x: tf.numpy_function(alone, [x], tf.int64), num_parallel_calls=1).batch(4)

    one = here(factory)
    one.measured(steps=50)
    site = next(site for site in one.prepared.pipeline.sites if site.axis == "map_parallelism")
    failed = one.measure(PipelineSettings(overrides=((site.id, 2),)), steps=50)
    assert isinstance(failed, Failed)
    assert failed.message.startswith("The pipeline or its step raised InvalidArgumentError: ")
    file, line = __file__, alone.__code__.co_firstlineno + 2
    assert failed.message.endswith(
        "ValueError: somebody else is here\nTraceback (most recent call last):\n"
        f'  File "{file}", line {line}, in alone\n    raise ValueError("somebody else is here")\n'
        "ValueError: somebody else is here"
    )


def test_a_step_that_raises_leaves_the_floor_alone(here: Callable[..., Here]) -> None:
    def make_step(spec: Any) -> Any:
        def below_twenty(batch: Any) -> Any:
            tf.debugging.assert_less(batch, tf.constant(20, tf.int64), message="too large for me")
            return tf.reduce_sum(batch)

        return below_twenty

    one = here(lambda: tf.data.Dataset.range(100).batch(4), make_step)
    failed = one.measure(steps=10)
    assert isinstance(failed, Failed)
    assert "too large for me" in failed.message
    floor = one.executor.execute(MeasureFloor(round=0, length=SHORT))
    assert isinstance(floor, Measured)
    assert isinstance(one.executor.execute(MeasureFetchFloor(round=0, length=SHORT)), Measured)


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (lambda: tf.data.Dataset.range(0).batch(4), "no elements"),
        (lambda: [1, 2], "list of 2, not a tf.data.Dataset"),
        (lambda: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_a_factory_that_always_fails_is_told_before_anything_is_measured(
    factory: Factory, words: str, here: Callable[..., Here]
) -> None:
    failed = here(factory).failed
    assert failed is not None
    assert words in failed.message
    assert failed.exit_code == 1
