"""Perspectives: what a user writes, and the chains of perspectives that it means."""

from hypergrid.perspective import physical as _physical  # noqa: F401 - adds its rows to the tables of functions
from hypergrid.perspective.build import build
from hypergrid.perspective.operators import (
    Aggregate,
    Base,
    Call,
    Convert,
    Interpolate,
    InterpolateInTime,
    Merge,
    Operator,
    Recur,
    Source,
)
from hypergrid.perspective.perspective import Perspective
from hypergrid.perspective.steps import Question, Step, question_from_json
from hypergrid.perspective.surface import Clip, Surface

__all__ = [
    "Aggregate", "Base", "Call", "Clip", "Convert", "Interpolate", "InterpolateInTime", "Merge", "Operator",
    "Perspective", "Question", "Recur", "Source", "Step", "Surface", "build", "question_from_json",
]  # fmt: skip
