"""Every knob of a factory is found at its line, whatever the Python around it; TensorFlow is left as it was."""

from __future__ import annotations

import inspect
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfpipe.engine.capture import Captured, capture, rebuild
from tfpipe.engine.load_user import load_function
from tfpipe.errors import TfpipeError, UserCodeError

pytestmark = pytest.mark.tensorflow

READERS = (tf.data.TFRecordDataset, tf.data.TextLineDataset, tf.data.FixedLengthRecordDataset)


def tensorflows_own() -> dict[tuple[type, str], Any]:
    """Everything that capturing wraps, and more: the identity of each attribute."""
    owners = (tf.data.Dataset, tf.compat.v1.data.Dataset, tf.data.Options, tf.data.Options.__mro__[1], *READERS)
    return {
        (owner, name): value
        for owner in owners
        for name, value in vars(owner).items()
        if not name.startswith("__") or name in ("__init__", "__setattr__")
    }


@pytest.fixture(autouse=True)
def _unchanged() -> Any:
    before = tensorflows_own()
    yield
    after = tensorflows_own()
    assert [key for key in before if after[key] is not before[key]] == []


def write_module(folder: Path, name: str, source: str) -> Path:
    file = folder / f"{name}.py"
    file.write_text("import tensorflow as tf\n" + textwrap.dedent(source))
    return file


def load(folder: Path, name: str, source: str) -> tuple[Callable[..., Any], list[str]]:
    """The function ``make`` of a new file, and the file's lines."""
    file = write_module(folder, name, source)
    return load_function(f"{file}:make"), ["", *file.read_text().splitlines()]


def found(captured: Captured, **fields: Any) -> list[tuple[Any, ...]]:
    """(method, argument, value, written) of the user's calls."""
    return [
        (site.method, site.argument, site.value, site.written)
        for site in captured.sites
        if site.kind in ("call", "reader") and all(getattr(site, key) == value for key, value in fields.items())
    ]


def assert_lines(captured: Captured, lines: list[str]) -> None:
    """Each site's line has its method's name on it."""
    for site in captured.sites:
        if site.kind in ("call", "reader") and site.via is None:
            assert f"{site.method}(" in lines[site.line or 0], (site.id, lines[site.line or 0])


def test_every_knob_with_its_line_value_and_whether_it_was_written(tmp_path: Path) -> None:
    make, lines = load(
        tmp_path,
        "every",
        """
        def make():
            ds = tf.data.Dataset.range(8).shuffle(
                buffer_size=tf.constant(5, tf.int64),
            )
            ds = (
                ds.map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
                .cache()
                .interleave(
                    lambda x: tf.data.Dataset.from_tensors(x),
                    cycle_length=2, block_length=3, num_parallel_calls=2,
                )
                .batch(2, num_parallel_calls=2)
                .unbatch()
                .padded_batch(2)
                .unbatch()
                .ragged_batch(2)
                .prefetch(tf.data.AUTOTUNE)
            )
            return ds
        """,
    )
    captured = capture(make)
    assert found(captured) == [
        ("shuffle", "buffer_size", 5, True),
        ("map", "num_parallel_calls", "auto", True),
        ("map", "deterministic", False, True),
        ("cache", "filename", "", False),
        ("interleave", "cycle_length", 2, True),
        ("interleave", "block_length", 3, True),
        ("interleave", "num_parallel_calls", 2, True),
        ("interleave", "deterministic", None, False),
        ("batch", "num_parallel_calls", 2, True),
        ("batch", "deterministic", None, False),
        ("prefetch", "buffer_size", "auto", True),
    ]
    assert_lines(captured, lines)
    assert [stage.method for stage in captured.stages if stage.parent is None] == [
        "range", "shuffle", "map", "cache", "interleave", "batch", "unbatch", "padded_batch", "unbatch", "ragged_batch",
        "prefetch",
    ]  # fmt: skip
    assert captured.build_s > 0


