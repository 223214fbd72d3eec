"""What the join of streams is measured on, and how it is followed: loads, known parameters, and what is held."""

import datetime
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.wo_join import KnownParameters, Pipeline, WoJoin
from hypergrid.wo_join.pipeline import QUERY_1, QUERY_2, QUERY_3, Stage
from tests.support.streams.arrivals import Arrivals
from tests.support.streams.generator import places_back
from tests.support.streams.loads import BURST, CONGESTION, query_load
from tests.support.streams.optimum import intermediate

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
"""Where public recordings lie, outside of the project."""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Number = Literal[1, 2, 3]
STAGES: dict[Number, tuple[Stage, ...]] = {1: QUERY_1, 2: QUERY_2, 3: QUERY_3}
"""The joins of each query (figure 3.6)."""
GROUPS = ((0, 1, 2), (3, 4, 5))
"""Streams of the first two joins of queries 2 and 3."""

PHASES = {
    "before": (0.0, CONGESTION.start_s),
    "congestion": (CONGESTION.start_s, CONGESTION.start_s + CONGESTION.duration_s),
    "between": (CONGESTION.start_s + CONGESTION.duration_s, BURST.start_s),
    "burst": (BURST.start_s, BURST.start_s + BURST.duration_s),
    "after": (BURST.start_s + BURST.duration_s, np.inf),
}
"""From when to when [s]."""


@dataclass(frozen=True)
class Sizes:
    """How large everything is; the thesis's sizes where nothing else is said."""

    seeds: int = 5
    """Loads that a mean is of."""
    until_s: float = 120.0
    """How long the streams of queries 1 to 3 last [s]."""
    slices: int = 5000
    """Slices of table 5.4."""
    stations: int = 23
    every: int = 101
    """What is held in table 5.4 is read after so many arrivals; prime to the number of stations."""
    singles: int = 2000
    """Tuples that are pushed alone, to see how long one takes."""
    tuples: int = 3_000_000
    """Of all streams together, where throughput is measured."""
    at_rest: int = 300_000
    """Of all streams together, where joins of data at rest are measured beside it."""
    spark: int = 600_000
    """Of two streams together, where Spark is measured."""
    spark_batch: int = 50_000
    """Of them, in each of Spark's batches."""
    order_slices: int = 2500
    """Slices of table 5.4 where it is measured in both orders."""
    order_every: int = 307
    """After how many arrivals what is held is looked at there; prime to the number of stations, too."""
    day_s: float = 86_400.0
    """After how long windows of generated networks are fixed again [s]."""
    real_days: int = 4
    """Days of recorded stamps."""
    data: Path = DATA


def query_arrivals(number: Number, seed: int, sizes: Sizes) -> Arrivals:
    """Return the tuples of a query of section 3.6."""
    return query_load(number, seed=seed, until_s=sizes.until_s).arrivals()


def last_inputs(number: Number, arrivals: Arrivals) -> Arrivals:
    """Return what the last join of a query is fed, where the others give all their results."""
    return arrivals if number == 1 else intermediate(arrivals, GROUPS, on_second=number == 3)


def inputs(number: Number, arrivals: Arrivals) -> dict[str, Arrivals]:
    """Return what each join of a query is fed, by its output, where those before it give all their results."""
    outputs = [stage.output for stage in STAGES[number]]
    first = [arrivals.of(group) for group in GROUPS] if number > 1 else []
    return dict(zip(outputs, [*first, last_inputs(number, arrivals)], strict=True))


def pushed(join: WoJoin, part: Arrivals, *, ticking: bool = False) -> Any:  # noqa: ANN401 - what a push gives
    """Push some tuples."""
    return join.push(part.stream, part.key, part.payload, None if ticking else part.arrival_ns)


