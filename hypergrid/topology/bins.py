"""Cells that are not all alike: along time months, seasons, civil days; along time and height, given edges."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import DAY_NS, format_instant
from hypergrid.topology.axes import LARGEST, PER_UNIT, Quantum
from hypergrid.topology.civil import Calendar


@dataclass(frozen=True, eq=False)
class Bins:
    """Cells with starts and ends of their own, in order; they touch, or leave gaps between them.

    Raises
    ------
    InvalidQuery
        No cell, a cell that does not end after its start, cells that overlap or are out of order, or corners beyond
        `LARGEST`.
    """

    token_name: ClassVar[str] = "Bins"

    name: str
    starts: NDArray[np.int64]
    """Corners [quantum; time since 1970 UTC], shape (count,)."""
    ends: NDArray[np.int64]
    """Ends [quantum; time since 1970 UTC], shape (count,)."""
    calendar: Calendar | None = None
    """What made the cells; None for given edges."""
    quantum: Quantum = "ns"

    def __post_init__(self) -> None:
        if not len(self.starts) or len(self.starts) != len(self.ends):
            message = (
                f"axis {self.name!r} needs cells with a start and an end each; got {len(self.starts)}, {len(self.ends)}"
            )
            raise InvalidQuery(message)
        wrong = np.flatnonzero((self.ends <= self.starts) | np.append(self.starts[1:] < self.ends[:-1], False))  # noqa: FBT003 - the last cell has no next
        if len(wrong):
            start, end = (self._format_edge(int(edge[wrong[0]])) for edge in (self.starts, self.ends))
            message = (
                f"axis {self.name!r} needs edges that increase; cell {wrong[0] + 1} runs from {start} to {end}, and "
                "does not end after its start or before the next begins; order the edges, and drop repeated ones"
            )
            raise InvalidQuery(message)
        if max(abs(self.origin), abs(self.stop)) >= LARGEST:
            nearer = "times nearer to 1970" if self.quantum == "ns" else "edges nearer to 0"
            message = f"axis {self.name!r} reaches beyond what can be counted; use {nearer}"
            raise InvalidQuery(message)

    def __eq__(self, other: object) -> bool:
        """Return whether cells are the same: by content, as of every axis."""
        return isinstance(other, Bins) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @cached_property
    def _content(self) -> tuple[object, ...]:
        return self.name, self.starts.tobytes(), self.ends.tobytes(), self.calendar, self.quantum

    def _format_edge(self, edge: int) -> str:
        return format_instant(edge) if self.quantum == "ns" else f"{edge / PER_UNIT[self.quantum]:g}"

    @property
    def count(self) -> int:
        """How many cells."""
        return len(self.starts)

    @property
    def corners(self) -> NDArray[np.int64]:
        """Lower corners [quantum; time since 1970 UTC], shape (count,)."""
        return self.starts

    @property
    def lengths(self) -> NDArray[np.int64]:
        """From each cell's corner to its end [quantum], shape (count,)."""
        return self.ends - self.starts

    @property
    def origin(self) -> int:
        """Corner of the first cell [quantum; time since 1970 UTC]."""
        return int(self.starts[0])

    @property
    def stop(self) -> int:
        """End of the last cell [quantum; time since 1970 UTC]."""
        return int(self.ends[-1])

    @property
    def centres(self) -> NDArray[np.float64]:
        """Cell centres in the user's unit (metre; ns for time), shape (count,)."""
        return np.asarray((self.starts + self.ends) / (2 * PER_UNIT[self.quantum]))

    @property
    def bounds(self) -> NDArray[np.float64]:
        """Lower and upper bounds in the user's unit, shape (count, 2)."""
        return np.stack([self.starts, self.ends], axis=1) / PER_UNIT[self.quantum]

    def part(self, first: int, stop: int) -> "Bins":
        """Return the cells first to stop (not included)."""
        return replace(self, starts=self.starts[first:stop], ends=self.ends[first:stop])

    def describe(self) -> str:
        """Return what the cells are, for people."""
        return self.calendar.describe() if self.calendar else "given edges"


def make_bins(calendar: Calendar, start: int, stop: int, *, name: str = "time") -> Bins:
    """Return the units of a calendar that lie over a source, whole.

    The first corner is the greatest not after the source's start, the last one is the last that lies within the source
    (design section 4). A unit begins when the clock first shows it: where a clock is put back over the beginning of a
    day, the day has begun; a day that the clock leaps over has no cell.

    Examples
    --------
    >>> from hypergrid.topology.civil import Unit
    >>> months = make_bins(Calendar("month", Unit(months=1)), 0, 40 * DAY_NS)
    >>> (months.lengths // DAY_NS).tolist()
    [31, 28]
    """
    margin = calendar.unit.longest_ns + 2 * DAY_NS
    starts, _, number = calendar.blocks(start - margin, stop + margin)
    number = np.maximum.accumulate(number)
    # What comes before the first change of number was cut, and does not count.
    edges = starts[1:][np.diff(number) > 0]
    first = int(np.searchsorted(edges, start, side="right")) - 1
    last = int(np.searchsorted(edges, stop, side="left"))
    return Bins(name, edges[first:last], edges[first + 1 : last + 1], calendar)


def civil_day_ns(axis: object) -> int:
    """Return the nominal length of the cells of an axis that are whole days by the clock of a zone [ns], else 0.

    A change of the clock makes one of them shorter and another longer.
    """
    calendar = axis.calendar if isinstance(axis, Bins) else None
    if calendar is None or calendar.clock.zone is None or calendar.unit.length_ns % DAY_NS:
        return 0
    return calendar.unit.length_ns
