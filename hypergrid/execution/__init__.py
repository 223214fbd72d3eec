"""Execution: a surface to a plan, a plan to blocks, blocks to a result."""

from hypergrid.execution.explain import explain
from hypergrid.execution.orders import ORDERS
from hypergrid.execution.plan import Plan, make_plan
from hypergrid.execution.result import to_dataset
from hypergrid.execution.run import Frame, Outcome, Progress, run
from hypergrid.execution.simulation import simulate

__all__ = ["ORDERS", "Frame", "Outcome", "Plan", "Progress", "explain", "make_plan", "run", "simulate", "to_dataset"]
