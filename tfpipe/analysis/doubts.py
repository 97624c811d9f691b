"""The run's doubts about its own numbers: a closed list of warnings, each ending in what to do about it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterator

from tfpipe.analysis.ranking import is_left_open
from tfpipe.analysis.statistics import paired_ratio
from tfpipe.analysis.verdict import INPUT_MODERATE
from tfpipe.records import Candidate, Run, Warning
from tfpipe.units import format_percent, format_rate, format_seconds

# Below this many counted steps an interval rests on too little to mean what it says.
FEW_STEPS = 5
# An interval of the throughput this much wider than its value on either side: the machine was noisy.
NOISY = 0.10
# A pause is a step this many times the usual one; rare is this share of the steps, noticeable this share of the time.
PAUSE = 5.0
RARE = 0.01
NOTICEABLE = 0.02
# The halves of blocks may differ by this much before a candidate is called unsettled.
UNSETTLED = 0.05


def find_doubts(run: Run) -> tuple[Warning, ...]:
    """All warnings that apply, in the order of the list below."""
    return tuple(warning for find in _ALL for warning in find(run))


def _candidates(some: Collection[object]) -> str:
    return f"{len(some)} candidate{'' if len(some) == 1 else 's'}"


def _generated_data(run: Run) -> Iterator[Warning]:
    if run.data.generated:
        yield Warning(
            code="generated-data",
            text=f"{run.data.origin}. Name real data with --data-dir, or insist on it with --require-data.",
        )


def _few_steps(run: Run) -> Iterator[Warning]:
    few = [c.label for c in run.candidates if c.step_s and _counted_steps(c) < FEW_STEPS]
    if few:
        yield Warning(
            code="few-steps",
            text=f"{_candidates(few)} with fewer than {FEW_STEPS} counted steps (such as {few[0]}). "
            "Raise --time-budget or --steps, or use a smaller --batch-size.",
        )


def _counted_steps(candidate: Candidate) -> int:
    return sum(b.steps for b in candidate.blocks if b.kind == "step" and not b.retraced)


def _noisy(run: Run) -> Iterator[Warning]:
    widths = {
        c.label: (c.examples_per_s.high - c.examples_per_s.low) / 2 / c.examples_per_s.value
        for c in run.candidates
        if c.examples_per_s
    }
    noisy = {name: width for name, width in widths.items() if width > NOISY}
    if noisy:
        worst = max(noisy, key=lambda name: noisy[name])
        yield Warning(
            code="noisy",
            text=f"The throughput of {_candidates(noisy)} is known to no better than {format_percent(NOISY)} "
            f"(worst: {worst}, +-{format_percent(noisy[worst])}). Close other programs, or raise --time-budget.",
        )


def _retraced(run: Run) -> Iterator[Warning]:
    blocks = sum(1 for c in run.candidates for b in c.blocks if b.retraced)
    if blocks:
        yield Warning(
            code="retraced",
            text=f"The step was traced anew in {blocks} blocks, which were not counted. "
            "Give it an input_signature, or batches that all have one shape.",
        )


def _above_floor(run: Run) -> Iterator[Warning]:
    """A candidate faster than compute alone means that the floor, or the candidate, was measured in a slow spell."""
    floor = run.floor.step_s
    if floor is None:
        return
    for c in run.candidates:
        if c.step_s is not None and c.step_s.high < floor.low:
            yield Warning(
                code="below-floor",
                text=f"{c.label} took {format_seconds(c.step_s.value)} per step, less than compute alone "
                f"({format_seconds(floor.value)}): the machine changed speed. Repeat the run on a quiet machine.",
            )
            return


def _disturbed(run: Run) -> Iterator[Warning]:
    disturbed = [c.label for c in run.candidates if c.trace is not None and c.trace.disturbed]
    if disturbed:
        yield Warning(
            code="disturbed",
            text=f"Under the profiler {_candidates(disturbed)} waited for another share of the step than without it "
            f"(such as {disturbed[0]}). Trust the table's times, and read those traces for the order of events only.",
        )


def _uncertain(run: Run) -> Iterator[Warning]:
    uncertain = [c for c in run.candidates if c.verdict is not None and c.verdict.bound == "uncertain"]
    left_open = [c.label for c in uncertain if is_left_open(c)]
    near = [c.label for c in uncertain if not is_left_open(c)]
    if left_open:
        yield Warning(
            code="uncertain",
            text=f"The verdict on {_candidates(left_open)} is uncertain (such as {left_open[0]}): the interval "
            "straddles a cut. Raise --time-budget or --steps.",
        )
    if near:
        yield Warning(
            code="uncertain",
            text=f"The verdict on {_candidates(near)} is nearer a cut than more steps could tell (such as {near[0]}). "
            "Read it as each of the verdicts that it leaves.",
        )


def _untried(run: Run) -> Iterator[Warning]:
    if run.untried:
        count = len(run.untried)
        yield Warning(
            code="untried",
            text=f"There was no time for {count} more setting{'' if count == 1 else 's'} that the search would have "
            f"measured (such as {run.untried[0]}). Raise --time-budget.",
        )


def _epochs_inside(run: Run) -> Iterator[Warning]:
    starts = {c.id: [s for b in c.blocks if b.kind == "step" for s in b.epoch_start_s] for c in run.candidates}
    total = sum(len(of_one) for of_one in starts.values())
    if not total:
        return
    longest = max(max(of_one) for of_one in starts.values() if of_one)
    size = "" if run.data.examples is None else f" of {run.data.examples // run.data.batch_size:,} batches"
    yield Warning(
        code="epochs-inside",
        text=f"The data set{size} is shorter than the run: {total} epochs ended while measuring, and starting the next "
        f"took up to {format_seconds(longest)}. Those steps are not counted; if your training starts as many, add "
        ".repeat() before the batch, or count that time on top.",
    )


def _cache_filling(run: Run) -> Iterator[Warning]:
    """What was measured is not the first epoch, or is nothing else."""
    fill = None if run.pipeline is None else run.pipeline.cache_fill
    if run.pipeline is None or fill is None:
        return
    where = next((s.where for s in run.pipeline.stages if s.method == "cache" and s.reaches_end), "the pipeline")
    if not fill.complete:
        yield Warning(
            code="cache",
            text=f"{where}: the cache was not full after {format_seconds(fill.seconds)} of reading: what was measured "
            "is the first epoch. Later ones read from the cache and wait less: profile a part of the data to see.",
        )
        return
    share = run.first_epoch_input_fraction
    first = f"The first, which fills it, reads for {format_seconds(fill.seconds)}"
    if share is not None:
        waits = f"is input-bound (at least {format_percent(share)} of it waits)"
        first += f", so it {waits if share >= INPUT_MODERATE else 'need not wait for that'}"
    yield Warning(
        code="cache",
        text=f"{where}: what was measured is an epoch with the cache full, as all but the first are. {first}. "
        "Count that one on top if you train for few epochs.",
    )


def _pauses(run: Run) -> Iterator[Warning]:
    """Isolated steps many times longer than usual: the machine paused, or the pipeline stalls once in a long while."""
    paused: dict[str, float] = {}
    for c in run.candidates:
        steps = [s for b in c.blocks if b.kind == "step" and not b.retraced for s in b.step_s]
        if len(steps) < FEW_STEPS:
            continue
        usual = statistics.median(steps)
        long = [s for s in steps if s > PAUSE * usual]
        if long and len(long) <= max(1, RARE * len(steps)) and sum(long) > NOTICEABLE * sum(steps):
            paused[c.label] = max(long)
    if paused:
        worst = max(paused, key=lambda name: paused[name])
        yield Warning(
            code="pauses",
            text=f"{_candidates(paused)} had an isolated step many times longer than usual (worst: {worst}, "
            f"{format_seconds(paused[worst])}). It is kept in their means but does not choose the winner; repeat the "
            "run to see whether it is the machine's or the pipeline's.",
        )


def _unsettled(run: Run) -> Iterator[Warning]:
    """The second halves of the blocks differ from the first: buffers were still filling or AUTOTUNE still moving."""
    moving = []
    for c in run.candidates:
        blocks = [b for b in c.blocks if b.kind == "step" and not b.retraced and b.steps >= 2 * FEW_STEPS]
        first = {b.round: statistics.median(b.step_s[: b.steps // 2]) for b in blocks}
        second = {b.round: statistics.median(b.step_s[b.steps // 2 :]) for b in blocks}
        change = paired_ratio(second, first)
        drifts = change is not None and (change.low > 1 + UNSETTLED or change.high < 1 - UNSETTLED)
        if drifts or c.autotune_moving:
            moving.append(c.label)
    if moving:
        yield Warning(
            code="unsettled",
            text=f"{_candidates(moving)} had not settled when measured (such as {moving[0]}): AUTOTUNE was "
            "still moving or buffers were still filling. Raise --time-budget or --steps for longer blocks.",
        )


def _capacity_below_rate(run: Run) -> Iterator[Warning]:
    """A pipeline cannot deliver more beside a step than alone; if it did, the capacity block was disturbed."""
    for c in run.candidates:
        if c.capacity_examples_per_s and c.examples_per_s and c.examples_per_s.low > 1.1 * c.capacity_examples_per_s:
            yield Warning(
                code="capacity",
                text=f"{c.label} delivered {format_rate(c.examples_per_s.value)} examples/s to the step but only "
                f"{format_rate(c.capacity_examples_per_s)} alone: the machine changed speed. Repeat the run.",
            )
            return


_ALL: tuple[Callable[[Run], Iterator[Warning]], ...] = (
    _generated_data,
    _few_steps,
    _noisy,
    _uncertain,
    _untried,
    _retraced,
    _above_floor,
    _capacity_below_rate,
    _epochs_inside,
    _cache_filling,
    _pauses,
    _unsettled,
    _disturbed,
)
