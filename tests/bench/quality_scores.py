"""Scores of the quality tests on simulated networks: shifts of level, blocked gauges, true events.

The tests are the default ones, by `judge`, as they run in every way of ingest; what a shift is found by is the test of
shifts alone. Seeds: `HELD_OUT` and its like for tables, `CHOICE` to choose thresholds on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import SUSPECT, TESTS
from hypergrid.core.readings import Readings
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from ingest.deployment.quality_overrides import default_tests
from ingest.quality.blocks import BLOCK_NS, Blocks, medians, term_blocks, usable
from ingest.quality.flagging import places_of
from ingest.quality.levels import Term
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
from tests.support.judging import judge_by_all

HELD_OUT: Final = (701, 702, 703, 704)
"""Seeds of the tables. No threshold was chosen on them, nor on any from 600 on."""
HELD_OUT_YEARS: Final = tuple(range(701, 709))
HELD_OUT_EVENTS: Final = tuple(range(801, 901))
"""Those from 601 to 700 were looked at before the threshold of the buddy check was set to 6."""
CHOICE: Final = (1, 2, 3, 4, *range(11, 29))
"""Seeds that thresholds were chosen on; 301 to 304 and 411 were looked at, too."""
UNITS: Final = {"precipitation_rate": "mm/h"}
"""Of variables that are not known by their name."""
DAY_NS: Final = round(DAY_H * HOUR_NS)
SIZES: Final = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Shifts, in residual spreads of the network."""
Tell = Callable[[str, float], None]


def judged(network: Network) -> tuple[Readings, NDArray[np.bool_], NDArray[np.uint16]]:
    """Return readings, which of them are suspect or fail by the default tests, and by which tests."""
    readings = network.readings()
    variable = KNOWN_VARIABLES.get(network.variable, Variable(network.variable, UNITS.get(network.variable, "mm")))
    places = places_of(readings.series, {one.id: one for one in network.stations})
    tests = default_tests(variable)
    found = judge_by_all(readings, tests, places, {})
    return readings, found.flag >= SUSPECT, found.tests


