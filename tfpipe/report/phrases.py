"""What the text and the Markdown reports say in the same words."""

from __future__ import annotations

from tfpipe.records import Bound, Candidate, Device, Gain, Interval, Outlook, Recommendation, Run, ShuffleChoice
from tfpipe.report.user_pipeline import change_rows
from tfpipe.settings import PipelineSettings
from tfpipe.units import format_bytes, format_milliseconds, format_percent, format_rate, format_seconds

BOUND_WORDS: dict[Bound, str] = {
    "compute": "compute-bound",
    "input-moderate": "moderately input-bound",
    "input-high": "highly input-bound",
    "contended": "contended",
    "host": "host-bound",
    "uncertain": "uncertain",
}

# From the field's value to how a person should read it; other values speak for themselves.
_KNOB_NOTES: dict[tuple[str, object], str] = {
    ("shuffle_buffer", 0): "none (no shuffle)",
    ("shuffle_buffer", "full"): "full (the whole data set)",
    ("map_parallelism", "auto"): "auto (tf.data.AUTOTUNE)",
    ("map_parallelism", None): "none (num_parallel_calls left out)",
    ("prefetch_depth", 0): "none (no prefetch)",
    ("prefetch_depth", "auto"): "auto (tf.data.AUTOTUNE)",
    ("threadpool", None): "none (TensorFlow's own pool)",
    ("rewrites", "default"): "default (as TensorFlow does)",
    ("rewrites", "off"): "off (exactly as written)",
}
_KNOB_UNITS = {
    "shuffle_buffer": ("example", "examples"),
    "map_parallelism": ("call", "calls"),
    "prefetch_depth": ("batch", "batches"),
    "threadpool": ("thread", "threads"),
}
_KNOBS = ("shuffle_buffer", "map_parallelism", "prefetch_depth", "order", "threadpool", "deterministic", "rewrites")

# As many ties are named; the table marks them all.
TIES_NAMED = 3
SHUFFLE_HEADS = ("shuffle buffer", "memory", "fill time", "mixing if sorted")


def generated_notice(run: Run) -> str:
    """The first words of every report on a stand-in data set; empty for real data."""
    if not run.data.generated:
        return ""
    return (
        f"GENERATED DATA: not the real {run.data.name}, but a stand-in with its count, shapes and types. "
        "Timing depends on those and not on the pixels; nothing here speaks about accuracy."
    )


def settings_rows(run: Run, settings: PipelineSettings) -> tuple[tuple[str, str], ...]:
    """Each knob by its name, with its value in words; for a user's own pipeline each line that is changed."""
    if run.pipeline is not None:
        return change_rows(run, settings)
    return tuple((knob, _knob_value(knob, getattr(settings, knob))) for knob in _KNOBS)


