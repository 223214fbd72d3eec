"""Query specifications, and the chains of perspectives that they resolve to."""

from hypergrid.perspective.build.build import build
from hypergrid.perspective.functions import physical as _physical  # noqa: F401 - adds its rows to the tables of functions
from hypergrid.perspective.spec.query_spec import QuerySpec, Step, question_from_json
from hypergrid.perspective.tree import (
    Aggregate,
    Base,
    Call,
    Clip,
    Convert,
    Interpolate,
    InterpolateInTime,
    Merge,
    Operator,
    Perspective,
    Recur,
    Source,
    Surface,
)

__all__ = [
    "Aggregate", "Base", "Call", "Clip", "Convert", "Interpolate", "InterpolateInTime", "Merge", "Operator",
    "Perspective", "QuerySpec", "Recur", "Source", "Step", "Surface", "build", "question_from_json",
]  # fmt: skip
