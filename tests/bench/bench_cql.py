"""Continuous queries: filter, sliding mean, three-way window join, registering a query, and memory beside projection.

Each query goes in as text and comes out as changes, through the rewriter and the engine that users have, on one thread.
Rates are in processor time, beside wall time. Elements are what an operator takes: a row of a window counts twice, as
it enters and as it leaves; rates of rows are given, too. Each run is checked: the filter and the mean against numpy,
the join against all pairs of the windows at its end.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.engine import ChangeBatch, ContinuousEngine, ElementBatch
from hypergrid.continuous.engine.warm import warm
from hypergrid.continuous.expressions import Attribute
from hypergrid.continuous.language import explain_query, parse_query, project_windows
from hypergrid.continuous.records import StreamCatalogue
from hypergrid.continuous.rewrite import rewrite
from tests.bench.cql_loops import rate_loops
from tests.bench.cql_near import ELEMENTS, measure_near, near_table
from tests.bench.cql_peers import (
    INPUTS,
    PEERS,
    STATIONS,
    WORKLOADS,
    Begin,
    compare,
    describe,
    hold_core,
    iterate_peer,
    join_steps,
    slide_minutes,
    time_rounds,
)
from tests.bench.cql_peers_apart import compare_best, measure_apart, name_batch
from tests.bench.cql_spark import measure_spark, spark_table
from tests.bench.linear_road import measure_road, road_table

Tell = Callable[[str, float], None]
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]

LONG_CASES = ("peers", "road", "spark")
"""Cases that take minutes, or an environment of their own: they run by their names only."""
CASES = ("all", "filter", "sliding_mean", "join", "near", "registering", "memory", *LONG_CASES)

SECOND_NS = 1_000_000_000
PEER_BATCHES = (500, 4096, 65536)
"""Rows of batches that peers compute again; the larger, the later answers: a minute, eight, two hours of readings."""
PEER_STEPS = 200
"""Batches of the input of peers that compute each again."""
APART_SHARES = {"filter": 1, "sliding_mean": 5, "hourly_mean": 2}
"""Workloads of the peers that run apart, and what part of the rows they have: means are slow for most of them."""
JOIN_PEER_BATCH_MOST = 4096
"""Greatest batch of the join by peers: they join equal keys before they test windows, and pairs grow with its cube."""
BATCH = 65536
"""Rows of a batch, over all streams."""
WINDOW_ROWS = 1000
"""Rows of each window of the join, and values of its keys: each row meets one of each other window on average."""
AIMS = {"filter": 20e6, "sliding_mean": 20e6, "join": 6e6}
"""Elements a second and core that the project aims at."""
REGISTERING_AIM_MS = 50.0
MEMORY_AIM = 0.2
"""How far the memory of a window may be from its projection, as a share of it."""

QUERIES = {
    "filter": "Select * From S Where S.A > 10 and S.B < 20 and S.C > 40",
    "sliding_mean": "Select station, avg(value) as mean From readings [Range 1 Hour] Group By station",
    "join": "Select Istream(R.A, S.B) From R [Rows 1000], S [Rows 1000], T [Rows 1000] Where R.A = S.A and S.B = T.B",
}
CATALOGUE = StreamCatalogue(
    streams={
        "S": (Attribute("A", "number"), Attribute("B", "number"), Attribute("C", "number")),
        "readings": (Attribute("station", "text"), Attribute("value", "number")),
    }
)
JOINED = StreamCatalogue(
    streams={
        "R": (Attribute("A", "integer"),),
        "S": (Attribute("A", "integer"), Attribute("B", "integer")),
        "T": (Attribute("B", "integer"),),
    }
)


def measure(
    case: str = "all",
    *,
    pairs: int = 3,
    notify: Tell = lambda _stage, _done: None,
    rows: int = 2_000_000,
) -> dict[str, Any]:
    """Return rates, times and bytes.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Runs of each query; the median is reported, with the range.
    rows
        Rows of the input.
    """
    # Expressways take minutes: a case of its own.
    chosen = [each for each in CASES[1:] if each not in LONG_CASES] if case == "all" else [case]
    warm()
    measured: dict[str, Any] = {"rows": rows, "batch": BATCH, "rates": []}
    for number, name in enumerate(chosen):
        notify(name, number / len(chosen))
        if name == "registering":
            measured["registering"] = measure_registering(max(pairs, 3))
        elif name == "near":
            measured["near"] = measure_near(pairs, min(rows // 100, ELEMENTS))
        elif name == "memory":
            measured["memory"] = measure_memory(rows)
        elif name == "road":
            measured["road"] = measure_road(notify=notify)
        elif name == "peers":
            with hold_core():
                measured["peers"] = measure_peers(rows, pairs, notify=notify)
                feeds = {
                    workload: make_feeds(INPUTS[workload], rows // share) for workload, share in APART_SHARES.items()
                }
                measured["apart"] = measure_apart(feeds, pairs, run_text, notify)
            measured["best"] = compare_best(measured["peers"], measured["apart"])
        elif name == "spark":
            measured["spark"] = measure_spark(notify=notify)
        else:
            measured["rates"].append(measure_rate(name, rows, pairs))
    return measured


def measure_rate(name: str, rows: int, pairs: int) -> dict[str, Any]:
    """Return the rate of a query, after a run that is not measured."""
    feeds = make_feeds(name, rows)
    total = sum(len(feed.tau) for feed in feeds.values())
    seconds, walls = [], []
    elements = total if name == "filter" else 2 * total
    for run in range(pairs + 1):
        engine = make_engine(name)
        steps = iterate_steps(engine, encode_stations(name, feeds, engine))
        wall, start = time.perf_counter(), time.process_time()
        changes = list(chain.from_iterable(steps))
        if run:
            seconds.append(time.process_time() - start)
            walls.append(time.perf_counter() - wall)
    check(name, feeds, changes)
    rates = sorted(elements / each for each in seconds)
    return {
        "case": name,
        "query": QUERIES[name],
        "elements": elements,
        "changes": sum(len(batch.tau) for batch in changes),
        "elements_per_cpu_s": median(rates),
        "range": [rates[0], rates[-1]],
        "rows_per_cpu_s": total / median(seconds),
        "elements_per_wall_s": elements / median(walls),
        "aim": AIMS[name],
        "is_met": median(rates) >= AIMS[name],
    }


def make_engine(name: str, text: str | None = None) -> ContinuousEngine:
    """Return the engine of a query, or of another text on its streams."""
    catalogue = JOINED if name == "join" else CATALOGUE
    query = parse_query(text or QUERIES[name], catalogue)
    return ContinuousEngine(rewrite(query.tree, catalogue.static).tree)


def make_feeds(name: str, rows: int) -> dict[str, ElementBatch]:
    """Return the input of a query; texts are numbers of stations until an engine encodes them."""
    rng = np.random.default_rng(7)
    if name == "filter":
        return {"S": ElementBatch(np.arange(rows) * 10, tuple(rng.uniform(0.0, 50.0, (3, rows))))}
    if name == "sliding_mean":
        # A reading a minute of each station, which come at random instants: 60 rows a window and station.
        tau = np.sort(rng.integers(0, max(rows * 60 // STATIONS, 1) * SECOND_NS, rows))
        return {"readings": ElementBatch(tau, (rng.integers(0, STATIONS, rows), np.round(rng.normal(10, 5, rows), 2)))}
    count = rows // 3
    keys = lambda: rng.integers(0, WINDOW_ROWS, count)  # noqa: E731 - shorter than a function of one use
    tau = np.arange(count) * 10
    return {
        "R": ElementBatch(tau, (keys(),)),
        "S": ElementBatch(tau + 3, (keys(), keys())),
        "T": ElementBatch(tau + 6, (keys(),)),
    }


def encode_stations(name: str, feeds: Mapping[str, ElementBatch], engine: ContinuousEngine) -> dict[str, ElementBatch]:
    """Return the input with the engine's codes of stations."""
    if name != "sliding_mean":
        return dict(feeds)
    codes = engine.texts.encode([f"station {number}" for number in range(STATIONS)])
    feed = feeds["readings"]
    return {"readings": ElementBatch(feed.tau, (codes[feed.columns[0]], feed.columns[1]))}


