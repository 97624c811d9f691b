from __future__ import annotations

import doctest

import pytest

from tfpipe import settings
from tfpipe.errors import UsageError
from tfpipe.runner.candidates import choose_candidates
from tfpipe.settings import ORDERS, PipelineSettings, grid, parse_list, preset

BOTH = ORDERS["cifar100"]


def test_examples_in_the_docs_hold():
    assert doctest.testmod(settings).failed == 0


@pytest.mark.parametrize(
    ("knobs", "identity"),
    [
        ({}, "map-batch"),
        ({"shuffle_buffer": "full", "map_parallelism": 2}, "shufflefull-map2-batch"),
        ({"map_parallelism": "auto", "order": "batch-map", "prefetch_depth": 3}, "batch-mapauto-prefetch3"),
        ({"threadpool": 8, "deterministic": False, "rewrites": "off"}, "map-batch-pool8-unordered-norewrites"),
    ],
)
def test_ids_read_like_the_pipeline(knobs, identity):
    assert PipelineSettings(**knobs).id == identity


@pytest.mark.parametrize(
    ("overrides", "identity"),
    [
        ((), "current"),
        ((("data.py:42:map(num_parallel_calls)", 8),), "data.42.map=8"),
        ((("a/b/data.py:42:map:2(deterministic)", False),), "data.42.map.2.deterministic=False"),
        ((("end:prefetch(buffer_size)", "auto"),), "prefetch=auto"),
        (
            (("data.py:7:map(order)", "batch-map"), ("end:options(threading.private_threadpool_size)", 16)),
            "data.7.map.order=batch-map+private_threadpool_size=16",
        ),
    ],
)
def test_ids_of_call_sites(overrides, identity):
    assert PipelineSettings(overrides=overrides).id == identity


def test_long_ids_are_cut_and_stay_apart():
    one, two = (
        PipelineSettings(overrides=tuple((f"data.py:{n}:map(num_parallel_calls)", last) for n in range(40)))
        for last in (1, 2)
    )
    assert len(one.id) == len(two.id) == settings.MAX_ID_LENGTH
    assert one.id != two.id


def test_ids_tell_all_settings_apart():
    everything = grid(
        {
            "shuffle_buffer": (0, 5, "full"),
            "map_parallelism": (None, 1, "auto"),
            "prefetch_depth": (0, 1, "auto"),
            "order": ("map-batch", "batch-map"),
            "threadpool": (None, 1),
            "deterministic": (True, False),
            "rewrites": ("default", "off"),
        }
    )
    candidates = list(everything)
    assert len(candidates) == len(everything) == 432
    assert len({candidate.id for candidate in candidates}) == 432


def test_left_out_axes_have_the_recipe_s_value():
    (only,) = grid({"prefetch_depth": (4,)})
    assert only == PipelineSettings(shuffle_buffer=5000, map_parallelism="auto", prefetch_depth=4, order="map-batch")


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"prefetch_depth": "-1"}, "--prefetch '-1': -1 is out of range: from 0 to 100,000"),
        ({"map_parallelism": "0"}, "--map-parallelism '0': 0 is out of range: from 1 to 4,096"),
        ({"map_parallelism": "many"}, "neither a whole number nor one of: auto, none"),
        ({"shuffle_buffer": "1,,2"}, "the list has an empty value"),
        ({"shuffle_buffer": ""}, "the list has an empty value"),
        ({"order": "batch"}, "neither map-batch nor batch-map"),
        ({"rewrites": "on"}, "neither default nor off"),
        ({"deterministic": "yes"}, "neither true nor false"),
        ({"threadpool": "99999999"}, "out of range"),
    ],
)
def test_bad_lists_are_named_with_their_flag(knobs, message):
    with pytest.raises(UsageError, match="--") as caught:
        choose_candidates(knobs, orders=BOTH, cores=2, yes=False)
    assert message in caught.value.message
    assert caught.value.exit_code == 2


def test_a_grid_of_hundreds_is_asked_about_with_its_size():
    knobs = {"prefetch_depth": ",".join(map(str, range(201)))}
    with pytest.raises(UsageError, match="201 candidates") as caught:
        choose_candidates(knobs, orders=BOTH, cores=2, yes=False)
    assert "--yes" in str(caught.value.hint)
    assert len(choose_candidates(knobs, orders=BOTH, cores=2, yes=True)) == 201


def test_an_order_that_the_data_does_not_allow_is_refused():
    with pytest.raises(UsageError, match="batch-map"):
        choose_candidates({"order": "map-batch,batch-map"}, orders=ORDERS["photos"], cores=2, yes=False)


def test_repeated_values_make_no_second_candidate():
    assert parse_list("--prefetch", "1,1,auto", settings.parse_prefetch_depth) == (1, "auto")


@pytest.mark.parametrize("orders", ORDERS.values())
@pytest.mark.parametrize("cores", [1, 2, 64])
def test_the_preset_has_what_the_field_would_try(orders, cores):
    named = preset(cores=cores, orders=orders, shuffle_buffer=5000)
    candidates = [n.settings for n in named]
    assert 6 <= len(candidates) <= 10
    assert len(set(candidates)) == len(candidates)
    assert {c.order for c in candidates} == set(orders)
    assert any(c.rewrites == "off" and c.prefetch_depth == 0 for c in candidates)
    assert any(c.shuffle_buffer == "full" for c in candidates)
    assert any(c.map_parallelism == cores for c in candidates)
    assert {0, 1, "auto"} <= {c.prefetch_depth for c in candidates}


@pytest.mark.parametrize("text", ["simulated:", "simulated:0ms", "simulated:-5ms", "simulated:abc", "simulated:2h"])
def test_a_simulated_step_needs_a_sensible_time(text):
    with pytest.raises(UsageError, match="--step"):
        settings.parse_step(text)


def test_steps_are_read():
    assert settings.parse_step("simulated:66ms") == ("simulated", 0.066)
    assert settings.parse_step("resnet18") == ("resnet18", 0.0)
