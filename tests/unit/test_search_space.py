"""What a search may choose from, and what it must never propose."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.machine import prepared, started, workload
from tests.unit.searching import listed_space, product_settings
from tfpipe.analysis.memory import fits
from tfpipe.analysis.recommend import AUTOTUNE
from tfpipe.errors import UsageError
from tfpipe.messages import MemoryFacts
from tfpipe.records import Pipeline
from tfpipe.runner.candidates import choose_candidates
from tfpipe.runner.forecast import forecast_candidate
from tfpipe.runner.proposals import DETERMINISTIC, POOL
from tfpipe.runner.search import make_search
from tfpipe.runner.search.grid import GridSearch
from tfpipe.runner.search.knobs import axes_of, expense, is_cheaper, knob_values, refused
from tfpipe.runner.search.model import ModelSearch
from tfpipe.runner.search.space import overrides_around, settings_around
from tfpipe.settings import ORDERS, NamedSettings, PipelineSettings
from tfpipe.sites import END_OPTIONS, END_PREFETCH, Axis, Site, SiteValue, Stage

READ, MAP, BATCH = "d.py:3:interleave", "d.py:4:map", "d.py:5:batch"


def site(stage: str, argument: str, axis: Axis, value: SiteValue = None, *, written: bool = False) -> Site:
    return Site(
        id=f"{stage}({argument})",
        stage="" if stage.startswith("end:") else stage,
        kind="call",
        file="d.py",
        line=3,
        method="m",
        argument=argument,
        axis=axis,
        value=value,
        written=written,
    )


def pipeline(
    *, cycle: SiteValue = None, calls: SiteValue = None, batch_calls: SiteValue = None, fused: bool = False
) -> Pipeline:
    """interleave, map, batch; ``cycle`` and ``calls`` as the interleave was written. The map may be ``fused`` with the
    batch, which was written with ``batch_calls``."""
    return Pipeline(
        reference="d.py:make",
        arguments=(),
        root="",
        sites=(
            site(READ, "cycle_length", "cycle_length", cycle, written=cycle is not None),
            site(READ, "num_parallel_calls", "interleave_parallelism", calls, written=calls is not None),
            site(MAP, "num_parallel_calls", "map_parallelism"),
            site(BATCH, "num_parallel_calls", "batch_parallelism", batch_calls, written=batch_calls is not None),
            site("end:prefetch", "buffer_size", "prefetch_depth", 0),
            site(END_OPTIONS, "threading.private_threadpool_size", "threadpool"),
            site(END_OPTIONS, "deterministic", "deterministic"),
        ),
        stages=tuple(
            Stage(id=stage, file="d.py", line=3, method=stage.rpartition(":")[2])
            for stage in (READ, MAP, BATCH)
            if fused
        ),
        findings=(),
        reorders=(),
        build_s=0.0,
    )


def turned(**overrides) -> PipelineSettings:
    sites = {"cycle": f"{READ}(cycle_length)", "reads": f"{READ}(num_parallel_calls)"}
    return PipelineSettings(overrides=tuple((sites[name], value) for name, value in overrides.items()))


def search_of(candidates, *, search="model", knobs=None):
    begun = msgspec.structs.replace(started(tuple(candidates)), search=search, knobs=knobs or {})
    return make_search(begun, prepared(workload()), 2)


def many(**knobs: str) -> tuple[NamedSettings, ...]:
    return choose_candidates(knobs, orders=ORDERS["cifar100"], cores=2, yes=False)


GIVEN = {"map_parallelism": "none,2,auto", "prefetch_depth": "0,1,2,auto"}


# --- which search ------------------------------------------------------------------------------------------------


def test_a_short_list_is_measured_whole():
    listed = many(prefetch_depth="0,1,2,4,auto")
    search = search_of(listed, knobs={"prefetch_depth": "0,1,2,4,auto"})
    assert isinstance(search, GridSearch)
    assert search.first() == listed


def test_a_long_list_is_searched_from_what_comes_first_in_it():
    listed = many(**GIVEN)
    search = search_of(listed, knobs=GIVEN)
    assert isinstance(search, ModelSearch)
    assert search.first()[0] == listed[0]
    assert len(search.first()) < len(listed)
    assert set(search.space.everything) == set(listed)


def test_a_grid_measures_the_longest_list_whole():
    assert search_of(many(**GIVEN), knobs=GIVEN, search="grid").first() == many(**GIVEN)


def test_a_list_that_is_too_long_to_search_is_refused():
    knobs = {"map_parallelism": ",".join(map(str, range(1, 64))), "prefetch_depth": ",".join(map(str, range(1, 64)))}
    listed = choose_candidates(knobs, orders=ORDERS["cifar100"], cores=2, yes=True)
    with pytest.raises(UsageError, match="3,969 candidates"):
        search_of(listed, knobs=knobs)


def test_without_a_list_the_field_s_candidates_come_first():
    preset = many()
    search = search_of(preset)
    assert search.first() == preset
    assert len(search.space.everything) > 2 * len(preset)


def test_a_list_names_what_is_left_to_autotune():
    named = {n.name: n.settings for n in many(**GIVEN) if n.name}
    assert list(named) == [AUTOTUNE]
    assert (named[AUTOTUNE].map_parallelism, named[AUTOTUNE].prefetch_depth) == ("auto", "auto")


def test_a_long_list_begins_with_what_is_unlike():
    space = listed_space(product_settings())
    assert len(space.first) == 3
    assert any(n.settings.map_parallelism == n.settings.prefetch_depth == "auto" for n in space.first)
    assert {n.settings.order for n in space.first} == {"map-batch", "batch-map"}


# --- the space of a built-in data set ----------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [1, 2, 3, 16, 64])
def test_a_built_in_data_set_s_settings_leave_its_shuffle_buffer_alone(cores):
    current = many()[0].settings
    around = [n.settings for n in settings_around(current, orders=ORDERS["cifar100"], cores=cores)]
    assert {s.shuffle_buffer for s in around} == {current.shuffle_buffer}
    assert len(set(around)) == len(around)
    assert {s.order for s in around} == set(ORDERS["cifar100"])
    calls = {s.map_parallelism for s in around if isinstance(s.map_parallelism, int)}
    assert max(calls) > cores
    # A pool is for as many threads as there are calls, where those are more than the cores; they may also queue.
    pools = {(s.map_parallelism, s.threadpool) for s in around if s.map_parallelism in calls}
    assert {n: {pool for calls, pool in pools if calls == n} for n in calls} == {
        n: {None, n} if n > cores else {None} for n in calls
    }


def test_what_cannot_fit_is_not_proposed():
    facts = msgspec.structs.replace(
        prepared(workload()), memory=MemoryFacts(resident_bytes=400 * 2**20, batch_bytes=64 * 2**20, row_bytes=0)
    )
    limit = 700 * 2**20
    whole, limited = (
        make_search(msgspec.structs.replace(started(many()), search="model"), facts, 2, max_memory_bytes=size).space
        for size in (None, limit)
    )
    left_out = {n.settings for n in whole.everything} - {n.settings for n in limited.everything}
    assert left_out
    for settings in left_out:
        assert fits(forecast_candidate(settings, facts), limit) is not None
    for named in limited.everything[1:]:
        assert fits(forecast_candidate(named.settings, facts), limit) is None


# --- the space of a user's pipeline ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "cycle", "calls", "is_refused"),
    [
        ({"reads": 4}, 4, None, False),
        ({"reads": 5}, 4, None, True),
        ({"cycle": 16, "reads": 16}, 4, None, False),
        ({"cycle": 2}, 4, 4, True),
        ({"reads": "auto"}, 4, None, False),
        ({"reads": 2}, None, None, False),
        ({"reads": 3}, None, None, True),
        ({"reads": 3}, "auto", None, True),
        ({}, 4, 4, False),
    ],
)
def test_more_calls_than_an_interleave_has_open_are_refused(overrides, cycle, calls, is_refused):
    reason = refused(turned(**overrides), pipeline(cycle=cycle, calls=calls), cores=2)
    assert (reason is not None) == is_refused


@given(
    cycle=st.sampled_from([None, "auto", 1, 2, 4, 16]),
    calls=st.sampled_from([None, "auto", 1, 2]),
    cores=st.integers(1, 64),
)
def test_nothing_that_tensorflow_refuses_is_in_the_space_around_a_pipeline(cycle, calls, cores):
    if isinstance(calls, int) and calls > (cycle if isinstance(cycle, int) else cores):
        return
    written = pipeline(cycle=cycle, calls=calls)
    for named in overrides_around(written, cores=cores):
        assert refused(named.settings, written, cores=cores) is None


def test_the_space_around_a_pipeline_turns_every_knob():
    found = [dict(n.settings.overrides) for n in overrides_around(pipeline(cycle=4), cores=2)]
    assert {} in found
    for knob, values in {
        f"{MAP}(num_parallel_calls)": {2, 4, 16, "auto"},
        f"{BATCH}(num_parallel_calls)": {2, 16, "auto"},
        f"{READ}(cycle_length)": {16},
        END_PREFETCH: {1, 2, 4, "auto"},
        POOL: {4, 16},
        DETERMINISTIC: {False},
    }.items():
        assert values <= {overrides.get(knob) for overrides in found}, knob


@pytest.mark.parametrize("written", [None, 2, "auto"])
def test_a_batch_that_a_map_can_fill_has_no_calls_of_its_own(written):
    """They keep TensorFlow from running map and batch as one stage."""
    made, batch = pipeline(batch_calls=written, fused=True), f"{BATCH}(num_parallel_calls)"
    found = [dict(n.settings.overrides) for n in overrides_around(made, cores=2)]
    assert {overrides.get(batch, written) for overrides in found} == {None}
    assert ({batch: None} in found) == (written is not None)


def test_a_batch_that_no_map_fills_is_turned_with_the_others():
    for overrides in (dict(n.settings.overrides) for n in overrides_around(pipeline(), cores=2)):
        assert overrides.get(f"{MAP}(num_parallel_calls)") == overrides.get(f"{BATCH}(num_parallel_calls)")


def test_what_is_written_already_is_no_override():
    found = overrides_around(pipeline(cycle=4, calls=2), cores=2)
    assert all((f"{READ}(num_parallel_calls)", 2) not in n.settings.overrides for n in found)


# --- what costs less ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ({"map_parallelism": 2}, {"map_parallelism": 4}),
        ({"map_parallelism": None}, {"map_parallelism": 2}),
        ({"prefetch_depth": 1}, {"prefetch_depth": "auto"}),
        ({"prefetch_depth": 1}, {"prefetch_depth": 2}),
        ({}, {"threadpool": 4}),
        ({}, {"deterministic": False}),
        ({"shuffle_buffer": 1000}, {"shuffle_buffer": "full"}),
    ],
)
def test_less_of_a_knob_is_cheaper(smaller, larger):
    one, other = costs(smaller, larger)
    assert is_cheaper(one, other)
    assert not is_cheaper(other, one)


def test_what_costs_less_here_and_more_there_is_not_cheaper():
    one, other = costs({"map_parallelism": 4, "prefetch_depth": 1}, {"map_parallelism": 2, "prefetch_depth": 4})
    assert not is_cheaper(one, other)
    assert not is_cheaper(other, one)


def costs(*knobs):
    current = PipelineSettings()
    settings = [PipelineSettings(**k) for k in knobs]
    values = knob_values([current, *settings], None)
    return [expense(values[s.id], values[current.id], axes_of(None), cores=2) for s in settings]
