"""Each sample runs, has the mistake that it says, and becomes the recommended pipeline when its patch is applied."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tfpipe
from tfpipe.engine.capture import Captured, capture, rebuild
from tfpipe.engine.load_user import bind_arguments, load_function
from tfpipe.engine.moves import settle
from tfpipe.engine.reorder import check_batch_before_map
from tfpipe.engine.structure import notice
from tfpipe.report.patch import Change, make_patch, read_sources
from tfpipe.report.user_pipeline import measured_findings, pipeline_patch
from tfpipe.runner.proposals import POOL
from tfpipe.sites import OverrideValue, Site

pytestmark = pytest.mark.tensorflow

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
# What is noticed about each sample, what of that a candidate can mend, and whether its map can work on batches
# (None: no map stands directly before a batch).
EXPECTED: dict[str, tuple[set[str], set[str], str | None]] = {
    "image_folder": (set(), {"random-before-cache"}, None),
    "tfrecord_interleave": ({"shuffle-after-batch"}, {"no-cache"}, "different"),
    "generator": ({"repeat-before-shuffle", "map-before-batch"}, {"no-cache"}, None),
    "text_padding": ({"prefetch-not-last"}, {"no-cache"}, None),
    "tabular_csv": (set(), {"no-cache"}, "equal"),
    "keras_model": ({"result-thrown-away"}, set(), "equal"),
    "train_module": (set(), {"cache-never-completes", "cast-before-buffer"}, None),
}
PREFERRED: dict[str, OverrideValue] = {"map_parallelism": "auto", "prefetch_depth": 3, "cycle_length": 4}


def test_every_sample_is_listed() -> None:
    assert {file.stem for file in SAMPLES.glob("*.py") if "def make_dataset" in file.read_text()} == set(EXPECTED)


def load_sample(file: Path, data: Path) -> Any:
    function = load_function(f"{file}:make_dataset")
    takes_folder = "folder" in function.__code__.co_varnames[: function.__code__.co_argcount]
    return bind_arguments(function, [f"folder={data}"] if takes_folder else [])


def recommended(captured: Captured) -> list[tuple[Site, OverrideValue]]:
    """What a recommendation could be: parallel maps, a last prefetch, and every order that is proven."""
    changes: list[tuple[Site, OverrideValue]] = [
        (site, True) for site in settle(captured, notice(captured.stages)).sites
    ]
    for site in captured.sites:
        if site.kind == "order":
            proof = check_batch_before_map(captured, site.stage, site.partner or "")
            if proof.verdict == "equal":
                changes.append((site, "batch-map"))
        elif site.axis in PREFERRED:
            changes.append((site, PREFERRED[site.axis]))
    return changes


def shape_of(captured: Captured) -> list[tuple[str, Any]]:
    """The stages in order and the values of their knobs."""
    values: dict[str, list[tuple[str, Any]]] = {}
    for site in captured.sites:
        if site.kind in ("call", "reader"):
            values.setdefault(site.stage, []).append((site.argument, site.value))
    return [(stage.method, values.get(stage.id, [])) for stage in captured.stages]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_sample(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.py"
    shutil.copy(SAMPLES / f"{name}.py", file)
    make = load_sample(file, tmp_path / "data")
    captured = capture(make)
    named, mended, order = EXPECTED[name]
    findings = settle(captured, notice(captured.stages)).findings
    assert {finding.code for finding in findings if not finding.sites} == named
    assert {finding.code for finding in findings if finding.sites} == mended
    proofs = [
        check_batch_before_map(captured, site.stage, site.partner or "").verdict
        for site in captured.sites
        if site.kind == "order"
    ]
    assert proofs == ([order] if order else [])

    changes = recommended(captured)
    assert len({site.stage or site.id for site, _ in changes}) >= 2, "several sites at once"
    orders = [site for site, _ in changes if site.kind == "order"]
    assert bool(orders) == bool(mended or order == "equal")
    rebuilt = rebuild(make, {site.id: value for site, value in changes}, expected=captured.sites)
    assert rebuilt.element_spec == captured.dataset.element_spec
    assert len(list(rebuilt.take(2))) == 2

    edits = [Change(site=site, value=value) for site, value in changes]
    patch = make_patch(edits, read_sources(edits), tmp_path)
    assert patch.by_hand == ()
    program = shutil.which("patch")
    if program is None:
        pytest.skip("there is no patch program here")
    applied = subprocess.run([program, "-p1"], input=patch.diff.encode(), cwd=tmp_path, capture_output=True, check=True)
    assert b"fuzz" not in applied.stdout
    shutil.copy(file, tmp_path / f"{name}_patched.py")
    after = capture(load_sample(tmp_path / f"{name}_patched.py", tmp_path / "data"))

    # The patched source says what the overrides did.
    for site, value in changes:
        if site.kind == "call":
            method = [other for other in after.sites if other.method == site.method and other.argument == site.argument]
            assert value in [other.value for other in method], (site.id, value)
    assert not [site for site in after.sites if site.kind == "order" and order == "equal"]
    assert not [site for site in after.sites if site.id == "end:prefetch(buffer_size)"]
    assert _chain(after.dataset) == _chain(rebuilt)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_call_with_knobs_in_the_source_is_found(name: str, tmp_path: Path) -> None:
    file = SAMPLES / f"{name}.py"
    sites = capture(load_sample(file, tmp_path)).sites
    found = {(site.line, site.method) for site in sites if site.kind in ("call", "reader")}
    assert all(site.via is None for site in sites)
    methods = {*("shuffle", "map", "batch", "padded_batch", "prefetch", "interleave", "cache")}
    methods |= {"TFRecordDataset", "TextLineDataset", "CsvDataset"}
    written = {
        (node.func.end_lineno, node.func.attr)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods
    }
    # In TensorFlow 2.21 these have no argument that is a knob.
    assert found == {(line, method) for line, method in written if method != "padded_batch"}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_run_of_a_sample_ends_in_a_patch_that_does_what_was_measured(name: str, tmp_path: Path) -> None:
    """Whatever the run recommends on this machine, its patch builds the pipeline that was measured."""
    file = tmp_path / f"{name}.py"
    shutil.copy(SAMPLES / f"{name}.py", file)
    make = load_sample(file, tmp_path / "data")
    step = load_function(f"{file}:make_step") if name in ("keras_model", "train_module") else "simulated:1ms"
    run = tfpipe.profile(
        make, step=step, steps=3, time_budget_s=1, output=tmp_path / "run", in_process=True, quiet=True
    )
    assert run.pipeline is not None
    assert run.recommendation is not None
    assert [candidate.status for candidate in run.candidates] == ["complete"] * len(run.candidates)
    named, mended, order = EXPECTED[name]
    assert {finding.code for finding in run.pipeline.findings} == named | mended
    orders = {"batch-map" in candidate.id for candidate in run.candidates}
    assert orders == ({True, False} if order == "equal" else {False}), "only what was proven is offered"
    assert {finding.code for finding in measured_findings(run) if finding.measured} == mended

    program = shutil.which("patch")
    if program is None:
        pytest.skip("there is no patch program here")
    for number, candidate in enumerate(run.candidates[1:]):
        patch = pipeline_patch(run, candidate.settings)
        overrides = dict(candidate.settings.overrides or ())
        by_hand = 1 if overrides.pop(POOL, None) else 0
        assert len(patch.by_hand) == by_hand, patch.by_hand
        there = tmp_path / str(number)
        there.mkdir()
        shutil.copy(file, there / f"{name}_{number}.py")
        diff = patch.diff.replace(f"{name}.py", f"{name}_{number}.py")
        subprocess.run([program, "-p1"], input=diff.encode(), cwd=there, capture_output=True, check=True)
        after = capture(load_sample(there / f"{name}_{number}.py", tmp_path / "data"))
        assert _chain(after.dataset) == _chain(rebuild(make, overrides, expected=run.pipeline.sites)), candidate.id


def _chain(dataset: Any) -> list[tuple[str, Any]]:
    names = ("_num_parallel_calls", "_buffer_size")
    knobs = {name: int(getattr(dataset, name)) for name in names if getattr(dataset, name, None) is not None}
    return [item for one in dataset._inputs() for item in _chain(one)] + [(type(dataset).__name__, knobs)]


@pytest.mark.parametrize("name", ["keras_model", "train_module"])
def test_steps_of_samples_train_on_their_batches(name: str) -> None:
    dataset = load_function(f"{SAMPLES / name}.py:make_dataset")()
    step = load_function(f"{SAMPLES / name}.py:make_step")(dataset.element_spec)
    batch = next(iter(dataset))
    if name == "keras_model":
        losses = [step.train_on_batch(*batch, return_dict=True)["loss"] for _ in range(3)]
    else:
        losses = [float(step(batch)) for _ in range(3)]
    assert losses[2] < losses[0]
    assert tf.nest.flatten(dataset.element_spec)
