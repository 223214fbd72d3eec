"""Periodic time cells, such as hours of the day, each of many disjoint blocks."""

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import DAY_NS, SECOND_NS
from hypergrid.topology.civil import Calendar, LocalClock, Unit

Integers = NDArray[np.int64]

_BEFORE_MONTH: Final = np.array([0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335])
"""Days before each month in a leap year."""


@dataclass(frozen=True)
class Cycle:
    """Rule of a periodic axis."""

    token_name: ClassVar[str] = "Cycle"

    name: str
    """Dimension of the result, such as hour_of_day."""
    calendar: Calendar
    """Calendar that cuts time into blocks."""
    count: int
    """Cells per period."""
    first: int = 0
    """Coordinate of the first cell."""
    turn: int = 0
    """Added to a calendar unit's number so that the first cell is 0."""
    within: Literal["days", "years"] | None = None
    """Period in the CF notation of climatologies (section 7.4), if it has one."""
    meanings: tuple[str, ...] = ()
    """Cell names; empty if they have none."""

    def cells_of(self, number: Integers) -> NDArray[np.intp]:
        """Return the cell (from 0) of calendar units, shape as given."""
        if self.name != DAY_OF_YEAR.name:
            return np.asarray((number + self.turn) % self.count, dtype=np.intp)
        day = number.astype("datetime64[D]")
        month = day.astype("datetime64[M]")
        within = (day - month.astype("datetime64[D]")).astype(np.int64)
        return np.asarray(_BEFORE_MONTH[month.astype(np.int64) % 12] + within, dtype=np.intp)

    def with_clock(self, clock: LocalClock) -> "Cycle":
        return replace(self, calendar=replace(self.calendar, clock=clock))


_DAYS = Calendar("day", Unit(DAY_NS))
HOUR_OF_DAY: Final = Cycle("hour_of_day", Calendar("hour", Unit(3_600 * SECOND_NS)), 24, within="days")
DAY_OF_WEEK: Final = Cycle(
    "day_of_week", _DAYS, 7, first=1, turn=3,
    meanings=("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
)  # fmt: skip
"""Monday is 1 (ISO 8601); 1970-01-01 was a Thursday."""
DAY_OF_YEAR: Final = Cycle("day_of_year", _DAYS, 366, first=1, within="years")
"""Days as in a leap year: 29 February is 60, and 1 March is 61 in every year."""
MONTH_OF_YEAR: Final = Cycle("month_of_year", Calendar("month", Unit(months=1)), 12, first=1, within="years")
SEASON_OF_YEAR: Final = Cycle(
    "season_of_year", Calendar("season", Unit(months=3, first_month=12)), 4, first=1, within="years",
    meanings=("DJF", "MAM", "JJA", "SON"),
)  # fmt: skip

CYCLES: Final = {cycle.name: cycle for cycle in (HOUR_OF_DAY, DAY_OF_WEEK, DAY_OF_YEAR, MONTH_OF_YEAR, SEASON_OF_YEAR)}


@dataclass(frozen=True, eq=False)
class Periodic:
    """All cells of a cycle over a time window, including cells without a block."""

    token_name: ClassVar[str] = "Periodic"

    cycle: Cycle
    cells: NDArray[np.intp]
    """Cells of the cycle, increasing, shape (count,)."""
    starts: Integers
    """Block starts [ns since 1970 UTC], in order and disjoint, shape (blocks,)."""
    ends: Integers
    """Block ends [ns since 1970 UTC], shape (blocks,)."""
    owners: NDArray[np.intp]
    """Index into `cells` of each block, shape (blocks,)."""
    start_ns: int
    """Start of the window [ns since 1970 UTC]."""

    @property
    def name(self) -> str:
        return self.cycle.name

    @property
    def count(self) -> int:
        return len(self.cells)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Cell coordinates by the cycle's numbering (January is 1), shape (count,)."""
        return self.cells.astype(np.int64) + self.cycle.first

    @property
    def corners(self) -> Integers:
        """Starts of the cells' first blocks [ns since 1970 UTC], shape (count,).

        Cells without a block have the start of the window.
        """
        corner_ns = np.full(self.count, self.start_ns, dtype=np.int64)
        # In reverse order, so that the first block of each cell is assigned last.
        corner_ns[self.owners[::-1]] = self.starts[::-1]
        return corner_ns

    @property
    def last_ends(self) -> Integers:
        """Ends of the cells' last blocks [ns since 1970 UTC], shape (count,).

        Cells without a block have the start of the window.
        """
        ends = np.full(self.count, self.start_ns, dtype=np.int64)
        # The last block of each cell is assigned last.
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
        """Return the cells from `first` up to, not including, `stop`, with their blocks."""
        kept = (self.owners >= first) & (self.owners < stop)
        return replace(
            self, cells=self.cells[first:stop], starts=self.starts[kept], ends=self.ends[kept],
            owners=self.owners[kept] - first,
        )  # fmt: skip

    def describe(self) -> str:
        return f"{self.name} ({self.cycle.calendar.clock.describe()})"


def periodic(cycle: Cycle, start: int, stop: int) -> Periodic:
    """Return the cells of a cycle over a window.

    Parameters
    ----------
    cycle
        Rule of the cells.
    start, stop
        Half-open window [ns since 1970 UTC]; blocks are cut at its edges.

    Raises
    ------
    InvalidQuery
        The window has too many blocks.
    """
    # Blocks are cut at the window so that the counts of possible readings are those of the window.
    starts, ends, number = cycle.calendar.blocks(start, stop)
    owners = cycle.cells_of(number)
    # A daylight-saving change inside a cell does not split it: the repeated hour is one block of two hours.
    begins = np.ones(len(owners), dtype=bool)
    begins[1:] = (owners[1:] != owners[:-1]) | (starts[1:] != ends[:-1])
    closes = np.append(begins[1:], np.ones(1, dtype=bool))
    cells = np.arange(cycle.count, dtype=np.intp)
    return Periodic(cycle, cells, starts[begins], ends[closes], owners[begins], start)
