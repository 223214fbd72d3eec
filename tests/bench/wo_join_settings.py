"""Table 5.4: what each policy holds where 23 stations are disordered, late, or both, beside the optimum and windows.

Two fixed windows of equal accuracy stand beside each policy: one size for all stations, and a size for each of them,
which the thesis has (5.10.2). Both are chosen with hindsight. Savings are shown against both, as a single size is a
weak contrast where disorder and lags differ by station.

Rows are means over several loads; a goal is met where each load meets its own.

What is held is the mean over all arrivals, those of the beginning included, in which nothing is known yet; what is held
once every stream has brought `BEGINNING` tuples stands beside it as "settled".
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from hypergrid.wo_join import Matches, WoJoin
from tests.bench.kriging_figures import Tell
from tests.bench.wo_join_cases import Floats, Integers, Sizes, plain, pushed
from tests.support.streams.arrivals import Arrivals
from tests.support.streams.fixed_window import smallest_window
from tests.support.streams.generator import Load, Source
from tests.support.streams.loads import SETTINGS, station_load
from tests.support.streams.optimum import count_results, optimum

BEGINNING = 64
"""Tuples of each stream that are the beginning: twice as many as a join waits for before it drops anything."""
ALIKE = "alike, SF 20"
"""Beside the settings of the thesis: stations of one scrambling factor, of which each waits for all others."""
SHARE_GOAL = 0.995
OVER_OPTIMUM = 1.2
SAVINGS: dict[str, float] = {
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
    held_bytes: float
    """Bytes held, mean of the same."""
    share: float
    """Of the results that there are."""
    waited_s: Floats
    """Time of arrival from the last contributing tuple to each result [s], shape (r,)."""
    late: int


def follow(join: WoJoin, arrivals: Arrivals, every: int, results: int) -> Followed:
    """Push a load in parts of `every` tuples; `results` is how many there are."""
    held, held_bytes, waited, late, found = [], [], [], 0, 0
    instants = instants_of(arrivals)
    for start in range(0, len(arrivals), every):
        part = arrivals.take(slice(start, start + every))
        matches = pushed(join, part)
        if len(part) == every:
            held.append(join.statistics().held)
            held_bytes.append(join.held_bytes)
        waited.append(waited_s(matches, arrivals, instants))
        late, found = late + len(matches.late), found + len(matches)
    matches = join.finish()
    # What is left when the streams end waited for nobody.
    share = (found + len(matches)) / results
    return Followed(np.array(held), float(np.mean(held_bytes)), share, np.concatenate(waited), late)


def instants_of(arrivals: Arrivals) -> list[Integers]:
    """Return the arrivals of each stream [ns]."""
    return [arrivals.arrival_ns[arrivals.stream == stream] for stream in range(arrivals.streams)]


def waited_s(matches: Matches, arrivals: Arrivals, instants: list[Integers]) -> Floats:
    """Return the time of arrival from the last tuple that contributes to what brought each result about [s]."""
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


def measure(sizes: Sizes, notify: Tell) -> dict[str, Any]:
    """Return a row for each setting, kind of lag and policy.

    Pairs of numbers are a median and the 99th percentile: of how long results wait after their last tuple, how long
    slices do until they are closed, and how long a push of one tuple takes.
    """
    cases = [(name, moving) for name in SETTINGS for moving in (False, True) if SETTINGS[name][1] > 0 or not moving]
    rows = []
    for done, (setting, moving) in enumerate(cases):
        notify("table 5.4", done / (len(cases) + 1))
        loads = [
            station_load(setting, moving=moving, streams=sizes.stations, keys=sizes.slices, seed=seed)
            for seed in range(sizes.seeds)
        ]
        rows += _of_all(setting, "moving" if moving else "static" if SETTINGS[setting][1] > 0 else "none", loads, sizes)
    sources = (Source(20, regular=True),) * sizes.stations
    rows += _of_all(ALIKE, "none", [Load(sources, keys=sizes.slices, seed=seed) for seed in range(sizes.seeds)], sizes)
    notify("table 5.4", 1.0)
    about = {"slices": sizes.slices, "stations": sizes.stations, "beginning": BEGINNING, "seeds": sizes.seeds}
    return {"rows": rows, **about}


def _of_all(setting: str, lag: str, loads: Sequence[Load], sizes: Sizes) -> list[dict[str, Any]]:
    """Return the rows of a setting: means over its loads, and whether each of them met its goal."""
    each = [_rows(setting, lag, load.arrivals(), sizes) for load in loads]
    together = []
    for rows in zip(*each, strict=True):
        row = {name: _mean([one[name] for one in rows]) for name in rows[0]}
        row["least share"] = min(one["share"] for one in rows)
        if rows[0]["met"] is not None:
            row["met"] = all(one["met"] for one in rows)
        together.append(row)
    return together


def _mean(values: Sequence[Any]) -> Any:  # noqa: ANN401 - what the values are
    """Return the mean of numbers, or of lists of numbers place by place; of anything else, the first."""
    first = values[0]
    if isinstance(first, list):
        return [_mean(column) for column in zip(*values, strict=True)]
    if isinstance(first, int | float) and not isinstance(first, bool):
        return float(np.mean(values))
    return first


def _rows(setting: str, lag: str, arrivals: Arrivals, sizes: Sizes) -> list[dict[str, Any]]:
    results, every = count_results(arrivals), sizes.every
    best = optimum(arrivals, every=every)
    begun = int(np.searchsorted(best.at, np.flatnonzero(arrivals.rows() == min(BEGINNING, sizes.slices - 1)).max()))
    held_best = best.held.sum(axis=0)
    goal = max(OVER_OPTIMUM * float(best.mean.sum()), float(best.mean.sum()) + arrivals.streams)
    rows = []
    for policy in POLICIES:
        # A result comes with its last tuple; what a slice that is closed waits for is seen in the assembling form.
        found = follow(WoJoin(arrivals.streams, policy=policy), arrivals, every, results)
        closed = follow(WoJoin(arrivals.streams, policy=policy, form="assembling"), arrivals, every, results)
        window, window_each = (
            float(smallest_window(arrivals, found.share, each=each).mean.sum()) for each in (False, True)
        )
        held, optimal = float(found.held.mean()), float(best.mean.sum())
        median_us, p99_us = alone_us(WoJoin(arrivals.streams, policy=policy), arrivals, sizes.singles)
        aims = policy == "progress"
        rows.append(
            {
                "setting": setting,
                "lag": lag,
                "policy": policy,
                "optimum": plain(optimal),
                "any order": plain(float(best.mean_in_any_order.sum())),
                "held": plain(held),
                "over optimum": plain(held / optimal),
                "settled": [plain(float(one[begun:].mean())) for one in (found.held, held_best)],
                "held [bytes]": plain(found.held_bytes),
                "window": plain(window),
                "saving": plain(1 - held / window),
                "window each": plain(window_each),
                "saving each": plain(1 - held / window_each),
                "thesis": SAVINGS.get(setting),
                "share": found.share,
                "late": found.late,
                "waits [s]": _quantiles(found.waited_s),
                "slice waits [s]": _quantiles(closed.waited_s),
                "push [us]": [plain(median_us), plain(p99_us)],
                "goal": plain(float(goal)) if aims else None,
                "met": bool(held <= goal and found.share >= SHARE_GOAL) if aims else None,
            }
        )
    return rows


def _quantiles(values: Floats) -> list[object]:
    return [plain(float(np.quantile(values, part))) for part in (0.5, 0.99)] if len(values) else [None, None]
