"""Axes: the cells along one dimension, exact in integers of a quantum.

Time counts nanoseconds, longitude and latitude count 1e-6 arc-seconds, projected coordinates and heights count
millimetres, so that two axes agree on a corner without rounding. A cell is identified by its lower corner and is
half-open.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, TooLarge

Quantum = Literal["ns", "uas", "mm"]

PER_UNIT: Final[dict[str, int]] = {"ns": 1, "uas": 3_600_000_000, "mm": 1_000}
"""Quanta in one unit of the coordinate that a user sees: ns, degree, metre."""


LARGEST: Final = 2**62
"""Corners lie below this [quantum], so that they and their differences are whole numbers of 64 bits."""


MAX_LISTED: Final = 2**27
"""Cells of an axis that are listed: a gigabyte of corners. Four years of seconds, or 37 degrees of arc-milliseconds."""


@dataclass(frozen=True)
class Regular:
    """Cells at whole multiples of a step from an origin.

    `length > step` makes cells that overlap (sliding windows), `length < step` leaves gaps, equal ones touch.

    Raises
    ------
    InvalidQuery
        A step, length or count that is not above zero, or corners beyond `LARGEST`.
    """

    token_name: ClassVar[str] = "Regular"

    name: str
    """Dimension: time, lat, lon, y, x or z."""
    origin: int
    """Corner of the first cell [quantum]."""
    step: int
    """From corner to corner [quantum]."""
    count: int
    """How many cells."""
    length: int
    """From a cell's corner to its end [quantum]."""
    quantum: Quantum = "ns"

    def __post_init__(self) -> None:
        for what in ("step", "length", "count"):
            if getattr(self, what) <= 0:
                message = f"axis {self.name!r} needs a {what} above zero; got {getattr(self, what)}"
                raise InvalidQuery(message)
        if max(abs(self.origin), abs(self.stop), self.step, self.length) >= LARGEST:
            message = f"axis {self.name!r} reaches beyond what can be counted; use fewer or smaller cells nearer to 0"
            raise InvalidQuery(message)

    @property
    def corners(self) -> NDArray[np.int64]:
        """Lower corners [quantum], shape (count,).

        Raises
        ------
        TooLarge
            There are more than `MAX_LISTED`; whoever needs but some of them restricts the axis first.
        """
        if self.count > MAX_LISTED:
            label, remedy = f"axis {self.name!r}", "use longer steps, or a shorter extent"
            raise TooLarge(label, "cells", self.count, MAX_LISTED, remedy)
        return self.origin + self.step * np.arange(self.count, dtype=np.int64)

    @property
    def stop(self) -> int:
        """End of the last cell [quantum]."""
        return self.origin + self.step * (self.count - 1) + self.length

    @property
    def centres(self) -> NDArray[np.float64]:
        """Cell centres in the user's unit (degree or metre; ns for time), shape (count,)."""
        return (2 * self.corners + self.length) / (2 * PER_UNIT[self.quantum])

    @property
    def bounds(self) -> NDArray[np.float64]:
        """Lower and upper bounds in the user's unit, shape (count, 2)."""
        return np.stack([self.corners, self.corners + self.length], axis=1) / PER_UNIT[self.quantum]

    def part(self, first: int, stop: int) -> "Regular":
        """Return the axis of cells first to stop (not included)."""
        return replace(self, origin=self.origin + first * self.step, count=stop - first)


@dataclass(frozen=True, eq=False)
class Instants:
    """Cells that are instants, in increasing order: the time axis of readings that share a clock."""

    token_name: ClassVar[str] = "Instants"

    name: str
    times_ns: NDArray[np.int64]
    """Strictly increasing instants [ns since 1970 UTC], shape (count,)."""
    interval_ns: int = 0
    """How far apart they usually lie [ns]; 0 where they do not agree on it."""

    def __post_init__(self) -> None:
        if not len(self.times_ns) or np.any(np.diff(self.times_ns) <= 0):
            message = f"axis {self.name!r} needs instants in strictly increasing order; got unordered, repeated or none"
            raise InvalidQuery(message)

    @property
    def count(self) -> int:
        """How many instants."""
        return len(self.times_ns)

    @property
    def corners(self) -> NDArray[np.int64]:
        """The instants [ns since 1970 UTC], shape (count,)."""
        return self.times_ns

    @property
    def origin(self) -> int:
        """The first instant [ns since 1970 UTC]."""
        return int(self.times_ns[0])

    @property
    def stop(self) -> int:
        """One nanosecond after the last instant: the half-open end [ns since 1970 UTC]."""
        return int(self.times_ns[-1]) + 1

    def part(self, first: int, stop: int) -> "Instants":
        """Return the instants first to stop (not included)."""
        return Instants(self.name, self.times_ns[first:stop], self.interval_ns)


def align_axis(  # noqa: PLR0913 - two records would be no clearer
    name: str, source_start: int, source_stop: int, *, step: int, length: int, quantum: Quantum, offset: int = 0
) -> Regular:
    """Return the cells of a step and a length that lie over a source.

    Cells start at whole multiples of the step, an offset later. The first corner is the greatest of these not after the
    source's start, the last one is the last that lies within the source (design section 4).
    """
    first = (source_start - offset) // step
    last = (source_stop - offset - 1) // step
    return Regular(name, first * step + offset, step, last - first + 1, length, quantum)
