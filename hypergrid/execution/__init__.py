"""Execution: a surface to a plan, a plan to blocks, blocks to a result."""

from hypergrid.execution.explain import explain
from hypergrid.execution.orders import ORDERS
from hypergrid.execution.plan import Plan, free_bytes, make_plan
from hypergrid.execution.result import to_dataset
from hypergrid.execution.run import Frame, Outcome, Progress, run
from hypergrid.execution.simulation import simulate
from hypergrid.execution.strategy import Strategy, Wanted

__all__ = [
    "ORDERS", "Frame", "Outcome", "Plan", "Progress", "Strategy", "Wanted", "explain", "free_bytes", "make_plan", "run",
    "simulate", "to_dataset",
]  # fmt: skip
