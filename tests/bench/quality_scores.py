"""Scores of the quality tests on simulated networks: shifts of level, blocked gauges, true events.

The tests are the default ones, by `judge`, as they run in every way of ingest. Seeds: `HELD_OUT` for tables, `CHOICE`
to choose thresholds on.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.flags import SUSPECT, TESTS
from hypergrid.streams.elements import Readings
from hypergrid.units import KNOWN_VARIABLES, Variable
from ingest.judging import places_of
from ingest.quality.declared import default_tests
from ingest.quality.judge import judge
from ingest.quality.settings import FaultyZeros
from tests.bench.quality_networks import (
    DAILY,
    DAY_H,
    HOUR_NS,
    RAIN,
    SHAPES,
    Network,
    Shape,
    Shift,
    counted,
    event,
    rain,
    shift_of,
    station_years,
)

HELD_OUT: Final = (301, 302, 303, 304)
CHOICE: Final = (1, 2, 3, 4)
DAY_NS: Final = round(DAY_H * HOUR_NS)
SIZES: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0)
"""Shifts, in residual spreads of the network."""
BEFORE_DAYS: Final = 120
"""What is judged before a shift begins [d]."""
Tell = Callable[[str, float], None]


def judged(network: Network) -> tuple[Readings, NDArray[np.bool_], NDArray[np.uint16]]:
    """Return readings, which of them are suspect or fail by the default tests, and by which tests."""
    readings = network.readings()
    variable = KNOWN_VARIABLES.get(network.variable, Variable(network.variable, "mm"))
    places = places_of(readings.series, {one.id: one for one in network.stations})
    tests = default_tests(variable)
    if network.variable == "precipitation" and tests.faulty_zeros is None:
        # As a deployment declares it for totals, which have no default of their own.
        tests = replace(tests, faulty_zeros=FaultyZeros())
    found = judge(readings, tests, places, {})
    return readings, found.flag >= SUSPECT, found.tests


def _by(test: str, tests: NDArray[np.uint16]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (
        (tests >> np.uint16(TESTS.index(test))) & np.uint16(1) > 0 if test in TESTS else tests < 0
    )
    return found


def _detected(network: Network, shift: Shift, within_days: float) -> bool:
    """Return whether a shift is known of after some days: half of the last quarter of them is suspect by then."""
    until = shift.start_ns + round(within_days * DAY_NS)
    seen = shift.plant(network.between(shift.start_ns - BEFORE_DAYS * DAY_NS, until))
    readings, bad, _ = judged(seen)
    last = (readings.index == shift.station) & (readings.time_ns >= until - round(within_days * DAY_NS) // 4)
    return bool(last.any() and bad[last].mean() >= 0.5)


def _coverage(network: Network, shift: Shift) -> tuple[float, float, float]:
    """Return shares that are suspect: of the shift, of the five days after it, of all other stations meanwhile."""
    seen = shift.plant(network.between(shift.start_ns - BEFORE_DAYS * DAY_NS, shift.stop_ns + 5 * DAY_NS))
    readings, bad, _ = judged(seen)
    mine = readings.index == shift.station
    inside = (readings.time_ns >= shift.start_ns) & (readings.time_ns < shift.stop_ns)
    after = readings.time_ns >= shift.stop_ns
    parts = (mine & inside, mine & after, ~mine & (inside | after))
    return tuple(float(bad[part].mean()) if part.any() else 0.0 for part in parts)  # type: ignore[return-value]


def shifts(
    seeds: Iterable[int], *, tell: Tell = lambda _s, _d: None, each: int = 10, sizes: Iterable[float] = SIZES,
    shapes: Iterable[Shape] = (*SHAPES, DAILY),
) -> list[dict[str, Any]]:  # fmt: skip
    """Return, by network and size of shift, how many are found within a day, and shares that are suspect."""
    rows = []
    shapes, seeds, sizes = list(shapes), list(seeds), list(sizes)
    for place, shape in enumerate(shapes):
        made = [station_years(shape, seed) for seed in seeds]
        spreads = [one.spread() for one in made]
        within = 7.0 if shape.interval_s >= 86_400 else 1.0
        for number, size in enumerate(sizes):
            tell("shifts", (place + number / len(sizes)) / len(shapes))
            found, shares = 0, []
            for n in range(each):
                network, spread = made[n % len(made)], spreads[n % len(made)]
                shift = shift_of(network, size, spread, 1000 * seeds[n % len(seeds)] + 50 * number + n)
                found += _detected(network, shift, within)
                shares.append(_coverage(network, shift))
            inside, after, others = np.mean(shares, axis=0).tolist()
            rows.append({
                "network": shape.name, "spread": float(np.mean(spreads)), "size_in_spreads": size, "planted": each,
                "found_within_days": within, "found": found, "recall": found / each,
                "share_of_shift_suspect": inside, "share_after_suspect": after, "share_of_others_suspect": others,
            })  # fmt: skip
    return rows


def alarms_of(
    readings: Readings, bad: NDArray[np.bool_], *, apart_days: float = 7.0
) -> list[tuple[str, int, int, int]]:
    """Return alarms: station, first and last stamp, readings; what lies a week apart is another alarm."""
    found = []
    for number, series in enumerate(readings.series):
        stamps = readings.time_ns[bad & (readings.index == number)]
        if len(stamps):
            cuts = np.flatnonzero(np.diff(stamps) > apart_days * DAY_NS) + 1
            found += [(series.station, int(p[0]), int(p[-1]), len(p)) for p in np.split(stamps, cuts)]
    return found


def false_shifts(
    seeds: Iterable[int], *, tell: Tell = lambda _s, _d: None, shapes: Iterable[Shape] = SHAPES, days: int = 365
) -> list[dict[str, Any]]:
    """Return, by network, station-years without any fault and the alarms of the test of shifts on them."""
    rows, shapes, seeds = [], list(shapes), list(seeds)
    for place, shape in enumerate(shapes):
        tell("false shifts", place / len(shapes))
        years, alarms, readings_flagged = 0.0, 0, 0
        for seed in seeds:
            network = station_years(shape, seed + 5000, days=days)
            readings, _, tests = judged(network)
            bad = _by("level_shift", tests)
            alarms += len(alarms_of(readings, bad))
            readings_flagged += int(bad.sum())
            years += len(network.stations) * days / 365.0
        rows.append({
            "network": shape.name, "station_years": years, "false_alarms": alarms, "readings_suspect": readings_flagged,
            "false_alarms_a_station_year": alarms / years,
        })  # fmt: skip
    total = {key: sum(row[key] for row in rows) for key in ("station_years", "false_alarms", "readings_suspect")}  # type: ignore[misc]
    rate = {"false_alarms_a_station_year": total["false_alarms"] / total["station_years"]}
    return [*rows, {"network": "all", **total, **rate}]


def zeros(
    seeds: Iterable[int], *, tell: Tell = lambda _s, _d: None, each: int = 10, days: int = 150
) -> list[dict[str, Any]]:
    """Return, by rain that a blocked gauge misses, how many are found; and what is found on gauges that are sound."""
    rows: list[dict[str, Any]] = []
    seeds = list(seeds)
    for name, kind in (("totals of 10 min", "precipitation"), ("counters", "rain_meter"), ("hourly", "precipitation")):
        shape = replace(RAIN, interval_s=3600) if name == "hourly" else RAIN
        tally = {bound: [0, 0] for bound in (0.0, 5.0, 10.0, 20.0, 40.0)}
        false, years, inside, flagged = 0, 0.0, 0, 0
        for done, seed in enumerate(seeds):
            tell(f"zeros, {name}", done / len(seeds))
            clean = rain(shape, seed, days=days)
            rng = np.random.default_rng([seed, 43])
            value = clean.value.copy()
            blocked = rng.choice(len(clean.stations), min(each, 5), replace=False)
            spans = []
            for one in blocked.tolist():
                first = int(rng.uniform(0.3, 0.8) * len(value))
                last = first + round(rng.uniform(5.0, 30.0) * DAY_NS / np.diff(clean.time_ns[:2])[0])
                spans.append((one, first, min(last, len(value)), float(value[first:last, one].sum())))
                value[first:last, one] = 0.0
            faulty = replace(clean, value=value)
            network = counted(faulty, seed) if kind == "rain_meter" else faulty
            readings, _, tests = judged(network)
            bad = _by("faulty_zeros", tests)
            wrong = np.zeros(len(readings), np.bool_)
            for one, first, last, missed in spans:
                rows_of = (readings.index == one) & (readings.time_ns >= clean.time_ns[first])
                rows_of &= readings.time_ns <= clean.time_ns[last - 1]
                wrong |= (readings.index == one) & (readings.time_ns >= clean.time_ns[first] - DAY_NS)
                bound = max(b for b in tally if b <= missed)
                tally[bound][0] += 1
                tally[bound][1] += bool(bad[rows_of].any())
                flagged += int(bad[rows_of].sum())
                inside += int(rows_of.sum())
            false += len(alarms_of(readings, bad & ~wrong))
            years += (len(clean.stations) - len(blocked)) * days / 365.0
        for bound, (planted, found) in tally.items():
            rows.append({"gauges": name, "missed_mm_from": bound, "planted": planted, "found": found,
                         "recall": found / planted if planted else None})  # fmt: skip
        rows.append({"gauges": name, "missed_mm_from": None, "share_of_blocked_suspect": flagged / max(1, inside),
                     "false_alarms": false, "sound_gauge_years": years,
                     "false_alarms_a_gauge_year": false / years})  # fmt: skip
    return rows


def events(seeds: Iterable[int], *, tell: Tell = lambda _s, _d: None) -> list[dict[str, Any]]:
    """Return, by kind of event and variable, what readings of true events lose their flag 1 to which tests."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    seeds = list(seeds)
    for done, seed in enumerate(seeds):
        tell("events", done / len(seeds))
        for kind in ("cloudburst", "front"):
            one = event(kind, seed)
            for network in one.networks:
                readings, bad, tests = judged(network)
                inside = one.inside[np.searchsorted(network.time_ns, readings.time_ns), readings.index]
                key = kind, network.variable
                row = rows.setdefault(key, {"event": kind, "variable": network.variable, "events": 0, "readings": 0,
                                            "not_good": 0, "events_hurt": 0, "tests": {}})  # fmt: skip
                row["events"] += 1
                row["readings"] += int(inside.sum())
                row["not_good"] += int((bad & inside).sum())
                row["events_hurt"] += bool((bad & inside).any())
                for test in TESTS:
                    count = int((_by(test, tests) & inside).sum())
                    if count:
                        row["tests"][test] = row["tests"].get(test, 0) + count
    return list(rows.values())
