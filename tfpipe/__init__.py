"""Tells whether a TensorFlow training waits for its data, and what to change."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfpipe.api.analyzing import analyze
    from tfpipe.api.profiling import load_run, profile
    from tfpipe.api.tuning import tuned

__version__ = "0.1.0"
__all__ = ["__version__", "analyze", "load_run", "profile", "tuned"]

# name -> module that has it, loaded when the name is first used: ``import tfpipe`` imports nothing heavy.
_API = {
    "analyze": "tfpipe.api.analyzing",
    "load_run": "tfpipe.api.profiling",
    "profile": "tfpipe.api.profiling",
    "tuned": "tfpipe.api.tuning",
}


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_API[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