def iterate_steps(
    engine: ContinuousEngine, feeds: Mapping[str, ElementBatch], batch: int = BATCH
) -> Iterator[list[ChangeBatch]]:
    """Push the input in batches of that size over all streams, which are cut before, and return the results of each."""
    return _push(engine, list(_cut(feeds, max(batch // len(feeds), 1))))


def _push(
    engine: ContinuousEngine, batches: Iterable[tuple[dict[str, ElementBatch], int]]
) -> Iterator[list[ChangeBatch]]:
    for parts, heartbeat in batches:
        for name, part in parts.items():
            engine.push(name, part)
        engine.advance(heartbeat)
        yield engine.results()


def _cut(feeds: Mapping[str, ElementBatch], size: int) -> Iterator[tuple[dict[str, ElementBatch], int]]:
    """Give batches with their heartbeats, as those of sources: the instant of the first row that is not in it."""
    for first in range(0, max(len(feed.tau) for feed in feeds.values()), size):
        part = slice(first, first + size)
        ends = [int(feed.tau[part.stop]) for feed in feeds.values() if part.stop < len(feed.tau)]
        parts = {
            name: ElementBatch(feed.tau[part], tuple(column[part] for column in feed.columns))
            for name, feed in feeds.items()
        }
        yield parts, min(ends, default=max(int(feed.tau[-1]) for feed in feeds.values()) + 1)


def check(name: str, feeds: Mapping[str, ElementBatch], changes: list[ChangeBatch]) -> None:
    """Raise an error if results differ from what is computed in another way."""
    tau = np.concatenate([batch.tau for batch in changes])
    sign = np.concatenate([batch.sign for batch in changes])
    columns = [np.concatenate(parts) for parts in zip(*(batch.columns for batch in changes), strict=True)]
    if name == "filter":
        a, b, c = feeds["S"].columns
        expected = feeds["S"].tau[(a > 10) & (b < 20) & (c > 40)]
        is_right = bool(np.array_equal(tau, expected)) and bool((sign == 1).all())
    elif name == "sliding_mean":
        is_right = _check_means(feeds["readings"], columns, sign)
    else:
        is_right = _check_pairs(feeds, tau, columns)
    if not is_right:
        raise AssertionError(f"the result of {name} is wrong")


def _check_means(feed: ElementBatch, columns: list[NDArray[Any]], sign: NDArray[np.int8]) -> bool:
    """Compare the means at the end with those of numpy."""
    means: dict[int, float] = {}
    for station, mean, added in zip(*(column[-20 * STATIONS :] for column in (*columns, sign)), strict=True):
        if added > 0:
            means[int(station)] = float(mean)
    recent = feed.tau > feed.tau[-1] - 3600 * SECOND_NS
    stations, values = feed.columns[0][recent], feed.columns[1][recent]
    return all(np.isclose(mean, values[stations == code].mean(), rtol=1e-12) for code, mean in means.items())


def _check_pairs(feeds: Mapping[str, ElementBatch], tau: NDArray[np.int64], columns: list[NDArray[Any]]) -> bool:
    """Compare the combinations of the last rows of T with all pairs of the windows at that time."""
    r, s, t = feeds["R"], feeds["S"], feeds["T"]
    for at in range(len(t.tau) - 20, len(t.tau)):
        window = slice(max(0, at + 1 - WINDOW_ROWS), at + 1)
        matches = [
            (int(a), int(b))
            for a, b in zip(s.columns[0][window], s.columns[1][window], strict=True)
            if b == t.columns[0][at]
            for _ in range(int((r.columns[0][window] == a).sum()))
        ]
        here = tau == t.tau[at]
        if sorted(matches) != sorted(zip(columns[0][here].tolist(), columns[1][here].tolist(), strict=True)):
            # A row of T that replaces an equal one changes nothing: what leaves with it is not shown to enter.
            old = t.columns[0][at - WINDOW_ROWS] if at >= WINDOW_ROWS else None
            if old != t.columns[0][at]:
                return False
    return True


def measure_peers(
    rows: int, rounds: int, batches: tuple[int, ...] = PEER_BATCHES, *, notify: Tell = lambda _stage, _done: None
) -> list[dict[str, Any]]:
    """Return rates of DuckDB and Polars beside the engine, by workload and size of a batch, in interleaved rounds.

    All take batches of the same size, at most `PEER_STEPS` of them.
    """
    listed: list[dict[str, Any]] = []
    for workload, name in WORKLOADS.items():
        for size in batches:
            if workload == "join" and size > JOIN_PEER_BATCH_MOST:
                continue
            notify(f"{workload}, batches of {size}", 0.0)
            feeds = make_feeds(name, min(rows, PEER_STEPS * size))
            runs: dict[str, Begin] = {"ours": partial(begin_text, workload, feeds, size)}
            for peer in PEERS:
                runs[peer] = partial(iterate_peer, workload, PEERS[peer](workload), feeds, size)
            steps, seconds = time_rounds(runs, rounds)
            results = {
                run: list(chain.from_iterable(each)) if run == "ours" else join_steps(each)
                for run, each in steps.items()
            }
            for peer in PEERS:
                compare(workload, feeds, results["ours"], results[peer], size)
            rows_of_all = sum(len(feed.tau) for feed in feeds.values())
            loops = rate_loops(workload, feeds, size, runs["ours"], rounds)
            listed += describe(workload, rows_of_all, size, seconds, loops)
    return listed


def run_text(workload: str, feeds: Mapping[str, ElementBatch], size: int = BATCH) -> list[ChangeBatch]:
    """Return all results of the query of a workload, from its text on, in batches of a size over all streams."""
    return list(chain.from_iterable(begin_text(workload, feeds, size)))


def begin_text(workload: str, feeds: Mapping[str, ElementBatch], size: int = BATCH) -> Iterator[list[ChangeBatch]]:
    """Return the results of each batch of the query of a workload; what a run costs once is done when this returns."""
    name = INPUTS[workload]
    text = QUERIES[name]
    if workload == "mean_at_ends":
        text = text.replace("1 Hour", f"1 Hour Slide {slide_minutes(size)} Minutes")
    elif workload == "hourly_mean":
        text = text.replace("1 Hour", "1 Hour Slide 1 Hour")
    engine = make_engine(name, text)
    return iterate_steps(engine, encode_stations(name, feeds, engine), size)


def measure_registering(pairs: int) -> dict[str, Any]:
    """Return how long it takes from the text of each query to its answer to the first row [ms]."""
    times: dict[str, list[float]] = {}
    for _ in range(pairs):
        for name in QUERIES:
            start = time.process_time()
            engine = make_engine(name)
            for source, feed in encode_stations(name, make_feeds(name, 3), engine).items():
                engine.push(source, feed)
            engine.advance(2**40)
            times.setdefault(name, []).append((time.process_time() - start) * 1e3)
    slowest = max(median(each) for each in times.values())
    return {
        "cpu_ms": {name: median(each) for name, each in times.items()},
        "aim_ms": REGISTERING_AIM_MS,
        "is_met": slowest < REGISTERING_AIM_MS,
    }


def measure_memory(rows: int) -> dict[str, Any]:
    """Return the memory of processes with a window of three lengths, measured from outside, beside its projection.

    Twice as many rows pass as a window holds, so that as many left it as are in it.
    """
    sizes = [_measure_window(count) for count in (rows // 4, rows // 2, rows)]
    return {
        "query": _window_text(rows),
        "sizes": sizes,
        "aim": MEMORY_AIM,
        "is_met": all(part["is_met"] for part in sizes),
    }


def _window_text(rows: int) -> str:
    return f"Select station, avg(value) as mean From readings [Range {rows} Seconds] Group By station"


def _measure_window(rows: int) -> dict[str, Any]:
    text = _window_text(rows)
    query = parse_query(text, CATALOGUE)
    # One row a second.
    rates = {"readings": 1.0}
    projections = project_windows(rewrite(query.tree, frozenset()).tree, rates)
    projected = sum(part.projected_bytes or 0.0 for part in projections)
    parent, child = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_hold, args=(child, text, rows))
    process.start()
    before = _resident(process.pid, parent)
    grown = _resident(process.pid, parent) - before
    process.join()
    return {
        "rows": rows,
        "projected_bytes": projected,
        "resident_growth_bytes": grown,
        "bytes_a_row_projected": projected / rows,
        "bytes_a_row_resident": grown / rows,
        "is_met": abs(grown / projected - 1.0) <= MEMORY_AIM,
        "explained": explain_query(query, rates=rates).splitlines()[-2].strip(),
    }


def _resident(pid: int | None, pipe: Any) -> int:  # noqa: ANN401 - a connection
    """Return the resident bytes of a process at its next stop."""
    pipe.recv()
    status = Path(f"/proc/{pid}/status").read_text()
    pipe.send("on")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) * 1024


def _hold(pipe: Any, text: str, rows: int) -> None:  # noqa: ANN401 - a connection
    """Run a query whose window holds a number of rows, a row a second, and stop when a short one ran and at the end."""
    rng = np.random.default_rng(7)

    def run(statement: str, count: int) -> ContinuousEngine:
        engine = ContinuousEngine(rewrite(parse_query(statement, CATALOGUE).tree, frozenset()).tree)
        [code] = engine.texts.encode(["a"])
        for first in range(0, count, BATCH):
            tau = np.arange(first, min(first + BATCH, count)) * SECOND_NS
            engine.push("readings", ElementBatch(tau, (np.full(len(tau), code), rng.normal(size=len(tau)))))
            engine.advance(int(tau[-1]))
            engine.results()
        return engine

    # What a batch takes for itself is there before.
    run(_window_text(BATCH), 4 * BATCH)
    pipe.send("before")
    pipe.recv()
    engine = run(text, 2 * rows)
    pipe.send("after")
    pipe.recv()
    del engine


def _judge(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the cells that say the aim of a row, and whether it is met."""
    return f"{row['aim']:g}", "met" if row["is_met"] else "not met"


def tables(measured: Mapping[str, Any]) -> list[Table]:
    """Return what was measured as tables for people: title, columns, rows."""
    listed: list[Table] = []
    if measured["rates"]:
        rows = [
            (
                row["case"],
                f"{row['elements_per_cpu_s'] / 1e6:.1f}",
                f"{row['range'][0] / 1e6:.1f} to {row['range'][1] / 1e6:.1f}",
                f"{row['rows_per_cpu_s'] / 1e6:.1f}",
                f"{row['elements_per_wall_s'] / 1e6:.1f}",
                f"{row['aim'] / 1e6:.0f}",
                "met" if row["is_met"] else "not met",
            )
            for row in measured["rates"]
        ]
        title = f"millions a second on one core, {measured['rows']:,} rows"
        listed.append((title, ("case", "elements", "range", "rows", "by wall clock", "aim", ""), rows))
    if "near" in measured:
        listed.append(near_table(measured["near"]))
    if "registering" in measured:
        part = measured["registering"]
        rows = [(name, f"{each:.1f}", f"{part['aim_ms']:.0f}") for name, each in part["cpu_ms"].items()]
        listed.append(("registering a query, to its first answer", ("query", "ms", "aim"), rows))
    if "peers" in measured:
        rows = [
            (
                row["workload"],
                f"{row['batch']:,}",
                row["run"],
                f"{row['rows_per_cpu_s'] / 1e6:.2f}",
                f"{row['range'][0] / 1e6:.2f} to {row['range'][1] / 1e6:.2f}",
                *(
                    (f"{row['loops_rows_per_cpu_s'] / 1e6:.1f}", "", "", "", "")
                    if row["run"] == "ours"
                    else (
                        "",
                        f"{row['ours_over_it']:.2f}",
                        f"{row['ratio_range'][0]:.2f} to {row['ratio_range'][1]:.2f}",
                        f"{row['aim']:g}",
                        "met" if row["is_met"] else "not met, beyond our loops" if row["is_beyond"] else "not met",
                    )
                ),
            )
            for row in measured["peers"]
        ]
        columns = (
            "workload",
            "batch",
            "by",
            "M rows/s",
            "range",
            "loops alone",
            "ours over it",
            "of rounds",
            "aim",
            "",
        )
        listed.append(("peers that compute each batch again, one core", columns, rows))
    if "apart" in measured:
        rows = [
            (
                row["workload"],
                name_batch(row["batch"]),
                row["run"],
                *(
                    (row["failure"], "", "", "", f"{row['aim']:g}", "not met")
                    if "failure" in row
                    else (
                        f"{row['rows_per_cpu_s'] / 1e6:.3f}",
                        f"{row['ours_per_cpu_s'] / 1e6:.3f}",
                        f"{row['ours_over_it']:.2f}",
                        f"{row['ratio_range'][0]:.2f} to {row['ratio_range'][1]:.2f}",
                        *_judge(row),
                    )
                ),
            )
            for row in measured["apart"]
        ]
        columns = ("workload", "batch", "by", "M rows/s", "ours", "ours over it", "of rounds", "aim", "")
        listed.append(("peers that run apart, on the same core, processor time", columns, rows))
    if measured.get("best"):
        rows = [
            (
                row["workload"],
                row["run"],
                name_batch(row["batch"]),
                f"{row['rows_per_cpu_s'] / 1e6:.3f}",
                name_batch(row["own_batch"]),
                f"{row['ours_per_cpu_s'] / 1e6:.3f}",
                f"{row['ours_over_it']:.2f}",
                *_judge(row),
            )
            for row in measured["best"]
        ]
        columns = ("workload", "by", "batch", "M rows/s", "our batch", "ours", "ours over it", "aim", "")
        listed.append(("each with the batch that is best for it", columns, rows))
    if "memory" in measured:
        part = measured["memory"]
        rows = [
            (
                f"{each['rows']:,}",
                f"{each['bytes_a_row_projected']:.1f}",
                f"{each['bytes_a_row_resident']:.1f}",
                "met" if each["is_met"] else "not met",
            )
            for each in part["sizes"]
        ]
        title = f"memory of a window, aim: within {part['aim']:.0%} of the projection"
        listed.append((title, ("rows", "bytes a row projected", "measured", ""), rows))
    if "road" in measured:
        listed.append(road_table(measured["road"]))
    if "spark" in measured:
        listed.append(spark_table(measured["spark"]))
    return listed