def test_readers_in_functions_that_autograph_converts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n")
    make, lines = load(
        tmp_path,
        "readers",
        f"""
        FILE = {str(tmp_path / "a.txt")!r}

        def read(file):
            if tf.strings.length(file) > 0:
                pass
            lines = tf.data.TextLineDataset(file, num_parallel_reads=2)
            return (
                lines
                .map(tf.strings.length)
                .map(
                    lambda n: n + 1,
                    num_parallel_calls=2,
                )
                .shuffle(
                    10)
            )

        def make():
            files = tf.data.Dataset.from_tensors(FILE)
            lines = files.interleave(read, num_parallel_calls=1)
            records = files.flat_map(lambda f: tf.data.FixedLengthRecordDataset(f, record_bytes=2, buffer_size=64))
            tfrecords = tf.data.TFRecordDataset(FILE, buffer_size=100, num_parallel_reads=3).take(0)
            return tf.data.Dataset.zip((lines, records, tfrecords))
        """,
    )
    captured = capture(make)
    assert ("TextLineDataset", "num_parallel_reads", 2, True) in found(captured)
    assert ("FixedLengthRecordDataset", "buffer_size", 64, True) in found(captured)
    assert ("TFRecordDataset", "num_parallel_reads", 3, True) in found(captured)
    assert found(captured, method="map", argument="num_parallel_calls") == [
        ("map", "num_parallel_calls", None, False),
        ("map", "num_parallel_calls", 2, True),
    ]
    assert_lines(captured, lines)
    parents = {stage.method: stage.parent for stage in captured.stages}
    assert (parents["shuffle"] or "").endswith(":interleave")
    assert (parents["FixedLengthRecordDataset"] or "").endswith(":flat_map")


