"""Rows of results as plain values, which can be kept and compared."""

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from hypergrid.continuous.engine import ChangeBatch, Texts
from hypergrid.continuous.engine.batch import Column, null_mask
from hypergrid.continuous.expressions import Attributes, Kind

Row: TypeAlias = tuple[float | int | str | bool | None, ...]
"""Values of the select list: numbers, integers, instants [ns], texts, booleans; None is NULL."""


def rows_of(batch: ChangeBatch, attributes: Attributes, texts: Texts) -> Iterator[tuple[int, int, Row]]:
    """Yield the instant, sign and row of each element of a batch."""
    columns = [_decode(column, part.kind, texts) for column, part in zip(batch.columns, attributes, strict=True)]
    rows = zip(*columns, strict=True) if columns else iter([()] * len(batch.tau))
    yield from zip(batch.tau.tolist(), batch.sign.tolist(), rows, strict=True)


def _decode(column: Column, kind: Kind, texts: Texts) -> list[Any]:
    if kind == "text":
        return list(texts.decode(column).tolist())
    missing = null_mask(column, kind).tolist()
    # 0.0 for -0.0: equal values are one row.
    values = (column + 0.0).tolist() if kind == "number" else column.tolist()
    if kind == "boolean":
        values = [bool(value) for value in values]
    return [None if is_null else value for value, is_null in zip(values, missing, strict=True)]


def row_text(row: Row) -> str:
    """Return a row as text, from which `read_row` gives it again to the last digit."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def read_row(text: str) -> Row:
    """Return the row of a text."""
    return tuple(json.loads(text))
