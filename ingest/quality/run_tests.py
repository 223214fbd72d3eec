"""All tests of a variable without a memory: flags by QARTOD's precedence, and failed tests. Pure.

Limits that depend on place and time are here: climatology by latitude and elevation, and limits by the sun.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import FAIL, GOOD, MEANINGS, MISSING, NOT_EVALUATED, SUSPECT, TESTS
from hypergrid.core.geodesy import RADIUS_M, places_m
from hypergrid.core.readings import Readings, Series
from hypergrid.physics.sun import LONGEST_STEP_S, MAX_STEPS, sun
from ingest.deployment.quality_settings import (
    SUN,
    VALUE,
    Bounds,
    Climatology,
    Exempt,
    FlatLine,
    GrossRange,
    Normal,
    SunLimit,
    VariableTests,
)
from ingest.quality import spatial, temporal
from ingest.quality.spatial import Places
from ingest.quality.temporal import HOUR_NS, Flags, Floats, Line, Sampling, bits_of

GAP_BIT: Final = bits_of("gap")
BY_NEIGHBOURS: Final = bits_of("buddy_check", "spatial_consistency")
WITH_MEMORY: Final = bits_of("level_shift", "faulty_zeros")
SERIES_TEST_BITS: Final = bits_of(*TESTS) & ~(GAP_BIT | BY_NEIGHBOURS | WITH_MEMORY)
"""Bits of bad source flags and tests along the series, which exclude from neighbour tests."""
OLDEST_HOURS: Final = 3.0
"""Maximum age of another variable's value in an exemption [h]."""
# Dawn and dusk do not reveal it; errors of hours are found by the zone guard.
CLOCK_NS: Final = 15 * 60 * 10**9
"""Clock error to allow for [ns]."""
UNKNOWN_ELEVATION_M: Final = 4000.0
"""Assumed maximum elevation of a station of unknown elevation [m]; only some dozens worldwide are higher."""

Companions = Mapping[str, Readings]
"""Readings of other variables, ordered by series, then time."""


@dataclass(frozen=True, eq=False)
class FlagResult:
    """Test results of n readings."""

    flag: Flags
    """QARTOD flags, shape (n,)."""
    tests: NDArray[np.uint16]
    """Tests that were suspect or failed, one bit each in the order of `TESTS`, shape (n,)."""


def judge(readings: Readings, tests: VariableTests, places: Places, companions: Companions) -> FlagResult:
    """Flag readings, which must be ordered by series, then time, with unique stamps.

    The flag is the worst of the tests: fail, else suspect, else good if any test could decide, else not evaluated
    (ioos_qc's precedence); missing values stay missing. Readings that a test flags are excluded from the following
    tests, so that a spike does not make its neighbours steps, nor a broken sensor its neighbours outliers. A suspect or
    fail flag from the source is kept.

    Parameters
    ----------
    places
        Places of `readings.series`.
    companions
        Readings of the variables in `tests.companions`, as far as available.
    """
    rows = np.flatnonzero(readings.flag != MISSING)
    line = Line(readings.index, readings.time_ns, readings.value, Sampling.of(readings.series))
    line = line if len(rows) == len(readings) else line.take(rows)
    docket = _FlagAccumulator(line)
    given = _given_flags(readings)
    if given is not None:
        for level in (SUSPECT, FAIL):
            flags = np.where(given[rows] == level, level, NOT_EVALUATED).astype(np.uint8)
            docket.add_remark(f"given_{MEANINGS[level]}", flags)
        docket.exclude(given[rows] >= SUSPECT)

    def flat_line(line: Line, settings: FlatLine) -> Flags:
        return temporal.flat_line(line, settings, Exemptions(line, settings.exempt, readings, places, companions))

    # In this order, each without the readings that failed before: a spike must not make its neighbours steps, nor a
    # broken sensor its neighbours outliers.
    docket.run("gross_range", temporal.gross_range, tests)
    if tests.gross_range and tests.gross_range.sun:
        docket.run("gross_range", partial(sun_limits, series=readings.series, places=places), tests)
    docket.run("climatology", partial(climatology, places=places), tests)
    docket.run("spike", temporal.spike, tests)
    docket.run("flat_line", flat_line, tests)
    docket.run("rate_of_change", temporal.rate_of_change, tests)
    docket.run("attenuated_signal", temporal.attenuated_signal, tests)
    docket.run("counter_fall", temporal.counter_fall, tests)
    docket.run_neighbour_tests(tests, places)
    if tests.gap:
        # A pause is counted for all readings, including those that failed.
        docket.add_remark("gap", temporal.gap(line, tests.gap))
    flag, bits = np.full(len(readings), MISSING, np.uint8), np.zeros(len(readings), np.uint16)
    flag[rows], bits[rows] = docket.flag, docket.tests
    return FlagResult(flag, bits)


