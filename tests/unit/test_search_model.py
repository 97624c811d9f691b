"""How near the best the model's search comes, how little it measures, and what it leaves alone."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

import pytest

from tests.unit.searching import FLOOR_S, World, drive, listed_space, product_settings
from tfpipe.runner.plan import MIN_ROUNDS
from tfpipe.runner.search.model import MAX_PROBES, ModelSearch
from tfpipe.runner.search.sampling import RandomSearch
from tfpipe.runner.search.space import make_space
from tfpipe.settings import NamedSettings, PipelineSettings

TOLERANCE = 0.02
SPACE = listed_space(product_settings())
GRID_BLOCKS = MIN_ROUNDS * len(SPACE.everything)
SHARE = 0.25
WORLDS = range(60)


def search(world, *, space=SPACE):
    return ModelSearch(space=space, tolerance=TOLERANCE, build=lambda run: world)


def regrets(make, **world):
    found = []
    for seed in WORLDS:
        paper = World(seed=seed, **world)
        course = drive(make(paper), paper, max_blocks=round(SHARE * GRID_BLOCKS))
        assert course.blocks <= SHARE * GRID_BLOCKS
        found.append(paper.regret(course.chosen))
    return found


@pytest.fixture(scope="module")
def by_model():
    return regrets(search)


def test_the_choice_is_within_the_tolerance_in_a_quarter_of_the_grid_s_time(by_model):
    assert sum(regret <= TOLERANCE for regret in by_model) >= 0.95 * len(by_model)


def test_the_model_beats_drawing_at_random(by_model):
    drawn = regrets(lambda world: RandomSearch(space=SPACE, seed=world.seed, tolerance=TOLERANCE))
    assert statistics.fmean(by_model) < 0.5 * statistics.fmean(drawn)
    assert max(by_model) < max(drawn)


def test_a_model_that_errs_badly_is_corrected_by_what_is_measured():
    wrong = regrets(search, error=0.4)
    assert sum(regret <= 2 * TOLERANCE for regret in wrong) >= 0.9 * len(wrong)


# --- what it says and does ---------------------------------------------------------------------------------------


def test_whatever_it_adds_carries_what_was_expected_of_it():
    world = World(seed=5)
    course = drive(search(world), world, max_blocks=60)
    added = [c for c in course.run.candidates if c.settings not in {n.settings for n in SPACE.first}]
    assert added
    assert all(c.predicted == world.predict(c.settings) for c in added)


@dataclass
class Flat(World):
    """Nothing makes a difference: the step is compute alone, whatever the setting."""

    def __post_init__(self):
        self.step_s = {n.settings.id: FLOOR_S for n in self.settings}
        self.predicted_s = dict(self.step_s)


def test_nothing_joins_where_the_step_cannot_get_faster():
    """Not even what the model thinks is twice as fast, for no step takes less than compute alone; and nothing smaller,
    where what the user has is kept."""
    world = Flat(seed=0, noise=0.0)
    world.predicted_s = {identity: FLOOR_S / (1 + index % 2) for index, identity in enumerate(world.step_s)}
    course = drive(search(world), world)
    assert course.stopped
    assert len(course.run.candidates) == len(SPACE.first)
    assert len(course.decisions) == MIN_ROUNDS


def test_of_settings_that_are_as_fast_the_smallest_is_measured_too():
    """All that begins is large; two calls and one batch ahead do as well, and nothing less does."""
    world = Flat(seed=0, noise=0.0)
    for identity, named in ((n.settings.id, n) for n in world.settings):
        enough = named.settings.map_parallelism is not None and named.settings.prefetch_depth != 0
        world.step_s[identity] = world.predicted_s[identity] = FLOOR_S if enough else 2 * FLOOR_S
    large = [n for n in world.settings if n.settings.map_parallelism == "auto" and n.settings.prefetch_depth == "auto"]
    space = make_space(
        [world.settings[0], *large], (), world.settings, pipeline=None, cores=2, is_allowed=lambda settings: True
    )
    course = drive(search(world, space=space), world)
    smallest = PipelineSettings(map_parallelism=2, prefetch_depth=1)
    assert course.run.candidate(smallest.id).blocks
    assert len(course.run.candidates) <= len(space.first) + 3


def test_until_the_model_is_checked_what_it_expects_to_be_equal_is_measured_too():
    world = Flat(seed=0, noise=0.0)
    world.step_s = world.predicted_s = dict.fromkeys(world.step_s, 2 * FLOOR_S)
    course = drive(search(world), world)
    assert 0 < len(course.run.candidates) - len(SPACE.first) <= 10


@dataclass
class Asking(Flat):
    """Expects nothing of anything that is not measured yet, and asks without end."""

    def __post_init__(self):
        first = {n.settings for n in SPACE.first}
        self.step_s = {n.settings.id: 2 * FLOOR_S if n.settings in first else 4 * FLOOR_S for n in self.settings}
        self.predicted_s = dict(self.step_s)

    def probes(self, settings):
        return tuple(settings)


def test_the_model_s_own_questions_end():
    world = Asking(seed=0, noise=0.0)
    course = drive(search(world), world)
    assert course.stopped
    asked = [n for decision in course.decisions for n in decision.add]
    assert len(asked) == MAX_PROBES


def test_what_is_expected_to_win_joins_before_what_would_only_make_predictions_surer():
    world = Asking(seed=0, noise=0.0)
    best = world.settings[-1].settings.id
    world.step_s[best] = world.predicted_s[best] = FLOOR_S
    course = drive(search(world), world)
    added = [decision.add for decision in course.decisions if decision.add]
    assert added[0][0].settings.id == best


@dataclass
class Unsure(Flat):
    """Cannot say anything of what is offered."""

    offered: tuple[NamedSettings, ...] = ()

    def unknown(self, settings):
        return "it was never seen" if any(settings == n.settings for n in self.offered) else None


def test_what_is_worth_a_try_is_tried_where_nothing_can_be_said_of_it():
    listed = product_settings()
    first, offered, others = listed[:4], listed[4:6], listed[6:]
    world = Unsure(seed=0, noise=0.0, offered=offered)
    for identity in world.step_s:
        world.step_s[identity] = world.predicted_s[identity] = 2 * FLOOR_S
    space = make_space(first, offered, others, pipeline=None, cores=2, is_allowed=lambda settings: True)
    course = drive(search(world, space=space), world)
    assert {n.settings.id for n in offered} <= {c.id for c in course.run.candidates}
    assert all(course.run.candidate(n.settings.id).predicted is None for n in offered)
    assert course.stopped


def test_a_run_that_has_lost_every_candidate_ends():
    world = World(seed=1)
    course = drive(search(world), world, max_blocks=20)
    failed = replace(
        course.run, candidates=tuple(replace(c, status="failed", examples_per_s=None) for c in course.run.candidates)
    )
    assert search(world).next(failed).stop
