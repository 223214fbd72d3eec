"""Selection of readings to export, their column names, and the pieces they are read in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.flags import MEANINGS, TESTS
from hypergrid.core.readings import Readings, Series, Station
from hypergrid.core.times import Window
from hypergrid.core.units import Variable

READINGS_AT_ONCE: Final = 2_000_000
"""Maximum number of readings in a piece (about 100 MB), if stations report regularly."""
_CHUNK_SLICES: Final = 2048


@dataclass(frozen=True)
class Selection:
    """Filter for readings of an archive; an empty field selects everything."""

    variables: tuple[str, ...] = ()
    stations: tuple[str, ...] = ()
    window: Window | None = None
    flags: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not set(self.flags) <= set(MEANINGS):
            raise InvalidQuery(f"flags are those of QARTOD (1, 2, 3, 4, 9); got {', '.join(map(str, self.flags))}")


@dataclass(frozen=True)
class SeriesKind:
    """Series of a variable that differ only in their station."""

    label: str
    """Column name: the variable, and the properties that distinguish its kinds."""
    variable: Variable
    sample: Series
    """One of the series; the others differ only in their station."""
    numbers: tuple[int, ...]
    """Indices of the series in the archive."""
    stations: tuple[str, ...]
    """Station of each series."""
    key: str = ""
    """Label among all series of the variable, without blanks; independent of the selection."""


@dataclass(frozen=True, eq=False)
class ReadingsPiece:
    """Readings of one kind in one time window, ordered by time, then station."""

    kind: SeriesKind
    readings: Readings
    station: NDArray[np.int64]
    """Index into the kind's stations, shape (n,)."""

    def intervals_ns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return start and end of each reading's interval [ns since 1970 UTC]; both the stamp for an instant."""
        time_ns, sample = self.readings.time_ns, self.kind.sample
        length_ns = 0 if sample.stamp == "instant" else round(sample.interval_s * 1e9)
        starts_ns = time_ns - length_ns if sample.stamp == "end" else time_ns
        return starts_ns, starts_ns + length_ns


