"""What holds for every search, on pipelines that exist on paper."""

from __future__ import annotations

import pytest

from tests.unit.searching import World, drive, listed_space, product_settings
from tfpipe.runner.plan import MIN_ROUNDS
from tfpipe.runner.search.grid import GridSearch
from tfpipe.runner.search.model import ModelSearch
from tfpipe.runner.search.sampling import OptunaSearch, RandomSearch

TOLERANCE = 0.02
SPACE = listed_space(product_settings())
SETTINGS = {named.settings.id: named for named in SPACE.everything}
SEARCHES = {
    "grid": lambda world: GridSearch(candidates=SPACE.everything),
    "model": lambda world: ModelSearch(space=SPACE, tolerance=TOLERANCE, build=lambda run: world),
    "without a model": lambda world: ModelSearch(space=SPACE, tolerance=TOLERANCE, build=lambda run: None),
    "random": lambda world: RandomSearch(space=SPACE, seed=1, tolerance=TOLERANCE),
    "optuna": lambda world: OptunaSearch(space=SPACE, seed=1, tolerance=TOLERANCE),
}
CHOOSING = [name for name in SEARCHES if name != "grid"]


@pytest.fixture(scope="module", params=SEARCHES)
def name(request):
    if request.param == "optuna":
        pytest.importorskip("optuna")
    return request.param


@pytest.fixture(scope="module")
def course(name):
    world = World(seed=3)
    return drive(SEARCHES[name](world), world, max_blocks=120)


def test_what_the_user_has_comes_first(name):
    first = SEARCHES[name](World(seed=3)).first()
    assert first[0] == product_settings()[0]
    assert len(set(first)) == len(first)


def test_nothing_is_proposed_twice_or_from_elsewhere(name, course):
    known = {named.settings.id for named in SEARCHES[name](World(seed=3)).first()}
    for decision in course.decisions:
        for named in decision.add:
            assert named == SETTINGS[named.settings.id]
        # What there was no room for may be proposed again, what was measured may not.
        assert not {n.settings.id for n in decision.add} & known
        known = {c.id for c in course.run.candidates if c.id in known or c.id in {n.settings.id for n in decision.add}}


def test_what_is_dropped_was_measured_is_not_the_users_and_has_a_reason(course):
    dropped = [pair for decision in course.decisions for pair in decision.drop.items()]
    assert len({identity for identity, _ in dropped}) == len(dropped)
    for identity, reason in dropped:
        assert identity != course.run.current
        assert course.run.candidate(identity).blocks
        assert reason


def test_the_same_run_gets_the_same_decision(name, course):
    """A search that is made anew, as a resumed run does, goes on as the old one would have."""
    world = World(seed=3)
    again = drive(SEARCHES[name](world), world, max_blocks=120)
    assert again.decisions == course.decisions
    run = course.run
    assert SEARCHES[name](world).next(run) == SEARCHES[name](World(seed=3)).next(run)


def test_a_search_ends_where_nothing_is_left_to_chance(name):
    """And not before the least number of rounds."""
    world = World(seed=3, noise=0.0, own=0.0, error=0.0)
    course = drive(SEARCHES[name](world), world, max_blocks=2000)
    assert course.stopped
    assert len(course.decisions) >= MIN_ROUNDS
    assert world.regret(course.chosen) <= TOLERANCE


@pytest.mark.parametrize("seed", range(6))
def test_what_may_still_win_is_not_dropped(name, seed):
    """By what every setting really takes, nothing dropped was faster than what was kept by more than is worth it."""
    world = World(seed=seed, noise=0.06)
    course = drive(SEARCHES[name](world), world, max_blocks=150)
    kept = min(world.step_s[c.id] for c in course.run.candidates if c.dropped is None)
    dropped = [world.step_s[c.id] for c in course.run.candidates if c.dropped is not None]
    assert all(step_s > kept / (1 + TOLERANCE) for step_s in dropped)


def test_nothing_is_dropped_on_a_single_round(name):
    """However large the difference looks, one round has no interval to judge it by."""
    world = World(seed=3, noise=0.5)
    assert drive(SEARCHES[name](world), world, max_blocks=120).decisions[0].drop == {}
