"""Table 5.4: what each policy holds where 23 stations are disordered, late, or both, beside the optimum and a window.

What is held is the mean over the arrivals after the beginning (the first `BEGINNING` tuples of every stream, in which
nothing is known yet); with the beginning it stands in the JSON form as `held_whole`.
"""

import time
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from hypergrid.streams import Matches, WoJoin
from hypergrid.streams.arrivals import Arrivals
from hypergrid.streams.fixed_window import smallest_window
from hypergrid.streams.loads import SETTINGS, Setting, station_load
from hypergrid.streams.optimum import count_results, optimum
from tests.bench.kriging_figures import Tell
from tests.bench.wo_join_cases import Floats, Integers, Sizes, plain, pushed

BEGINNING = 64
"""Tuples of each stream that are the beginning: twice as many as a join waits for before it drops anything."""
SHARE_GOAL = 0.995
OVER_OPTIMUM = 1.2
PUBLISHED_SAVING: dict[Setting, float] = {
    "ordered": 0.0,
    "scrambled": 0.46,
    "lag 120 min": 0.12,
    "lag 10 min": 0.12,
    "scrambled, lag 10 min": 0.61,
}
"""What the thesis's table says; of its third row the lag is in doubt."""

Policy = Literal["progress", "published"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


@dataclass(frozen=True, eq=False)
class Followed:
    """A join, as it was followed over a load."""

    held: Integers
    """Tuples held after the arrivals that were looked at, shape (m,)."""
    share: float
    """Of the results that there are."""
    waited_s: Floats
    """Time of arrival from the last contributing tuple to each result [s], shape (r,)."""
    late: int


def follow(join: WoJoin, arrivals: Arrivals, every: int, results: int) -> Followed:
    """Push a load in parts of `every` tuples; `results` is how many there are."""
    held, waited, late, found = [], [], 0, 0
    instants = _instants(arrivals)
    for start in range(0, len(arrivals), every):
        part = arrivals.take(slice(start, start + every))
        matches = pushed(join, part)
        if len(part) == every:
            held.append(join.statistics().held)
        waited.append(_waited_s(matches, arrivals, instants))
        late, found = late + len(matches.late), found + len(matches)
    matches = join.finish()
    # What is left when the streams end waited for nobody.
    return Followed(np.array(held), (found + len(matches)) / results, np.concatenate(waited), late)


def _instants(arrivals: Arrivals) -> list[Integers]:
    """Return the arrivals of each stream [ns]."""
    return [arrivals.arrival_ns[arrivals.stream == stream] for stream in range(arrivals.streams)]


def _waited_s(matches: Matches, arrivals: Arrivals, instants: list[Integers]) -> Floats:
    last = np.full(len(matches), np.iinfo(np.int64).min)
    for stream, own in enumerate(instants):
        rows = matches.rows[:, stream]
        np.maximum(last, np.where(rows >= 0, own[rows], last), out=last)
    return np.asarray((arrivals.arrival_ns[matches.at] - last) / 1e9)


def alone_us(join: WoJoin, arrivals: Arrivals, singles: int) -> tuple[float, float]:
    """Return median and 99th percentile of the time that a push of one tuple takes, for the last ones [µs]."""
    first = max(len(arrivals) - singles, 0)
    pushed(join, arrivals.take(slice(first)))
    taken = []
    for at in range(first, len(arrivals)):
        part = arrivals.take(slice(at, at + 1))
        begun = time.perf_counter()
        pushed(join, part)
        taken.append((time.perf_counter() - begun) * 1e6)
    return float(np.median(taken)), float(np.quantile(taken, 0.99))


def measure(sizes: Sizes, tell: Tell) -> dict[str, Any]:
    """Return a row for each setting, kind of lag and policy."""
    cases = [(name, moving) for name in SETTINGS for moving in (False, True) if SETTINGS[name][1] > 0 or not moving]
    rows = []
    for done, (setting, moving) in enumerate(cases):
        tell("table 5.4", done / len(cases))
        load = station_load(setting, moving=moving, streams=sizes.stations, keys=sizes.slices)
        rows += _rows(setting, moving, load.arrivals(), sizes)
    tell("table 5.4", 1.0)
    return {"rows": rows, "slices": sizes.slices, "stations": sizes.stations, "beginning": BEGINNING}


def _rows(setting: Setting, moving: bool, arrivals: Arrivals, sizes: Sizes) -> list[dict[str, Any]]:  # noqa: FBT001
    results, every = count_results(arrivals), sizes.every
    best = optimum(arrivals, every=every)
    begun = int(np.searchsorted(best.at, np.flatnonzero(arrivals.rows() == min(BEGINNING, sizes.slices - 1)).max()))
    held_best = best.held.sum(axis=0)
    goal = max(OVER_OPTIMUM * held_best[begun:].mean(), held_best[begun:].mean() + arrivals.streams)
    rows = []
    for policy in POLICIES:
        # A result comes with its last tuple; what a slice that is closed waits for is seen in the assembling form.
        found = follow(WoJoin(arrivals.streams, policy=policy), arrivals, every, results)
        closed = follow(WoJoin(arrivals.streams, policy=policy, form="assembling"), arrivals, every, results)
        window = smallest_window(arrivals, found.share)
        held = float(found.held[begun:].mean())
        window_held = float(_of_window(arrivals, window.sizes)[best.at][begun:].mean())
        median_us, p99_us = alone_us(WoJoin(arrivals.streams, policy=policy), arrivals, sizes.singles)
        aims = policy == "progress"
        rows.append(
            {
                "setting": setting,
                "lag": "moving" if moving else "static" if SETTINGS[setting][1] > 0 else "none",
                "policy": policy,
                "optimum": plain(float(held_best[begun:].mean())),
                "held": plain(held),
                "over optimum": plain(held / max(float(held_best[begun:].mean()), 1e-9)),
                "window": plain(window_held),
                "saving": plain(1 - held / window_held),
                "saving, thesis": PUBLISHED_SAVING.get(setting),
                "share": found.share,
                "late": found.late,
                "waited_s": _quantiles(found.waited_s),
                "assembling_waited_s": _quantiles(closed.waited_s),
                "push_us": [plain(median_us), plain(p99_us)],
                "held_whole": plain(float(found.held.mean())),
                "optimum_whole": plain(float(held_best.mean())),
                "goal": plain(float(goal)) if aims else None,
                "met": bool(held <= goal and found.share >= SHARE_GOAL) if aims else None,
            }
        )
    return rows


def _of_window(arrivals: Arrivals, sizes: Integers) -> Integers:
    """Return what windows of so many tuples hold after each arrival, shape (n,)."""
    counts = (np.minimum(np.cumsum(arrivals.stream == one), size) for one, size in enumerate(sizes))
    return np.sum(list(counts), axis=0, dtype=np.int64)


def _quantiles(values: Floats) -> list[object]:
    return [plain(float(np.quantile(values, part))) for part in (0.5, 0.99)] if len(values) else [None, None]
