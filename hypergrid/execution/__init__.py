"""Execution: a surface to a plan, a plan to blocks, blocks to a result."""

from hypergrid.execution.explain import explain
from hypergrid.execution.orders import ORDERS
from hypergrid.execution.plan import Plan, free_bytes, make_plan
from hypergrid.execution.progressive import Picture, refine
from hypergrid.execution.result import to_dataset
from hypergrid.execution.run import Frame, Outcome, Part, Progress, run
from hypergrid.execution.simulation import simulate
from hypergrid.execution.strategy import Strategy, Wanted
from hypergrid.execution.streamed import streamed_plan
from hypergrid.execution.walk import Walking
from hypergrid.execution.zarr_sink import INCOMPLETE, ZarrOutcome, check_store, start_store

__all__ = [
    "INCOMPLETE", "ORDERS", "Frame", "Outcome", "Part", "Picture", "Plan", "Progress", "Strategy", "Walking", "Wanted",
    "ZarrOutcome", "check_store", "explain", "free_bytes", "make_plan", "refine", "run", "simulate", "start_store",
    "streamed_plan", "to_dataset",
]  # fmt: skip
