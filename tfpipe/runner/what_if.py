"""What a run's model says of other circumstances: more cores, another device, slower storage. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tfpipe.analysis.host import computes_on_host
from tfpipe.analysis.operational import PipelineModel, build_model, prediction_errors
from tfpipe.analysis.ranking import WORTHWHILE
from tfpipe.analysis.verdict import classify
from tfpipe.errors import TfpipeError, UsageError
from tfpipe.records import Expected, Interval, Outlook, Recommendation, Run, WhatIf, WhatIfAnswer
from tfpipe.runner.search.knobs import refused
from tfpipe.runner.search.space import make_space, overrides_around, settings_around
from tfpipe.settings import ORDERS, NamedSettings
from tfpipe.units import format_bytes, parse_seconds

# How far off predictions are taken to be where a run could check none: the model's goal for nine in ten of them.
ASSUMED_ERROR = 0.15
NOT_CONTENDED = Interval(value=0.0, low=0.0, high=0.0)


def parse_what_if(texts: Sequence[str]) -> WhatIf:
    """``cores=16``, ``step=12ms``, ``source-latency=20ms``, ``batch-size=512``, ``cache=memory`` or ``disk``, also in
    one list.

    Raises:
        UsageError: another word, a value that is none, or one given twice.
    """
    known: dict[str, tuple[str, Callable[[str], Any]]] = {
        "cores": ("cores", _count),
        "step": ("step_s", _seconds),
        "source-latency": ("source_latency_s", _seconds),
        "batch-size": ("batch_size", _count),
        "cache": ("cache", _cache),
    }
    values: dict[str, Any] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        word, _, value = part.partition("=")
        if word not in known or not value:
            raise UsageError(
                f"--what-if {part!r} is none of: {', '.join(known)}, each with a value.",
                "Write for example --what-if cores=16,step=12ms.",
            )
        name, parse = known[word]
        if name in values:
            raise UsageError(f"--what-if gives {word} twice.", "Ask one question at a time.")
        try:
            values[name] = parse(value)
        except ValueError as error:
            raise UsageError(
                f"--what-if {part!r}: {error}.", "Write for example --what-if cores=16,step=12ms."
            ) from None
    return WhatIf(**values)


def what_if(run: Run, circumstances: WhatIf) -> WhatIfAnswer:
    """What to expect of the current pipeline there, and which setting to use.

    Every setting of the search's space is predicted; of those within WORTHWHILE of the fastest the cheapest is named.

    Raises:
        TfpipeError: the run measured too little for a model.
    """
    model = _model(run)
    cores = circumstances.cores or run.environment.cores
    current = run.candidate(run.current)
    named = NamedSettings(name=current.name, settings=current.settings)
    around = (
        overrides_around(run.pipeline, cores=cores)
        if run.pipeline is not None
        else settings_around(current.settings, orders=ORDERS[run.data.name], cores=cores)
    )
    space = make_space(
        (named,),
        [NamedSettings(name=c.name, settings=c.settings) for c in run.candidates],
        around,
        pipeline=run.pipeline,
        cores=cores,
        is_allowed=lambda settings: refused(settings, run.pipeline, cores=cores) is None,
    )
    floor_s = _floor_s(run, circumstances)
    errors = prediction_errors(run)
    error = max(errors.p90, WORTHWHILE - 1) if errors is not None else ASSUMED_ERROR
    expected = [
        _expected(model, one, circumstances, floor_s, error)
        for one in space.everything
        if model.unknown(one.settings) is None
    ]
    if not expected or expected[0].settings != current.settings:
        raise TfpipeError(
            f"What {current.label} would do elsewhere cannot be predicted: {model.unknown(current.settings)}",
            "Profile it there, or raise --time-budget.",
        )
    now, fastest_s = expected[0], min(one.step_s for one in expected)
    good = [one for one in expected if one.step_s <= WORTHWHILE * fastest_s]

    def cost(one: Expected) -> tuple[int, float]:
        """What changes, then what it takes in memory and threads."""
        own, has = space.values[one.settings.id], space.values[current.id]
        return sum(own[knob] != has[knob] for knob in own), sum(space.expenses[one.settings.id])

    best = now if now in good else min(good, key=cost)
    return WhatIfAnswer(
        what_if=circumstances,
        floor_s=floor_s,
        current=now,
        best=best,
        error=error,
        checked=0 if errors is None else errors.count,
        notes=tuple(_notes(run, circumstances, model, best, floor_s)),
    )


def outlook(run: Run, recommendation: Recommendation | None) -> Outlook | None:
    """How far the recommended pipeline reaches; None where nothing can be said."""
    model = build_model(run)
    floor = run.floor.step_s
    if model is None or recommendation is None or floor is None or not floor.value > 0:
        return None
    settings = run.candidate(recommendation.candidate).settings
    if model.unknown(settings) is not None:
        return None
    errors = prediction_errors(run)
    device_step_s = model.device_step_s(settings)
    return Outlook(
        device_step_s=device_step_s,
        device_examples_per_s=run.data.batch_size / device_step_s,
        cores_needed=model.cores_needed(settings, floor_s=floor.value),
        workers_needed=model.data_service_workers(settings, floor_s=floor.value),
        predictions=0 if errors is None else errors.count,
        median_error=None if errors is None else errors.median,
        p90_error=None if errors is None else errors.p90,
        fits=errors is None or errors.fits,
    )


def _model(run: Run) -> PipelineModel:
    model = build_model(run)
    if model is None:
        raise TfpipeError(
            "This run measured no pipeline by itself, so there is nothing to predict from.", "Repeat it with --resume."
        )
    return model


def _floor_s(run: Run, circumstances: WhatIf) -> float:
    """Seconds of compute there: as given, else the run's, in proportion to the batch."""
    if circumstances.step_s is not None:
        return circumstances.step_s
    measured_s = 0.0 if run.floor.step_s is None else run.floor.step_s.value
    return measured_s * (circumstances.batch_size or run.data.batch_size) / run.data.batch_size


