"""The workloads of `bench_cql` by DuckDB and Polars, which compute each batch again with what its windows still hold.

Peers give the row of each element that enters, at its instant, as the engine does; the engine also gives what leaves.
`mean_at_ends` asks less, of both: means at the end of each slide, which is a batch of the peers. What is timed begins
with batches in memory, as columns of peers and elements of the engine, on one thread, in processor time; rounds are
interleaved, and each result is compared with the engine's. The size of a batch is the least delay of an answer, so
several are measured, each beside the engine at the same size.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import starmap
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.engine import ChangeBatch, ElementBatch

HOUR_NS: Final = 3600 * 1_000_000_000
WINDOW_ROWS: Final = 1000
"""Rows of each window of the join."""
STATIONS: Final = 500
STEP: Final = 10
"""Time between two rows of one stream of the join."""
Columns = dict[str, NDArray[Any]]
Query = Callable[[dict[str, Columns], int], list[NDArray[Any]]]
"""Takes the tables of a batch, with what the windows still hold, and its first instant, or the end of its slide."""
Begin = Callable[[], Iterator[Any]]
"""Prepares a run, and returns the results of each batch as they are asked for."""

ENTERED: Final = f"""
SELECT greatest(R.tau, S.tau, T.tau) AS tau, R.A, S.B FROM R JOIN S ON R.A = S.A JOIN T ON S.B = T.B
WHERE greatest(R.tau, S.tau, T.tau) - least(R.tau, S.tau, T.tau) < {WINDOW_ROWS * STEP}
  AND greatest(R.tau, S.tau, T.tau) >= ?
"""
STATEMENTS: Final = {
    "filter": "SELECT tau, A, B, C FROM S WHERE A > 10 AND B < 20 AND C > 40 AND tau >= ?",
    "sliding_mean": f"""
SELECT tau, station, mean FROM (SELECT tau, station, avg(value) OVER (PARTITION BY station ORDER BY tau
  RANGE BETWEEN {HOUR_NS - 1} PRECEDING AND CURRENT ROW) AS mean FROM readings) WHERE tau >= ?""",
    "mean_at_ends": "SELECT ?::BIGINT AS tau, station, avg(value) AS mean FROM readings GROUP BY station",
    "join": ENTERED,
}
WORKLOADS: Final = {name: "sliding_mean" if name == "mean_at_ends" else name for name in STATEMENTS}
"""What a peer computes, and the input of the query of the engine beside it."""
INPUTS: Final = WORKLOADS | {"hourly_mean": "sliding_mean"}
"""`WORKLOADS`, and what only peers that run apart compute."""
MOST_WAIT_NS: Final = 3 * HOUR_NS
"""How long after its end an hour may be closed: some peers take what a batch lasts for its delay."""
AIM: Final = 5.0
"""The engine's rate over a peer's that we aim at."""


def open_duckdb(name: str) -> Query:
    """Return a workload as a statement over columns of numpy, planned anew with each batch."""
    import duckdb  # noqa: PLC0415 - loaded by its own measurement

    database = duckdb.connect()
    database.execute("SET threads TO 1")

    def run(tables: dict[str, Columns], first: int) -> list[NDArray[Any]]:
        for table, columns in tables.items():
            database.register(table, columns)
        return list(database.execute(STATEMENTS[name], [first]).fetchnumpy().values())

    return run


def open_polars(name: str) -> Query:
    """Return a workload as one lazy plan; threads are set before the first import, and counted after it."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    import polars as pl  # noqa: PLC0415 - loaded by its own measurement

    if pl.thread_pool_size() != 1:
        raise RuntimeError(
            f"Polars takes {pl.thread_pool_size()} threads; set POLARS_MAX_THREADS=1 before it is loaded"
        )
    tau = pl.col("tau")

    def run(tables: dict[str, Columns], first: int) -> list[NDArray[Any]]:
        frames = {table: pl.DataFrame(columns).lazy() for table, columns in tables.items()}
        if name == "filter":
            chosen = (pl.col("A") > 10) & (pl.col("B") < 20) & (pl.col("C") > 40)
            plan = frames["S"].filter(chosen & (tau >= first))
        elif name == "sliding_mean":
            mean = pl.col("value").rolling_mean_by("tau", f"{HOUR_NS}i", closed="right").over("station")
            plan = frames["readings"].select("tau", "station", mean.alias("mean")).filter(tau >= first)
        elif name == "mean_at_ends":
            means = frames["readings"].group_by("station").agg(pl.col("value").mean().alias("mean"))
            plan = means.select(pl.lit(first).alias("tau"), "station", "mean")
        else:
            joined = frames["R"].join(frames["S"].rename({"tau": "s"}), on="A")
            joined = joined.join(frames["T"].rename({"tau": "t"}), on="B")
            newest, oldest = pl.max_horizontal("tau", "s", "t"), pl.min_horizontal("tau", "s", "t")
            alive = (newest - oldest < WINDOW_ROWS * STEP) & (newest >= first)
            plan = joined.filter(alive).select(newest.alias("tau"), "A", "B")
        return [column.to_numpy() for column in plan.collect()]

    return run