def run_neighbour_tests(line: Line, tests: VariableTests, places: Places) -> FlagResult:
    """Run only the neighbour tests, on readings that passed all others.

    The results depend only on the readings of all series in one cell of `VariableTests.cell_ns`.
    """
    docket = _FlagAccumulator(line)
    docket.run_neighbour_tests(tests, places)
    return FlagResult(docket.flag, docket.tests)


def _given_flags(readings: Readings) -> NDArray[np.uint8] | None:
    """Return suspect and fail flags from the source, else 0; None if all are 0."""
    bad = (readings.flag == SUSPECT) | (readings.flag == FAIL)
    if not bad.any():
        return None
    tests = readings.tests_or_none_set()
    # A bad flag without a test bit is from the source; after the first run, its `given_` bit shows that.
    given = np.where(bad & (tests == 0), readings.flag, 0).astype(np.uint8)
    for level in (SUSPECT, FAIL):
        given[tests & bits_of(f"given_{MEANINGS[level]}") > 0] = level
    return given if given.any() else None


class _FlagAccumulator:
    """Flags so far, and the readings that passed."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.flag = np.full(len(line), NOT_EVALUATED, np.uint8)
        self.tests = np.zeros(len(line), np.uint16)
        self._rows: NDArray[np.intp] | None = None
        """Indices of `line` among all readings; None: they are the same."""

    def run(self, test: str, flags_of: Callable[[Line, Any], Flags], tests: VariableTests) -> None:
        if settings := getattr(tests, test):
            self.add(test, flags_of(self.line, settings))

    def run_neighbour_tests(self, tests: VariableTests, places: Places) -> None:
        self.run("buddy_check", partial(spatial.buddy_check, places=places), tests)
        self.run("spatial_consistency", partial(spatial.spatial_consistency, places=places), tests)

    def add(self, test: str, flags: Flags) -> None:
        """Set the flags of the readings of `line`; bad ones are removed from it."""
        bad = flags >= SUSPECT
        rows = self._rows
        if rows is None:
            np.copyto(self.flag, GOOD, where=flags == GOOD)
        else:
            self.flag[rows[flags == GOOD]] = GOOD
        if not bad.any():
            return
        at = np.flatnonzero(bad) if rows is None else rows[bad]
        self.flag[at] = flags[bad]
        self.tests[at] |= bits_of(test)
        self.exclude(bad)

    def exclude(self, bad: NDArray[np.bool_]) -> None:
        keep = np.flatnonzero(~bad)
        self._rows = keep if self._rows is None else self._rows[keep]
        self.line = self.line.take(keep)

    def add_remark(self, test: str, flags: Flags) -> None:
        """Set flags for all readings, including those that failed before."""
        bad = flags >= SUSPECT
        self.flag[bad] = np.maximum(self.flag[bad], flags[bad])
        self.flag[(flags == GOOD) & (self.flag == NOT_EVALUATED)] = GOOD
        self.tests[bad] |= bits_of(test)


class Exemptions:
    """Readings that are exempt by any of several conditions."""

    def __init__(
        self, line: Line, conditions: tuple[Exempt, ...], readings: Readings, places: Places, companions: Companions
    ) -> None:
        self._line, self._conditions, self._series = line, conditions, readings.series
        self._places, self._companions = places, companions

    def __call__(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which readings are exempt, shape (rows,)."""
        is_exempt = np.zeros(len(rows), np.bool_)
        for condition in self._conditions:
            if condition.of == SUN:
                value = self._sun(rows)
                is_exempt |= np.isnan(value)
            else:
                value = self._line.value[rows] if condition.of == VALUE else self._latest(condition.of, rows)
            is_exempt |= (value >= condition.least) & (value <= condition.most)
        return is_exempt

    def _sun(self, rows: NDArray[np.intp]) -> Floats:
        """Return the sun's elevation [degree], NaN if the position is unknown."""
        index = self._line.index[rows]
        sine, _ = _sine(self._line.time_ns[rows], self._places.lon[index], self._places.lat[index])
        return np.degrees(np.arcsin(np.clip(sine, -1.0, 1.0)))

    def _latest(self, variable: str, rows: NDArray[np.intp]) -> Floats:
        """Return the latest value of another variable at the station, NaN if older than `OLDEST_HOURS`."""
        value = np.full(len(rows), np.nan)
        others = self._companions.get(variable)
        if others is None or not len(others):
            return value
        usable = others.take_rows(others.flag != MISSING)
        first: dict[str, int] = {}
        for number in np.unique(usable.index).tolist():
            # Of several series at a station, the first one counts.
            first.setdefault(usable.series[number].station, number)
        index, stamps = self._line.index[rows], self._line.time_ns[rows]
        for number in np.unique(index).tolist():
            other = first.get(self._series[number].station)
            if other is None:
                continue
            start, stop = np.searchsorted(usable.index, [other, other + 1])
            indices = np.flatnonzero(index == number)
            at = start + np.searchsorted(usable.time_ns[start:stop], stamps[indices], side="right") - 1
            indices, at = indices[at >= start], at[at >= start]
            fresh = stamps[indices] - usable.time_ns[at] <= OLDEST_HOURS * HOUR_NS
            value[indices[fresh]] = usable.value[at[fresh]]
        return value


