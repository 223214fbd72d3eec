"""Test results, counted by station and variable."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import FAIL, MEANINGS, SUSPECT, TESTS
from hypergrid.core.readings import Series

GAPS = "gaps"
"""Pauses longer than the gap test allows, per series."""
ISOLATED = "isolated"
"""Readings without neighbour tests because of too few nearby stations."""
NO_POSITION, NO_ELEVATION = "no_position", "no_elevation"
"""Readings without neighbour tests because of an unknown position or elevation."""
SKIPPED = (ISOLATED, NO_POSITION, NO_ELEVATION)


class Summary:
    """Counts of flags and of the tests that set them, by station and variable."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[str]] = {}

    @classmethod
    def of(cls, parts: Iterable["Summary"]) -> "Summary":
        """Merge several summaries, which must not share a variable."""
        whole = cls()
        for part in parts:
            whole._counts |= part._counts
        return whole

    def add(
        self,
        series: tuple[Series, ...],
        index: NDArray[np.int32],
        flag: NDArray[np.uint8],
        tests: NDArray[np.uint16],
    ) -> None:
        """Count readings; arrays of shape (n,)."""
        # Flags are below 16, so that series and flag form one index.
        flags = np.bincount(index.astype(np.int64) * 16 + flag, minlength=16 * len(series)).reshape(-1, 16)
        bad = np.flatnonzero(tests)
        for number, sensor_series in enumerate(series):
            for value, word in MEANINGS.items():
                if flags[number, value]:
                    self._counter_of(sensor_series)[word] += int(flags[number, value])
        for bit, name in enumerate(TESTS):
            rows = bad[(tests[bad] >> np.uint16(bit)) & np.uint16(1) > 0]
            for number, count in zip(*np.unique(index[rows], return_counts=True), strict=True):
                self._counter_of(series[number])[name] += int(count)

    def add_to(self, what: str, series: tuple[Series, ...], index: NDArray[np.int32]) -> None:
        """Add one to a count for each index of a series."""
        counts = np.bincount(index, minlength=len(series))
        for number in np.flatnonzero(counts).tolist():
            self._counter_of(series[number])[what] += int(counts[number])

    def _counter_of(self, series: Series) -> Counter[str]:
        return self._counts.setdefault((series.station, series.variable), Counter())

    def count_skipped(self) -> dict[str, dict[str, int]]:
        """Return the number of stations that no neighbour test could evaluate, by variable and reason."""
        variable_counts: dict[str, Counter[str]] = {}
        for (_, variable), counts in self._counts.items():
            for reason in SKIPPED:
                if counts.get(reason):
                    variable_counts.setdefault(variable, Counter())[reason] += 1
        return {variable: dict(counts) for variable, counts in variable_counts.items()}

    def count_by_station(self) -> dict[str, dict[str, int]]:
        """Return the counts of each station over its variables: flags by their word, tests, gaps."""
        station_counts: dict[str, Counter[str]] = {}
        for (station, _), counts in self._counts.items():
            station_counts.setdefault(station, Counter()).update(counts)
        return {station: dict(counts) for station, counts in station_counts.items()}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the counts of each station and variable."""
        for (station, variable), counts in self._counts.items():
            yield {"station": station, "variable": variable, **counts}


COLUMNS = ("station", "readings", "suspect", "fail", "found by")


def table_of(by_station: Mapping[str, Mapping[str, int]], *, maximum: int = 20) -> list[tuple[str, int, int, int, str]]:
    """Return table rows, most doubtful stations first: station, readings, suspect, fail, tests that flagged them."""
    suspect, fail = MEANINGS[SUSPECT], MEANINGS[FAIL]
    doubtful = {s: c for s, c in by_station.items() if c.get(suspect, 0) + c.get(fail, 0) + c.get(GAPS, 0)}
    ranked = sorted(doubtful.items(), key=lambda item: -(item[1].get(suspect, 0) + item[1].get(fail, 0)))
    return [
        (
            station,
            sum(counts.get(word, 0) for word in MEANINGS.values()),
            counts.get(suspect, 0),
            counts.get(fail, 0),
            ", ".join(f"{name} {counts[name]:,}" for name in (*TESTS, GAPS, *SKIPPED) if counts.get(name)),
        )
        for station, counts in ranked[:maximum]
    ]
