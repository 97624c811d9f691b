"""``tfpipe.tuned``: a factory that builds with the settings that a run recommends."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tfpipe.errors import CallSitesChangedError, TfpipeError, UsageError, UserCodeError
from tfpipe.records import Run
from tfpipe.runfile import find_run, load_run

F = TypeVar("F", bound=Callable[..., Any])


def tuned(make_dataset: F, run: Run | str | os.PathLike[str] | None = None) -> F:
    """``make_dataset`` with the settings that ``run`` recommends, for the training itself; no source is changed.

    Where its call sites are no longer those of the run, or the settings cannot be applied, it warns and returns the
    dataset as it is written.

    Args:
        make_dataset: the function that was profiled; it may be called with other arguments.
        run: a run, its directory, or the newest under ``runs/``.

    Raises:
        UsageError: no such run, one of a built-in data set, or one without a recommendation.
    """
    found = run if isinstance(run, Run) else load_run(find_run(None if run is None else os.fspath(run)))
    if found.pipeline is None:
        raise UsageError(f"That run is of {found.data.name}, a built-in data set.", "Name a run of this pipeline.")
    if found.recommendation is None:
        raise UsageError("That run has no recommendation: no candidate was measured.", "Profile again.")
    overrides = dict(found.candidate(found.recommendation.candidate).settings.overrides or ())
    sites = found.pipeline.sites

    @functools.wraps(make_dataset)
    def make_tuned(*args: Any, **kwargs: Any) -> Any:
        if overrides:
            from tfpipe.engine.capture import rebuild

            problem: TfpipeError
            try:
                return rebuild(functools.partial(make_dataset, *args, **kwargs), overrides, expected=sites)
            except (CallSitesChangedError, UserCodeError) as error:
                problem = error
            name = getattr(make_dataset, "__name__", "the pipeline")
            warnings.warn(f"tfpipe: {name} is built as it is written. {problem.message}", RuntimeWarning, stacklevel=2)
        return make_dataset(*args, **kwargs)

    return cast(F, make_tuned)
