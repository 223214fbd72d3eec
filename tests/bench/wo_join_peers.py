"""Joins of data at rest by other programs, where they are installed: each returns how many results there are."""

import importlib.util
from collections.abc import Callable
from functools import reduce

import numpy as np
import pandas as pd

from hypergrid.streams.arrivals import Arrivals

Peer = Callable[[list[pd.DataFrame]], int]


def columns(arrivals: Arrivals) -> list[pd.DataFrame]:
    """Return a table a stream, in order of arrival: the key and the payload, as `value<stream>`."""
    tables = []
    for stream in range(arrivals.streams):
        own = arrivals.stream == stream
        tables.append(pd.DataFrame({"key": arrivals.key[own], f"value{stream}": arrivals.payload[own]}))
    return tables


def by_pandas(tables: list[pd.DataFrame]) -> int:
    """Join by merges, one after the other."""
    return len(reduce(lambda one, other: one.merge(other, on="key"), tables))


def by_duckdb(tables: list[pd.DataFrame]) -> int:
    """Join in one statement, on one thread, and fetch all columns."""
    import duckdb  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - measured where it is installed

    with duckdb.connect() as database:
        database.execute("SET threads TO 1")
        for number, table in enumerate(tables):
            database.register(f"t{number}", table)
        joins = " ".join(f"JOIN t{number} USING (key)" for number in range(1, len(tables)))
        return len(database.execute(f"SELECT * FROM t0 {joins}").fetchnumpy()["key"])  # noqa: S608 - no words of others


def by_polars(tables: list[pd.DataFrame]) -> int:
    """Join in one lazy plan."""
    import polars  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - measured where it is installed

    frames = [polars.DataFrame({name: np.asarray(table[name]) for name in table}).lazy() for table in tables]
    return int(reduce(lambda one, other: one.join(other, on="key"), frames).collect().height)


PEERS: dict[str, Peer] = {"pandas": by_pandas, "duckdb": by_duckdb, "polars": by_polars}
"""By the name of the package."""


def installed() -> dict[str, Peer]:
    """Return those that are installed."""
    return {name: peer for name, peer in PEERS.items() if importlib.util.find_spec(name) is not None}
