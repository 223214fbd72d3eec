"""Execution: a surface to a plan, a plan to blocks, blocks to a result."""

from hypergrid.execution.orders.orders import ORDERS
from hypergrid.execution.orders.walk import Walking
from hypergrid.execution.planning.explain import explain
from hypergrid.execution.planning.plan import Plan, free_bytes, make_plan
from hypergrid.execution.planning.strategy import Strategy, Wanted
from hypergrid.execution.results.block_shapes import streamed_plan
from hypergrid.execution.results.dataset import to_dataset
from hypergrid.execution.results.zarr_sink import INCOMPLETE, ZarrOutcome, check_store, start_store
from hypergrid.execution.running.progressive import Picture, refine
from hypergrid.execution.running.run import Frame, Outcome, Part, Progress, run
from hypergrid.execution.running.simulation import simulate

__all__ = [
    "INCOMPLETE", "ORDERS", "Frame", "Outcome", "Part", "Picture", "Plan", "Progress", "Strategy", "Walking", "Wanted",
    "ZarrOutcome", "check_store", "explain", "free_bytes", "make_plan", "refine", "run", "simulate", "start_store",
    "streamed_plan", "to_dataset",
]  # fmt: skip
