"""Which setting to use, from what was measured.

The fastest candidate is the one with the most examples per second. Among those that cannot be told apart from it,
the one that costs least is recommended. Where that is a change, it was measured once more beside what the user
has, and those rounds alone decide: what looked fastest among many was also the luckiest. "No change worth making" is a
full answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

from tfpipe.analysis.casting import casting_note
from tfpipe.analysis.execution import ExecutionAdvice, recommend_execution
from tfpipe.analysis.ranking import TIE_LIMIT, WORTHWHILE, contenders, fastest, gain, is_tie, measured, rate, rounds
from tfpipe.analysis.verdict import CONTENDED, INPUT_MODERATE
from tfpipe.errors import TfpipeError
from tfpipe.records import Candidate, Gain, Interval, Recommendation, Run
from tfpipe.settings import PipelineSettings
from tfpipe.units import format_bytes, format_percent, format_rate, format_seconds

# Memory is compared in steps of this factor: buffers breathe, and noise must not choose.
MEMORY_STEP = 1.5
# The name of the candidate that leaves everything to AUTOTUNE, in settings.preset and runner.proposals.
AUTOTUNE = "all AUTOTUNE"
# A first batch that takes longer than this is worth a word.
SLOW_START_S = 1.0


def recommend(run: Run, max_memory_bytes: int | None = None) -> Recommendation:
    """The recommendation for ``run``; with ``max_memory_bytes`` only candidates that buffer no more are considered.

    Raises:
        TfpipeError: no candidate was measured, or none stays within the limit.
    """
    compared = measured(run.candidates)
    advice = recommend_execution(run)
    if not compared and advice is not None:
        return _only_execution(run, advice)
    if not compared:
        raise TfpipeError("No candidate of this run was measured to its end.", "See why with: tfpipe show")
    within = [c for c in compared if max_memory_bytes is None or (c.buffered_bytes or 0) <= max_memory_bytes]
    allowed = contenders(within) or within
    if not allowed:
        least = min(compared, key=lambda c: c.buffered_bytes or 0)
        raise TfpipeError(
            f"No measured candidate buffers at most {format_bytes(max_memory_bytes)}; the least is "
            f"{format_bytes(least.buffered_bytes)}, by {least.id}.",
            "Raise --max-memory, or profile smaller buffers: --shuffle-buffer and --prefetch.",
        )
    baseline = _baseline(run, compared)
    # Of one round nothing can be said; only a run that was cut off has such candidates beside others.
    allowed = [c for c in allowed if c is baseline or len(rounds(c)) > 1] or allowed
    since, confirmed = _confirmed(run, allowed, baseline)
    leader = _leader(confirmed, baseline, since)
    equal = [c for c in confirmed if c is leader or is_tie(leader, c, since=since)]
    over_baseline = gain(leader, baseline, since=since)
    # Whatever differs between pipelines beside a host-bound step is no reason to change them.
    may_change = advice is None or advice.change_pipeline
    change = may_change and (baseline not in allowed or _is_surely_worth_it(over_baseline))
    # What one would write without thinking is kept unless something is surely faster; then the cheapest of the
    # fastest is taken.
    chosen = min(equal, key=lambda c: cost(c, baseline.settings)) if change else baseline
    unsettled = may_change and not change and _may_be_slower(baseline, over_baseline)
    ties = [] if unsettled else [c for c in allowed if c is not chosen and (c in equal or is_tie(leader, c))]
    gains = _gains(run, chosen, compared, since)
    headspace = None
    if chosen.step_s is not None and chosen.floor_s:
        headspace = chosen.step_s.value / chosen.floor_s
    speedup = _device_speedup(chosen, run.data.batch_size)
    summary = _unsettled(chosen, leader, over_baseline) if unsettled else _summary(run, chosen, baseline, change, gains)
    recommendation = Recommendation(
        candidate=chosen.id,
        change=change,
        summary=summary,
        why=_why(chosen, leader, baseline, ties, headspace, speedup, run.data.batch_size),
        gains=tuple(gains),
        ties=tuple(c.id for c in sorted(ties, key=lambda c: -rate(c))),
        fastest=leader.id,
        headspace=headspace,
        memory_bytes=chosen.buffered_bytes,
        device_speedup_before_input_bound=speedup,
        notes=tuple(_notes(run, chosen, ties, len(compared) - len(within))),
    )
    return recommendation if advice is None else _with_execution(recommendation, advice)


def _with_execution(recommendation: Recommendation, advice: ExecutionAdvice) -> Recommendation:
    """How to run the step comes first: what the pipeline brings depends on it."""
    pipeline = recommendation.summary if advice.change_pipeline else ""
    pipeline = pipeline.replace("No change worth making", "No change of the pipeline is worth making")
    return replace(
        recommendation,
        summary=f"{advice.summary} {pipeline}".rstrip(),
        why=f"{advice.why} {recommendation.why}".lstrip(),
        gains=(*(() if advice.gain is None else (advice.gain,)), *recommendation.gains),
        notes=(*advice.notes, *recommendation.notes),
        execution=advice.execution,
    )


def _only_execution(run: Run, advice: ExecutionAdvice) -> Recommendation:
    """Where no step could be counted, since the host had the time."""
    return Recommendation(
        candidate=run.current,
        change=False,
        summary=advice.summary,
        why=advice.why,
        gains=(),
        ties=(),
        fastest=run.current,
        headspace=None,
        memory_bytes=None,
        device_speedup_before_input_bound=None,
        notes=advice.notes,
        execution=advice.execution,
    )


def finalists(run: Run) -> tuple[str, ...]:
    """The ids between which a recommended change is decided: itself, what the user has, and all AUTOTUNE.

    Raises:
        TfpipeError: as ``recommend``.
    """
    ids = [recommend(run).candidate, run.current, *(c.id for c in measured(run.candidates) if c.name == AUTOTUNE)]
    return tuple(dict.fromkeys(ids))


def _confirmed(run: Run, allowed: Sequence[Candidate], baseline: Candidate) -> tuple[int, Sequence[Candidate]]:
    """The first round that decides and the candidates measured in it; all of them where nothing was confirmed."""
    since = run.confirmed_from
    if since is not None and any(b.round >= since for b in baseline.blocks):
        confirmed = [c for c in allowed if any(b.kind == "step" and b.round >= since for b in c.blocks)]
        if any(c is not baseline for c in confirmed):
            return since, confirmed
    return 0, allowed


def cost(candidate: Candidate, baseline: PipelineSettings) -> tuple[float, float, int]:
    """What a candidate costs, cheapest first: memory, then threads, then distance from what the user has."""
    memory = candidate.buffered_bytes or 0
    step = 0
    while memory > 1024 * 1024:
        memory = int(memory / MEMORY_STEP)
        step += 1
    threads = sum(node.parallelism or 0 for node in candidate.executed)
    settings = candidate.settings
    distance = sum(getattr(settings, f.name) != getattr(baseline, f.name) for f in fields(settings))
    distance += len(settings.overrides or ())
    return step, threads, distance


def _leader(confirmed: Sequence[Candidate], baseline: Candidate, since: int) -> Candidate:
    """The fastest; of those that are surely faster than the baseline where that one may owe it to chance."""
    sure = [c for c in confirmed if c is not baseline and _is_surely_worth_it(gain(c, baseline, since=since))]
    leader = fastest(confirmed, since=since)
    return fastest(sure, since=since) if sure and leader not in sure else leader


def _is_surely_worth_it(over_baseline: Interval) -> bool:
    return over_baseline.low > 1.0 and over_baseline.value >= WORTHWHILE


def _baseline(run: Run, compared: Sequence[Candidate]) -> Candidate:
    """What the user has, or the first that was measured in its place."""
    return next((c for c in compared if c.id == run.current), compared[0])


def _gains(run: Run, chosen: Candidate, compared: Sequence[Candidate], since: int) -> list[Gain]:
    """Against the serial pipeline as written, the same as TensorFlow runs it, all AUTOTUNE, where measured, and what
    stands for the user's.

    A user's own pipeline is compared with itself as it is.
    """

    def over(reference: Candidate, label: str) -> Gain:
        both = since if any(b.kind == "step" and b.round >= since for b in reference.blocks) else 0
        return Gain(over=reference.id, label=label, ratio=gain(chosen, reference, since=both))

    if run.pipeline is not None:
        theirs = [c for c in compared if c.id == run.current and c is not chosen]
        return [over(c, c.name or c.id) for c in theirs]

    def serial(settings: PipelineSettings) -> bool:
        return settings.map_parallelism is None and settings.prefetch_depth == 0 and settings.order == "map-batch"

    def autotune(settings: PipelineSettings) -> bool:
        return (
            settings.map_parallelism == "auto" and settings.prefetch_depth == "auto" and settings.order == "map-batch"
        )

    references: list[tuple[str, Callable[[PipelineSettings], bool]]] = [
        ("the serial pipeline as written", lambda s: serial(s) and s.rewrites == "off"),
        ("the serial pipeline as TensorFlow runs it", lambda s: serial(s) and s.rewrites == "default"),
        ("all AUTOTUNE", autotune),
    ]
    gains = []
    for label, matches in references:
        reference = next((c for c in compared if matches(c.settings)), None)
        if reference is not None and reference is not chosen:
            gains.append(over(reference, label))
    current = next((c for c in compared if c.id == run.current), None)
    if current is not None and current is not chosen and current.id not in {known.over for known in gains}:
        gains.insert(0, over(current, current.id))
    return gains


def _device_speedup(candidate: Candidate, batch_size: int) -> float | None:
    """How many times faster the step could get before this pipeline, drained alone, could not keep up.

    capacity / (batch size / floor): operational analysis, the bottleneck's rate bounds the system's.
    """
    if not candidate.capacity_examples_per_s or not candidate.floor_s:
        return None
    return candidate.capacity_examples_per_s * candidate.floor_s / batch_size


def _may_be_slower(baseline: Candidate, over_baseline: Interval) -> bool:
    """Whether something was faster by more than a tie allows, though not surely; where the step surely does not wait
    and nothing speaks for contention, that can only be chance."""
    if baseline.verdict is not None and baseline.verdict.bound == "compute":
        return False
    fraction, contention = baseline.input_fraction, baseline.contention_fraction
    waits = fraction is None or fraction.high >= INPUT_MODERATE
    contended = contention is not None and contention.value >= CONTENDED
    return (waits or contended) and over_baseline.value >= TIE_LIMIT


def _unsettled(chosen: Candidate, leader: Candidate, over_baseline: Interval) -> str:
    return (
        f"Not settled: {leader.label} was {over_baseline.value:.2f} times as fast as {chosen.label} "
        f"({over_baseline.low:.2f}-{over_baseline.high:.2f}), which may be chance. Raise --time-budget; "
        f"until then keep {chosen.label}."
    )


def _summary(run: Run, chosen: Candidate, baseline: Candidate, change: bool, gains: Sequence[Gain]) -> str:
    if not change and chosen.verdict is not None and chosen.verdict.bound in ("input-moderate", "input-high"):
        assert chosen.input_fraction is not None
        hope = "There was no time to try what else may." if run.untried else "What its stages do has to become cheaper."
        return (
            f"No setting that was measured surely helps: {chosen.label} waits for input "
            f"{format_percent(chosen.input_fraction.value)} of each step. {hope}"
        )
    if not change:
        return f"No change worth making: nothing that was measured is surely faster than {chosen.label}."
    over = next((gain for gain in gains if gain.over == baseline.id), None)
    times = "" if over is None else f": {over.ratio.value:.2f} times as fast as {over.label}"
    return f"Use {chosen.label}{times}."


def _why(
    chosen: Candidate,
    leader: Candidate,
    baseline: Candidate,
    ties: Sequence[Candidate],
    headspace: float | None,
    speedup: float | None,
    batch_size: int,
) -> str:
    sentences = []
    if baseline is not chosen and baseline.step_s and baseline.input_wait_s is not None and baseline.input_fraction:
        sentences.append(
            f"{baseline.label} takes {format_seconds(baseline.step_s.value)} per step and waits for its batch "
            f"{format_percent(baseline.input_fraction.value)} of that time."
        )
    if chosen.step_s is not None and chosen.input_fraction is not None and chosen.floor_s is not None:
        sentences.append(
            f"{chosen.label} takes {format_seconds(chosen.step_s.value)} and waits "
            f"{format_percent(chosen.input_fraction.value)}; compute alone takes {format_seconds(chosen.floor_s)}."
        )
    if headspace is not None:
        most = max(0.0, 1 - 1 / headspace) if headspace else 0.0
        sentences.append(f"A perfect input pipeline could save at most another {format_percent(most)} of the step.")
    if chosen.capacity_examples_per_s and speedup is not None and chosen.floor_s:
        needed = batch_size / chosen.floor_s
        comparison = (
            f"so the device could be {speedup:.1f} times as fast before input would matter"
            if speedup >= 1
            else f"which is only {format_percent(speedup)} of what the device could take"
        )
        sentences.append(
            f"Alone it delivers {format_rate(chosen.capacity_examples_per_s)} examples/s where the step can take "
            f"{format_rate(needed)}, {comparison}."
        )
    if ties:
        among = "" if chosen is leader else f", {leader.label} (measured fastest) among them"
        sentences.append(
            f"{len(ties)} other candidate{'s' if len(ties) > 1 else ''} cannot be told apart from it{among}; it is "
            "the one that costs least memory, then threads, then change."
        )
    return " ".join(sentences)


def _notes(run: Run, chosen: Candidate, ties: Sequence[Candidate], left_out: int) -> list[str]:
    notes = []
    larger = [c for c in ties if c.settings.shuffle_buffer != chosen.settings.shuffle_buffer]
    if larger:
        sizes = sorted({str(c.settings.shuffle_buffer) for c in larger})
        notes.append(
            f"A shuffle buffer of {' or '.join(sizes)} is as fast: its size is a matter of how well the data must be "
            "mixed and of memory, not of speed."
        )
    if chosen.verdict is not None and chosen.verdict.bound in ("input-moderate", "input-high") and chosen.trace:
        notes.extend(chosen.trace.explanation.findings if chosen.trace.explanation is not None else ())
    casting = casting_note(run, chosen)
    if casting is not None:
        notes.append(casting)
    slow_start = chosen.first_batch_s
    if slow_start is not None and slow_start >= SLOW_START_S:
        notes.append(
            f"The first batch takes {format_seconds(slow_start)} (buffers fill), again whenever the iterator is new; "
            "it is no part of the steady state above. A shuffle before the slow stages fills faster at the same rate."
        )
    if left_out:
        notes.append(f"{left_out} candidates were left out because they buffer more than the limit.")
    return notes