def climatology(line: Line, settings: Climatology, places: Places) -> Flags:
    """Flag values outside the normal range of their month and place; as ioos_qc, the last match counts.

    Parameters
    ----------
    places
        Of each series. If a height, latitude or elevation is unknown, only ranges that do not depend on it apply.
    """
    count = len(places.lat)
    known = np.zeros((12, count), np.bool_)
    bounds = {flag: (np.full((12, count), -np.inf), np.full((12, count), np.inf)) for flag in (SUSPECT, FAIL)}
    for normal in settings.normal:
        where = np.ix_(np.array(normal.months, np.intp) - 1, np.flatnonzero(_applies(normal, places)))
        known[where] = True
        for flag, span in ((SUSPECT, normal.suspect), (FAIL, normal.fail)):
            low, high = _bounds_at(normal, span, places.elevation_m)
            bounds[flag][0][where], bounds[flag][1][where] = low[where[1]], high[where[1]]
    month: NDArray[np.int64] | int = 0
    if any(len(normal.months) < 12 for normal in settings.normal):
        month = line.time_ns.astype("datetime64[ns]").astype("datetime64[M]").astype(np.int64) % 12
    flags = np.where(known[month, line.index], GOOD, NOT_EVALUATED).astype(np.uint8)
    for flag, (low, high) in bounds.items():
        flags[(line.value < low[month, line.index]) | (line.value > high[month, line.index])] = flag
    return flags


def _applies(normal: Normal, places: Places) -> NDArray[np.bool_]:
    """Return at which series a normal range applies, shape (series,)."""
    mask = np.ones(len(places.lat), np.bool_)
    for span, of in (
        (normal.height_m, places.height_m), (normal.lat, places.lat), (normal.elevation_m, places.elevation_m),
    ):  # fmt: skip
        if span is not None:
            mask &= (of >= span[0]) & (of <= span[1])
    if normal.scale_heights_m is not None:
        mask &= np.isfinite(places.elevation_m)
    return mask


def _bounds_at(normal: Normal, span: Bounds | None, elevation_m: Floats) -> tuple[Floats, Floats]:
    """Return the bounds at elevations [m], shape (series,) each; infinite without a span."""
    if span is None:
        return np.full(len(elevation_m), -np.inf), np.full(len(elevation_m), np.inf)
    low, high = span
    if normal.scale_heights_m is not None:
        return low * np.exp(-elevation_m / normal.scale_heights_m[0]), high * np.exp(
            -elevation_m / normal.scale_heights_m[1]
        )
    known = np.isfinite(elevation_m)
    below, above = min(0.0, normal.low_per_m * UNKNOWN_ELEVATION_M), max(0.0, normal.high_per_m * UNKNOWN_ELEVATION_M)
    return (
        low + np.where(known, normal.low_per_m * elevation_m, below),
        high + np.where(known, normal.high_per_m * elevation_m, above),
    )


