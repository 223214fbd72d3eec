"""Cells that come again: each hour of the day, each month of the year. One cell is many disjoint blocks of time."""

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import DAY_NS, SECOND_NS
from hypergrid.topology.civil import Calendar, LocalClock, Unit

Integers = NDArray[np.int64]

_BEFORE_MONTH: Final = np.array([0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335])
"""Days before each month of a leap year."""


@dataclass(frozen=True)
class Cycle:
    """A rule by which cells come again."""

    token_name: ClassVar[str] = "Cycle"

    name: str
    """Dimension of the result: hour_of_day, ….."""
    calendar: Calendar
    """What is cut into blocks."""
    count: int
    """How many cells come before the first comes again."""
    first: int = 0
    """Coordinate of the first cell."""
    turn: int = 0
    """Added to a unit's number so that the first cell is 0."""
    within: Literal["days", "years"] | None = None
    """Through what it comes again, where CF has a word for it (section 7.4)."""
    meanings: tuple[str, ...] = ()
    """Names of the cells, where they have some."""

    def cells_of(self, number: Integers) -> NDArray[np.intp]:
        """Return in which cell the units of the calendar lie, counted from 0, shape as given."""
        if self.name != DAY_OF_YEAR.name:
            return np.asarray((number + self.turn) % self.count, dtype=np.intp)
        day = number.astype("datetime64[D]")
        month = day.astype("datetime64[M]")
        within = (day - month.astype("datetime64[D]")).astype(np.int64)
        return np.asarray(_BEFORE_MONTH[month.astype(np.int64) % 12] + within, dtype=np.intp)

    def with_clock(self, clock: LocalClock) -> "Cycle":
        """Return the same by another clock."""
        return replace(self, calendar=replace(self.calendar, clock=clock))


_DAYS = Calendar("day", Unit(DAY_NS))
HOUR_OF_DAY: Final = Cycle("hour_of_day", Calendar("hour", Unit(3_600 * SECOND_NS)), 24, within="days")
DAY_OF_WEEK: Final = Cycle(
    "day_of_week", _DAYS, 7, first=1, turn=3,
    meanings=("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
)  # fmt: skip
"""Monday is 1 (ISO 8601); 1970-01-01 was a Thursday."""
DAY_OF_YEAR: Final = Cycle("day_of_year", _DAYS, 366, first=1, within="years")
"""Days as a leap year counts them: 29 February is 60, and 1 March is 61 in every year."""
MONTH_OF_YEAR: Final = Cycle("month_of_year", Calendar("month", Unit(months=1)), 12, first=1, within="years")
SEASON_OF_YEAR: Final = Cycle(
    "season_of_year", Calendar("season", Unit(months=3, first_month=12)), 4, first=1, within="years",
    meanings=("DJF", "MAM", "JJA", "SON"),
)  # fmt: skip

CYCLES: Final = {cycle.name: cycle for cycle in (HOUR_OF_DAY, DAY_OF_WEEK, DAY_OF_YEAR, MONTH_OF_YEAR, SEASON_OF_YEAR)}
"""Cycles by name."""


@dataclass(frozen=True, eq=False)
class Periodic:
    """Cells of a cycle over a window of time: all of its cells, also those that the window does not reach."""

    token_name: ClassVar[str] = "Periodic"

    cycle: Cycle
    cells: NDArray[np.intp]
    """Which cells of the cycle these are, in increasing order, shape (count,)."""
    starts: Integers
    """Where blocks begin [ns since 1970 UTC], in order and disjoint, shape (blocks,)."""
    ends: Integers
    """Where they end [ns since 1970 UTC], shape (blocks,)."""
    owners: NDArray[np.intp]
    """To which of `cells` each block belongs, a position in it, shape (blocks,)."""
    start_ns: int
    """Begin of the window [ns since 1970 UTC]."""

    @property
    def name(self) -> str:
        """Dimension of the result."""
        return self.cycle.name

    @property
    def count(self) -> int:
        """How many cells."""
        return len(self.cells)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Coordinates of the cells as people count them, shape (count,)."""
        return self.cells.astype(np.int64) + self.cycle.first

    @property
    def corners(self) -> Integers:
        """Starts of the cells' first blocks [ns since 1970 UTC], the window's where there is none; shape (count,)."""
        corner_ns = np.full(self.count, self.start_ns, dtype=np.int64)
        corner_ns[self.owners[::-1]] = self.starts[::-1]
        return corner_ns

    @property
    def last_ends(self) -> Integers:
        """Ends of the cells' last blocks [ns since 1970 UTC], its start where there is none, shape (count,)."""
        ends = np.full(self.count, self.start_ns, dtype=np.int64)
        ends[self.owners] = self.ends
        return ends

    @property
    def origin(self) -> int:
        """Start of the first block [ns since 1970 UTC]."""
        return int(self.starts[0]) if len(self.starts) else self.start_ns

    @property
    def stop(self) -> int:
        """End of the last block [ns since 1970 UTC]."""
        return int(self.ends[-1]) if len(self.ends) else self.start_ns + 1

    def part(self, first: int, stop: int) -> "Periodic":
        """Return the cells first to stop (not included), with their blocks."""
        kept = (self.owners >= first) & (self.owners < stop)
        return replace(
            self, cells=self.cells[first:stop], starts=self.starts[kept], ends=self.ends[kept],
            owners=self.owners[kept] - first,
        )  # fmt: skip

    def describe(self) -> str:
        """Return what the cells are, for people."""
        return f"{self.name} ({self.cycle.calendar.clock.describe()})"


def periodic(cycle: Cycle, start: int, stop: int) -> Periodic:
    """Return the cells of a cycle over a window.

    Blocks at its edges are cut, so that counts of what is possible are those of the window.

    Parameters
    ----------
    cycle
        The rule.
    start, stop
        The window, half-open [ns since 1970 UTC].

    Raises
    ------
    InvalidQuery
        The window has too many blocks.
    """
    starts, ends, number = cycle.calendar.blocks(start, stop)
    owners = cycle.cells_of(number)
    # A change of the clock inside a cell cuts nothing: the hour that comes twice is one block of two hours.
    begins = np.ones(len(owners), dtype=bool)
    begins[1:] = (owners[1:] != owners[:-1]) | (starts[1:] != ends[:-1])
    closes = np.append(begins[1:], np.ones(1, dtype=bool))
    cells = np.arange(cycle.count, dtype=np.intp)
    return Periodic(cycle, cells, starts[begins], ends[closes], owners[begins], start)
