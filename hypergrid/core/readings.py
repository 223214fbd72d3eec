"""Elements of streams: stations, series, and readings in columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import Window

Statistic = Literal["sample", "mean", "total", "max", "min"]
Stamp = Literal["instant", "start", "end"]


@dataclass(frozen=True)
class Position:
    """Where a station stood from an instant on."""

    from_ns: int | None
    """First instant [ns since 1970 UTC]; None: always."""
    lon: float
    """Longitude [degree east], NaN where it is not known."""
    lat: float
    """Latitude [degree north], NaN where it is not known."""
    elevation_m: float
    """Elevation above sea level [m], NaN where it is not known."""


@dataclass(frozen=True)
class Station:
    """A station, with where it stood: at least one position, ordered by `from_ns`."""

    id: str
    name: str
    positions: tuple[Position, ...]

    @property
    def position(self) -> Position:
        """The latest position."""
        return self.positions[-1]


@dataclass(frozen=True, order=True)
class Series:
    """One sensor's output; what tells two series of a station apart."""

    token_name: ClassVar[str] = "Series"

    variable: str
    station: str
    height_m: float | None = None
    """Height above ground [m], negative for a depth; None where it is not known."""
    replicate: int = 1
    statistic: Statistic = "sample"
    interval_s: float = 0.0
    """Nominal interval between readings [s]; 0 where it is not known."""
    stamp: Stamp = "instant"
    """What a time stamp marks: an instant, or the start or end of the interval."""
    source: str = ""
    """Feed and column that it came from."""


@dataclass(frozen=True, eq=False)
class Readings:
    """Readings of one variable, a column a property, n rows.

    Times are stamps as the station gave them; `starts_ns` tells where each reading's interval begins.
    """

    series: tuple[Series, ...]
    """The series that `index` counts."""
    index: NDArray[np.int32]
    """Which series, shape (n,)."""
    time_ns: NDArray[np.int64]
    """Exact time stamp [ns since 1970 UTC], shape (n,)."""
    value: NDArray[np.float64]
    """Value [the variable's unit], NaN exactly where the flag is MISSING, shape (n,)."""
    flag: NDArray[np.uint8]
    """QARTOD flag, shape (n,)."""
    arrival_ns: NDArray[np.int64]
    """When it arrived [ns since 1970 UTC], shape (n,)."""
    tests: NDArray[np.uint16] | None = None
    """Which tests set the flag, a bit a test (`hypergrid.core.flags.TESTS`), shape (n,); None: none did, or nobody
    asked."""

    def __post_init__(self) -> None:
        columns = (self.index, self.time_ns, self.value, self.flag, self.arrival_ns)
        sizes = {len(column) for column in columns} | ({len(self.tests)} if self.tests is not None else set())
        if len(sizes) != 1:
            message = f"readings need columns of one length; got lengths {sorted(sizes)}"
            raise ValueError(message)

    def __len__(self) -> int:
        return len(self.index)

    def take_rows(self, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> "Readings":
        """Return the chosen rows."""
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
        """Return those with stamps in a window."""
        return self.take_rows(window.holds(self.time_ns))

    def sort_rows(self) -> "Readings":
        """Return them ordered by series, then time; equal times keep their order."""
        if _is_ordered(self.index, self.time_ns):
            return self
        return self.take_rows(np.lexsort((self.time_ns, self.index)))

    def mark_repeats(self) -> NDArray[np.bool_]:
        """Return which but the first have series and stamp of the one before, shape (n - 1,), or (0,) of none."""
        same: NDArray[np.bool_] = (self.index[1:] == self.index[:-1]) & (self.time_ns[1:] == self.time_ns[:-1])
        return same

    def tests_or_none_set(self) -> NDArray[np.uint16]:
        """Return `tests`, and zeros where they are not known, shape (n,)."""
        return np.zeros(len(self), np.uint16) if self.tests is None else self.tests

    def starts_ns(self) -> NDArray[np.int64]:
        """Return where each reading's interval begins [ns]: its stamp, less the interval where the stamp marks its end.

        This is what assigns a reading to a cell: a mean stamped 00:00 at its end belongs to the day before.
        """
        shift = np.array([round(s.interval_s * 1e9) if s.stamp == "end" else 0 for s in self.series] or [0], np.int64)
        return self.time_ns - shift[self.index] if shift.any() else self.time_ns

    @classmethod
    def empty(cls, series: Sequence[Series] = ()) -> "Readings":
        """Return no readings of these series."""
        integers = np.empty(0, np.int64)
        return cls(tuple(series), np.empty(0, np.int32), integers, np.empty(0), np.empty(0, np.uint8), integers)


def _is_ordered(index: NDArray[np.int32], time_ns: NDArray[np.int64]) -> bool:
    later = index[1:] > index[:-1]
    return bool(np.all(later | ((index[1:] == index[:-1]) & (time_ns[1:] >= time_ns[:-1]))))


def equal_values(values: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return where values are alike, a missing value like any other, shape (n,)."""
    same: NDArray[np.bool_] = (values == other) | (np.isnan(values) & np.isnan(other))
    return same


def concatenate(parts: Sequence[Readings]) -> Readings:
    """Return the readings of all parts, which must count the same series.

    Raises
    ------
    ValueError
        No part, or parts that count different series.
    """
    if not parts or any(part.series != parts[0].series for part in parts):
        message = "readings can be joined only where they count the same series; got none, or different ones"
        raise ValueError(message)
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
    """Return readings that count other series, among which theirs are, in the order that they have."""
    numbers = {sensor_series: number for number, sensor_series in enumerate(series)}
    table = np.array([numbers[sensor_series] for sensor_series in readings.series] or [0], np.int32)
    return replace(readings, series=series, index=table[readings.index])


def has_version(there: Readings, wanted: Readings) -> NDArray[np.bool_]:
    """Return which wanted readings are there with their series, stamp and value, shape (e,); both count one tuple."""
    return np.isin(_make_versions(wanted), _make_versions(there))


def _make_versions(readings: Readings) -> NDArray[np.void]:
    """Return series, stamps and values as items that can be compared: one missing value is like any other."""
    items = np.empty(len(readings), [("index", np.int64), ("time_ns", np.int64), ("value", np.int64)])
    items["index"], items["time_ns"] = readings.index, readings.time_ns
    # Zero is minus zero, too.
    items["value"] = np.where(np.isnan(readings.value), np.nan, readings.value + 0.0).view(np.int64)
    return items
