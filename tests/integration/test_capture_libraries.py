"""Calls that a library makes on the user's behalf stand under the user's line, with what can be changed from there."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfpipe.engine.capture import Captured, capture, rebuild
from tfpipe.sites import Site

pytestmark = pytest.mark.tensorflow


def under(captured: Captured, via: str) -> dict[str, Site]:
    """The sites of a library's calls by ``method(argument)``, the first of each."""
    found: dict[str, Site] = {}
    for site in captured.sites:
        if site.via == via:
            found.setdefault(f"{site.method}({site.argument})", site)
    return found


def limits(sites: dict[str, Site]) -> dict[str, str]:
    """What each can be set with; "" where nothing on the line does."""
    return {
        name: site.limits.split("(", 1)[1].removesuffix(").") if "Set it" in site.limits else ""
        for name, site in sites.items()
    }


def csv(folder: Path, **arguments: Any) -> Any:
    for name in ("one", "two"):
        (folder / f"{name}.csv").write_text("a,b\n" + "1,2\n" * 20)
    files = f"{folder}/*.csv"
    return tf.data.experimental.make_csv_dataset(files, 2, label_name="b", num_epochs=1, **arguments)


def test_make_csv_dataset(tmp_path: Path) -> None:
    def make() -> Any:
        return csv(tmp_path, num_parallel_reads=2, shuffle_seed=1).take(5)

    captured = capture(make)
    sites = under(captured, "make_csv_dataset")
    assert limits(sites) == {
        "shuffle(buffer_size)": "",
        "CsvDataset(buffer_size)": "",
        "ParallelInterleaveDataset(cycle_length)": "num_parallel_reads=...",
        "ParallelInterleaveDataset(block_length)": "",
        "batch(num_parallel_calls)": "",
        "batch(deterministic)": "",
        "prefetch(buffer_size)": "prefetch_buffer_size=...",
    }
    cycle = sites["ParallelInterleaveDataset(cycle_length)"]
    assert (cycle.value, cycle.axis) == (2, "cycle_length")
    assert {site.line for site in sites.values()} == {inspect.getsourcelines(csv)[1] + 4}
    stages = {stage.method: stage for stage in captured.stages}
    assert (stages["CsvDataset"].parent or "").endswith("make_csv_dataset.ParallelInterleaveDataset")
    assert all(stage.reaches_end for stage in captured.stages)
    assert (
        len(list(rebuild(make, {cycle.id: 1, sites["CsvDataset(buffer_size)"].id: 99}, expected=captured.sites))) == 5
    )


def test_make_csv_dataset_with_autotune(tmp_path: Path) -> None:
    sites = under(capture(lambda: csv(tmp_path, num_parallel_reads=tf.data.AUTOTUNE)), "make_csv_dataset")
    # A number there would make another kind of interleave.
    assert limits(sites)["interleave(num_parallel_calls)"] == ""
    assert "CsvDataset(buffer_size)" in sites


def test_kerass_image_folder(tmp_path: Path) -> None:
    import keras

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(2):
            pixels = np.full((8, 8, 3), index, np.uint8)
            (tmp_path / name / f"{index}.png").write_bytes(tf.io.encode_png(pixels).numpy())

    def make() -> tf.data.Dataset:
        return keras.utils.image_dataset_from_directory(str(tmp_path), image_size=(8, 8), batch_size=2, verbose=False)

    captured = capture(make)
    sites = under(captured, "image_dataset_from_directory")
    assert {site.id for site in captured.sites if site.kind == "call"} <= {
        site.id for site in captured.sites if site.via == "image_dataset_from_directory"
    }
    assert {"map_parallelism", "prefetch_depth", "shuffle_buffer"} <= {site.axis for site in sites.values()}
    assert set(limits(sites).values()) == {""}, "none of its arguments is one of these"
    depth = sites["prefetch(buffer_size)"]
    assert len(list(rebuild(make, {depth.id: 3}, expected=captured.sites))) == 2


def test_tensorflow_datasets(tmp_path: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")

    class Tiny(tfds.core.GeneratorBasedBuilder):  # type: ignore[name-defined, misc]
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            number = tfds.features.Tensor(shape=(), dtype=np.int64)
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({"x": number}))

        def _split_generators(self, dl_manager: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            yield from ((number, {"x": number}) for number in range(20))

    def make() -> Any:
        builder = Tiny(data_dir=tmp_path)
        builder.download_and_prepare()
        return builder.as_dataset(split="train", shuffle_files=True).shuffle(20).batch(4)

    captured = capture(make)
    sites = under(captured, "as_dataset")
    settable = {name: text.split("ReadConfig(")[1].split("=")[0] for name, text in limits(sites).items() if text}
    assert settable == {
        "interleave(cycle_length)": "interleave_cycle_length",
        "interleave(block_length)": "interleave_block_length",
        "interleave(num_parallel_calls)": "num_parallel_calls_for_interleave_files",
        "map(num_parallel_calls)": "num_parallel_calls_for_decode",
        "cache(filename)": "try_autocache",
        "prefetch(buffer_size)": "skip_prefetch",
    }
    assert set(settable.values()) <= set(inspect.signature(tfds.ReadConfig).parameters)
    assert "TFRecordDataset(buffer_size)" in sites
    assert [stage.method for stage in captured.stages if stage.via is None] == ["shuffle", "batch"]
    built = rebuild(make, {sites["interleave(cycle_length)"].id: 2}, expected=captured.sites)
    assert sum(len(batch["x"]) for batch in built) == 20
