"""Quality tests against the planted faults of the sample network, on seeds that no threshold was chosen on.

Each seed is a campaign of 28 days of 24 stations, ingested as anybody would, with the default tests; its ledger of
faults says what should have been found. A fault is found where a reading of it is suspect or fails; a reading is found
rightly where it lies in a planted fault of its station and variable, whatever kind that is (the rows of a station with
the wrong zone are all wrong). The wrong zone itself is not flagged but told: found where the guard names the station,
rightly where the hours are right. Gaps are counted by the summary, drifts are for no test of these.

On real data nothing is known: whatever is flagged in `../shared/data/meteoio_imis` counts as a false alarm, though
some are sensors that broke.
"""

import csv
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.flags import FAIL, MISSING, NOT_EVALUATED, SUSPECT, TESTS
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from ingest.deployment.quality_overrides import default_tests
from ingest.job import ingest
from ingest.quality.flagging import places_of
from ingest.quality.run_tests import FlagResult
from station_data.generate import generate
from tests.bench import quality_scores
from tests.bench.quality_networks import DAILY, SHAPES
from tests.support.judging import judge_by_all

T = TypeVar("T")
Tell = Callable[[str, float], None]

CASES = ("all", "truth", "false-alarms", "speed", "shifts", "zeros", "events")
"""What can be asked for; "all": the first three, as the others take minutes each."""

SIMULATED = ("shifts", "zeros", "events")
"""Cases on simulated networks: shifts of level, blocked gauges, cloudbursts and fronts (`quality_scores`)."""

HELD_OUT = (101, 102, 103, 104, 105)
"""Seeds of the table; thresholds were chosen on seeds 1 to 4 and on real data."""

NOW_NS = 1_200_000_000 * 10**9
IMIS = Path(__file__).resolve().parents[3] / "shared" / "data" / "meteoio_imis"

FOUND_BY = {
    "spike": ("spike", "rate_of_change"),
    "impossible": ("gross_range",),
    "stuck": ("flat_line",),
    "drift": ("buddy_check", "spatial_consistency"),
}
"""By kind of fault the tests that are for it: what they find is what precision is of."""

MONTH_NS = 30 * 86_400 * 10**9
SMET_COLUMNS = {
    "TA": ("air_temperature", 1.0, -273.15), "RH": ("relative_humidity", 100.0, 0.0), "VW": ("wind_speed", 1.0, 0.0),
    "DW": ("wind_direction", 1.0, 0.0), "RSWR": ("solar_radiation", 1.0, 0.0), "ISWR": ("solar_radiation", 1.0, 0.0),
    "TSS": ("surface_temperature", 1.0, -273.15),
}  # fmt: skip
"""By column of SMET: variable, factor and offset to its unit."""


def measure(
    case: str = "all", *, pairs: int = 1, notify: Tell = lambda _stage, _done: None, seeds: Iterable[int] = HELD_OUT,
    days: int = 28,
) -> dict[str, Any]:  # fmt: skip
    """Return precision and recall, false alarms, and the values that are judged in a second.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        How often speed is measured; the best counts.
    tell
        Is told the stage and the share of it that is done.
    seeds, days
        Of the sample network.
    """
    measured: dict[str, Any] = {"case": f"sample network, 24 stations, {days} days; default tests"}
    if case in ("all", "truth"):
        measured["seeds"] = list(seeds)
        measured["truth"] = _truth(list(measured["seeds"]), days, notify)
    if case in ("all", "false-alarms"):
        measured["false_alarms"] = _false_alarms() if IMIS.is_dir() else None
    if case in ("all", "speed"):
        measured["speed"] = _speed(days, pairs, notify)
    if case in SIMULATED:
        measured = _simulated(case, notify)
    return measured