@pytest.mark.parametrize(
    "positions",
    [
        pytest.param(True, marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 tells none")),
        False,
    ],
)
def test_lines_of_a_chain_are_those_of_the_methods(
    positions: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the way that Python 3.10 needs, whose line for a call with keywords is the chain's first."""
    monkeypatch.setattr("tfpipe.engine.frames._TELLS_POSITIONS", positions)
    make, lines = load(
        tmp_path,
        f"chain_{positions}",
        """
        def make():
            return (
                tf.data.Dataset.range(9)
                .shuffle(3)
                .map(lambda x: x,
                     num_parallel_calls=2)
                .batch(
                    batch_size=2,
                )
                .prefetch(1)
            )
        """,
    )
    captured = capture(make)
    assert len(captured.sites) > 4
    assert_lines(captured, lines)
    assert all((site.end_line is not None) == positions for site in captured.sites if site.kind == "call")


def test_loops_helpers_and_one_line_with_two_calls_are_told_apart(tmp_path: Path) -> None:
    write_module(
        tmp_path,
        "capture_helper_module",
        """
        def scaled(ds):
            return ds.map(lambda x: x * 2)
        """,
    )
    make, lines = load(
        tmp_path,
        "loops",
        """
        import capture_helper_module

        def make():
            ds = tf.data.Dataset.range(4)
            for calls in (1, 2):
                ds = ds.map(lambda x: x + 1, num_parallel_calls=calls)
            ds = capture_helper_module.scaled(capture_helper_module.scaled(ds))
            return ds.prefetch(1).prefetch(2)
        """,
    )
    first, second = capture(make), capture(make)
    calls = {site.id: (site.value, site.occurrences) for site in first.sites if site.argument != "deterministic"}
    line, last = lines.index("        ds = ds.map(lambda x: x + 1, num_parallel_calls=calls)"), len(lines) - 1
    assert calls[f"loops.py:{line}:map(num_parallel_calls)"] == (1, 2)
    assert calls[f"loops.py:{line}:map:2(num_parallel_calls)"] == (2, 2)
    assert calls["capture_helper_module.py:4:map:2(num_parallel_calls)"] == (None, 2)
    assert calls[f"loops.py:{last}:prefetch(buffer_size)"][0] == 1
    assert calls[f"loops.py:{last}:prefetch:2(buffer_size)"][0] == 2
    assert [site.id for site in first.sites] == [site.id for site in second.sites]


def test_several_datasets_and_what_is_no_part_of_the_result(tmp_path: Path) -> None:
    make, _ = load(
        tmp_path,
        "several",
        """
        def make():
            a = tf.data.Dataset.range(3).map(lambda x: x)
            b = tf.data.Dataset.range(3).repeat()
            a.shuffle(9)
            validation = a.batch(2)
            both = tf.data.Dataset.sample_from_datasets([a.concatenate(a), b])
            chosen = tf.data.Dataset.choose_from_datasets([both, b.take(1)], tf.data.Dataset.range(2).cache())
            return chosen.prefetch(1)
        """,
    )
    stages = {stage.method: stage for stage in capture(make).stages}
    assert stages["shuffle"].discarded
    assert not stages["shuffle"].reaches_end
    assert not stages["batch"].reaches_end
    assert not stages["batch"].discarded
    assert all(stages[name].reaches_end for name in ("map", "concatenate", "sample_from_datasets", "cache", "prefetch"))
    assert len(stages["choose_from_datasets"].inputs) == 3
    assert stages["repeat"].infinite
    assert stages["map"].cardinality == 3


def test_tensorflows_own_calls_are_not_the_users() -> None:
    def make() -> tf.data.Dataset:
        ds = tf.data.Dataset.range(20).bucket_by_sequence_length(
            lambda x: tf.cast(x, tf.int32), [5], [2, 2], no_padding=True
        )
        return ds.rejection_resample(lambda x: tf.cast(x[0] % 2, tf.int32), [0.5, 0.5])

    methods = [stage.method for stage in capture(make).stages]
    assert methods == ["range", "bucket_by_sequence_length", "rejection_resample"]


def test_a_librarys_calls_stand_under_the_users_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 20)

    def make() -> tf.data.Dataset:
        return tf.data.experimental.make_csv_dataset(
            str(tmp_path / "t.csv"), 2, label_name="b", num_epochs=1, shuffle_buffer_size=7
        )

    captured = capture(make)
    files, shuffle = (site for site in captured.sites if site.axis == "shuffle_buffer")
    by_axis = {site.axis: site for site in captured.sites if site.kind == "call"}
    prefetch, parallel = by_axis["prefetch_depth"], by_axis["batch_parallelism"]
    assert (files.value, files.settable_as) == (1, None)
    assert (shuffle.via, shuffle.settable_as, shuffle.value) == ("make_csv_dataset", "shuffle_buffer_size", 7)
    assert prefetch.settable_as == "prefetch_buffer_size"
    assert parallel.settable_as is None
    assert "not be written on this line" in parallel.limits
    line = inspect.getsourcelines(make)[1] + 1
    assert {site.line for site in captured.sites if site.via is not None} == {line}
    assert ":make_csv_dataset.shuffle:2(" in shuffle.id
    assert next(iter(rebuild(make, {shuffle.id: 3}))) is not None


def test_options_at_the_line_that_sets_them(tmp_path: Path) -> None:
    make, lines = load(
        tmp_path,
        "options",
        """
        BEFORE = tf.data.Options()
        BEFORE.threading.max_intra_op_parallelism = 1

        def make():
            options = tf.data.Options()
            options.threading.private_threadpool_size = 3
            options.deterministic = False
            options.autotune.ram_budget = 1000
            options.experimental_optimization.map_fusion = True
            return tf.data.Dataset.range(3).with_options(BEFORE).with_options(options)
        """,
    )
    captured = capture(make)
    options = {site.argument: site for site in captured.sites if site.kind == "option"}
    assert {name: (site.axis, site.value) for name, site in options.items()} == {
        "threading.private_threadpool_size": ("threadpool", 3),
        "deterministic": ("deterministic", False),
        "autotune.ram_budget": ("autotune_ram_budget_bytes", 1000),
        "experimental_optimization.map_fusion": ("option", True),
        "threading.max_intra_op_parallelism": ("intra_op_parallelism", 1),
    }
    assert "private_threadpool_size = 3" in lines[options["threading.private_threadpool_size"].line or 0]
    assert options["threading.max_intra_op_parallelism"].method == "with_options"
    ends = {site.argument: site.value for site in captured.sites if site.kind == "end"}
    assert ends["threading.private_threadpool_size"] == 3
    overrides = {
        options["threading.private_threadpool_size"].id: 9,
        options["threading.max_intra_op_parallelism"].id: 7,
        "end:options(deterministic)": True,
    }
    built = rebuild(make, overrides).options()
    assert built.threading.private_threadpool_size == 9
    assert built.threading.max_intra_op_parallelism == 7
    assert built.deterministic is True
    assert built.autotune.ram_budget == 1000
    assert capture(make).dataset.options().threading.max_intra_op_parallelism == 1


def test_what_a_factory_prints_stays_out_of_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    def make() -> tf.data.Dataset:
        print("reading the index")
        return tf.data.Dataset.range(1)

    capture(make)
    print("result")
    captured = capsys.readouterr()
    assert captured.out == "result\n"
    assert captured.err.startswith("reading the index\n")


def test_errors_show_the_users_frames_only(tmp_path: Path) -> None:
    make, _ = load(
        tmp_path,
        "failing",
        """
        def helper(x):
            raise KeyError("no such column")

        def make():
            return tf.data.Dataset.range(3).map(helper)
        """,
    )
    with pytest.raises(UserCodeError) as caught:
        capture(make)
    assert "no such column" in caught.value.message
    assert "failing.py" in caught.value.frames
    assert "dataset_ops" not in caught.value.frames
    assert "tfpipe" not in caught.value.frames
    assert caught.value.__context__ is None


@pytest.mark.parametrize(("result", "said"), [(None, "nothing"), ((1, 2), "a tuple of 2"), ("x", "a str")])
def test_a_factory_must_return_a_dataset(result: Any, said: str) -> None:
    with pytest.raises(TfpipeError, match=f"returned {said}, not a tf.data.Dataset"):
        capture(lambda: result)


def test_captures_in_one_another_and_in_threads_do_not_mix() -> None:
    barrier = threading.Barrier(2, timeout=60)
    outside = threading.Event()

    def inner() -> tf.data.Dataset:
        return tf.data.Dataset.range(2).prefetch(7)

    def outer() -> tf.data.Dataset:
        return capture(inner).dataset.shuffle(3)

    assert [site.argument for site in capture(outer).sites if site.kind == "call"] == ["buffer_size"]

    results: dict[int, Captured] = {}

    def run(depth: int) -> None:
        def make() -> tf.data.Dataset:
            barrier.wait()
            ds = tf.data.Dataset.range(3).prefetch(depth)
            barrier.wait()
            outside.wait(60) if depth == 2 else None
            return ds.batch(depth)

        results[depth] = capture(make)

    threads = [threading.Thread(target=run, args=(depth,)) for depth in (1, 2)]
    for thread in threads:
        thread.start()
    threads[0].join(60)
    tf.data.Dataset.range(5).prefetch(99)  # nobody's, while the other capture is still open
    outside.set()
    threads[1].join(60)
    for depth in (1, 2):
        assert found(results[depth], axis="prefetch_depth") == [("prefetch", "buffer_size", depth, True)]


def test_a_capture_that_fails_inside_another_leaves_it_working() -> None:
    def broken() -> tf.data.Dataset:
        raise SystemExit(3)

    def make() -> tf.data.Dataset:
        with pytest.raises(UserCodeError, match="SystemExit: 3"):
            capture(broken)
        return tf.data.Dataset.range(3).prefetch(1)

    assert found(capture(make)) == [("prefetch", "buffer_size", 1, True)]


def test_a_factory_among_the_libraries_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "captured_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    write_module(package, "data", "def make():\n    return tf.data.Dataset.range(3).prefetch(2)\n")
    monkeypatch.syspath_prepend(str(package.parent))
    captured = capture(load_function("captured_package.data:make"))
    assert [site.id for site in captured.sites if site.kind == "call"] == [
        "captured_package/data.py:3:prefetch(buffer_size)"
    ]


@pytest.mark.parametrize(
    "elements",
    [
        {"x": np.arange(6), "y": {"z": np.ones((6, 2))}},
        (np.arange(6), (np.arange(6), np.arange(6))),
        tf.ragged.constant([[1], [2, 3], []]),
        tf.sparse.from_dense(np.eye(3)),
    ],
    ids=["dict", "nested", "ragged", "sparse"],
)
def test_every_kind_of_element(elements: Any) -> None:
    def make() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(elements).map(lambda *x: x[0] if len(x) == 1 else x).prefetch(1)

    captured = capture(make)
    site = next(site for site in captured.sites if site.axis == "prefetch_depth")
    built = rebuild(make, {site.id: 5}, expected=captured.sites)
    assert built.element_spec == captured.dataset.element_spec
    assert sum(1 for _ in built) == sum(1 for _ in captured.dataset)


def test_generators_python_functions_tables_and_variables() -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant([1]), tf.constant([10])), -1)
    scale = tf.Variable(2)

    def make() -> tf.data.Dataset:
        ds = tf.data.Dataset.from_generator(lambda: iter([1, 2]), output_signature=tf.TensorSpec([], tf.int32))
        ds = ds.map(lambda x: table.lookup(x) * scale)
        return ds.map(lambda x: tf.py_function(lambda y: y + 1, [x], tf.int32))

    captured = capture(make)
    flags = [(stage.method, stage.python, stage.random, stage.stateful) for stage in captured.stages]
    assert flags == [("from_generator", True, False, False), ("map", False, False, False), ("map", True, False, False)]
    parallel = {site.id: 2 for site in captured.sites if site.axis == "map_parallelism"}
    assert [int(x) for x in rebuild(make, parallel)] == [21, -1]
