"""Loads of the benchmark of scheduling: a point is one setting of all that the figures of chapter 4 vary."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from queries.scheduling.strategy import SchedulingStrategy
from station_data.generate import arrival_times
from tests.support.scheduling.arrivals import b_model, replayed
from tests.support.scheduling.batching import Batching, Intelligent
from tests.support.scheduling.graphs import STREAMS, random_graph
from tests.support.scheduling.quality import Input, Overheads, Quality, simulate
from tests.support.scheduling.strategies import make_strategy

THESIS = (
    "round-robin", "basic", "opt-profit", "basic+dd", "opt-profit+dd", "basic+pd", "opt-profit+pd",
)  # fmt: skip
"""Strategies that the thesis compares."""
OURS = ("fifo", "earliest-deadline", "least-laxity", "hybrid")
"""Those that stand beside them."""
DROPPING = frozenset({"basic+dd", "opt-profit+dd", "basic+pd", "opt-profit+pd", "hybrid"})
"""Strategies that remove what is late themselves (algorithms 6 and 8, line 3)."""
Late = Literal["as in the thesis", "dropped by all"]
LATE: tuple[Late, ...] = ("as in the thesis", "dropped by all")
"""Whether strategies that know no deadlines process what has expired, or everybody passes it over."""
VALIDITY_S = (4.0, 8.0)
"""Least and greatest validity of an input [s] (thesis 4.9.1)."""
RATE_HZ = 15.0
"""Tuples of each input a second at load 1."""
SLICES = 2000
"""Readings a station of the sample network in a replay."""


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    seeds: int = 30
    duration_s: float = 30.0
    """How long tuples come [s]."""
    values: int | None = None
    """Values a figure at most; all where absent."""
    trees: int = 2000
    """Trees that are compared with the linear programme."""
    slices: int = 60
    """Updates of the base in figure 5.13."""


QUICK = Sizes(seeds=6, duration_s=20.0, values=2, trees=300, slices=30)
"""A minute's version."""


@dataclass(frozen=True)
class Point:
    """One setting."""

    load: float = 1.1
    """Work that comes, in units of what one processor does."""
    bias: float = 0.7
    """b of the b-model."""
    delay_s: float = 0.0
    """How long tuples are on their way [s]."""
    operators: int | None = None
    """Of 24 queries; random graphs where absent."""
    spread: float | None = None
    """Weights are whole numbers up to so far from 5.5; 1 to 10 where absent."""
    replayed: bool = False
    """Whether tuples arrive as those of the sample network, whose arrivals are generated, not recorded."""


def inputs(seed: int, point: Point, sizes: Sizes) -> list[Input]:
    """Return the streams of one seed: the same graph, arrivals and validities for every strategy."""
    rng = np.random.default_rng([seed, 4])
    queries = None if point.operators is None else 24
    weights = None
    if point.spread is not None:
        queries = 24
        weights = rng.integers(round(5.5 - point.spread), round(5.5 + point.spread) + 1, queries).astype(np.float64)
    graph = random_graph(rng, queries=queries, operators=point.operators, weights=weights)
    count = round(RATE_HZ * sizes.duration_s * point.load)
    shapes = graph.shapes([count] * STREAMS, work_s=sizes.duration_s * point.load)
    made = []
    for stream, shape in enumerate(shapes):
        validity_s = float(rng.uniform(*VALIDITY_S))
        if point.replayed:
            times = replayed(
                sample_arrivals(stream), duration_s=sizes.duration_s, count=count, start=float(rng.random())
            )
        else:
            times = b_model(rng, count, duration_s=sizes.duration_s, bias=point.bias)
        made.append(Input(shape, times + point.delay_s, validity_s, point.delay_s))
    validities_s = [source.validity_s for source in made]
    return [
        replace(source, shape=replace(source.shape, slacks_s=graph.slacks_s(stream, validities_s)))
        for stream, source in enumerate(made)
    ]


@cache
def sample_arrivals(stream: int) -> NDArray[np.float64]:
    """Return when readings of every fourth station of the sample network arrive [s], by its model, shape (n,)."""
    numbers = np.arange(SLICES)
    stations = [str(station) for station in range(1, 25) if station % STREAMS == stream]
    return np.concatenate([arrival_times(2007, station, numbers, numbers * 120) for station in stations])


def quality(
    seed: int, point: Point, strategy: str | SchedulingStrategy, *, late: Late, sizes: Sizes, batching: Batching | None
    = None, overheads: Overheads | None = None,
) -> Quality:  # fmt: skip
    """Return what one strategy earns of one seed's streams."""
    made = make_strategy(strategy) if isinstance(strategy, str) else strategy
    late_runs = late == "as in the thesis" and made.name not in DROPPING
    streams = inputs(seed, point, sizes)
    return simulate(streams, made, batching or Intelligent(), overheads=overheads, late_runs=late_runs)


@dataclass(frozen=True)
class Sweep:
    """A figure: one thing varies, the rest stays."""

    title: str
    what: str
    """What varies."""
    points: Mapping[float, Point]

    def cut(self, maximum: int | None) -> "Sweep":
        """Return it with so many values at most, the first and the last among them."""
        if maximum is None or maximum >= len(self.points):
            return self
        kept = np.unique(np.linspace(0, len(self.points) - 1, maximum).round().astype(int))
        values = list(self.points)
        return Sweep(self.title, self.what, {values[place]: self.points[values[place]] for place in kept})


SWEEPS: Mapping[str, Sweep] = {
    "4.9": Sweep(
        "operator sharing", "queries an operator",
        {24 / operators: Point(operators=operators) for operators in (48, 42, 36, 32)},
    ),
    "4.10": Sweep(
        "query weight variance at a load of 1.6", "variance",
        # Weights matter where not all can be done.
        {((2 * spread + 1) ** 2 - 1) / 12: Point(load=1.6, spread=spread) for spread in (0.5, 1.5, 3.5, 4.5)},
    ),
    "4.11": Sweep("response to input load", "load", {load: Point(load=load) for load in (0.8, 1.0, 1.2, 1.5, 2.0)}),
    "4.12": Sweep(
        "response to tuple urgency at a load of 1", "delay [s]",
        {delay: Point(load=1.0, delay_s=delay) for delay in (0.0, 1.0, 2.0, 3.0, 3.5)},
    ),
    "4.13": Sweep("response to bias", "bias", {bias: Point(bias=bias) for bias in (0.5, 0.6, 0.7, 0.8, 0.9)}),
    "replay": Sweep(
        "generated arrivals of the sample network", "load",
        {load: Point(load=load, replayed=True) for load in (1.1, 1.5)},
    ),
}  # fmt: skip
"""Figures that vary the streams or the queries, all strategies beside one another."""