def _simulated(case: str, notify: Tell) -> dict[str, Any]:
    """Measure a case on simulated networks, in parts by all processors."""
    held_out, years = quality_scores.HELD_OUT, quality_scores.HELD_OUT_YEARS
    if case == "shifts":
        networks = [*SHAPES, DAILY]
        found = _in_parts([partial(quality_scores.shifts, held_out, each=40, shapes=[one]) for one in networks], notify)
        parts = _in_parts([partial(quality_scores.false_shifts, years, shapes=[one]) for one in networks], notify)
        false = [part[0] for part in parts]
        return {
            "case": f"simulated networks; shifts of seeds {held_out}, false ones of {years}",
            "shifts": [row for part in found for row in part],
            "false_shifts": [*false, quality_scores.all_networks(false)],
        }
    if case == "zeros":
        rows = _in_parts(
            [partial(quality_scores.zeros, held_out, kinds=[one]) for one in quality_scores.GAUGES], notify
        )
        return {"case": f"simulated gauges; seeds {held_out}", "zeros": [row for part in rows for row in part]}
    seeds = quality_scores.HELD_OUT_EVENTS
    halves = _in_parts(
        [partial(quality_scores.events, seeds, kinds=[kind]) for kind in ("cloudburst", "front")], notify
    )
    return {
        "case": f"simulated events, default tests; seeds {seeds[0]} to {seeds[-1]}",
        "events": [row for part in halves for row in part],
    }


