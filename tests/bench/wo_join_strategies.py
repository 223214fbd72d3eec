"""Figures 3.13 to 3.15: memory and latency where streams are sorted first, wait on disk, or both, and where not.

Each join of a query is fed what the joins before it emit, when they emit it. With "at leaves" only the joins of pushed
streams sort, as in the thesis; the last join then is plain, or waits on disk. Beside them stands the thesis's W-Join,
whose window is just large enough for as many results as the join without a strategy, and what section 3.5 says that
each strategy holds, by the true parameters of what a join is fed.
"""

import inspect
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from hypergrid.wo_join import Matches, WoJoin
from hypergrid.wo_join.memory import buffer_bounds
from hypergrid.wo_join.spilling.reorder_buffer import AHEAD
from tests.bench.kriging_figures import Tell
from tests.bench.wo_join_cases import (
    GROUPS,
    Floats,
    Integers,
    Number,
    Sizes,
    lags,
    last_inputs,
    mean,
    parameters,
    plain,
    pushed,
    query_arrivals,
    seconds,
)
from tests.support.streams.arrivals import Arrivals, merged
from tests.support.streams.fixed_window import smallest_window
from tests.support.streams.optimum import count_results

Kind = Literal["none", "window", "msf", "dbf", "hybrid"]
STRATEGIES: Mapping[str, tuple[Kind, Kind]] = {
    "none": ("none", "none"),
    "window": ("window", "window"),
    "msf": ("msf", "msf"),
    "msf at leaves": ("msf", "none"),
    "dbf": ("dbf", "dbf"),
    "hybrid": ("hybrid", "hybrid"),
    "hybrid at leaves": ("hybrid", "dbf"),
}
"""What the joins of pushed streams do, and what the last join does where it is another."""
AT_LEAVES = ("msf at leaves", "hybrid at leaves")
S3 = 2
"""The stream of query 1 of which figure 3.13 tells."""
NUMBERS: tuple[Number, ...] = (1, 2, 3)
LEAST_SHARE = 0.992
"""The thesis's least accuracy with monitored parameters: a mean over loads."""


@dataclass(frozen=True, eq=False)
class Followed:
    """A join, as it was followed over a load second by second."""

    held_bytes: Floats
    """Held and waiting in memory [bytes], shape (m,)."""
    tuples: Floats
    """The same of each stream [tuples], shape (m, streams)."""
    spilled: Floats
    """On disk [tuples], shape (m,)."""
    results: Arrivals
    """A result arrives when it is emitted; its stream is 0, its payload when its last tuple arrived [ns]."""
    in_time: int
    """How many of them were emitted before the streams ended."""
    push_us: float
    """Time of a push, per tuple [µs]."""

    @property
    def waited_s(self) -> Floats:
        """From the arrival of the last tuple to each result [s]; those at the end waited for nothing."""
        return np.asarray((self.results.arrival_ns - self.results.payload)[: self.in_time] / 1e9)


def spills() -> bool:
    """Return whether joins can spill to disk here."""
    return "spill_folder" in inspect.signature(WoJoin).parameters


def measure(sizes: Sizes, notify: Tell) -> dict[str, Any]:
    """Return what the joins of each query hold in memory and on disk, and how long results wait, by strategy."""
    rows: list[dict[str, Any]] = []
    courses: dict[str, Any] = {}
    for name in STRATEGIES:
        # Loops that are not compiled yet are compiled here, and not where pushes are timed.
        joins_of(1, query_arrivals(1, 0, replace(sizes, until_s=2.0)), name)
    for done, number in enumerate(NUMBERS):
        notify("strategies", done / len(NUMBERS))
        loads = [query_arrivals(number, seed, sizes) for seed in range(sizes.seeds)]
        results = [count_results(last_inputs(number, load)) for load in loads]
        for name in STRATEGIES:
            if number == 1 and name in AT_LEAVES:
                continue
            each = [joins_of(number, load, name) for load in loads]
            if number == 1:
                courses[name] = plain(each[0][-1][0].tuples[:, S3])
            rows.append({"query": number, "strategy": name, **_row(each, results)})
    notify("strategies", 1.0)
    return {"rows": rows, "shapes": shapes(rows), "courses": {"S3": courses}, "seeds": sizes.seeds}