def sun_limits(line: Line, settings: GrossRange, series: tuple[Series, ...], places: Places) -> Flags:
    """Flag radiation beyond what the sun allows; not evaluated if the position is unknown.

    An amount, whose bounds grow with its interval, is compared with the limit times its seconds.

    An instantaneous reading, or one of at most two hours, is compared with the highest limit of its interval and of
    `CLOCK_NS` before and after it; a longer one with the mean of the limits. For a sample, the nominal interval before
    and after it counts, up to an hour; the same holds for a mean whose stamp may mark its start or its end, because a
    file may not say which.
    """
    limits, known = settings.sun, np.isfinite(places.lon) & np.isfinite(places.lat)
    seconds = np.array(
        [sensor_series.interval_s if settings.interval_exponent > 0.0 else 1.0 for sensor_series in series]
    )
    known &= seconds > 0.0
    flags = np.where(known[line.index], GOOD, NOT_EVALUATED).astype(np.uint8)
    start_ns, stop_ns = _reach(series)
    # Values below the offset of every limit pass without computing the sun's position.
    low = min(limit.offset for limit in limits) * seconds
    rows = np.flatnonzero(known[line.index] & (line.value > low[line.index]))
    index = line.index[rows]
    value = line.value[rows] / seconds[index]
    length_ns = stop_ns - start_ns
    for number in np.unique(index[length_ns[index] > 2 * HOUR_NS]).tolist():
        chosen = np.flatnonzero(index == number)
        begin_ns, position = line.time_ns[rows[chosen]] + start_ns[number], (places.lon[[number]], places.lat[[number]])
        # A stamp that may mark either end leaves two possible intervals: the higher limit counts.
        halves = [begin_ns, begin_ns + length_ns[number] // 2] if start_ns[number] and stop_ns[number] else [begin_ns]
        mean = [_means(half, int(length_ns[number]) // len(halves), *position, limits) for half in halves]
        flags[rows[chosen]] = np.maximum(flags[rows[chosen]], _flag_beyond(value[chosen], np.max(mean, axis=0), limits))
    chosen = np.flatnonzero(length_ns[index] <= 2 * HOUR_NS)
    at, of = rows[chosen], index[chosen]
    begin_ns, end_ns = line.time_ns[at] + start_ns[of] - CLOCK_NS, line.time_ns[at] + stop_ns[of] + CLOCK_NS
    short_flags = _flag_short_means(value[chosen], begin_ns, end_ns, places.lon[of], places.lat[of], limits)
    flags[at] = np.maximum(flags[at], short_flags)
    return flags


def _reach(series: tuple[Series, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return start and stop of a reading's interval relative to its stamp [ns], shape (series,) each."""
    start, stop = np.zeros(len(series), np.int64), np.zeros(len(series), np.int64)
    for index, sensor_series in enumerate(series):
        length = round(sensor_series.interval_s * 1e9)
        if sensor_series.statistic == "sample":
            length = min(length, HOUR_NS)
        start[index] = 0 if sensor_series.stamp == "start" else -length
        stop[index] = 0 if sensor_series.stamp == "end" else length
    return start, stop


def _limit(limit: SunLimit, sine: Floats, irradiance: Floats) -> Floats:
    return np.asarray(limit.factor * irradiance * np.maximum(sine, 0.0) ** limit.power + limit.offset)


def _sine(stamps_ns: NDArray[np.int64], lon: Floats, lat: Floats) -> tuple[Floats, Floats]:
    """Return sine of the sun's elevation and irradiance outside the atmosphere, shape (n,) each."""
    now = sun(stamps_ns)
    return np.einsum("ij,ij->i", now.directions, places_m(lon, lat) / RADIUS_M), now.irradiance_w_m2


def _flag_beyond(value: Floats, highest: Floats, limits: tuple[SunLimit, ...]) -> Flags:
    """Return flags of values by `highest` limits, shape (limits, n)."""
    flags = np.full(len(value), GOOD, np.uint8)
    for limit, maximum in zip(limits, highest, strict=True):
        beyond = value > maximum
        flags[beyond] = np.maximum(flags[beyond], FAIL if limit.flag == "fail" else SUSPECT)
    return flags


def _flag_short_means(
    value: Floats,
    begin_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    lon: Floats,
    lat: Floats,
    limits: tuple[SunLimit, ...],
) -> Flags:
    """Return flags by the highest limit of each interval."""
    highest = np.zeros((len(limits), len(value)))
    # Most values are already below the limit at the middle, so only the others are compared with the ends.
    open_ = np.arange(len(value))
    for stamps_ns in (begin_ns + (end_ns - begin_ns) // 2, begin_ns, end_ns):
        sine, irradiance = _sine(stamps_ns[open_], lon[open_], lat[open_])
        for index, limit in enumerate(limits):
            highest[index, open_] = np.maximum(highest[index, open_], _limit(limit, sine, irradiance))
        open_ = open_[value[open_] > highest[:, open_].min(axis=0)]
    return _flag_beyond(value, highest, limits)


def _means(
    begin_ns: NDArray[np.int64], length_ns: int, lon: Floats, lat: Floats, limits: tuple[SunLimit, ...]
) -> Floats:
    """Return mean limits over intervals of equal length at one place, shape (limits, n)."""
    steps = int(np.clip(-(-length_ns // (LONGEST_STEP_S * 10**9)), 1, MAX_STEPS))
    means = np.zeros((len(limits), len(begin_ns)))
    for step in range(steps):
        stamps_ns = begin_ns + length_ns * (2 * step + 1) // (2 * steps)
        sine, irradiance = _sine(stamps_ns, np.repeat(lon, len(stamps_ns)), np.repeat(lat, len(stamps_ns)))
        for index, limit in enumerate(limits):
            means[index] += _limit(limit, sine, irradiance) / steps
    return means
