"""Joins of data at rest by other programs, where installed, each at its best: the data are where it wants them.

DuckDB has them in tables of its own, Polars in frames of its own. What is timed is the join, with all its columns.
"""

import importlib.util
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import reduce

import numpy as np
import pandas as pd

from tests.support.streams.arrivals import Arrivals

Join = Callable[[], int]
"""Joins, and returns how many results there are."""
Peer = Callable[[list[pd.DataFrame], int], Join]
"""Takes a table a stream and how many cores it may use, and returns what is timed."""


def columns(arrivals: Arrivals) -> list[pd.DataFrame]:
    """Return a table a stream, in order of arrival: the key and the payload, as `value<stream>`."""
    tables = []
    for stream in range(arrivals.streams):
        own = arrivals.stream == stream
        tables.append(pd.DataFrame({"key": arrivals.key[own], f"value{stream}": arrivals.payload[own]}))
    return tables


def by_pandas(tables: list[pd.DataFrame], _: int) -> Join:
    """Join by merges, one after the other."""
    return lambda: len(reduce(lambda one, other: one.merge(other, on="key"), tables))


def by_duckdb(tables: list[pd.DataFrame], cores: int) -> Join:
    """Join in one statement, and fetch all columns."""
    import duckdb  # noqa: PLC0415 - measured where it is installed

    database = duckdb.connect()
    database.execute(f"SET threads TO {cores}")
    for number, table in enumerate(tables):
        database.register("lent", table)
        database.execute(f"CREATE TABLE t{number} AS SELECT * FROM lent")  # noqa: S608 - no words of others
        database.unregister("lent")
    joins = " ".join(f"JOIN t{number} USING (key)" for number in range(1, len(tables)))
    return lambda: len(database.execute(f"SELECT * FROM t0 {joins}").fetchnumpy()["key"])  # noqa: S608


def by_polars(tables: list[pd.DataFrame], cores: int) -> Join:
    """Join in one lazy plan: on one core here, on several in a process of its own.

    How many threads it has is settled when it is loaded. To ask the other process takes some 0.2 ms.
    """
    if cores == 1:
        return _polars_join(tables, cores)
    process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _hold, (tables, cores))
    return lambda: process.submit(_join_held).result()


def _polars_join(tables: list[pd.DataFrame], cores: int) -> Join:
    os.environ["POLARS_MAX_THREADS"] = str(cores)
    import polars  # noqa: PLC0415 - measured where it is installed

    frames = [polars.DataFrame({name: np.asarray(table[name]) for name in table}) for table in tables]

    def join() -> int:
        plan = reduce(lambda one, other: one.join(other, on="key"), (frame.lazy() for frame in frames))
        return int(plan.collect().height)

    return join


_held: list[Join] = []


def _hold(tables: list[pd.DataFrame], cores: int) -> None:
    _held.append(_polars_join(tables, cores))


def _join_held() -> int:
    return _held[-1]()


PEERS: dict[str, Peer] = {"pandas": by_pandas, "duckdb": by_duckdb, "polars": by_polars}
"""By the name of the package."""
PARALLEL = ("duckdb", "polars")
"""Those that can use several cores."""


def installed() -> dict[str, Peer]:
    """Return those that are installed."""
    return {name: peer for name, peer in PEERS.items() if importlib.util.find_spec(name) is not None}


def cores_here() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
