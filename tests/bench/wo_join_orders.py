"""Table 5.4 in both orders of slices: what the join holds beside windows, the published policy and a watermark.

An order is "whole", where a slice is emitted with its last tuple, or "time", where it is emitted after all older ones,
as in thesis 5.10.1. Each contrast gives the same share of slices whole, in the same order:

- windows of a size for each stream, as in the thesis, and of one size for all, both chosen with hindsight;
- windows for each stream that were chosen so on one day and are used on the next, as they are and a tenth larger, which
  a user can really have; what the join holds and gives on the same days stands beside them;
- the least watermark, also with hindsight, let go after every arrival, which Spark does at best; in order of time only.

The published policy (equations 3.6 to 3.8) has a share of its own. "least" is what no join can go below that gives all
slices whole in that order, whatever it knows, and so how much a window for each stream leaves to be saved.

Beside the generator there are real stamps: those of the Grand-St-Bernard, with the same disorder and lags, as in the
thesis, and the motes' recorded arrivals as they are. Both lie outside of the project, and are left out where absent.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import SECOND_NS
from hypergrid.wo_join import Matches, WoJoin
from hypergrid.wo_join.state_layout import HELD_ALL
from tests.bench.ingest_watermark import least_delay_s, not_passed
from tests.bench.kriging_figures import Tell
from tests.bench.wo_join_cases import Floats, Integers, Sizes, plain, pushed
from tests.support.streams.arrivals import Arrivals
from tests.support.streams.loads import DAY_S, SETTINGS, Setting, stamped_load, station_load
from tests.support.streams.optimum import count_results
from tests.support.streams.replay import motes, station_stamps
from tests.support.streams.slice_windows import Slices

SLICE_S = 120
MOTE_S = 60
"""Length of a sequence of the motes [s]."""
DRIFT_S = 5 * DAY_S
"""Period of lags that another day does not repeat [s]."""
IDLE_SLICES = 10
"""Slices of silence after which a recorded station is not waited for, as the stream has it by default."""
Order = Literal["whole", "time"]
MARGINS = (1.0, 1.1)
"""Windows of the day before are used as they were chosen, and a tenth larger."""
NEXT_DAYS = (
    "next days: held", "next days: share", "day before", "day before: share", "a tenth more", "a tenth more: share",
)  # fmt: skip
"""What the join and windows of the day before hold and give on all days but the first."""
ORDERS: tuple[Order, ...] = ("whole", "time")
LAGS = ("static", "moving", "drifting")
"""Lags of a setting that has any: constant, the same every day, or with a period of `DRIFT_S`."""
REAL: tuple[tuple[Setting, bool], ...] = (
    ("ordered", False), ("scrambled", False), ("lag 120 min", False), ("lag 10 min", False), ("lag 120 min", True),
    ("scrambled, lag 10 min", False),
)  # fmt: skip
"""Settings and whether lags move, of which real stamps are sent."""


@dataclass(frozen=True, eq=False)
class Case:
    """Tuples of a network."""

    arrivals: Arrivals
    time_ns: Integers
    """Time stamps, by which a watermark goes, shape (n,)."""
    slice_ns: int
    day_ns: int
    """After how long windows are fixed again."""
    idle_s: float | None = None


@dataclass(frozen=True)
class Side:
    """Who holds tuples."""

    hold: "Callable[[Case, Slices, Sizes, bool], Held]"
    """Holds the tuples of a case, in order of time or not."""
    at_once: Callable[[Case], int]
    """Arrivals after which a watermark beside it moves."""
    lags: tuple[str, ...] = LAGS
    """Kinds of lags of generated networks."""


@dataclass(frozen=True, eq=False)
class Held:
    """What was held, and given."""

    at: Integers
    """Arrivals after which it was looked at, shape (m,)."""
    tuples: Integers
    """Held then, shape (m,)."""
    whole: NDArray[np.bool_]
    """Whether each slice was whole when it was emitted, shape (d,)."""
    waited_s: float
    """Mean time from the last tuple of a slice to its emission [s]."""


def measure(sizes: Sizes, notify: Tell, side: "Side | None" = None) -> dict[str, Any]:
    """Return a row for each network, setting, kind of lag and order: means over the loads.

    Parameters
    ----------
    side
        Whose memory it is; the join's, after every arrival, where absent.
    """
    side = side or Side(hold, lambda _: 1)
    rows: list[dict[str, Any]] = []
    absent: list[str] = []
    named = [*_generated(sizes, side.lags), *_recorded(sizes, absent)]
    for done, (label, make) in enumerate(named):
        notify("orders", done / len(named))
        seeds = range(sizes.seeds if label["loads"] is None else label["loads"])
        each = [_rows(make(seed), sizes, side) for seed in seeds]
        for order, *found in zip(ORDERS, *each, strict=True):
            means = {name: plain(_mean([row[name] for row in found])) for name in found[0]}
            rows.append({**label, "loads": len(seeds), "order": order, **means})
    notify("orders", 1.0)
    about = {"slices": sizes.order_slices, "stations": sizes.stations, "seeds": sizes.seeds}
    return {"rows": rows, "absent": absent, **about}


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


Named = tuple[dict[str, Any], Callable[[int], Case]]
"""Network, setting and kind of lag, and what makes the case of a seed."""


def _generated(sizes: Sizes, lags: tuple[str, ...]) -> Iterator[Named]:
    for setting, (_, most_s) in SETTINGS.items():
        for lag in lags if most_s else ("none",):
            yield {"network": "generated", "setting": setting, "lag": lag, "loads": None}, _maker(setting, lag, sizes)


def _maker(setting: Setting, lag: str, sizes: Sizes) -> Callable[[int], Case]:
    period_s = DRIFT_S if lag == "drifting" else DAY_S

    def make(seed: int) -> Case:
        load = station_load(
            setting, moving=lag in LAGS[1:], streams=sizes.stations, keys=sizes.order_slices, seed=seed, lag_s=period_s
        ).arrivals()
        return Case(load, load.key * SLICE_S * SECOND_NS, SLICE_S * SECOND_NS, round(sizes.day_s * SECOND_NS))

    return make


def _recorded(sizes: Sizes, absent: list[str]) -> Iterator[Named]:
    """Yield what can be recorded here; add the others, and what they need, to `absent`."""
    folder, file = sizes.data / "sensorscope_gsb", sizes.data / "ulb_wsn" / "R1.txt"
    if folder.is_dir():
        stamps_s = station_stamps(folder, days=sizes.real_days)
        for setting, moving in REAL:
            lag = "moving" if moving else "static" if SETTINGS[setting][1] else "none"
            about = {"network": f"Grand-St-Bernard, {len(stamps_s)} stations", "setting": setting, "lag": lag}
            yield {**about, "loads": None}, _stamped(stamps_s, setting, moving=moving)
    else:
        absent.append(f"real stamps of the Grand-St-Bernard need {folder}, which is not here")
    if file.is_file():
        yield (
            {"network": "19 motes", "setting": "as recorded", "lag": "its own", "loads": 1},
            lambda _: _mote_case(file),
        )
    else:
        absent.append(f"recorded arrivals of the motes need {file}, which is not here")


def _stamped(stamps_s: Sequence[Integers], setting: Setting, *, moving: bool) -> Callable[[int], Case]:
    def make(seed: int) -> Case:
        load = stamped_load(stamps_s, setting, moving=moving, seed=seed, slice_s=SLICE_S)
        time_ns = load.payload.astype(np.int64) * SECOND_NS
        return Case(load, time_ns, SLICE_S * SECOND_NS, round(DAY_S * SECOND_NS), IDLE_SLICES * SLICE_S)

    return make


def _mote_case(file: Path) -> Case:
    load = motes(file)
    load = replace(load, arrival_ns=load.arrival_ns - load.arrival_ns[0])
    # A few hours were recorded: windows are fixed for a quarter of them.
    quarter_ns = int(load.arrival_ns[-1]) // 4 + 1
    return Case(load, load.key * MOTE_S * SECOND_NS, MOTE_S * SECOND_NS, quarter_ns, IDLE_SLICES * MOTE_S)


def _rows(case: Case, sizes: Sizes, side: "Side") -> list[dict[str, Any]]:
    slices, rows = Slices.of(case.arrivals), []
    for order in ORDERS:
        in_order = order == "time"
        ours = side.hold(case, slices, sizes, in_order)
        published, published_share = _published(case, slices, sizes, in_order=in_order)
        share, held = float(ours.whole.mean()), float(ours.tuples.mean())
        each, one = (slices.held(slices.smallest(share, each=each, in_order=in_order)) for each in (True, False))
        least = slices.least_held(in_order=in_order)
        rows.append(
            {
                "least": least,
                "held": held,
                "share": share,
                "waits [s]": ours.waited_s,
                "published": published,
                "published share": published_share,
                "window each": each,
                "saved, each": 1 - held / each,
                "saved at most": 1 - least / each,
                "window one": one,
                "saved, one": 1 - held / one,
                "watermark": watermark(case, share, side.at_once(case)) if in_order else None,
                **_next_days(case, slices, ours, in_order=in_order),
            }
        )
        mark = rows[-1]["watermark"]
        rows[-1]["saved, watermark"] = None if mark is None else 1 - held / mark
    return rows


def hold(case: Case, slices: Slices, sizes: Sizes, in_order: bool) -> Held:  # noqa: FBT001 - as of a `Side`
    """Return what the join itself holds."""
    join = WoJoin(case.arrivals.streams, form="assembling", in_order=in_order, idle_s=case.idle_s)
    return follow(join, slices, sizes.order_every)


def held_by(join: WoJoin) -> int:
    """Return the tuples that a join holds; its statistics take milliseconds for more."""
    return int(join._state.join_state[HELD_ALL])


def follow(join: WoJoin, slices: Slices, every: int) -> Held:
    """Push tuples in parts of `every` into a join of the assembling form, and see which slices it gives whole."""
    arrivals, held, late, given, waited = slices.arrivals, [], [], 0, 0.0

    def note(matches: Matches) -> None:
        nonlocal given, waited
        late.append(matches.late.key)
        if len(matches):
            at = (
                arrivals.arrival_ns[matches.at]
                - arrivals.arrival_ns[slices.last[np.searchsorted(slices.keys, matches.key)]]
            )
            given, waited = given + len(matches), waited + float(np.maximum(at, 0).sum())

    for start in range(0, len(arrivals), every):
        note(pushed(join, arrivals.take(slice(start, start + every))))
        held.append(held_by(join))
    # What is left when the streams end waited for nothing.
    late.append(join.finish().late.key)
    at = np.minimum(np.arange(every, len(arrivals) + every, every), len(arrivals)) - 1
    whole = ~np.isin(slices.keys, np.concatenate(late))
    return Held(at, np.array(held), whole, waited / SECOND_NS / max(given, 1))


def _published(case: Case, slices: Slices, sizes: Sizes, *, in_order: bool) -> tuple[float, float | None]:
    """Return what the published policy holds, and the share of slices, or of results, that it gives whole.

    With each slice as soon as it is whole it is an inner join, whose results are of slices that all stations bring.
    """
    n = case.arrivals.streams
    if in_order:
        join = WoJoin(n, policy="published", form="assembling", idle_s=case.idle_s)
        found = follow(join, slices, sizes.order_every)
        return float(found.tuples.mean()), float(found.whole.mean())
    join, held, given = WoJoin(n, policy="published", idle_s=case.idle_s), [], 0
    for start in range(0, len(case.arrivals), sizes.order_every):
        given += len(pushed(join, case.arrivals.take(slice(start, start + sizes.order_every))))
        held.append(held_by(join))
    results = count_results(case.arrivals)
    return float(np.mean(held)), given / results if results else None


def watermark(case: Case, share: float, at_once: int = 1) -> float:
    """Return the mean rows that wait behind the least watermark by which this share of slices is whole [tuples].

    It moves after every `at_once` arrivals, and lets go at once of what it passes.
    """
    each = np.arange(len(case.arrivals)) // at_once
    delay_s = least_delay_s(case.time_ns, each, case.slice_ns, share, waiting=False)
    return float(not_passed(case.time_ns, each, case.slice_ns, delay_s).mean())


def _next_days(case: Case, slices: Slices, ours: Held, *, in_order: bool) -> dict[str, float | None]:
    """Return what windows of the day before hold and give, and what the join does on the same days."""
    instants = case.arrivals.arrival_ns
    day_of_arrival: Integers = (instants - instants[0]) // case.day_ns
    day = day_of_arrival[slices.last]
    held: list[Integers] = []
    tuples: list[int] = []
    whole: list[NDArray[np.bool_]] = []
    for number in range(1, int(day.max()) + 1):
        before, now = day == number - 1, day == number
        if not before.any() or not now.any():
            continue
        chosen = slices.smallest(float(ours.whole.mean()), each=True, in_order=in_order, chosen=before)
        windows = np.ceil(np.outer(MARGINS, chosen) - 1e-9).astype(np.int64)
        whole.append(np.stack([slices.whole(sizes, in_order=in_order, chosen=now) for sizes in windows]))
        held.append(windows.sum(axis=1))
        tuples.append(int((day_of_arrival == number).sum()))
    if not held:
        return dict.fromkeys(NEXT_DAYS)
    later: Floats = ours.tuples[day_of_arrival[ours.at] > 0].astype(np.float64)
    means, shares = np.average(held, axis=0, weights=tuples), np.concatenate(whole, axis=1).mean(axis=1)
    values = (float(later.mean()), float(ours.whole[day > 0].mean()), means[0], shares[0], means[1], shares[1])
    return dict(zip(NEXT_DAYS, map(float, values), strict=True))
