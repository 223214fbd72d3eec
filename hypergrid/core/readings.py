"""Domain records: stations, series, and readings in columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import Window

Statistic = Literal["sample", "mean", "total", "max", "min"]
Stamp = Literal["instant", "start", "end"]


@dataclass(frozen=True)
class Position:
    """Position of a station from an instant on."""

    from_ns: int | None
    """First instant [ns since 1970 UTC]; None: always."""
    lon: float
    """Longitude [degree east], NaN if unknown."""
    lat: float
    """Latitude [degree north], NaN if unknown."""
    elevation_m: float
    """Elevation above sea level [m], NaN if unknown."""


@dataclass(frozen=True)
class Station:
    """A station and its positions: at least one, ordered by `from_ns`."""

    id: str
    name: str
    positions: tuple[Position, ...]

    @property
    def position(self) -> Position:
        """The latest position."""
        return self.positions[-1]


@dataclass(frozen=True, order=True)
class Series:
    """One sensor's output; the fields identify it among the series of its station."""

    token_name: ClassVar[str] = "Series"

    variable: str
    station: str
    height_m: float | None = None
    """Height above ground [m], negative for a depth; None if unknown."""
    replicate: int = 1
    statistic: Statistic = "sample"
    interval_s: float = 0.0
    """Nominal interval between readings [s]; 0 if unknown."""
    stamp: Stamp = "instant"
    """Meaning of a time stamp: an instant, or the start or end of the interval."""
    source: str = ""
    """Feed and column of origin."""


