"""Canonical order of results: by instant, rows that leave before those that enter, then by the values of the row."""

import numpy as np

from hypergrid.continuous.engine import ChangeBatch, Texts
from hypergrid.continuous.engine.batch import Column, Integers
from hypergrid.continuous.expressions import Attributes, Kind


def sort_changes(batch: ChangeBatch, attributes: Attributes, texts: Texts) -> ChangeBatch:
    """Return changes in canonical order; equal rows are all that it leaves open, so any cut gives the same order.

    Texts are ordered by code point. NULL is the greatest number, and the least of all other kinds.
    """
    keys = [_rank(column, part.kind, texts) for column, part in zip(batch.columns, attributes, strict=True)]
    least_first: list[Column] = [*reversed(keys), batch.sign, batch.tau]
    order = np.lexsort(least_first)
    return ChangeBatch(batch.tau[order], batch.sign[order], tuple(column[order] for column in batch.columns))


def _rank(column: Column, kind: Kind, texts: Texts) -> Integers:
    if kind == "text":
        return texts.ranks()[column]
    if kind != "number":
        return column
    # Bits of numbers in their order, in which 0.0 and -0.0 differ.
    bits = np.where(np.isnan(column), np.nan, column).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
