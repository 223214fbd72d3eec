"""Which readings are exported, how their columns are called, and the pieces in which they are read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.errors import InvalidQuery, NotFound
from hypergrid.flags import MEANINGS, TESTS
from hypergrid.store import Archive
from hypergrid.streams.elements import Readings, Series, Station
from hypergrid.times import Window
from hypergrid.units import Variable

READINGS_AT_ONCE: Final = 2_000_000
"""Readings that a piece holds at most, as far as stations report regularly: some 100 MB."""
_CHUNK_SLICES: Final = 2048


@dataclass(frozen=True)
class Selection:
    """What is wanted of an archive; what is left empty is all."""

    variables: tuple[str, ...] = ()
    stations: tuple[str, ...] = ()
    window: Window | None = None
    flags: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not set(self.flags) <= set(MEANINGS):
            message = f"flags are those of QARTOD (1, 2, 3, 4, 9); got {', '.join(map(str, self.flags))}"
            raise InvalidQuery(message)


@dataclass(frozen=True)
class Kind:
    """Series of a variable that differ in nothing but their station."""

    label: str
    """Name of the column: the variable, and what else tells its series apart."""
    variable: Variable
    sample: Series
    """One of the series; the others differ in their station alone."""
    numbers: tuple[int, ...]
    """The series among those of the archive."""
    stations: tuple[str, ...]
    """The station of each."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Readings of one kind, of one stretch of time, ordered by time, then station."""

    kind: Kind
    readings: Readings
    station: NDArray[np.int64]
    """Which of the kind's stations, shape (n,)."""


class Chosen:
    """The chosen readings of an archive.

    Raises
    ------
    NotFound
        There is no such variable or station, or no series of these.
    """

    def __init__(self, archive: Archive, selection: Selection) -> None:
        for kind, wanted, existing in (
            ("variable", selection.variables, archive.variables),
            ("station", selection.stations, archive.stations),
        ):
            for name in wanted:
                if name not in existing:
                    unknown = NotFound.among(kind, name, existing)
                    raise unknown
        self.archive, self.selection = archive, selection
        if not self.kinds:
            message = f"nothing to export: no series of {', '.join(selection.variables) or 'any variable'}" + (
                f" at {', '.join(selection.stations)}" if selection.stations else ""
            )
            raise NotFound(message)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of series, in the order of the archive's variables."""
        found: list[Kind] = []
        for name, variable in self.archive.variables.items():
            if not self.selection.variables or name in self.selection.variables:
                found += _kinds(variable, self.archive.series(name), set(self.selection.stations))
        return tuple(found)

    @property
    def stations(self) -> Mapping[str, Station]:
        """The stations of the chosen series, by id."""
        names = dict.fromkeys(station for kind in self.kinds for station in kind.stations)
        return {name: self.archive.stations[name] for name in names if name in self.archive.stations}

    def spans(self, kinds: tuple[Kind, ...]) -> list[Window]:
        """Return stretches of time that hold all readings of some kinds, in order, each few enough to be in memory."""
        width = max(len(self.archive.series(kind.variable.name)) for kind in kinds)
        most = max(1, READINGS_AT_ONCE // (_CHUNK_SLICES * width * len({kind.variable.name for kind in kinds})))
        edges = {
            edge
            for kind in kinds
            for window in self.archive.spans(kind.variable.name, most)
            for edge in (window.start_ns, window.stop_ns)
        }
        ordered = sorted(edges)
        windows = [Window(start, stop) for start, stop in zip(ordered[:-1], ordered[1:], strict=True)]
        if self.selection.window is None:
            return windows
        return [part for one in windows if (part := one.intersect(self.selection.window)) is not None]

    def read(self, variable: str, window: Window) -> Iterator[Piece]:
        """Yield the chosen readings of a variable in a window, a piece a kind."""
        mine = [kind for kind in self.kinds if kind.variable.name == variable]
        numbers = np.array([number for kind in mine for number in kind.numbers], np.intp)
        found = self.archive.read(variable, window=window, series=numbers, tests=True)
        if self.selection.flags:
            found = found.take(np.isin(found.flag, self.selection.flags))
        for kind in mine:
            place = np.full(len(found.series), -1, np.int64)
            place[list(kind.numbers)] = np.arange(len(kind.numbers))
            own = found if len(mine) == 1 else found.take(place[found.index] >= 0)
            own = own.take(np.lexsort((own.index, own.time_ns)))
            if len(own):
                yield Piece(kind, own, place[own.index])


def _kinds(variable: Variable, series: tuple[Series, ...], stations: set[str]) -> list[Kind]:
    grouped: dict[Series, list[int]] = {}
    for number, one in enumerate(series):
        if not stations or one.station in stations:
            grouped.setdefault(replace(one, station="", source=""), []).append(number)
    kinds = []
    for key, members in grouped.items():
        words = _words(key, list(grouped))
        # Feeds that measured the same at one station: told apart by where they came from.
        sources: dict[str, list[int]] = {}
        twice = len({series[number].station for number in members}) < len(members)
        for number in members:
            sources.setdefault(series[number].source if twice else "", []).append(number)
        for source, numbers in sources.items():
            label = " ".join([variable.name, *words, *([f"({source})"] if twice else [])])
            names = tuple(series[number].station for number in numbers)
            kinds.append(Kind(label, variable, series[numbers[0]], tuple(numbers), names))
    return kinds


def _words(one: Series, among: list[Series]) -> list[str]:
    """Return what tells series apart from others of their variable."""
    words = []
    for name, form in (
        ("height_m", "{:g}m"), ("replicate", "#{}"), ("statistic", "{}"), ("interval_s", "{:g}s"), ("stamp", "at_{}"),
    ):  # fmt: skip
        value = getattr(one, name)
        if len({getattr(other, name) for other in among}) > 1 and value is not None:
            words.append(form.format(value))
    return words


def tests_in_words(bits: int) -> str:
    """Return the names of the tests that a bit each stands for, apart by a blank."""
    return " ".join(name for place, name in enumerate(TESTS) if bits >> place & 1)
