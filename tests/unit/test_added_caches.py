"""A cache that may be added: where it fits, what it is predicted to bring before it is tried, and how it is written."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.runs import make_candidate
from tests.unit.machine import prepared, started, workload
from tests.unit.paper_pipeline import Setting, World, overrides_of, world_run
from tests.unit.test_report_user_pipeline import make_site
from tfpipe.analysis.memory import DISK_ELEMENT_BYTES, ELEMENT_OVERHEAD_BYTES, place_cache
from tfpipe.analysis.operational import PipelineModel, build_model
from tfpipe.analysis.operational.model import CACHED_READ_S, DISK_BYTE_S, DISK_READ_S
from tfpipe.analysis.operational.shape import left_by_cache, shape_of
from tfpipe.messages import MemoryFacts
from tfpipe.records import Node, Pipeline, Run
from tfpipe.report.patch import Change, describe_change, make_patch
from tfpipe.report.user_pipeline import finding_rows
from tfpipe.runner.expected_gains import with_expected_gains
from tfpipe.runner.forecast import forecast_candidate, with_caches_placed
from tfpipe.runner.proposals import propose_candidates
from tfpipe.runner.search import make_search
from tfpipe.runner.search.model import ModelSearch
from tfpipe.runner.search.space import overrides_around
from tfpipe.settings import PipelineSettings
from tfpipe.sites import Finding, Stage

MS = 1e-3
READ, MAP, SHUFFLE, BATCH = "data.py:1:range", "data.py:2:map", "data.py:3:shuffle", "data.py:4:batch"
ADDED = f"{SHUFFLE}(cache before)"
# 2 ms to decode an example, and 0.1 ms behind the shuffle.
DECODING = World(compute_s=2 * MS, batch_s=0.1 * MS, batch_size=16)
SERIAL = Setting(calls=None, fused=False)
ELEMENTS, ELEMENT_BYTES = 1000, 100_000


def finding(**fields: object) -> Finding:
    made = Finding(
        code="no-cache", kind="suggestion", stages=(MAP, SHUFFLE), text="It is made again.", remedy="Write .cache().",
        sites=(ADDED,), note="It will hold it.", memory_bytes=ELEMENTS * ELEMENT_BYTES, elements=ELEMENTS,
    )  # fmt: skip
    return replace(made, **fields)


def users(*findings: Finding, batch_first: bool = False) -> Pipeline:
    """Range, map, shuffle, batch; or with the batch in front of the shuffle."""
    shuffle = Stage(id=SHUFFLE, file="data.py", line=3, method="shuffle")
    batch = Stage(id=BATCH, file="data.py", line=4, method="batch")
    behind = (batch, shuffle) if batch_first else (shuffle, batch)
    run = world_run(DECODING, (SERIAL,))
    assert run.pipeline is not None
    cache = make_site(ADDED, "data.py", kind="order", method="shuffle", axis="cache", value=False, written=True)
    return replace(
        run.pipeline,
        sites=(*run.pipeline.sites, cache),
        stages=(
            Stage(id=READ, file="data.py", line=1, method="range"),
            Stage(id=MAP, file="data.py", line=2, method="map", element_bytes=77),
            *behind,
        ),
        findings=findings or (finding(),),
    )


def run_of(pipeline: Pipeline, *, step_s: float = 1 * MS) -> Run:
    return replace(world_run(DECODING, (SERIAL,), step_s=step_s), pipeline=pipeline)


def model_of(run: Run) -> PipelineModel:
    model = build_model(run)
    assert model is not None
    return model


def cached(value: object = True, *, depth: int = 0) -> PipelineSettings:
    turned = dict(overrides_of(replace(SERIAL, depth=depth)).overrides or ()) | {ADDED: value}
    return PipelineSettings(overrides=tuple(sorted(turned.items())))


# --- predicted before it is measured ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "read_s"), [(True, CACHED_READ_S), ("disk", DISK_READ_S + ELEMENT_BYTES * DISK_BYTE_S)]
)
def test_a_cache_that_was_never_measured_costs_what_reading_it_costs(value: object, read_s: float) -> None:
    model = model_of(run_of(users()))
    assert model.unknown(cached(value)) is None
    left_s = DECODING.batch_s + read_s
    predicted = model.predict(cached(value))
    assert predicted.capacity_examples_per_s == pytest.approx(1 / left_s, rel=0.05)
    assert predicted.step_s == pytest.approx(1 * MS + 16 * left_s, rel=0.05)
    deep = model.predict(cached(value, depth=2), floor_s=20 * MS)
    assert deep.step_s == pytest.approx(20 * MS, rel=0.01)


def test_of_a_cache_of_batches_each_example_costs_its_share() -> None:
    model = model_of(run_of(users(batch_first=True)))
    assert model.predict(cached("disk")).capacity_examples_per_s == pytest.approx(
        16 / (DISK_READ_S + ELEMENT_BYTES * DISK_BYTE_S), rel=0.05
    )


def test_the_size_is_the_type_s_where_nothing_was_read() -> None:
    run = run_of(users(finding(memory_bytes=None, elements=None)))
    read_s = DISK_READ_S + 77 * DISK_BYTE_S
    rate = model_of(run).predict(cached("disk")).capacity_examples_per_s
    assert rate == pytest.approx(1 / (DECODING.batch_s + read_s), rel=0.05)
    assert model_of(run).kept_bytes_per_example() == 77


def test_it_is_less_sure_than_what_was_measured_and_what_was_measured_counts() -> None:
    run = run_of(users())
    model = model_of(run)
    assert model.uncertainty(cached()) > model.uncertainty(overrides_of(SERIAL))
    seen = make_candidate(
        cached(),
        capacity_examples_per_s=4000.0,
        cpu_s_per_example=0.25 * MS,
        capacity_executed=(
            Node(node="Range", elements=0, processing_s=0.0),
            Node(node="Map", elements=0, processing_s=0.0),
            Node(node="MemoryCacheImpl", elements=1600, processing_s=0.24),
            Node(node="BatchV2", elements=100, processing_s=0.16),
        ),
    )
    known = model_of(replace(run, candidates=(*run.candidates, seen)))
    assert known.predict(cached(depth=1)).capacity_examples_per_s == pytest.approx(4000, rel=0.1)


def test_what_differs_in_more_than_a_cache_stays_unknown() -> None:
    take = "data.py:5:take(before data.py:2:map)"
    settings = PipelineSettings(overrides=((ADDED, True), (take, True)))
    reason = model_of(run_of(users())).unknown(settings)
    assert reason is not None
    assert "take" in reason


def left(pipeline: Pipeline, *overrides: tuple[str, object], before: str = SHUFFLE) -> set[str]:
    settings = PipelineSettings(overrides=tuple(overrides))
    return set(left_by_cache(shape_of(settings, pipeline, cores=2, batch_size=16), pipeline, before))


def test_what_a_cache_leaves_to_do() -> None:
    behind = {f"before {BATCH}", BATCH, "end:prefetch"}
    assert left(users()) == behind
    assert left(users(), (f"{MAP}(behind {SHUFFLE})", True)) == {MAP, *behind}
    assert left(users(), before=BATCH) == {BATCH, "end:prefetch"}, "what is before it stands before the cache too"
    assert left(users(), before=MAP) == {MAP, *behind}


def test_the_search_predicts_a_cache_before_it_measures_it() -> None:
    pipeline = users()
    begun = msgspec.structs.replace(started(()), candidates=None, search="model", knobs={})
    ready = msgspec.structs.replace(prepared(workload()), pipeline=pipeline)
    search = make_search(begun, ready, 2)
    assert isinstance(search, ModelSearch)

    def has_cache(settings: PipelineSettings) -> bool:
        return ADDED in dict(settings.overrides or ())

    assert not any(has_cache(named.settings) for named in search.first())
    assert any(has_cache(named.settings) for named in search.space.offered)


def test_what_was_not_measured_says_what_it_is_predicted_to_bring() -> None:
    run = with_expected_gains(run_of(users(), step_s=1 * MS))
    assert run.pipeline is not None
    # Serial without rewrites against what TensorFlow's prefetch hides the step behind.
    now_s, made_s = 1 + 16 * 2.1, 16 * 0.1
    assert run.pipeline.findings[0].predicted_gain == pytest.approx(now_s / made_s, rel=0.05)
    assert "(Not measured; predicted to be 2" in dict(finding_rows(run))["suggestion"]
    alone = PipelineSettings(overrides=((ADDED, True),))
    measured = with_expected_gains(replace(run_of(users()), candidates=(*run.candidates, make_candidate(alone))))
    assert measured.pipeline is not None
    assert measured.pipeline.findings[0].predicted_gain is None


# --- in memory, on disk, or nowhere ----------------------------------------------------------------------------

IN_MEMORY = ELEMENTS * (ELEMENT_BYTES + ELEMENT_OVERHEAD_BYTES)
ON_DISK = ELEMENTS * (ELEMENT_BYTES + DISK_ELEMENT_BYTES)


@pytest.mark.parametrize(
    ("memory_bytes", "disk_bytes", "where"),
    [
        (None, 0, "memory"),
        (IN_MEMORY + 1000, 0, "memory"),
        (IN_MEMORY + 999, ON_DISK, "disk"),
        (IN_MEMORY + 999, ON_DISK - 1, None),
    ],
)
def test_memory_first_then_disk_then_nowhere(memory_bytes: int | None, disk_bytes: int, where: str | None) -> None:
    placed, why = place_cache(
        ELEMENTS, ELEMENT_BYTES, resident_bytes=1000, memory_bytes=memory_bytes, disk_bytes=disk_bytes
    )
    assert placed == where
    assert ("1,000 elements x 97.9 KiB" in why) == (where != "memory")
    assert ("Nor does it fit on disk" in why) == (where is None)


def placed_pipeline(memory_bytes: int | None, disk_bytes: int = 10**12) -> Pipeline:
    ready = msgspec.structs.replace(
        prepared(workload()),
        pipeline=users(),
        memory=MemoryFacts(resident_bytes=0, batch_bytes=0, row_bytes=0),
    )
    pipeline = with_caches_placed(ready, memory_bytes=memory_bytes, disk_bytes=disk_bytes).pipeline
    assert pipeline is not None
    return pipeline


def test_a_cache_that_does_not_fit_in_memory_is_a_candidate_on_disk() -> None:
    roomy, tight = placed_pipeline(None), placed_pipeline(10**6)
    for pipeline, value, name in ((roomy, True, "a cache before"), (tight, "disk", "a cache on disk before")):
        named = {n.name: dict(n.settings.overrides or ()) for n in propose_candidates(pipeline, {}, cores=2, yes=False)}
        assert named[f"{name} shuffle"] == {ADDED: value}
        around = {dict(n.settings.overrides or ()).get(ADDED) for n in overrides_around(pipeline, cores=2)}
        assert around == {None, value}
    note = tight.findings[0].note
    assert "where 977 KiB are to be had" in note
    assert "It is tried on disk" in note
    assert "not tried" not in note + roomy.findings[0].note


def test_a_cache_that_fits_nowhere_is_refused_with_the_arithmetic() -> None:
    (refused,) = placed_pipeline(10**6, 10**6).findings
    assert refused.sites == ()
    assert "Nor does it fit on disk: 1,000 elements x" in refused.note
    assert propose_candidates(placed_pipeline(10**6, 10**6), {}, cores=2, yes=False)


@pytest.mark.parametrize(("value", "held_bytes"), [(True, IN_MEMORY), ("disk", 0)])
def test_only_a_cache_in_memory_counts_as_memory(value: object, held_bytes: int) -> None:
    ready = msgspec.structs.replace(
        prepared(workload()), pipeline=users(), memory=MemoryFacts(resident_bytes=0, batch_bytes=0, row_bytes=0)
    )
    forecast = forecast_candidate(PipelineSettings(overrides=((ADDED, value),)), ready)  # type: ignore[arg-type]
    assert forecast is not None
    assert forecast.total_bytes == held_bytes


# --- what to write ---------------------------------------------------------------------------------------------


def test_a_cache_on_disk_is_written_with_a_name_to_choose(tmp_path) -> None:
    text = "import tensorflow as tf\nx = d.map(f).shuffle(9)\n"
    file = str(tmp_path / "data.py")
    site = make_site("data.py:2:shuffle(cache before)", file, line=2, kind="order", method="shuffle", axis="cache")
    change = Change(site=site, value="disk")
    patch = make_patch([change], {file: text}, tmp_path)
    assert '+x = d.map(f).cache("FILENAME").shuffle(9)' in patch.diff
    (instruction,) = patch.by_hand
    assert instruction.startswith("data.py:2: name a file of your own for FILENAME, and remove it")
    assert describe_change(change) == 'data.py:2  before shuffle: add .cache("FILENAME")'
    unsure = make_patch([change], {file: text.replace("shuffle", "shuffled")}, tmp_path)
    assert unsure.diff == ""
    assert instruction in unsure.by_hand
    in_memory = make_patch([Change(site=site, value=True)], {file: text}, tmp_path)
    assert "+x = d.map(f).cache().shuffle(9)" in in_memory.diff
    assert in_memory.by_hand == ()
