"""Recommended values written into source text: only where it is certain, and applied by the real ``patch``."""

from __future__ import annotations

import ast
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tfpipe.report.patch import Change, Patch, describe_change, make_patch, read_sources
from tfpipe.sites import CACHE_BEFORE, OverrideValue, Site

HEAD = "import tensorflow as tf\n"


def site_at(
    text: str, method: str, argument: str, value: Any, *, file: str = "/p/data.py", nth: int = 0, **fields: Any
) -> Site:
    """The site of the ``nth`` call of ``method`` in ``text``, as capturing it would give it."""
    calls = [
        node
        for node in ast.walk(ast.parse(text.removeprefix("\ufeff")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) == method
    ]
    call = sorted(calls, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))[nth]
    axes = {"num_parallel_calls": "map_parallelism", "filename": "cache"}
    axes["buffer_size"] = "prefetch_depth" if method == "prefetch" else "shuffle_buffer"
    line = call.func.end_lineno
    stage = f"data.py:{line}:{method}"
    return Site(
        **{
            "id": f"{stage}({argument})",
            "stage": stage,
            "kind": "call",
            "file": file,
            "line": line,
            "end_line": call.end_lineno,
            "end_column": call.end_col_offset,
            "method": method,
            "argument": argument,
            "axis": axes.get(argument, "option"),
            "value": value,
            "written": value is not None,
        }
        | fields
    )


def patch_of(text: str, *changes: tuple[Site, OverrideValue]) -> Patch:
    return make_patch([Change(site=site, value=value) for site, value in changes], {"/p/data.py": text}, Path("/p"))


def patched(text: str, patch: Patch, folder: Path) -> str:
    """``text`` after the real patch has been at it."""
    program = shutil.which("patch")
    if program is None:
        pytest.skip("there is no patch program here")
    (folder / "data.py").write_bytes(text.encode())
    done = subprocess.run([program, "-p1", "--binary"], input=patch.diff.encode(), cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "data.py").read_bytes().decode()


@pytest.mark.parametrize(
    ("before", "method", "argument", "value", "new", "after"),
    [
        ("x = d.map(f, num_parallel_calls=2)", "map", "num_parallel_calls", 2, 8, "x = d.map(f, num_parallel_calls=8)"),
        ("x = d.map(f, 2)", "map", "num_parallel_calls", 2, 8, "x = d.map(f, 8)"),
        (
            "x = d.map(f)",
            "map",
            "num_parallel_calls",
            None,
            "auto",
            "x = d.map(f, num_parallel_calls=tf.data.AUTOTUNE)",
        ),
        (
            "x = d.map((lambda a: a))",
            "map",
            "num_parallel_calls",
            None,
            4,
            "x = d.map((lambda a: a), num_parallel_calls=4)",
        ),
        (
            "x = d.map(\n  f,  # decode\n)",
            "map",
            "num_parallel_calls",
            None,
            4,
            "x = d.map(\n  f, num_parallel_calls=4,  # decode\n)",
        ),
        (
            "x = d.map(f, num_parallel_calls=tf.data.AUTOTUNE)",
            "map",
            "num_parallel_calls",
            "auto",
            3,
            "x = d.map(f, num_parallel_calls=3)",
        ),
        (
            "x = d.map(f, num_parallel_calls=2)",
            "map",
            "num_parallel_calls",
            2,
            None,
            "x = d.map(f, num_parallel_calls=None)",
        ),
        ("x = d.shuffle(buffer_size=10_000)", "shuffle", "buffer_size", 10000, 500, "x = d.shuffle(buffer_size=500)"),
        ("x = d.cache().batch(2)", "cache", "filename", "", False, "x = d.batch(2)"),
        ("d = d.cache()\nd = d.batch(2)", "cache", "filename", "", False, "d = d.batch(2)"),
        ("x = (d\n  .cache()\n  .batch(2))", "cache", "filename", "", False, "x = (d\n  .batch(2))"),
        ("x = 'ä' + d.prefetch(1)", "prefetch", "buffer_size", 1, 2, "x = 'ä' + d.prefetch(2)"),
        (
            "x = d.prefetch(1); y = e.prefetch(1)",
            "prefetch",
            "buffer_size",
            1,
            2,
            "x = d.prefetch(2); y = e.prefetch(1)",
        ),
    ],
)
def test_certain_edits(
    before: str, method: str, argument: str, value: Any, new: OverrideValue, after: str, tmp_path: Path
) -> None:
    text = f"{HEAD}{before}\n"
    patch = patch_of(text, (site_at(text, method, argument, value), new))
    assert patch.by_hand == ()
    assert patched(text, patch, tmp_path) == f"{HEAD}{after}\n"


