"""Records of call sites: what they say and that they survive being written down."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tfpipe.sites import Reorder, Site, Stage, changed_sites, describe_site, sites_on

SITE = Site(
    id="data.py:42:map(num_parallel_calls)",
    stage="data.py:42:map",
    kind="call",
    file="/home/me/data.py",
    line=42,
    method="map",
    argument="num_parallel_calls",
    axis="map_parallelism",
    value=2,
    written=True,
)


def test_a_site_is_described_as_its_line_reads() -> None:
    assert describe_site(SITE) == "data.py:42  map(num_parallel_calls=2)"
    assert describe_site(replace(SITE, value="auto")) == "data.py:42  map(num_parallel_calls=tf.data.AUTOTUNE)"
    assert describe_site(replace(SITE, value=None, written=False)) == "data.py:42  map(num_parallel_calls not given)"
    assert describe_site(replace(SITE, value=None, symbolic=True)) == "data.py:42  map(num_parallel_calls=<tensor>)"


def test_a_librarys_call_says_what_can_be_set_from_the_users_line() -> None:
    library = replace(SITE, via="image_dataset_from_directory")
    assert "not be written on this line" in library.limits
    assert replace(library, settable_as="workers").limits == "Set it with image_dataset_from_directory(workers=...)."
    assert SITE.limits == ""


def test_changed_sites_names_what_is_gone_and_what_is_new() -> None:
    moved = replace(SITE, id="data.py:43:map(num_parallel_calls)", line=43)
    assert changed_sites([SITE], [replace(SITE, value=8)]) == ()
    assert changed_sites([SITE], [moved]) == (
        "data.py:42  map(num_parallel_calls=2) is gone",
        "data.py:43  map(num_parallel_calls=2) is new",
    )


def test_sites_on_an_axis_leave_out_what_the_dataset_does_not_contain() -> None:
    other = replace(SITE, id="x", reaches_end=False)
    assert sites_on("map_parallelism", [SITE, other]) == (SITE,)
    assert sites_on("cache", [SITE]) == ()


def test_records_survive_json() -> None:
    stage = Stage(id="data.py:42:map", file="/home/me/data.py", line=42, method="map", arguments={"x": None, "y": 1.5})
    reorder = Reorder(map_stage="a", batch_stage="b", verdict="equal", reason=None, text="", difference=0.5)
    for record in (SITE, stage, reorder):
        assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record