def _row(each: "list[list[tuple[Followed, float]]]", results: list[int]) -> dict[str, Any]:
    """Return means over the loads: memory of all joins of a query, latency and share of its last."""
    last = [joins[-1][0] for joins in each]
    waited = np.array([_waits(join) for join in last])
    shares = [len(join.results) / count for join, count in zip(last, results, strict=True)]
    formula = [sum(bound for _, bound in joins) for joins in each]
    return {
        "held [bytes]": plain(mean([sum(mean(join.held_bytes) for join, _ in joins) for joins in each])),
        "held [tuples]": plain(mean([sum(join.tuples.sum(axis=1).mean() for join, _ in joins) for joins in each])),
        "by 3.5 [tuples]": plain(mean(formula)),
        "on disk [tuples]": plain(mean([sum(mean(join.spilled) for join, _ in joins) for joins in each])),
        "waited, mean [s]": plain(float(waited[:, 0].mean())),
        "waited, median [s]": plain(float(waited[:, 1].mean())),
        "waited, p99 [s]": plain(float(waited[:, 2].mean())),
        "push [us a tuple]": plain(mean([sum(join.push_us for join, _ in joins) for joins in each])),
        "share": mean(shares),
        "least": min(shares),
        "goal": LEAST_SHARE,
        "met": mean(shares) >= LEAST_SHARE,
    }


def _waits(join: Followed) -> list[float]:
    # Where nothing came before the end, nothing is told of how long it took.
    waited = join.waited_s if join.in_time else np.array([np.nan])
    return [float(waited.mean()), *np.quantile(waited, [0.5, 0.99]).tolist()]


def joins_of(number: Number, arrivals: Arrivals, name: str) -> list[tuple[Followed, float]]:
    """Return the joins of a query, the last one last, each with the tuples that section 3.5 says it holds."""
    leaves, last = STRATEGIES[name]
    timed = replace(arrivals, payload=arrivals.arrival_ns.astype(np.float64))
    if number == 1:
        return [(followed(timed, leaves), formula(timed, leaves))]
    joins, fed = [], []
    for stream, group in enumerate(GROUPS):
        own = timed.of(group)
        # Query 3 joins on the second key of the first stream of each.
        join = followed(own, leaves, second=number == 3)
        joins.append((join, formula(own, leaves)))
        fed.append(replace(join.results, streams=len(GROUPS), stream=np.full(len(join.results), stream, np.int32)))
    both = merged(fed)
    joins.append((followed(both, last), formula(both, last)))
    return joins


def made(arrivals: Arrivals, kind: Kind) -> WoJoin:
    """Return the join that is followed."""
    if kind == "none":
        return WoJoin(arrivals.streams)
    if kind != "window":
        return WoJoin(arrivals.streams, strategy=kind)
    share = len(pushed(WoJoin(arrivals.streams), arrivals)) / count_results(arrivals)
    window = int(smallest_window(arrivals, share).sizes.max())
    return WoJoin(arrivals.streams, policy="window", window=window)


def followed(arrivals: Arrivals, kind: Kind, *, second: bool = False) -> Followed:
    """Push a load second by second.

    Parameters
    ----------
    arrivals
        What the join is fed; the payload is when the last tuple that contributes arrived [ns].
    second
        Whether results have the second key of the tuple of the first stream for their key.
    """
    join, taken_s = made(arrivals, kind), 0.0
    held, tuples, spilled, found = [], [], [], []
    for _, part in seconds(arrivals):
        begun = time.perf_counter()
        found.append(pushed(join, part))
        taken_s += time.perf_counter() - begun
        statistics = join.statistics()
        held.append(statistics.held_bytes)
        tuples.append([stream.held + stream.waiting for stream in statistics.streams])
        spilled.append(sum(stream.spilled for stream in statistics.streams))
    in_time = sum(map(len, found))
    found.append(join.finish())
    columns = np.array(held, np.float64), np.array(tuples, np.float64), np.array(spilled, np.float64)
    results = _results(arrivals, found, second=second)
    return Followed(*columns, results, in_time, taken_s * 1e6 / len(arrivals))


def _results(arrivals: Arrivals, found: list[Matches], *, second: bool) -> Arrivals:
    """Return results as tuples of a stream."""
    at, key = (np.concatenate([getattr(part, name) for part in found]) for name in ("at", "key"))
    if second:
        firsts = arrivals.take(arrivals.stream == 0).by_second()
        key = firsts.key[np.concatenate([part.rows[:, 0] for part in found])]
    payload = np.concatenate([part.payloads.max(axis=1) for part in found])
    return Arrivals(1, np.zeros(len(at), np.int32), key, payload, arrivals.arrival_ns[at])