@pytest.mark.parametrize(
    ("source", "value", "fields", "why"),
    [
        ("x = d.map(f, num_parallel_calls=workers)", 2, {}, "the value comes from workers"),
        ("x = d.map(f, num_parallel_calls=3)", 2, {}, "the file has changed: 3 is written there now"),
        ("x = d.map(f, **options)", 2, {}, "is not written as a keyword there"),
        ("x = d.map(f, **options)", None, {}, "takes its arguments from a list or dict"),
        ("x = d.map(f, num_parallel_calls=2)", 2, {"line": 7}, "there is no map(...) on that line"),
        ("x = d.map(f).map(g)", None, {"end_line": None, "end_column": None}, "several map(...) on that line"),
        ("x = d.map(f, num_parallel_calls=2)", 2, {"occurrences": 3}, "this place runs 3 times"),
        ("x = d.map(f)", None, {"via": "library_function"}, "not be written on this line"),
    ],
)
def test_what_is_not_certain_is_left_to_the_user(source: str, value: Any, fields: dict[str, Any], why: str) -> None:
    text = f"{HEAD}{source}\n"
    patch = patch_of(text, (site_at(text, "map", "num_parallel_calls", value, **fields), 8))
    assert patch.diff == ""
    assert len(patch.by_hand) == 1
    assert why in patch.by_hand[0]


def test_the_value_autotune_needs_tensorflow_by_a_name() -> None:
    text = "x = d.map(f)\n"
    site = site_at(text, "map", "num_parallel_calls", None)
    assert "does not import tensorflow" in patch_of(text, (site, "auto")).by_hand[0]
    assert "+x = d.map(f, num_parallel_calls=3)" in patch_of(text, (site, 3)).diff


def test_all_runs_of_a_loop_must_agree() -> None:
    text = f"{HEAD}for _ in range(2):\n    d = d.map(f, num_parallel_calls=2)\n"
    first = site_at(text, "map", "num_parallel_calls", 2, occurrences=2)
    second = replace(first, id="data.py:3:map:2(num_parallel_calls)", occurrence=2)
    assert "+    d = d.map(f, num_parallel_calls=8)" in patch_of(text, (first, 8), (second, 8)).diff
    assert len(patch_of(text, (first, 8), (second, 4)).by_hand) == 2


def order_site(text: str, **fields: Any) -> Site:
    site = site_at(text, "map", "num_parallel_calls", None)
    return replace(
        site, id=f"{site.stage}(order)", kind="order", argument="order", axis="order", value="map-batch",
        partner=site_at(text, "batch", "num_parallel_calls", None).stage, **fields
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = d.map(f).batch(2).prefetch(1)", "x = d.batch(2).map(f).prefetch(1)"),
        ("x = (d\n  .map(f)\n  .batch(2))", "x = (d\n  .batch(2)\n  .map(f))"),
        ("d = e.map(f)\nd = d.batch(2)", "d = e.batch(2)\nd = d.map(f)"),
        ("def g():\n  d = e.map(f)\n  return d.batch(2)", "def g():\n  d = e.batch(2)\n  return d.map(f)"),
    ],
)
def test_batch_and_map_trade_places(before: str, after: str, tmp_path: Path) -> None:
    text = f"{HEAD}{before}\n"
    patch = patch_of(text, (order_site(text), "batch-map"))
    assert patch.by_hand == ()
    assert patched(text, patch, tmp_path) == f"{HEAD}{after}\n"


@pytest.mark.parametrize(
    "source",
    ["m = d.map(f)\nx = m.batch(2)", "d = d.map(f)\nprint(d)\nd = d.batch(2)", "x = d.map(f).batch(2  # two\n)"],
)
def test_batch_and_map_that_are_not_certainly_next_to_each_other_stay(source: str) -> None:
    text = f"{HEAD}{source}\n"
    patch = patch_of(text, (order_site(text), "batch-map"))
    assert patch.diff == ""
    assert len(patch.by_hand) == 1