def _knob_value(knob: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if (knob, value) in _KNOB_NOTES:
        return _KNOB_NOTES[knob, value]
    if isinstance(value, int):
        one, many = _KNOB_UNITS[knob]
        return f"{value:,} {one if value == 1 else many}"
    return str(value)


def title(candidate: Candidate) -> str:
    """What to call a candidate in a sentence."""
    return candidate.name or candidate.id


def quoted(candidate: Candidate) -> str:
    """A candidate's title inside a sentence: names hold commas."""
    return f'"{title(candidate)}"'


def verdict_words(candidate: Candidate) -> str:
    """The verdict in the field's words, or the status of a candidate that has none."""
    return candidate.status if candidate.verdict is None else BOUND_WORDS[candidate.verdict.bound]


def data_line(run: Run) -> str:
    """The data set, its elements and the batch size."""
    data = run.data
    count = "examples" if data.examples is None else f"{data.examples:,} examples"
    return f"{data.name}, {count} of {data.element}, batch {data.batch_size} ({data.origin})"


def step_line(run: Run) -> str:
    """The step and the device that runs it."""
    parameters = "" if run.step.parameters is None else f", {run.step.parameters:,} parameters"
    return f"{run.step.description}{parameters}, on {device_words(run)}"


def device_words(run: Run) -> str:
    """The accelerators, or the CPU with its cores."""
    environment = run.environment
    accelerators = [device for device in environment.devices if device.kind != "CPU"]
    cores = f"{environment.cores} core{'' if environment.cores == 1 else 's'}"
    if not accelerators:
        return f"CPU ({cores})"
    return f"{_device_words(accelerators)} with {cores}"


def _device_words(devices: list[Device]) -> str:
    first = devices[0]
    name = first.kind if first.description in ("", first.kind) else f"{first.kind} {first.description}"
    return name if len(devices) == 1 else f"{len(devices)} x {name}"


def floor_line(run: Run) -> str:
    """Compute alone, per step and as the examples per second that no pipeline can exceed."""
    floor = run.floor.step_s
    if floor is None:
        return "none: no step, each pipeline is drained alone"
    text = f"{milliseconds_with_interval(floor)} ms per step: compute alone, no pipeline running"
    if floor.low <= 0:
        return text
    batch = run.data.batch_size
    bound = Interval(value=batch / floor.value, low=batch / floor.high, high=batch / floor.low)
    return f"{text}, at most {rate_with_interval(bound)} examples/s"


def fetch_floor_line(run: Run) -> str:
    """What fetching a finished batch costs."""
    return f"{format_seconds(run.floor.fetch_s)} per batch: fetching one that is ready, not counted as waiting"


def milliseconds_with_interval(interval: Interval | None) -> str:
    """``131 (129-133)``, or the value alone where there is no spread to judge."""
    if interval is None:
        return "-"
    text = format_milliseconds(interval.value)
    return text + _range(interval, format_milliseconds(interval.low), format_milliseconds(interval.high))


def rate_with_interval(interval: Interval | None) -> str:
    """``243 (240-248)``, or the value alone where there is no spread to judge."""
    if interval is None:
        return "-"
    return format_rate(interval.value) + _range(interval, format_rate(interval.low), format_rate(interval.high))


def percent_with_interval(interval: Interval | None) -> str:
    """``12 % (8.1 %-15 %)``, or the value alone where there is no spread to judge."""
    if interval is None:
        return "-"
    low, high = format_percent(interval.low), format_percent(interval.high)
    return format_percent(interval.value) + _range(interval, low, high)


def _range(interval: Interval, low: str, high: str) -> str:
    return "" if interval.low == interval.high else f" ({low}-{high})"


def verdict_sentence(run: Run) -> str:
    """The whole run in plain words: how what the user has fares, and how the recommended candidate does; and the first
    epoch, where that is another matter."""
    return _verdicts(run) + _first_epoch_words(run)


def _first_epoch_words(run: Run) -> str:
    share = run.first_epoch_input_fraction
    if share is None:
        return ""
    waits = "need not wait for that" if share == 0 else f"waits for input at least {format_percent(share)} of its time"
    return f" The first epoch, which fills the cache, {waits}."


def _verdicts(run: Run) -> str:
    measured = [candidate for candidate in run.candidates if candidate.verdict is not None]
    if run.floor.step_s is None:
        return "No step was run, so nothing is said about waiting: these are the pipelines alone."
    if not measured:
        return "No candidate was measured to the end, so there is no verdict."
    first = next((candidate for candidate in measured if candidate.id == run.current), measured[0])
    chosen = _recommended(run)
    if len(measured) > 1 and {verdict_words(candidate) for candidate in measured} == {BOUND_WORDS["compute"]}:
        shares = [candidate.input_fraction.value for candidate in measured if candidate.input_fraction is not None]
        most = f": at most {format_percent(max(shares))} of a step waits for input" if shares else ""
        return f"Every candidate is compute-bound{most}."
    if chosen is None or chosen.id == first.id:
        return _left_open(first) or f"{quoted(first)} is {_bound_with_share(first)}."
    return f"{quoted(first)} is {_bound_with_share(first)}; {quoted(chosen)} is {_bound_with_share(chosen)}."


def _left_open(candidate: Candidate) -> str:
    """Of an uncertain verdict what it leaves open, and what would settle that; nothing of another."""
    if candidate.verdict is None or candidate.verdict.bound != "uncertain":
        return ""
    statement = candidate.verdict.statement
    return f"{quoted(candidate)}: {statement[:1].lower()}{statement[1:]}"


def _bound_with_share(candidate: Candidate) -> str:
    share = candidate.input_fraction
    if candidate.verdict is not None and candidate.verdict.bound == "host" and candidate.host_fraction is not None:
        return f"{verdict_words(candidate)} ({format_percent(candidate.host_fraction)} of a step is its own Python)"
    if share is None:
        return verdict_words(candidate)
    return f"{verdict_words(candidate)} ({format_percent(share.value)} of a step waits for input)"


def _recommended(run: Run) -> Candidate | None:
    return None if run.recommendation is None else run.candidate(run.recommendation.candidate)


def gain_words(gain: Gain) -> str:
    """How many times faster, with the interval; a gain whose interval holds 1 is no gain."""
    ratio = gain.ratio
    text = f"{ratio.value:.2f} times as fast" + _range(ratio, f"{ratio.low:.2f}", f"{ratio.high:.2f}")
    return text + (", a tie" if ratio.low <= 1 <= ratio.high else "")


def recommendation_heading(recommendation: Recommendation, chosen: Candidate) -> str:
    """What the settings below it are; that no change is worth making is the summary's to say."""
    return f"{'Recommended' if recommendation.change else 'Simplest settings'}: {title(chosen)}"


def recommendation_rows(run: Run, recommendation: Recommendation) -> tuple[tuple[str, str], ...]:
    """Ties, memory and what is left to gain; a row whose text is empty is unknown."""
    ties = [quoted(run.candidate(tie)) for tie in recommendation.ties if tie != recommendation.candidate]
    others = f" and {len(ties) - TIES_NAMED} more" if len(ties) > TIES_NAMED else ""
    memory, headspace = recommendation.memory_bytes, recommendation.headspace
    speedup = recommendation.device_speedup_before_input_bound
    return (
        ("ties with", f"{', '.join(ties[:TIES_NAMED])}{others}; recommended as the cheapest of them" if ties else ""),
        ("memory", "" if memory is None else f"{format_bytes(memory)} in the pipeline's buffers"),
        ("headspace", "" if headspace is None else _headspace_words(headspace)),
        ("faster device", "" if speedup is None else _speedup_words(speedup)),
        *(() if run.outlook is None else outlook_rows(run.outlook, run.environment.cores)),
    )


def outlook_rows(outlook: Outlook, cores: int) -> tuple[tuple[str, str], ...]:
    """What is predicted of the recommended pipeline: how far it reaches, and how good such predictions were."""
    rows = [("cores needed", _cores_words(outlook, cores))]
    if outlook.workers_needed > 1:
        rows.append(
            (
                "one machine",
                f"is predicted not to feed this step: about {outlook.workers_needed} tf.data service workers like it "
                "would, or less work per example (cache or prepare the data beforehand, decode on the device)",
            )
        )
    if outlook.median_error is not None and outlook.p90_error is not None:
        many = f"{outlook.predictions} candidate{'s' if outlook.predictions > 1 else ''}"
        rows.append(
            (
                "predictions",
                f"of {many} before measuring: off by {format_percent(outlook.median_error)} at the median, nine in ten "
                f"by no more than {format_percent(outlook.p90_error)}"
                + (
                    "" if outlook.fits else "; the model does not fit this pipeline: take what is predicted for a guess"
                ),
            )
        )
    return tuple(rows)


def _cores_words(outlook: Outlook, cores: int) -> str:
    if outlook.cores_needed is None:
        return "predicted: more cores would not help, what takes the time is not computing in parallel"
    if outlook.cores_needed <= cores:
        return f"predicted: {outlook.cores_needed} of the {cores} here feed this step"
    return f"predicted: {outlook.cores_needed} to feed this step, where there are {cores}"


def _headspace_words(headspace: float) -> str:
    return f"{headspace:.2f}: a perfect input pipeline would make the step at most {headspace:.2f} times as fast"


def _speedup_words(speedup: float) -> str:
    if speedup <= 1:
        return "a faster device would only wait longer: input is the limit already"
    return (
        f"a device up to {speedup:.1f} times as fast would still be fed, if its step leaves the cores to the pipeline"
    )


def shuffle_cells(choice: ShuffleChoice) -> tuple[str, ...]:
    """A shuffle buffer under ``SHUFFLE_HEADS``."""
    return (
        f"{choice.buffer:,}",
        format_bytes(choice.memory_bytes),
        format_seconds(choice.fill_s),
        f"{choice.quality:.2f}",
    )