def formula(arrivals: Arrivals, kind: Kind) -> float:
    """Return the tuples that equation 3.8, or section 3.5, says that a join holds: mean over the seconds, all streams.

    Parameters are true ones: factors, mean rates and multiplicities of the whole, and the lag of each second. Sorting
    takes one scrambling factor of each stream more. NaN for a window.
    """
    if kind == "window":
        return float("nan")
    true, n = parameters(arrivals), arrivals.streams
    rates = true.counts / ((arrivals.arrival_ns[-1] - arrivals.arrival_ns[0]) / 1e9)
    repeated = _multiplicities(arrivals)
    ends = np.searchsorted(arrivals.arrival_ns, np.arange(arrivals.arrival_ns[0], arrivals.arrival_ns[-1], 10**9)) - 1
    course = np.zeros((len(ends[1:]), n, n))
    for one in range(n):
        for other in range(n):
            if one != other:
                course[:, one, other] = lags(arrivals, one, other)[ends[1:]]
    factors = true.scrambling_factor
    if kind == "none":
        bounds = [buffer_bounds(factors, rates, lag).sum() for lag in course]
    else:
        bounds = [strategy_bounds(kind, factors, rates, repeated, lag, ahead=AHEAD).sum() for lag in course]
    sorting = 0 if kind in ("none", "dbf") else int(factors.sum())
    return float(np.mean(bounds)) + sorting


def strategy_bounds(
    strategy: Literal["msf", "dbf", "hybrid"],
    scrambling_factor: ArrayLike,
    rate_hz: ArrayLike,
    multiplicity: ArrayLike,
    lag: ArrayLike,
    *,
    ahead: float,
) -> Floats:
    """Return the tuples per stream that a join with a strategy may hold in memory (thesis 3.5), shape (n,).

    Sorted streams have their multiplicity for a scrambling factor. Synchronised streams have no lag, but `ahead` tuples
    that were read in advance. The sort buffers, one scrambling factor for each stream that is sorted, are not included.

    Parameters
    ----------
    strategy
        "msf" sorts, "dbf" synchronises, "hybrid" does both.
    scrambling_factor, rate_hz, lag
        As in `buffer_bounds`.
    multiplicity
        Most tuples with one key of each stream, shape (n,).
    ahead
        C of section 3.5.2 [tuples].
    """
    factors = np.asarray(scrambling_factor if strategy == "dbf" else multiplicity, np.float64)
    if strategy == "msf":
        return buffer_bounds(factors, rate_hz, lag)
    synchronised = np.zeros((len(factors), len(factors)))
    return buffer_bounds(factors, rate_hz, synchronised) + ahead


def _multiplicities(arrivals: Arrivals) -> Integers:
    counts = [
        np.unique(arrivals.key[arrivals.stream == stream], return_counts=True)[1] for stream in range(arrivals.streams)
    ]
    return np.array([int(own.max(initial=1)) for own in counts])


def shapes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the thesis says of its figures, what was measured, and whether it is so here."""
    at = {(row["query"], row["strategy"]): row for row in rows}

    def held(number: int, name: str) -> float:
        return float(at[number, name if (number, name) in at else name.removesuffix(" at leaves")]["held [tuples]"])

    def latency_s(name: str) -> float:
        row = at[1, name]
        return float(row["waited, mean [s]"] or 0.0) + float(row["push [us a tuple]"]) / 1e6

    def ratio(number: int, name: str, other: str) -> float:
        return held(number, name) / held(number, other)

    found = [
        ("3.13", "query 1: MSF saves little", "below 1, near it", ratio(1, "msf", "none"), (0.8, 1.0)),
        ("3.14", "query 1: DBF holds less than MSF", "below 1", ratio(1, "dbf", "msf"), (0.0, 1.0)),
    ]
    for number in (2, 3):
        claim = f"query {number}: MSF at leaves holds less than DBF"
        found.append(("3.14", claim, "below 1", ratio(number, "msf at leaves", "dbf"), (0.0, 1.0)))
    for number in NUMBERS:
        others = min(held(number, name) for name in ("none", "msf at leaves", "dbf"))
        claim = f"query {number}: the hybrid holds least"
        found.append(("3.14", claim, "below 1", held(number, "hybrid at leaves") / others, (0.0, 1.0)))
        saved = {
            name: held(number, "none") - held(number, name) for name in ("msf at leaves", "dbf", "hybrid at leaves")
        }
        claim = f"query {number}: the hybrid saves more than MSF and DBF together"
        more = saved["hybrid at leaves"] - saved["msf at leaves"] - saved["dbf"]
        found.append(("3.5.3", claim, "above 0 [tuples]", more, (0.0, np.inf)))
    found += [
        ("3.15", "query 1: latency of DBF over none", "1.5", latency_s("dbf") / latency_s("none"), (1.25, 1.75)),
        ("3.15", "query 1: latency of MSF over none", "100", latency_s("msf") / latency_s("none"), (30.0, 300.0)),
        (
            "3.15",
            "query 1: latency of the hybrid over none",
            "100",
            latency_s("hybrid") / latency_s("none"),
            (30.0, 300.0),
        ),
    ]
    names = ("figure", "claim", "thesis", "measured")
    return [
        {
            **dict(zip(names, row[:3], strict=False)),
            "measured": plain(row[3]),
            "reproduced": row[4][0] <= row[3] <= row[4][1],
        }
        for row in found
    ]