def move_site(text: str, method: str, place: str, partner: str, nth: int = 0) -> Site:
    site, other = site_at(text, method, "", False, nth=nth), site_at(text, partner, "", False)
    return replace(
        site, id=f"{site.stage}({place} {other.stage})", kind="order", argument=f"{place} {other.stage}", axis="order",
        partner=other.stage,
    )  # fmt: skip


def cache_site(text: str, method: str) -> Site:
    site = site_at(text, method, CACHE_BEFORE, False)
    return replace(site, kind="order", axis="cache")


@pytest.mark.parametrize(
    ("before", "sites", "after"),
    [
        (
            "x = d.map(f).cache().take(9).batch(2)",
            [("take", "before", "cache")],
            "x = d.map(f).take(9).cache().batch(2)",
        ),
        ("d = d.cache()\nd = d.take(9)", [("take", "before", "cache")], "d = d.take(9)\nd = d.cache()"),
        (
            "x = (d\n  .map(f)\n  .shuffle(9, seed=1)\n  .cache()\n)",
            [("map", "behind", "cache")],
            "x = (d\n  .shuffle(9, seed=1)\n  .cache()\n  .map(f)\n)",
        ),
        (
            "def g(d):\n  d = d.map(f)\n  d = d.map(h).shuffle(9)\n  return d.batch(2)",
            [("map", "behind", "batch"), ("map", "behind", "batch", 1)],
            "def g(d):\n  d = d.shuffle(9)\n  d = d.batch(2).map(f)\n  return d.map(h)",
        ),
        (
            "x = d.map(f).cache().take(9).shuffle(3).batch(2)",
            [("take", "before", "cache"), ("map", "behind", "shuffle")],
            "x = d.take(9).cache().shuffle(3).map(f).batch(2)",
        ),
        ("x = r(\n d\n)\nx = x.shuffle(2)", [("cache", "shuffle")], "x = r(\n d\n)\nx = x.cache().shuffle(2)"),
        (
            "x = (d\n  .map(f)\n  .shuffle(9)\n)",
            [("cache", "shuffle"), ("map", "behind", "shuffle")],
            "x = (d\n  .cache()\n  .shuffle(9)\n  .map(f)\n)",
        ),
    ],
)
def test_stages_that_move_and_caches_that_are_added(
    before: str, sites: list[tuple[Any, ...]], after: str, tmp_path: Path
) -> None:
    text = f"{HEAD}{before}\n"
    changes = [cache_site(text, names[1]) if len(names) == 2 else move_site(text, *names) for names in sites]
    patch = patch_of(text, *((site, True) for site in changes))
    assert patch.by_hand == ()
    assert patched(text, patch, tmp_path) == f"{HEAD}{after}\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("c = d.cache()\nx = c.take(2)", "do not follow each other"),
        ("d = d.cache()\nn = 2\nd = d.take(n)", "do not follow each other"),
        ("x = (d.cache()  # all\n  .take(2  # two\n))", "a comment in what would move"),
    ],
)
def test_moves_that_are_not_certain_are_left_to_the_user(source: str, why: str) -> None:
    text = f"{HEAD}{source}\n"
    patch = patch_of(text, (move_site(text, "take", "before", "cache"), True))
    assert patch.diff == ""
    assert why in patch.by_hand[0]


def test_a_move_is_described_by_what_stands_where() -> None:
    text = f"{HEAD}x = d.map(f).cache().take(9).shuffle(3)\n"
    for site, words in [
        (move_site(text, "take", "before", "cache"), "data.py:2  take behind cache -> take before cache"),
        (move_site(text, "map", "behind", "shuffle"), "data.py:2  map before shuffle -> shuffle before map"),
        (cache_site(text, "shuffle"), "data.py:2  before shuffle: add .cache()"),
    ]:
        assert describe_change(Change(site=site, value=True)) == words


def end_site(text: str, method: str, **fields: Any) -> Site:
    site = site_at(text, method, "buffer_size", 0)
    return replace(
        site, id="end:prefetch(buffer_size)", stage="", kind="end", method="prefetch", axis="prefetch_depth",
        written=False, partner=site.stage, **fields
    )  # fmt: skip