def _expected(
    model: PipelineModel, named: NamedSettings, circumstances: WhatIf, floor_s: float, error: float
) -> Expected:
    prediction = model.predict(
        named.settings,
        cores=circumstances.cores,
        # A step that stays is left to the model, which has learnt from those that were measured behind it.
        floor_s=circumstances.step_s,
        added_latency_s=circumstances.source_latency_s or 0.0,
        batch_size=circumstances.batch_size,
        cache=circumstances.cache,
    )

    def fraction(step_s: float) -> float:
        return max(0.0, 1 - floor_s / step_s) if step_s > 0 else 0.0

    step_s = prediction.step_s
    # A step is never shorter than compute alone: being off can only mean waiting, or waiting less.
    waits = (
        Interval(value=fraction(step_s), low=fraction(step_s * (1 - error)), high=fraction(step_s * (1 + error)))
        if step_s > floor_s * (1 + 1e-9)
        else NOT_CONTENDED
    )
    return Expected(
        name=named.name,
        settings=named.settings,
        step_s=step_s,
        capacity_examples_per_s=prediction.capacity_examples_per_s,
        input_fraction=waits,
        bound=classify(waits, NOT_CONTENDED).bound,
    )


def _notes(run: Run, circumstances: WhatIf, model: PipelineModel, best: Expected, floor_s: float) -> list[str]:
    notes = []
    if circumstances.cache is not None and run.data.examples is not None:
        size = format_bytes(int(run.data.examples * model.kept_bytes_per_example()))
        read = "; it is read as fast only while memory holds the file too" if circumstances.cache == "disk" else ""
        notes.append(f"The cache would hold about {size}{read}.")
    if circumstances.batch_size is not None and circumstances.step_s is None and floor_s:
        notes.append("Compute is taken to grow in proportion to the batch; give step=TIME where it does not.")
    step_stays = circumstances.cores is not None and circumstances.step_s is None and run.step.synchronous
    if step_stays and floor_s and computes_on_host(run):
        notes.append("The step itself runs on these cores: it is taken to last as long as here; give step=TIME.")
    if best.bound in ("input-moderate", "input-high") and floor_s:
        batch_size = circumstances.batch_size or run.data.batch_size
        workers = math.ceil(batch_size / best.capacity_examples_per_s / floor_s)
        if workers > 1:
            notes.append(
                f"No setting feeds that step on one machine: it takes about {workers} tf.data service workers like "
                "this one, or less work per example (cache or prepare the data beforehand, decode on the device)."
            )
    return notes


def _count(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise ValueError(f"{text!r} is not a whole number above 0")
    return value


def _seconds(text: str) -> float:
    value = parse_seconds(text)
    if not value > 0:
        raise ValueError(f"{text!r} is not more than nothing")
    return value


def _cache(text: str) -> str:
    if text not in ("memory", "disk"):
        raise ValueError(f"{text!r} is neither memory nor disk")
    return text
