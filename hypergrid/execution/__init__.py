"""Query execution: plan a surface, compute its blocks, assemble the result."""

from hypergrid.execution.orders.orders import ORDERS, Watching
from hypergrid.execution.orders.walk import WalkSettings
from hypergrid.execution.planning.explain import explain
from hypergrid.execution.planning.plan import Plan, free_bytes, make_plan
from hypergrid.execution.planning.strategy import Strategy, StrategyOption
from hypergrid.execution.results.dataset import split_notes, to_dataset
from hypergrid.execution.results.zarr_sink import INCOMPLETE, ZarrOutcome, check_store, make_streamed_plan, start_store
from hypergrid.execution.running.progressive import ProgressivePicture, refine
from hypergrid.execution.running.resolve import resolve_automatic
from hypergrid.execution.running.run import Frame, Outcome, Part, RunProgress, run, simulate

__all__ = [
    "INCOMPLETE",
    "ORDERS",
    "Frame",
    "Outcome",
    "Part",
    "Plan",
    "ProgressivePicture",
    "RunProgress",
    "Strategy",
    "StrategyOption",
    "WalkSettings",
    "Watching",
    "ZarrOutcome",
    "check_store",
    "explain",
    "free_bytes",
    "make_plan",
    "make_streamed_plan",
    "refine",
    "run",
    "resolve_automatic",
    "simulate",
    "split_notes",
    "start_store",
    "to_dataset",
]  # fmt: skip
