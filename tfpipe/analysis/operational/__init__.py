"""An operational model of the pipeline: from a few short probes to what any other setting would do. Pure.

``shape`` says what settings make of a pipeline, ``costs`` what an example costs at each stage, ``laws`` how fast that
is; ``seen`` corrects that by what was measured, ``model`` answers questions, ``errors`` tells how far off it was.
"""

from tfpipe.analysis.operational.costs import Costs, StageCost
from tfpipe.analysis.operational.errors import PredictionErrors, prediction_errors
from tfpipe.analysis.operational.laws import Bound
from tfpipe.analysis.operational.model import PipelineModel, build_model
from tfpipe.analysis.operational.shape import Shape, Stage

__all__ = [
    "Bound",
    "Costs",
    "PipelineModel",
    "PredictionErrors",
    "Shape",
    "Stage",
    "StageCost",
    "build_model",
    "prediction_errors",
]
