"""Ingest: station files into an archive by Spark, beside a script of pandas, a stream with its memory and tap, a year.

A module a case, with `measure` and `tables`; each part of the answer stands under the name of its case.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tests.bench import bench_archive_year, ingest_batch, ingest_orders, ingest_stream, ingest_tap, stream_memory
from tests.bench.kriging_figures import Tell, machine

Table = tuple[str, tuple[str, ...], list[tuple[object, ...]]]
Part = Callable[[int, int, Tell], dict[str, Any]]

PARTS: Mapping[str, Part] = {
    "batch": ingest_batch.measure,
    "stream": lambda _, _pairs, notify: ingest_stream.measure(ingest_stream.Sizes(), notify),
    "memory": lambda _, _pairs, notify: stream_memory.measure(stream_memory.Waiting(), notify),
    "orders": lambda _, _pairs, notify: ingest_orders.measure(ingest_orders.SIZES, notify),
    "tap": lambda _, _pairs, notify: ingest_tap.measure(ingest_tap.TapLoad(), notify),
    "year": lambda _, pairs, notify: bench_archive_year.measure("all", notify, pairs=pairs),
}
"""What is measured, of values, pairs, and who is told how far it is."""

TABLES: Mapping[str, Callable[[Mapping[str, Any]], list[Table]]] = {
    "batch": ingest_batch.tables,
    "stream": ingest_stream.tables,
    "memory": stream_memory.tables,
    "orders": ingest_orders.tables,
    "tap": ingest_tap.tables,
    "year": bench_archive_year.tables,
}

CASES = (*PARTS, "all")
"""What can be asked for."""


def measure(
    case: str = "all",
    *,
    pairs: int = 5,
    notify: Tell = lambda _stage, _done: None,
    values: int = ingest_batch.VALUES,
) -> dict[str, Any]:
    """Return what was measured by case.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Pairs of runs that a median is of.
    values
        Of the generated files of the case batch.
    """
    chosen = PARTS if case == "all" else {case: PARTS[case]}
    return {"machine": machine(), **{name: part(values, pairs, notify) for name, part in chosen.items()}}


def tables(measured: Mapping[str, Any]) -> list[Table]:
    """Return the tables that people read."""
    return [table for name, part in TABLES.items() if name in measured for table in part(measured[name])]