class SelectedReadings:
    """The selected readings of an archive.

    Raises
    ------
    NotFound
        A variable or a station does not exist, or no series matches both.
    """

    def __init__(self, archive: Archive, selection: Selection) -> None:
        self.archive, self.selection = archive, selection
        # A kind's key (a variable with a height, a statistic …) is valid too, but takes longer to list.
        known = archive.variables if set(selection.variables) <= set(archive.variables) else self._known_names
        NotFound.refuse_unknown("variable", selection.variables, known)
        NotFound.refuse_unknown("station", selection.stations, archive.stations)
        if not self.kinds:
            raise NotFound(
                f"nothing to export: no series of {', '.join(selection.variables) or 'any variable'}"
                + (f" at {', '.join(selection.stations)}" if selection.stations else "")
            )

    @cached_property
    def kinds(self) -> tuple[SeriesKind, ...]:
        """Selected kinds of series, in the order of the archive's variables."""
        names, stations = self.selection.variables, set(self.selection.stations)
        result: list[SeriesKind] = []
        for name, variable in self.archive.variables.items():
            if not names or any(
                selected_name == name or selected_name.startswith(f"{name}_") for selected_name in names
            ):
                series = self.archive.list_series(name)
                keys = {number: key for key, kind in _list_keyed_kinds(variable, series) for number in kind.numbers}
                variable_kinds = _list_kinds(variable, series, stations)
                result += [replace(kind, key=keys[kind.numbers[0]]) for kind in variable_kinds]
        return tuple(kind for kind in result if not names or kind.variable.name in names or kind.key in names)

    @property
    def _known_names(self) -> list[str]:
        """Names of variables and keys of the kinds of their series."""
        variables = self.archive.variables
        keys = (
            key
            for variable in variables.values()
            for key, _ in _list_keyed_kinds(variable, self.archive.list_series(variable.name))
        )
        return list(dict.fromkeys([*variables, *keys]))

    @property
    def stations(self) -> Mapping[str, Station]:
        names = dict.fromkeys(station for kind in self.kinds for station in kind.stations)
        return {name: self.archive.stations[name] for name in names if name in self.archive.stations}

    def spans(self, kinds: tuple[SeriesKind, ...]) -> list[Window]:
        """Partition the time covered by some kinds into ordered windows that fit in memory."""
        width = max(len(self.archive.series(kind.variable.name)) for kind in kinds)
        max_chunks = max(1, READINGS_AT_ONCE // (_CHUNK_SLICES * width * len({kind.variable.name for kind in kinds})))
        edges = {
            edge
            for kind in kinds
            for window in self.archive.spans(kind.variable.name, max_chunks)
            for edge in (window.start_ns, window.stop_ns)
        }
        ordered = sorted(edges)
        windows = [Window(start, stop) for start, stop in zip(ordered[:-1], ordered[1:], strict=True)]
        if self.selection.window is None:
            return windows
        return [part for window in windows if (part := window.intersect(self.selection.window)) is not None]

    def read(self, variable: str, window: Window) -> Iterator[ReadingsPiece]:
        """Yield the selected readings of a variable in a window, one piece per kind."""
        variable_kinds = [kind for kind in self.kinds if kind.variable.name == variable]
        numbers = np.array([number for kind in variable_kinds for number in kind.numbers], np.intp)
        readings = self.archive.read(variable, window=window, series=numbers, tests=True)
        if self.selection.flags:
            readings = readings.take_rows(np.isin(readings.flag, self.selection.flags))
        for kind in variable_kinds:
            station_index = np.full(len(readings.series), -1, np.int64)
            station_index[list(kind.numbers)] = np.arange(len(kind.numbers))
            own = readings if len(variable_kinds) == 1 else readings.take_rows(station_index[readings.index] >= 0)
            own = own.take_rows(np.lexsort((own.index, own.time_ns)))
            if len(own):
                yield ReadingsPiece(kind, own, station_index[own.index])


def _list_keyed_kinds(variable: Variable, series: Mapping[int, Series]) -> list[tuple[str, SeriesKind]]:
    return [(kind.label.replace(" ", "_"), kind) for kind in _list_kinds(variable, series, set())]


def _list_kinds(variable: Variable, series: Mapping[int, Series], stations: set[str]) -> list[SeriesKind]:
    grouped: dict[Series, list[int]] = {}
    for number, series_item in series.items():
        if not stations or series_item.station in stations:
            grouped.setdefault(replace(series_item, station="", source=""), []).append(number)
    kinds = []
    for key, members in grouped.items():
        words = _distinguish_series(key, list(grouped))
        # Several feeds can measure the same quantity at one station; their source distinguishes them.
        sources: dict[str, list[int]] = {}
        twice = len({series[number].station for number in members}) < len(members)
        for number in members:
            sources.setdefault(series[number].source if twice else "", []).append(number)
        for source, numbers in sources.items():
            label = " ".join([variable.name, *words, *([f"({source})"] if twice else [])])
            names = tuple(series[number].station for number in numbers)
            kinds.append(SeriesKind(label, variable, series[numbers[0]], tuple(numbers), names))
    return kinds


def _distinguish_series(series: Series, among: list[Series]) -> list[str]:
    """Return the properties in which a series differs from others of its variable, as words."""
    words = []
    for name, form in (
        ("height_m", "{:g}m"), ("replicate", "#{}"), ("statistic", "{}"), ("interval_s", "{:g}s"), ("stamp", "at_{}"),
    ):  # fmt: skip
        value = getattr(series, name)
        if len({getattr(other, name) for other in among}) > 1 and value is not None:
            words.append(form.format(value))
    return words


def format_tests(bits: int) -> str:
    """Return the names of the tests in a bit mask, space-separated."""
    return " ".join(name for bit, name in enumerate(TESTS) if bits >> bit & 1)
