"""All tests of a variable: flags by QARTOD's precedence, and failed tests. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import FAIL, GOOD, MEANINGS, MISSING, NOT_EVALUATED, SUSPECT, TESTS
from hypergrid.core.readings import Readings
from hypergrid.physics.sun import sun
from ingest.deployment.quality_settings import SUN, VALUE, Exempt, VariableTests
from ingest.quality import block_memory, limits, spatial, temporal
from ingest.quality.spatial import Places
from ingest.quality.temporal import HOUR_NS, Exemption, Flags, Floats, Line, Sampling


def bits_of(*names: str) -> np.uint16:
    """Return the bits of the given `TESTS`."""
    return np.uint16(sum(1 << TESTS.index(name) for name in names))


GAP_BIT: Final = bits_of("gap")
BY_NEIGHBOURS: Final = bits_of("buddy_check", "spatial_consistency")
WITH_MEMORY: Final = bits_of("level_shift", "faulty_zeros")
SERIES_TEST_BITS: Final = np.uint16(sum(1 << bit for bit in range(len(TESTS)))) & ~(
    GAP_BIT | BY_NEIGHBOURS | WITH_MEMORY
)
"""Bits of bad source flags and tests along the series, which exclude from neighbour tests."""
OLDEST_HOURS: Final = 3.0
"""Maximum age of another variable's value in an exemption [h]."""

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
    whole = len(rows) == len(readings)
    line = Line(readings.index, readings.time_ns, readings.value, Sampling.of(readings.series))
    docket = _FlagAccumulator(line if whole else line.take(rows))
    given = _given_flags(readings)
    if given is not None:
        for level in (SUSPECT, FAIL):
            flags = np.where(given[rows] == level, level, NOT_EVALUATED).astype(np.uint8)
            docket.add_remark(f"given_{MEANINGS[level]}", flags)
        docket.exclude(given[rows] >= SUSPECT)
    # In this order, each without the readings that failed before: a spike must not make its neighbours steps, nor a
    # broken sensor its neighbours outliers.
    if tests.gross_range:
        docket.add("gross_range", temporal.gross_range(docket.line, tests.gross_range))
        if tests.gross_range.sun:
            docket.add("gross_range", limits.sun_limits(docket.line, tests.gross_range, readings.series, places))
    if tests.climatology:
        docket.add("climatology", limits.climatology(docket.line, tests.climatology, places))
    if tests.spike:
        docket.add("spike", temporal.spike(docket.line, tests.spike))
    if tests.flat_line:
        exemption = Exemptions(docket.line, tests.flat_line.exempt, readings, places, companions)
        docket.add("flat_line", temporal.flat_line(docket.line, tests.flat_line, exemption))
    if tests.rate_of_change:
        docket.add("rate_of_change", temporal.rate_of_change(docket.line, tests.rate_of_change))
    if tests.attenuated_signal:
        docket.add("attenuated_signal", temporal.attenuated_signal(docket.line, tests.attenuated_signal))
    if tests.counter_fall:
        docket.add("counter_fall", temporal.counter_fall(docket.line, tests.counter_fall))
    _add_neighbour_flags(docket, tests, places)
    if tests.gap:
        # A pause is counted for all readings, including those that failed.
        docket.add_remark("gap", temporal.gap(line if whole else line.take(rows), tests.gap))
    if whole:
        judged = FlagResult(docket.flag, docket.tests)
    else:
        flag, bits = np.full(len(readings), MISSING, np.uint8), np.zeros(len(readings), np.uint16)
        flag[rows], bits[rows] = docket.flag, docket.tests
        judged = FlagResult(flag, bits)
    if tests.memory_days and len(rows):
        block_memory.mark_suspect(judged, readings, block_memory.evaluate_readings(readings, tests, places))
    return judged


def run_neighbour_tests(line: Line, tests: VariableTests, places: Places) -> FlagResult:
    """Run only the neighbour tests, on readings that passed all others.

    The results depend only on the readings of all series in one cell of `VariableTests.cell_ns`.
    """
    docket = _FlagAccumulator(line)
    _add_neighbour_flags(docket, tests, places)
    return FlagResult(docket.flag, docket.tests)


def _add_neighbour_flags(docket: "_FlagAccumulator", tests: VariableTests, places: Places) -> None:
    if tests.buddy_check:
        docket.add("buddy_check", spatial.buddy_check(docket.line, tests.buddy_check, places))
    if tests.spatial_consistency:
        flags = spatial.spatial_consistency(docket.line, tests.spatial_consistency, places)
        docket.add("spatial_consistency", flags)


def _given_flags(readings: Readings) -> NDArray[np.uint8] | None:
    """Return suspect and fail flags from the source, else 0; None if all are 0."""
    bad = (readings.flag == SUSPECT) | (readings.flag == FAIL)
    if not bad.any():
        return None
    tests = readings.tests_or_none_set()
    # A bad flag without a test bit is from the source; after the first run, its `given_` bit shows that.
    given = np.where(bad & (tests == 0), readings.flag, 0).astype(np.uint8)
    for level in (SUSPECT, FAIL):
        given[(tests >> np.uint16(TESTS.index(f"given_{MEANINGS[level]}"))) & np.uint16(1) > 0] = level
    return given if given.any() else None


class _FlagAccumulator:
    """Flags so far, and the readings that passed."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.flag = np.full(len(line), NOT_EVALUATED, np.uint8)
        self.tests = np.zeros(len(line), np.uint16)
        self._rows: NDArray[np.intp] | None = None
        """Indices of `line` among all readings; None: they are the same."""

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
        self.tests[at] |= np.uint16(1 << TESTS.index(test))
        self.exclude(bad)

    def exclude(self, bad: NDArray[np.bool_]) -> None:
        """Remove readings from `line`."""
        keep = np.flatnonzero(~bad)
        self._rows = keep if self._rows is None else self._rows[keep]
        self.line = self.line.take(keep)

    def add_remark(self, test: str, flags: Flags) -> None:
        """Set flags for all readings, including those that failed before."""
        bad = flags >= SUSPECT
        self.flag[bad] = np.maximum(self.flag[bad], flags[bad])
        self.flag[(flags == GOOD) & (self.flag == NOT_EVALUATED)] = GOOD
        self.tests[bad] |= np.uint16(1 << TESTS.index(test))


class Exemptions(Exemption):
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
        index, stamps = self._line.index[rows], self._line.time_ns[rows]
        east, north = np.radians(self._places.lon[index]), np.radians(self._places.lat[index])
        up = np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=1)
        return np.degrees(np.arcsin(np.clip(np.einsum("ij,ij->i", sun(stamps).directions, up), -1.0, 1.0)))

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
