"""Irregular cells: months, seasons and civil days along time; given edges along time and height."""

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
    """Ordered cells with individual starts and ends; they touch or leave gaps.

    Raises
    ------
    InvalidQuery
        No cells, a cell that does not end after its start, overlapping or unordered cells, or corners beyond
        `LARGEST`.
    """

    token_name: ClassVar[str] = "Bins"

    name: str
    starts: NDArray[np.int64]
    """Corners [quantum; time since 1970 UTC], shape (count,)."""
    ends: NDArray[np.int64]
    """Ends [quantum; time since 1970 UTC], shape (count,)."""
    calendar: Calendar | None = None
    """Calendar that produced the cells; None for given edges."""
    quantum: Quantum = "ns"

    def __post_init__(self) -> None:
        if not len(self.starts) or len(self.starts) != len(self.ends):
            raise InvalidQuery(
                f"axis {self.name!r} needs cells with a start and an end each; got {len(self.starts)}, {len(self.ends)}"
            )
        wrong = np.flatnonzero((self.ends <= self.starts) | np.append(self.starts[1:] < self.ends[:-1], False))  # noqa: FBT003 - the last cell has no next
        if len(wrong):
            start, end = (self._format_edge(int(edge[wrong[0]])) for edge in (self.starts, self.ends))
            raise InvalidQuery(
                f"axis {self.name!r} needs edges that increase; cell {wrong[0] + 1} runs from {start} to {end}, and "
                "does not end after its start or before the next begins; order the edges, and drop repeated ones"
            )
        if max(abs(self.origin), abs(self.stop)) >= LARGEST:
            nearer = "times nearer to 1970" if self.quantum == "ns" else "edges nearer to 0"
            raise InvalidQuery(f"axis {self.name!r} reaches beyond what can be counted; use {nearer}")

    # By content: axes are keys of caches, and dataclass equality fails on arrays.
    def __eq__(self, other: object) -> bool:
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
        return len(self.starts)

    @property
    def corners(self) -> NDArray[np.int64]:
        """Lower corners [quantum; time since 1970 UTC], shape (count,)."""
        return self.starts

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Cell lengths [quantum], shape (count,)."""
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
        return replace(self, starts=self.starts[first:stop], ends=self.ends[first:stop])

    def describe(self) -> str:
        return self.calendar.describe() if self.calendar else "given edges"


def make_bins(calendar: Calendar, start: int, stop: int, *, name: str = "time") -> Bins:
    """Return the calendar units that cover a source; edge units are not cut.

    The first corner is the last unit start at or before the start of the source, the last one the last unit start
    within the source (design section 4). A unit starts when the clock first shows it: if the clock is set back across
    midnight, the new day has already started; a day that the clock skips has no cell.

    Examples
    --------
    >>> from hypergrid.topology.civil import Unit
    >>> months = make_bins(Calendar("month", Unit(months=1)), 0, 40 * DAY_NS)
    >>> (months.lengths // DAY_NS).tolist()
    [31, 28]
    """
    # The margin contains the unit start before the source and the one after it.
    margin = calendar.unit.longest_ns + 2 * DAY_NS
    starts, _, number = calendar.blocks(start - margin, stop + margin)
    # If the clock is set back across a unit start, numbers fall again; the new unit has already started.
    number = np.maximum.accumulate(number)
    # Everything before the first change of number belongs to a unit that was cut at the margin.
    edges = starts[1:][np.diff(number) > 0]
    first = int(np.searchsorted(edges, start, side="right")) - 1
    last = int(np.searchsorted(edges, stop, side="left"))
    return Bins(name, edges[first:last], edges[first + 1 : last + 1], calendar)


def civil_day_ns(axis: object) -> int:
    """Return the nominal length [ns] of cells that are whole civil days, else 0.

    Only days by the clock of a zone count. A cell in which daylight-saving time starts or ends is shorter or longer.
    """
    calendar = axis.calendar if isinstance(axis, Bins) else None
    if calendar is None or calendar.clock.zone is None or calendar.unit.length_ns % DAY_NS:
        return 0
    return calendar.unit.length_ns