def seconds(arrivals: Arrivals) -> Iterator[tuple[int, Arrivals]]:
    """Yield each second and the tuples that arrive in it, from the first to the last."""
    whole = arrivals.arrival_ns // 10**9
    edges = np.searchsorted(whole, np.arange(whole[0], whole[-1] + 2))
    for number, (start, stop) in enumerate(itertools.pairwise(edges.tolist())):
        yield int(whole[0]) + number, arrivals.take(slice(start, stop))


def piped(pipeline: Pipeline, part: Arrivals) -> int:
    """Push some tuples into a query; return how many results came."""
    return len(pipeline.push(part.stream, part.key, part.payload, part.arrival_ns, other_key=part.second))


@dataclass(frozen=True, eq=False)
class Parameters:
    """What is true of streams, with full knowledge of them."""

    scrambling_factor: Integers
    """[tuples], shape (n,)."""
    disorder: Integers
    """How far keys lie below the greatest before them [key units], shape (n,)."""
    counts: Integers
    """Tuples of each stream, shape (n,)."""
    lag: Floats
    """Greatest lag from each stream (row) to each other (column), and what comes in bursts beyond the mean rates
    [tuples], shape (n, n)."""

    def known(self) -> KnownParameters:
        """Return it as a join is told it: with this every result is found."""
        return KnownParameters(
            scrambling_factor=tuple(self.scrambling_factor.tolist()),
            rate_hz=tuple(self.counts.astype(float).tolist()),
            lag=tuple(map(tuple, self.lag.tolist())),
            disorder=tuple(self.disorder.tolist()),
        )


def lags(arrivals: Arrivals, one: int, other: int) -> Integers:
    """Return the lag from one stream to another after each arrival (definition 3.2.6) [tuples], shape (n,).

    All tuples of the one while the other has brought nothing.
    """
    mine, its = (np.cumsum(arrivals.stream == stream) for stream in (one, other))
    keys, others = (np.sort(arrivals.key[arrivals.stream == stream]) for stream in (one, other))
    passed = np.concatenate(([0], np.searchsorted(keys, others, side="right")))
    return np.asarray(mine - passed[its])


def parameters(arrivals: Arrivals) -> Parameters:
    """Return the parameters of streams, each of which brings something."""
    n = arrivals.streams
    keys = [arrivals.key[arrivals.stream == stream] for stream in range(n)]
    factors = np.array([int(places_back(own).max(initial=0)) for own in keys])
    counts = np.array([len(own) for own in keys])
    lag = np.zeros((n, n))
    for one, other in itertools.permutations(range(n), 2):
        so_far = np.cumsum(arrivals.stream == one)[arrivals.stream == other]
        before = np.maximum(np.arange(len(so_far)) - factors[other], 0)
        most = float((so_far - so_far[before]).max(initial=0))
        excess = max(0.0, most - counts[one] * factors[other] / counts[other])
        lag[one, other] = float(lags(arrivals, one, other).max()) + excess
    disorder = np.array([int((np.maximum.accumulate(own) - own).max(initial=0)) for own in keys])
    return Parameters(factors, disorder, counts, lag)


def known_of(number: Number, arrivals: Arrivals) -> dict[str, KnownParameters]:
    """Return the true parameters of what each join of a query is fed, by its output."""
    return {name: parameters(fed).known() for name, fed in inputs(number, arrivals).items()}


def window_ns(age_ns: int) -> datetime.timedelta:
    """Return a window of at least this age."""
    return datetime.timedelta(microseconds=-(-age_ns // 1000))


def mean(values: Sequence[float] | Floats) -> float:
    """Return the mean of numbers, NaN where there are none."""
    chosen = np.asarray(values, np.float64)
    return float(chosen.mean()) if len(chosen) else float("nan")


def plain(value: object) -> object:
    """Return a value as JSON has it: numbers to four digits, None where there is none."""
    if isinstance(value, np.ndarray):
        return [plain(one) for one in value.tolist()]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.4g}") if np.isfinite(value) else None
    return value