PEERS: Final[Mapping[str, Callable[[str], Query]]] = {"duckdb": open_duckdb, "polars": open_polars}


@contextmanager
def hold_core() -> Iterator[int]:
    """Keep this thread, and the threads and processes that it starts, on one core until the block ends."""
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


def slide_minutes(size: int) -> int:
    """Return the slide that has a batch of that size: 500 stations give one a minute each."""
    return max(size // STATIONS, 1)


def cut(name: str, feeds: Mapping[str, ElementBatch], size: int) -> Iterator[tuple[dict[str, Columns], int]]:
    """Give the tables of each batch, with the rows before it that a window can still hold, and its first instant.

    Batches of `mean_at_ends` are slides: the window at the end of each, and that end.
    """
    if name == "mean_at_ends":
        [feed] = feeds.values()
        for end in list_ends(feed, size):
            first, last = np.searchsorted(feed.tau, [end - HOUR_NS, end], side="right")
            yield {"readings": _table(feed, ("station", "value"), slice(first, last))}, end
        return
    names = {"S": ("A", "B", "C") if name == "filter" else ("A", "B"), "R": ("A",), "T": ("B",)}
    names["readings"] = ("station", "value")
    each = max(size // len(feeds), 1)
    for first in range(0, max(len(feed.tau) for feed in feeds.values()), each):
        start = min(int(feed.tau[first]) for feed in feeds.values())
        tables = {}
        for stream, feed in feeds.items():
            before = first
            if name == "join":
                before = max(first - WINDOW_ROWS, 0)
            elif name != "filter":
                before = int(np.searchsorted(feed.tau, start - HOUR_NS, side="right"))
            tables[stream] = _table(feed, names[stream], slice(before, first + each))
        yield tables, start


def _table(feed: ElementBatch, names: tuple[str, ...], part: slice) -> Columns:
    columns = {name: values[part] for name, values in zip(names, feed.columns, strict=True)}
    return {"tau": feed.tau[part], **columns}


def list_ends(feed: ElementBatch, size: int) -> range:
    """Return the ends of the slides that end within a feed."""
    slide = slide_minutes(size) * HOUR_NS // 60
    return range(slide, int(feed.tau[-1]) + 1, slide)


def iterate_peer(name: str, query: Query, feeds: Mapping[str, ElementBatch], size: int) -> Iterator[list[NDArray[Any]]]:
    """Return the columns of each batch of a workload, which are cut before."""
    return starmap(query, list(cut(name, feeds, size)))


def join_steps(steps: Iterable[list[NDArray[Any]]]) -> list[NDArray[Any]]:
    """Return the columns of all batches."""
    return [np.concatenate(columns) for columns in zip(*steps, strict=True)]


def compare(
    name: str, feeds: Mapping[str, ElementBatch], ours: list[ChangeBatch], theirs: list[NDArray[Any]], size: int = 0
) -> None:
    """Raise an error if a peer's rows differ from those that the engine lets enter.

    Means are compared with the engine's newest, so which of them must be there follows from the readings: one of each,
    or, at the end of each slide of `mean_at_ends` (by the `size` of its batches) and of each hour of `hourly_mean` that
    the peer closed, one of each station in the window.
    """
    tau = np.concatenate([batch.tau for batch in ours])
    added = np.concatenate([batch.sign for batch in ours]) > 0
    columns = [np.concatenate(parts) for parts in zip(*(batch.columns for batch in ours), strict=True)]
    if name == "filter":
        wanted = [tau, *columns][: len(theirs)]
        is_equal = all(np.array_equal(a, b) for a, b in zip(_ordered(theirs), _ordered(wanted), strict=True))
    elif name == "join":
        kept = ~np.isin(theirs[0], _repeated(feeds))
        peer, own = (_ordered(each) for each in ([c[kept] for c in theirs], [tau[added], *(c[added] for c in columns)]))
        is_equal = all(np.array_equal(a, b) for a, b in zip(peer, own, strict=True))
    else:
        [feed] = feeds.values()
        wanted = [feed.tau, feed.columns[0]]
        if name == "mean_at_ends":
            wanted = _list_groups(feed, list_ends(feed, size))
        elif name == "hourly_mean":
            theirs, ends = _choose_closed(feed, theirs)
            wanted = _list_groups(feed, ends)
        given = [np.asarray(column) for column in theirs[:2]]
        if len(given[0]) != len(wanted[0]):
            raise AssertionError(f"a peer gave {len(given[0])} means of {name} where there are {len(wanted[0])}")
        is_equal = all(np.array_equal(a, b) for a, b in zip(_ordered(given), _ordered(wanted), strict=True))
        # A mean at an instant, of the station that had an element then or before.
        is_equal &= _are_last_means(theirs, tau[added], columns[0][added], columns[1][added].astype(float))
    if not is_equal:
        raise AssertionError(f"a peer's result of {name} differs from the engine's")


def _choose_closed(feed: ElementBatch, theirs: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], range]:
    """Return a peer's means of hours that ended within a feed, and the ends of hours up to the last that it closed.

    Some peers close the last hours only when later elements come, and some close the one that has not ended.
    """
    last = int(feed.tau[-1])
    rows = [column[theirs[0] <= last] for column in theirs]
    until = int(rows[0].max(initial=0))
    if until < max(last - HOUR_NS - MOST_WAIT_NS, HOUR_NS):
        raise AssertionError(f"a peer closed hours up to {until} ns where readings go on to {last} ns")
    return rows, range(HOUR_NS, until + 1, HOUR_NS)


def _list_groups(feed: ElementBatch, ends: range) -> list[NDArray[Any]]:
    """Return instants and stations of the groups that are there at each end."""
    tau, stations = [], []
    for end in ends:
        first, last = np.searchsorted(feed.tau, [end - HOUR_NS, end], side="right")
        stations.append(np.unique(feed.columns[0][first:last]))
        tau.append(np.full(len(stations[-1]), end))
    return [np.concatenate(tau), np.concatenate(stations)]


def _are_last_means(
    theirs: list[NDArray[Any]], tau: NDArray[np.int64], station: NDArray[Any], mean: NDArray[np.float64]
) -> bool:
    """Tell whether each mean of a peer is the newest of the engine for that station at that instant.

    An equal mean does not show twice, so the newest that entered before or at the instant is taken.
    """
    order = np.lexsort((tau, station))
    keys = station[order].astype(np.int64) * (1 << 50) + tau[order]
    wanted = np.asarray(theirs[1], np.int64) * (1 << 50) + theirs[0]
    at = np.searchsorted(keys, wanted, side="right") - 1
    is_own = (at >= 0) & (station[order][at] == theirs[1])
    return bool(is_own.all()) and bool(np.allclose(mean[order][at], theirs[2], rtol=1e-9, atol=1e-9))


def _repeated(feeds: Mapping[str, ElementBatch]) -> NDArray[np.int64]:
    """Return the instants of rows that replace an equal one: their combinations leave and enter at once (ruling R2)."""
    listed = []
    for feed in feeds.values():
        same = np.all([column[WINDOW_ROWS:] == column[:-WINDOW_ROWS] for column in feed.columns], axis=0)
        listed.append(feed.tau[WINDOW_ROWS:][same])
    return np.concatenate(listed)


def _ordered(columns: list[NDArray[Any]]) -> list[NDArray[Any]]:
    order = np.lexsort(columns[::-1])
    return [np.asarray(column)[order] for column in columns]


def time_rounds(runs: Mapping[str, Begin], rounds: int) -> tuple[dict[str, list[Any]], dict[str, list[float]]]:
    """Return the results of each batch, and processor seconds of interleaved rounds after that which gave them.

    What a run costs once is left out, and each result is dropped before the next one: it is used and gone, as in a
    stream.
    """
    results = {name: list(begin()) for name, begin in runs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, begin in runs.items():
            steps = begin()
            start = time.process_time()
            deque(steps, maxlen=0)
            seconds[name].append(time.process_time() - start)
    return results, seconds


def describe(name: str, rows: int, size: int, seconds: Mapping[str, list[float]], loops: float) -> list[dict[str, Any]]:
    """Return a row for each run: rates of input rows a processor second, and the engine's rate over it by rounds.

    Parameters
    ----------
    loops
        Rate of the engine's loops alone: an aim over a peer may be beyond it.
    """
    listed = []
    for run, times in seconds.items():
        ratios = [each / own for each, own in zip(times, seconds["ours"], strict=True)]
        rates = sorted(rows / each for each in times)
        row = {
            "workload": name,
            "run": run,
            "batch": size,
            "rows": rows,
            "rows_per_cpu_s": median(rates),
            "range": [rates[0], rates[-1]],
            "ours_over_it": median(ratios),
            "ratio_range": [min(ratios), max(ratios)],
        }
        if run == "ours":
            row["loops_rows_per_cpu_s"] = loops
        else:
            row |= {"aim": AIM, "is_met": row["ours_over_it"] >= AIM, "is_beyond": AIM * row["rows_per_cpu_s"] > loops}
        listed.append(row)
    return listed