@dataclass(frozen=True, eq=False)
class Readings:
    """Readings of one variable, in columns of n rows.

    Times are the stamps of the station; `starts_ns` gives the start of each reading's interval.
    """

    series: tuple[Series, ...]
    """The series that `index` refers to."""
    index: NDArray[np.int32]
    """Index into `series`, shape (n,)."""
    time_ns: NDArray[np.int64]
    """Exact time stamp [ns since 1970 UTC], shape (n,)."""
    value: NDArray[np.float64]
    """Value [the variable's unit], NaN exactly where the flag is MISSING, shape (n,)."""
    flag: NDArray[np.uint8]
    """QARTOD flag, shape (n,)."""
    arrival_ns: NDArray[np.int64]
    """Arrival time [ns since 1970 UTC], shape (n,)."""
    tests: NDArray[np.uint16] | None = None
    """Tests that set the flag, one bit per test (`hypergrid.core.flags.TESTS`), shape (n,); None: no test, or not
    requested."""

    def __post_init__(self) -> None:
        sizes = {len(column) for column in self._columns}
        if len(sizes) != 1:
            raise ValueError(f"readings need columns of one length; got lengths {sorted(sizes)}")

    def __len__(self) -> int:
        return len(self.index)

    @property
    def nbytes(self) -> int:
        """Memory of the columns [bytes]."""
        return sum(column.nbytes for column in self._columns)

    def freeze(self) -> None:
        """Make the columns read-only."""
        for column in self._columns:
            column.setflags(write=False)

    @property
    def _columns(self) -> tuple[NDArray[Any], ...]:
        tests = () if self.tests is None else (self.tests,)
        return self.index, self.time_ns, self.value, self.flag, self.arrival_ns, *tests

    def take_rows(self, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> "Readings":
        return replace(
            self,
            index=self.index[rows],
            time_ns=self.time_ns[rows],
            value=self.value[rows],
            flag=self.flag[rows],
            arrival_ns=self.arrival_ns[rows],
            tests=None if self.tests is None else self.tests[rows],
        )

    def select_window(self, window: Window) -> "Readings":
        return self.take_rows(window.holds(self.time_ns))

    def sort_rows(self) -> "Readings":
        """Return the readings sorted by series, then time; equal times keep their order."""
        if _is_ordered(self.index, self.time_ns):
            return self
        return self.take_rows(np.lexsort((self.time_ns, self.index)))

    def mark_repeats(self) -> NDArray[np.bool_]:
        """Mark rows with the series and stamp of their predecessor, shape (n - 1,), or (0,).

        Entry i refers to row i + 1.
        """
        return np.asarray((self.index[1:] == self.index[:-1]) & (self.time_ns[1:] == self.time_ns[:-1]))

    def tests_or_none_set(self) -> NDArray[np.uint16]:
        """Return `tests`, or zeros if they are None, shape (n,)."""
        return np.zeros(len(self), np.uint16) if self.tests is None else self.tests

    def starts_ns(self) -> NDArray[np.int64]:
        """Return the start of each reading's interval [ns].

        It is the stamp, minus the interval if the stamp marks its end.

        Readings are assigned to cells by this time: a mean stamped 00:00 at its end belongs to the day before.
        """
        shift = np.array([round(s.interval_s * 1e9) if s.stamp == "end" else 0 for s in self.series] or [0], np.int64)
        return self.time_ns - shift[self.index] if shift.any() else self.time_ns

    @classmethod
    def empty(cls, series: Sequence[Series] = ()) -> "Readings":
        integers = np.empty(0, np.int64)
        return cls(tuple(series), np.empty(0, np.int32), integers, np.empty(0), np.empty(0, np.uint8), integers)


def _is_ordered(index: NDArray[np.int32], time_ns: NDArray[np.int64]) -> bool:
    later = index[1:] > index[:-1]
    return bool(np.all(later | ((index[1:] == index[:-1]) & (time_ns[1:] >= time_ns[:-1]))))


def equal_values(values: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Compare values elementwise; NaN equals NaN, shape (n,)."""
    return np.asarray((values == other) | (np.isnan(values) & np.isnan(other)))


def concatenate(parts: Sequence[Readings]) -> Readings:
    """Concatenate readings that share one tuple of series.

    Raises
    ------
    ValueError
        No part, or parts with different series.
    """
    if not parts or any(part.series != parts[0].series for part in parts):
        raise ValueError("readings can be joined only where they count the same series; got none, or different ones")
    tested = any(part.tests is not None for part in parts)
    return Readings(
        parts[0].series,
        np.concatenate([part.index for part in parts]),
        np.concatenate([part.time_ns for part in parts]),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.flag for part in parts]),
        np.concatenate([part.arrival_ns for part in parts]),
        np.concatenate([part.tests_or_none_set() for part in parts]) if tested else None,
    )


def renumber_series(readings: Readings, series: tuple[Series, ...]) -> Readings:
    """Re-index readings to a tuple of series that contains theirs; the rows keep their order."""
    numbers = {sensor_series: number for number, sensor_series in enumerate(series)}
    table = np.array([numbers[sensor_series] for sensor_series in readings.series] or [0], np.int32)
    return replace(readings, series=series, index=table[readings.index])


def share_series(*parts: Readings) -> list[Readings]:
    """Re-index readings to one tuple with the series of all parts; the rows keep their order."""
    series = tuple(dict.fromkeys(sensor_series for part in parts for sensor_series in part.series))
    return [renumber_series(part, series) for part in parts]


def has_version(there: Readings, wanted: Readings) -> NDArray[np.bool_]:
    """Mark the wanted readings that exist with equal series, stamp and value, shape (e,).

    Both arguments must have the same tuple of series.
    """
    return np.isin(_make_versions(wanted), _make_versions(there))


def _make_versions(readings: Readings) -> NDArray[np.void]:
    """Return series, stamps and values as comparable items; NaN equals NaN."""
    items = np.empty(len(readings), [("index", np.int64), ("time_ns", np.int64), ("value", np.int64)])
    items["index"], items["time_ns"] = readings.index, readings.time_ns
    # Items are compared by their bits: NaN needs one pattern, and adding 0.0 turns -0.0 into 0.0.
    items["value"] = np.where(np.isnan(readings.value), np.nan, readings.value + 0.0).view(np.int64)
    return items