def test_a_missing_prefetch_is_put_behind_the_last_stage(tmp_path: Path) -> None:
    text = f"{HEAD}def g(d):\n    return d.batch(\n        2,\n    )\n"
    patch = patch_of(text, (end_site(text, "batch"), "auto"))
    assert patched(text, patch, tmp_path).endswith("    ).prefetch(tf.data.AUTOTUNE)\n")


@pytest.mark.parametrize(
    ("source", "fields"),
    [("x = wrap(d.batch(2))", {}), ("x = d.batch(2)", {"occurrences": 2}), ("x = d.batch(2)", {"via": "make"})],
)
def test_a_missing_prefetch_is_left_to_the_user_where_its_place_is_not_certain(
    source: str, fields: dict[str, Any]
) -> None:
    text = f"{HEAD}{source}\n"
    patch = patch_of(text, (end_site(text, "batch", **fields), 2))
    assert (patch.diff, len(patch.by_hand)) == ("", 1)


def test_several_changes_in_one_chain(tmp_path: Path) -> None:
    text = f"{HEAD}def g(d):\n    return (\n        d\n        .cache()\n        .map(f)\n        .batch(2)\n    )\n"
    changes = [
        (site_at(text, "cache", "filename", ""), False),
        (site_at(text, "map", "num_parallel_calls", None), 8),
        (order_site(text), "batch-map"),
        (end_site(text, "batch"), 2),
    ]
    patch = patch_of(text, *changes)
    after = "d\n        .batch(2)\n        .map(f, num_parallel_calls=8).prefetch(2)"
    assert patch.by_hand == ()
    assert after in patched(text, patch, tmp_path)


def test_options_are_edited_where_they_are_set(tmp_path: Path) -> None:
    text = f"{HEAD}o = tf.data.Options()\no.threading.private_threadpool_size = 2\n"
    site = Site(
        id="", stage="", kind="option", file="/p/data.py", line=3, method="Options",
        argument="threading.private_threadpool_size", axis="threadpool", value=2, written=True,
    )  # fmt: skip
    assert patched(text, patch_of(text, (site, 8)), tmp_path).endswith("private_threadpool_size = 8\n")
    end = replace(site, kind="end", file="", line=None)
    assert "with_options" in patch_of(text, (end, 8)).by_hand[0]


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}x = d.prefetch(1)",
        f"{HEAD}x = d.prefetch(1)\n".replace("\n", "\r\n"),
        f"\ufeff{HEAD}x = d.prefetch(1)\n",
        f"{HEAD}# a form feed \f and \u2028 are no line ends\nx = d.prefetch(1)\n",
    ],
    ids=["no newline at the end", "carriage returns", "byte order mark", "form feed"],
)
def test_odd_files(text: str, tmp_path: Path) -> None:
    patch = patch_of(text, (site_at(text, "prefetch", "buffer_size", 1), 2))
    assert patched(text, patch, tmp_path) == text.replace("prefetch(1)", "prefetch(2)")


def test_files_elsewhere_or_unreadable_are_left_to_the_user(tmp_path: Path) -> None:
    site = site_at("d.prefetch(1)\n", "prefetch", "buffer_size", 1, file=str(tmp_path / "gone.py"))
    change = Change(site=site, value=2)
    assert read_sources([change]) == {}
    assert "cannot be read" in make_patch([change], {}, tmp_path).by_hand[0]
    assert (
        "not below this directory" in make_patch([change], {site.file: "d.prefetch(1)\n"}, tmp_path / "sub").by_hand[0]
    )
    assert "does not parse" in make_patch([change], {site.file: "d.prefetch(1\n"}, tmp_path).by_hand[0]


def test_descriptions_are_the_lines_of_a_recommendation() -> None:
    text = f"{HEAD}x = d.map(f, num_parallel_calls=2)\n"
    site = site_at(text, "map", "num_parallel_calls", 2)
    assert describe_change(Change(site=site, value=8)) == "data.py:2  map(num_parallel_calls=2) -> 8"
    end = replace(
        site, id="end", kind="end", method="prefetch", axis="prefetch_depth", line=9, partner="data.py:9:batch"
    )
    assert describe_change(Change(site=end, value="auto")) == "data.py:9  behind batch: add .prefetch(tf.data.AUTOTUNE)"
    cache = site_at("d.cache()", "cache", "filename", "")
    assert describe_change(Change(site=cache, value=False)) == "data.py:1  cache(filename='') -> leave the stage out"
