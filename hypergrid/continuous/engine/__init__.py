"""Evaluation of trees of operators over batches of elements."""

from hypergrid.continuous.engine.batch import ElementBatch
from hypergrid.continuous.engine.engine import ChangeBatch, ContinuousEngine
from hypergrid.continuous.engine.texts import Texts

__all__ = ["ChangeBatch", "ContinuousEngine", "ElementBatch", "Texts"]
