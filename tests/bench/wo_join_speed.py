"""Throughput of `push` on one core, warm, beside joins of the same data at rest and beside Spark's join of streams."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hypergrid.wo_join import WoJoin
from tests.bench import wo_join_spark
from tests.bench.kriging_figures import Figure, Tell, Timings, faster, interleaved
from tests.bench.wo_join_cases import Sizes, mean, plain, pushed
from tests.bench.wo_join_peers import PARALLEL, PEERS, columns, cores_here, installed
from tests.support.streams.arrivals import Arrivals
from tests.support.streams.generator import Load, Source
from tests.support.streams.optimum import count_results

Work = Callable[[int], object]

FACTOR = 60
"""Scrambling factor of each stream [tuples]."""
GOALS = {3: 25e6, 23: 15e6}
"""Tuples a second, by the number of streams."""
SPARK_GOAL = 100.0
STATE_GOAL = 1 / 8
AT_ONCE = 65_536
"""Tuples of a push."""


def stations(streams: int, tuples: int) -> Arrivals:
    """Return streams that sample regularly, each key once, out of order, of so many tuples together."""
    keys = max(tuples // streams, FACTOR + 1)
    return Load((Source(FACTOR, 1, 0.02, regular=True),) * streams, keys=keys).arrivals()


def measure(sizes: Sizes, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return throughputs, ratios to the peers, and whether all found the same."""
    figures, agreeing, rows = [], [], []
    for streams, goal in GOALS.items():
        arrivals = stations(streams, sizes.tuples)
        timed = _timed(arrivals, pairs, notify, f"{streams}-way join")
        figures.append(_rate(f"{streams}-way, tuples/s through push", len(arrivals), timed, goal))
        more, agrees = _beside(stations(streams, sizes.at_rest), pairs, notify)
        figures, agreeing = figures + more, agreeing + agrees
    notify("Spark's join", 0.0)
    ours, theirs, agrees_too = _beside_spark(sizes, pairs, notify)
    notify("Spark's join", 1.0)
    rows.append(theirs)
    return {
        "figures": [figure.to_json() for figure in figures + ours],
        "differences": [*agreeing, *agrees_too],
        "spark": rows,
        "absent": [name for name in PEERS if name not in installed()],
    }


def through(arrivals: Arrivals) -> int:
    """Push all in parts, and return how many results came."""
    join, found = WoJoin(arrivals.streams), 0
    for start in range(0, len(arrivals), AT_ONCE):
        found += len(pushed(join, arrivals.take(slice(start, start + AT_ONCE))))
    return found + len(join.finish())


def _timed(arrivals: Arrivals, pairs: int, notify: Tell, stage: str) -> list[float]:
    return interleaved({"push": lambda _: through(arrivals)}, pairs, notify=notify, stage=stage, warm_up=True)["push"]


def _rate(name: str, tuples: int, seconds: list[float], goal: float) -> Figure:
    rates = [tuples / one for one in seconds]
    return Figure(
        name, float(np.median(seconds)), None, float(np.median(rates)), (min(rates), max(rates)), "tuples / s", goal
    )


def _beside(arrivals: Arrivals, pairs: int, notify: Tell) -> tuple[list[Figure], list[dict[str, Any]]]:
    """Compare with peers that join all at once what lies there: on one core, and where they can on all."""
    tables, name, cores = columns(arrivals), f"{arrivals.streams}-way", cores_here()
    ours: dict[str, Work] = {"push": lambda _: through(arrivals)}
    peers = {peer: make(tables, 1) for peer, make in installed().items()}
    found = {peer: join() for peer, join in peers.items()}
    works = ours | {peer: lambda _, join=join: join() for peer, join in peers.items()}  # type: ignore[misc]
    times = interleaved(works, pairs, notify=notify, stage=f"{name}, at rest", warm_up=True)
    figures = [_at_rest(arrivals, peer, "one core", times) for peer in peers]
    wide = {peer: make(tables, cores) for peer, make in installed().items() if peer in PARALLEL and cores > 1}
    if wide:
        works = ours | {peer: lambda _, join=join: join() for peer, join in wide.items()}  # type: ignore[misc]
        times = interleaved(works, pairs, notify=notify, stage=f"{name}, at rest on {cores} cores", warm_up=True)
        figures += [_at_rest(arrivals, peer, f"{cores} cores", times) for peer in wide]
    results, mine = count_results(arrivals), through(arrivals)
    return figures, [
        {"name": f"{name}, {peer}", "here": mine, "there": count, "of": results, "met": count == results}
        for peer, count in found.items()
    ] + [_near(f"{name}, join of streams", mine, mine, results)]


def _at_rest(arrivals: Arrivals, peer: str, where: str, times: Timings) -> Figure:
    name = f"{arrivals.streams}-way of {len(arrivals):,} tuples, {peer} at rest on {where}"
    return faster(name, times["push"], times[peer])


def _near(name: str, mine: int, its: int, results: int) -> dict[str, Any]:
    """Return whether a join whose parameters are monitored gave nearly all."""
    return {"name": name, "here": mine, "there": its, "of": results, "met": 0.995 * results <= mine <= results}


def _beside_spark(sizes: Sizes, pairs: int, notify: Tell) -> tuple[list[Figure], dict[str, Any], list[dict[str, Any]]]:
    """Compare with Spark's join of two streams, in batches of the same tuples."""
    arrivals = stations(2, sizes.spark)
    its = wo_join_spark.measure(arrivals, wo_join_spark.watermark(arrivals), sizes.spark_batch)
    seconds = _timed(arrivals, pairs, notify, "2-way join")
    join, held, found, total = WoJoin(2), [], 0, 0.0
    for start in range(0, len(arrivals), sizes.spark_batch):
        matches = pushed(join, arrivals.take(slice(start, start + sizes.spark_batch)))
        held.append(join.statistics().held)
        found, total = found + len(matches), total + float(matches.payloads.sum())
    results, rates = count_results(arrivals), [len(arrivals) / one for one in seconds]
    ratios = [rate / its.tuples_per_s for rate in rates]
    rows = mean(held) / max(its.state_rows, 1.0)
    figures = [
        Figure(
            "throughput over Spark's stream-stream join", float(np.median(seconds)), len(arrivals) / its.tuples_per_s,
            float(np.median(ratios)), (min(ratios), max(ratios)), "hypergrid / Spark", SPARK_GOAL,
        ),
        Figure("tuples held over Spark's state rows", None, None, rows, (rows, rows), "hypergrid / Spark", STATE_GOAL,
               "at most"),
    ]  # fmt: skip
    told = {
        "spark tuples/s": plain(its.tuples_per_s),
        "hypergrid tuples/s": plain(float(np.median(rates))),
        "spark state rows": plain(its.state_rows),
        "hypergrid tuples held": plain(mean(held)),
        "tuples a batch": plain(its.rows_a_batch),
        "watermark": wo_join_spark.watermark(arrivals),
    }
    missing = abs(total - its.total) / max(its.total, 1.0)
    return (
        figures,
        told,
        [
            {"name": "2-way, Spark", "here": found, "there": its.results, "of": results, "met": its.results == results},
            {**_near("2-way, join of streams", found, its.results, results), "apart": plain(missing)},
        ],
    )
