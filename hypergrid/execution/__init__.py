"""Execution: a surface to a plan, a plan to blocks, blocks to a result."""

from hypergrid.execution.explain import explain
from hypergrid.execution.orders import ORDERS
from hypergrid.execution.plan import Plan, make_plan
from hypergrid.execution.progressive import Picture, refine
from hypergrid.execution.result import to_dataset
from hypergrid.execution.run import Frame, Outcome, Progress, run
from hypergrid.execution.simulation import simulate
from hypergrid.execution.walk import Walking

__all__ = [
    "ORDERS", "Frame", "Outcome", "Picture", "Plan", "Progress", "Walking",
    "explain", "make_plan", "refine", "run", "simulate", "to_dataset",
]  # fmt: skip