def _by(test: str, tests: NDArray[np.uint16]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (
        (tests >> np.uint16(TESTS.index(test))) & np.uint16(1) > 0 if test in TESTS else tests < 0
    )
    return found


class _Levels:
    """The test of shifts over the blocks of a network, and what it learned from these without a shift.

    What a shift changes is evaluated again, and no more (as a stream does it): the flags are those of `judge`, which
    `test_quality_scores` checks.
    """

    def __init__(self, network: Network) -> None:
        self.network, self.readings = network, network.readings()
        self._tests = default_tests(KNOWN_VARIABLES[network.variable])
        assert self._tests.level_shift is not None
        self._settings = self._tests.level_shift
        self.places = places_of(self.readings.series, {one.id: one for one in network.stations})
        self.first, stop = (int(stamp // BLOCK_NS) for stamp in network.time_ns[[0, -1]])
        self._blocks = self._medians(self.readings, self.first, stop + 1)
        self._known: dict[int, Term] = {}

    def _medians(self, readings: Readings, first: int, stop: int) -> Blocks:
        return Blocks(first, medians(readings, usable(readings, self._tests.gross_range), first, stop))

    def planted(self, shift: Shift, until_ns: int) -> tuple[int, NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the first block of a shift, and from it on which have readings before a time, and which are suspect.

        Both of shape (series, blocks).
        """
        begin, stop = shift.start_ns // BLOCK_NS, -(-until_ns // BLOCK_NS)
        window = self.network.between(begin * BLOCK_NS, until_ns)
        value = self._blocks.part(self.first, stop)
        value[:, begin - self.first :] = self._medians(shift.plant(window).readings(), begin, stop).value
        blocks, length = Blocks(self.first, value), term_blocks(self._settings.memory_days)
        found = np.zeros((len(value), stop - begin), np.bool_)
        for number in range(begin // length, (stop - 1) // length + 1):
            term = self._learned(number, begin)
            part = term.find_shifts(blocks, self.places, begin)
            low, high = max(begin, number * length), min(stop, (number + 1) * length)
            found[:, low - begin : high - begin] = part[:, low - number * length : high - number * length]
        return begin, np.isfinite(value[:, begin - self.first :]), found

    def _learned(self, number: int, changed: int) -> Term:
        """Return a term that has learned from the network without a shift, where that is of use."""
        term = Term(number, self._settings)
        if changed - term.begin < term_blocks(self._settings.memory_days):
            return term
        if number not in self._known:
            term.find_shifts(self._blocks, self.places, term.begin)
            self._known[number] = term
        return deepcopy(self._known[number])


def _detected(levels: _Levels, shift: Shift, within_days: float) -> bool:
    """Return whether a shift is known of after some days: half of the last quarter of them is suspect by then."""
    until = shift.start_ns + round(within_days * DAY_NS)
    begin, present, found = levels.planted(shift, until)
    first = (until - round(within_days * DAY_NS) // 4) // BLOCK_NS - begin
    last = present[shift.station, first:]
    return bool(last.any() and found[shift.station, first:][last].mean() >= 0.5)


def _coverage(levels: _Levels, shift: Shift) -> tuple[float, float, float]:
    """Return shares of blocks that are suspect: of the shift, of the five days after it, of all other stations."""
    begin, present, found = levels.planted(shift, shift.stop_ns + 5 * DAY_NS)
    after = shift.stop_ns // BLOCK_NS + 1 - begin
    others = np.delete(found, shift.station, axis=0)[np.delete(present, shift.station, axis=0)]
    mine, there = found[shift.station], present[shift.station]
    parts = (mine[:after][there[:after]], mine[after:][there[after:]], others)
    return tuple(float(part.mean()) if part.size else 0.0 for part in parts)  # type: ignore[return-value]


def shifts(
    seeds: Iterable[int], *, notify: Tell = lambda _s, _d: None, each: int = 10, sizes: Iterable[float] = SIZES,
    shapes: Iterable[Shape] = (*SHAPES, DAILY),
) -> list[dict[str, Any]]:  # fmt: skip
    """Return, by network and size of shift, how many are found within a day, and shares that are suspect.

    Shares are those of every fourth shift.
    """
    rows = []
    shapes, seeds, sizes = list(shapes), list(seeds), list(sizes)
    for place, shape in enumerate(shapes):
        made = [_Levels(station_years(shape, seed)) for seed in seeds]
        spreads = [one.network.spread() for one in made]
        within = 7.0 if shape.interval_s >= 86_400 else 1.0
        for number, size in enumerate(sizes):
            notify("shifts", (place + number / len(sizes)) / len(shapes))
            found, shares = 0, []
            for n in range(each):
                levels, spread = made[n % len(made)], spreads[n % len(made)]
                shift = shift_of(levels.network, size, spread, 1000 * seeds[n % len(seeds)] + 50 * number + n)
                found += _detected(levels, shift, within)
                if n % 4 == 0:
                    shares.append(_coverage(levels, shift))
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
    seeds: Iterable[int], *, notify: Tell = lambda _s, _d: None, shapes: Iterable[Shape] = SHAPES, days: int = 365
) -> list[dict[str, Any]]:
    """Return, by network, station-years without any fault and the alarms of the test of shifts on them."""
    rows, shapes, seeds = [], list(shapes), list(seeds)
    for place, shape in enumerate(shapes):
        notify("false shifts", place / len(shapes))
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
    return [*rows, all_networks(rows)]


def all_networks(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row of all networks of a table of false shifts."""
    total = {key: sum(row[key] for row in rows) for key in ("station_years", "false_alarms", "readings_suspect")}
    rate = {"false_alarms_a_station_year": total["false_alarms"] / total["station_years"]}
    return {"network": "all", **total, **rate}


GAUGES: Final = (
    ("totals of 10 min", "precipitation"), ("counters", "rain_meter"), ("hourly", "precipitation"),
    ("rates of 10 min", "precipitation_rate"),
)  # fmt: skip
"""Kinds of gauges, and their variables."""


def zeros(
    seeds: Iterable[int], *, notify: Tell = lambda _s, _d: None, each: int = 10, days: int = 150,
    kinds: Iterable[tuple[str, str]] = GAUGES,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return, by rain that a blocked gauge misses, how many are found; and what is found on gauges that are sound."""
    rows: list[dict[str, Any]] = []
    seeds = list(seeds)
    for name, kind in kinds:
        shape = replace(RAIN, interval_s=3600) if name == "hourly" else RAIN
        tally = {bound: [0, 0] for bound in (0.0, 5.0, 10.0, 20.0, 40.0)}
        false, years, inside, flagged = 0, 0.0, 0, 0
        for done, seed in enumerate(seeds):
            notify(f"zeros, {name}", done / len(seeds))
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
            if kind == "precipitation_rate":
                network = replace(faulty, variable=kind, value=np.round(6.0 * value, 1))
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


def events(
    seeds: Iterable[int], *, notify: Tell = lambda _s, _d: None, kinds: Iterable[str] = ("cloudburst", "front")
) -> list[dict[str, Any]]:
    """Return, by kind of event and variable, what readings of true events lose their flag 1 to which tests."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    seeds, kinds = list(seeds), list(kinds)
    for done, seed in enumerate(seeds):
        notify("events", done / len(seeds))
        for kind in kinds:
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