def _in_parts(parts: Sequence[Callable[[], T]], notify: Tell) -> list[T]:
    """Return what each part measured, by two processes where there are several."""
    if len(parts) == 1:
        return [parts[0]()]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(part) for part in parts]
        found = []
        for done, one in enumerate(waiting):
            notify("parts", done / len(waiting))
            found.append(one.result())
    notify("parts", 1.0)
    return found


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]]:
    """Return what was measured as tables for people: title, columns, rows."""
    found: list[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = []
    if "truth" in measured:
        columns = ("fault", "variable", "planted", "found", "recall", "readings found", "rightly", "precision")
        rows = [tuple(_text(row[key.replace(" ", "_")]) for key in columns) for row in measured["truth"]]
        found.append((f"{measured['case']}; seeds {measured['seeds']}", columns, rows))
    if measured.get("false_alarms"):
        alarms = measured["false_alarms"]
        columns = ("variable", "test", "readings", "flagged", "flagged a station-month")
        rows = [tuple(_text(row[key.replace(" ", "_")]) for key in columns) for row in alarms["rows"]]
        found.append(
            (f"IMIS, {alarms['stations']} stations, {alarms['station_months']:.1f} months of them", columns, rows)
        )
    if "speed" in measured:
        columns = ("variable", "values", "million values a second")
        rows = [tuple(_text(row[key.replace(" ", "_")]) for key in columns) for row in measured["speed"]]
        found.append(("Speed of judging alone, one core", columns, rows))
    for key in ("shifts", "false_shifts", "zeros", "events"):
        if measured.get(key):
            columns = tuple(dict.fromkeys(name for row in measured[key] for name in row))
            rows = [tuple(_text(row.get(name)) for name in columns) for row in measured[key]]
            found.append((f"{key.replace('_', ' ')}: {measured['case']}", columns, rows))
    return found


def _text(value: object) -> str:
    return (
        ""
        if value is None
        else f"{value:,}"
        if isinstance(value, int)
        else f"{value:.3f}"
        if isinstance(value, float)
        else str(value)
    )


def _network(folder: Path, seed: int, days: int) -> tuple[Archive, list[dict[str, str]], tuple[str, ...]]:
    """Make and ingest a network; return its archive, its ledger of faults, and what the ingest warned of."""
    generate(folder / "stations", days=days, seed=seed, formats=("sensorscope",))
    report = ingest([folder / "stations"], folder / "archive", engine="inprocess", now_ns=NOW_NS)
    with (folder / "stations" / "faults.csv").open(newline="") as lines:
        return Archive.open(folder / "archive"), list(csv.DictReader(lines)), report.warnings


def _truth(seeds: list[int], days: int, notify: Tell) -> list[dict[str, Any]]:
    tally = _Tally()
    for one in _in_parts([partial(_tallied, seed, days) for seed in seeds], notify):
        tally.include(one)
    return tally.rows()


def _tallied(seed: int, days: int) -> "_Tally":
    """Count the faults of the network of a seed."""
    tally = _Tally()
    with tempfile.TemporaryDirectory() as folder:
        archive, faults, warnings = _network(Path(folder), seed, days)
        for name in archive.variables:
            tally.add(name, archive.read(name, tests=True), faults)
        tally.add_zones(archive, faults, warnings)
    return tally


class _Tally:
    """Faults planted and found, and readings found and found rightly, by kind and variable."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str], list[int]] = {}
        self._readings: dict[tuple[str, str], list[int]] = {}
        self._all = [0, 0]

    def include(self, other: "_Tally") -> None:
        """Add what another counted."""
        for mine, theirs in ((self._events, other._events), (self._readings, other._readings)):
            for key, counts in theirs.items():
                mine[key] = [a + b for a, b in zip(mine.get(key, [0, 0]), counts, strict=True)]
        self._all = [a + b for a, b in zip(self._all, other._all, strict=True)]

    def add(self, variable: str, readings: Readings, faults: list[dict[str, str]]) -> None:
        stations = [series.station for series in readings.series]
        bad = (readings.flag == SUSPECT) | (readings.flag == FAIL)
        planted = np.zeros(len(readings), np.bool_)
        for fault in faults:
            if fault["variable"] not in (variable, "*") or fault["kind"] in ("gap", "dead"):
                continue
            rows = _rows(readings, stations.index(fault["station"]), fault)
            planted[rows] = True
            if fault["kind"] != "timezone" and len(rows):
                event = self._events.setdefault((fault["kind"], variable), [0, 0])
                event[0] += 1
                event[1] += bool(bad[rows].any())
        tests = readings.tests_or_none_set()
        for kind, names in FOUND_BY.items():
            bits = sum(1 << TESTS.index(name) for name in names)
            found = (tests & np.uint16(bits)) > 0
            counted = self._readings.setdefault((kind, variable), [0, 0])
            counted[0] += int(found.sum())
            counted[1] += int((found & planted).sum())
        self._all[0] += int(bad.sum())
        self._all[1] += int((bad & planted).sum())

    def add_zones(self, archive: Archive, faults: list[dict[str, str]], warnings: tuple[str, ...]) -> None:
        wrong = {
            fault["station"]: float(fault["magnitude"]) / 3600.0 for fault in faults if fault["kind"] == "timezone"
        }
        event = self._events.setdefault(("timezone", "*"), [0, 0])
        counted = self._readings.setdefault(("timezone", "*"), [0, 0])
        event[0] += len(wrong)
        radiation = archive.read("solar_radiation")
        for station in archive.stations:
            told = [text for text in warnings if text.startswith(f"radiation of station {station} ")]
            if not told:
                continue
            series = [one.station for one in radiation.series].index(station)
            size = int((radiation.index == series).sum())
            right = f'"{station}" = {-wrong.get(station, 0.0):g} ' in told[0]
            event[1] += right
            counted[0] += size
            counted[1] += size * right

    def rows(self) -> list[dict[str, Any]]:
        found = []
        for kind in ("spike", "impossible", "stuck", "timezone", "drift"):
            names = [name for (one, name) in {**self._events, **self._readings} if one == kind]
            for name in dict.fromkeys(names):
                if (kind, name) in self._events or self._readings[kind, name][0]:
                    found.append(_row(kind, name, self._events.get((kind, name), [0, 0]), self._readings[kind, name]))
            total = [[sum(c[i] for (one, _), c in counts.items() if one == kind) for i in (0, 1)]
                     for counts in (self._events, self._readings)]  # fmt: skip
            found.append(_row(kind, "all", *total))
        events = [sum(c[i] for (one, _), c in self._events.items() if one != "drift") for i in (0, 1)]
        found.append(_row("all but drift", "all", events, self._all))
        return found


def _row(kind: str, variable: str, events: list[int], readings: list[int]) -> dict[str, Any]:
    return {
        "fault": kind,
        "variable": variable,
        "planted": events[0],
        "found": events[1],
        "recall": events[1] / events[0] if events[0] else None,
        "readings_found": readings[0],
        "rightly": readings[1],
        "precision": readings[1] / readings[0] if readings[0] else None,
    }


def _rows(readings: Readings, series: int, fault: Mapping[str, str]) -> NDArray[np.intp]:
    """Return the readings with a value that a fault concerns."""
    start, stop = np.searchsorted(readings.index, [series, series + 1])
    stamps = readings.time_ns[start:stop]
    first, last = np.searchsorted(stamps, [parse_instant(fault["start"]), parse_instant(fault["end"])])
    rows = np.arange(start + first, start + last)
    return rows[readings.flag[rows] != MISSING]


def _false_alarms() -> dict[str, Any]:
    parts: dict[str, list[tuple[Series, NDArray[np.int64], NDArray[np.float64]]]] = {}
    stations: dict[str, Station] = {}
    months = 0.0
    for path in sorted(IMIS.glob("*.smet")):
        station, stamps, columns = read_smet(path)
        stations[station.id] = station
        months += float(np.ptp(stamps)) / MONTH_NS if columns else 0.0
        for name, values in columns.items():
            parts.setdefault(name, []).append((Series(name, station.id), stamps, values))
    readings = {name: _together(listed) for name, listed in parts.items()}
    rows = []
    for name, given in readings.items():
        judged = judge_by_all(given, default_tests(KNOWN_VARIABLES[name]), places_of(given.series, stations), readings)
        for bit, test in enumerate(TESTS):
            count = int(((judged.tests >> np.uint16(bit)) & np.uint16(1) > 0).sum())
            if count:
                rows.append(_alarm(name, test, len(given), count, months))
        rows.append(_alarm(name, "all", len(given), _bad(judged), months))
    total = sum(row["flagged"] for row in rows if row["test"] == "all")
    rows.append(_alarm("all", "all", sum(map(len, readings.values())), total, months))
    return {"stations": len(stations), "station_months": months, "rows": rows}


def _bad(judged: FlagResult) -> int:
    return int(((judged.flag == SUSPECT) | (judged.flag == FAIL)).sum())


def _alarm(variable: str, test: str, readings: int, count: int, months: float) -> dict[str, Any]:
    each = count / months
    return {
        "variable": variable, "test": test, "readings": readings, "flagged": count, "flagged_a_station-month": each,
    }  # fmt: skip


def read_smet(
    path: Path, known: Mapping[str, tuple[str, float, float]] = SMET_COLUMNS
) -> tuple[Station, NDArray[np.int64], dict[str, NDArray[np.float64]]]:
    """Return station, stamps [ns since 1970 UTC] and values by variable of a file of SMET 1.1 in ASCII."""
    head, _, body = path.read_text().partition("[DATA]")
    told = {
        key.strip(): value.strip() for key, _, value in (line.partition("=") for line in head.splitlines()) if value
    }
    names = told["fields"].split()
    rows = [line.split() for line in body.splitlines() if line.strip()]
    zone_ns = round(float(told["tz"]) * 3600) * 10**9
    stamps = np.array([row[0] for row in rows], "datetime64[ns]").astype(np.int64) - zone_ns
    factors = [float(text) for text in told.get("units_multiplier", "1 " * len(names)).split()]
    columns = {}
    for place, name in enumerate(names):
        if name in known:
            values = np.array([float(row[place]) for row in rows])
            values[values == float(told["nodata"])] = np.nan
            variable, factor, offset = known[name]
            columns[variable] = values * factors[place] * factor + offset
    position = Position(None, *(float(told[key]) for key in ("longitude", "latitude", "altitude")))
    return Station(told["station_id"], told["station_name"], (position,)), stamps, columns


def _together(parts: list[tuple[Series, NDArray[np.int64], NDArray[np.float64]]]) -> Readings:
    index = np.repeat(np.arange(len(parts), dtype=np.int32), [len(stamps) for _, stamps, _ in parts])
    stamps, values = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
    flag = np.where(np.isnan(values), MISSING, NOT_EVALUATED).astype(np.uint8)
    return Readings(tuple(part[0] for part in parts), index, stamps, values, flag, stamps).sort_rows()


def _speed(days: int, pairs: int, notify: Tell) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        archive, _, _ = _network(Path(folder), HELD_OUT[0], days)
        readings = {name: archive.read(name) for name in archive.variables}
        rows, spent, judged = [], 0.0, 0
        for done, (name, given) in enumerate(readings.items()):
            notify("speed", done / len(readings))
            tests, places = default_tests(archive.variable(name)), places_of(given.series, archive.stations)
            flag = np.where(np.isnan(given.value), MISSING, NOT_EVALUATED).astype(np.uint8)
            fresh = replace(given, flag=flag)
            best = min(_seconds(partial(judge_by_all, fresh, tests, places, readings)) for _ in range(pairs))
            rows.append(_pace(name, len(given), best))
            spent, judged = spent + best, judged + len(given)
        notify("speed", 1.0)
        return [*rows, _pace("all", judged, spent)]


def _pace(name: str, values: int, seconds: float) -> dict[str, Any]:
    return {"variable": name, "values": values, "million_values_a_second": values / seconds / 1e6}


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
