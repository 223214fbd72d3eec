"""Figures 3.7 to 3.11: buffers over time, as predicted, as they are, and as small as they could be."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hypergrid.wo_join import Pipeline
from tests.bench.kriging_figures import Tell
from tests.bench.wo_join_cases import (
    PHASES,
    STAGES,
    Floats,
    Number,
    Sizes,
    lags,
    last_inputs,
    mean,
    parameters,
    piped,
    plain,
    query_arrivals,
    seconds,
)
from tests.support.streams.arrivals import Arrivals
from tests.support.streams.optimum import needed_each, optimum

CURVES = ("needed", "optimum", "progress", "published", "predicted", "predicted, known")
"""Tuples of each stream in each second: the thesis's optimum (the greatest buffer that a result of the second needed,
none where none came); the least that can be held, oldest first, and what both policies hold, at its end; and what
equation 3.8 asks to hold, by parameters monitored (of results of joins, by theorems 3.4.1 and 3.4.2) and known."""

TAIL_S = 30.0
"""How much longer the streams last than is shown [s]."""


@dataclass(frozen=True, eq=False)
class Course:
    """The inputs of a query's last join over time."""

    starts_s: Floats
    """Starts of the seconds [s], shape (m,)."""
    curves: Mapping[str, Floats]
    """By name of `CURVES`, NaN where nothing is known yet, shape (streams, m) each."""
    streams: tuple[str, ...]


def course(number: Number, seed: int, sizes: Sizes) -> Course:
    """Return the buffers of a query's last join, second by second."""
    # What is needed, and what lags, is told by what comes after: the end is left out.
    arrivals = query_arrivals(number, seed, replace(sizes, until_s=sizes.until_s + TAIL_S))
    fed, stage = last_inputs(number, arrivals), STAGES[number][-1]
    starts, needed = needed_each(fed)
    starts, needed = starts[starts < sizes.until_s], needed[:, starts < sizes.until_s]
    ends = np.searchsorted(fed.arrival_ns, (starts + 1) * 1e9) - 1
    curves = {"needed": np.where(needed > 0, needed, np.nan), "optimum": optimum(fed).held[:, ends].astype(float)}
    first = round(starts[0])
    curves |= {name: np.full(needed.shape, np.nan) for name in ("progress", "published", "predicted")}
    for policy in ("progress", "published"):
        pipeline = Pipeline(STAGES[number], policy=policy)
        for second, part in seconds(arrivals):
            piped(pipeline, part)
            at = second - first
            if 0 <= at < len(starts):
                told = pipeline.joins[stage.output].statistics().streams
                curves[policy][:, at] = [one.held for one in told]
                if policy == "published":
                    bounds = pipeline.predict_bounds()[stage.output]
                    curves["predicted"][:, at] = np.where(np.isfinite(bounds), bounds, np.nan)
    curves["predicted, known"] = known_bounds(fed, starts)
    return Course(starts, {name: curves[name] for name in CURVES}, stage.inputs)


def known_bounds(arrivals: Arrivals, starts: Floats) -> Floats:
    """Return what equation 3.8 asks to hold at the end of each second with full knowledge, shape (streams, m).

    Scrambling factors are those of the whole, lags those at tau' of equation 3.7, as many tuples of the other
    stream ago as its factor says; what arrived since then is r_i k_j / r_j with the true rates from then on.
    """
    n, ends = arrivals.streams, np.searchsorted(arrivals.arrival_ns, (starts + 1) * 1e9) - 1
    factors = parameters(arrivals).scrambling_factor
    places = [np.flatnonzero(arrivals.stream == stream) for stream in range(n)]
    come = np.stack([np.searchsorted(own, ends, side="right") for own in places])
    reaches = np.full((n, n, len(starts)), -np.inf)
    for one in range(n):
        for other in range(n):
            if one == other:
                continue
            before = come[other] - factors[other]
            then = places[other][np.maximum(before, 1) - 1]
            at_then = np.searchsorted(places[one], then, side="right")
            lag = lags(arrivals, one, other)[then] - at_then
            reaches[one, other] = come[one] + np.where(before > 0, lag, 0)
    return np.asarray(np.maximum(1, factors[:, None] + reaches.max(axis=1)), np.float64)


def measure(sizes: Sizes, notify: Tell) -> dict[str, Any]:
    """Return the means of each phase over all seeds, and the course of the first seed."""
    rows, courses = [], {}
    numbers: tuple[Number, ...] = (1, 2, 3)
    for done, number in enumerate(numbers):
        notify("buffers over time", done / len(numbers))
        found = [course(number, seed, sizes) for seed in range(sizes.seeds)]
        courses[f"query {number}"] = {
            "streams": found[0].streams,
            "starts_s": plain(found[0].starts_s),
            **{name: plain(found[0].curves[name]) for name in CURVES},
        }
        rows += [
            {"query": number, "stream": name, "phase": phase, **_means(found, at, *PHASES[phase])}
            for at, name in enumerate(found[0].streams)
            for phase in PHASES
            if any(((one.starts_s >= PHASES[phase][0]) & (one.starts_s < PHASES[phase][1])).any() for one in found)
        ]
    notify("buffers over time", 1.0)
    return {"rows": rows, "courses": courses, "seeds": sizes.seeds}


def _means(found: list[Course], stream: int, start: float, stop: float) -> dict[str, object]:
    """Return the mean of each curve over a phase, then over the seeds."""
    means = {}
    for name in CURVES:
        each = []
        for one in found:
            values = one.curves[name][stream, (one.starts_s >= start) & (one.starts_s < stop)]
            each.append(mean(values[np.isfinite(values)]))
        means[name] = plain(mean([value for value in each if np.isfinite(value)]))
    return means
