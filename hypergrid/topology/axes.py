"""Axes: the cells along one dimension, in exact integer quanta.

Time is in nanoseconds, longitude and latitude in 1e-6 arc-seconds, projected coordinates and heights in millimetres. A
cell is half-open and identified by its lower corner.
"""

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, TooLarge

# Integer quanta let two axes agree on a corner without rounding.
Quantum = Literal["ns", "uas", "mm"]

PER_UNIT: Final[dict[str, int]] = {"ns": 1, "uas": 3_600_000_000, "mm": 1_000}
"""Quanta per user-facing unit: ns, degree, metre."""


LARGEST: Final = 2**62
"""Exclusive upper bound of corners [quantum]; corners and their differences fit into int64."""


MAX_LISTED: Final = 2**27
"""Maximum number of cells to list, 1 GB of corners: four years of seconds, or 37 degrees of arc-milliseconds."""


@dataclass(frozen=True)
class Regular:
    """Cells at multiples of a step from an origin.

    `length > step` gives overlapping cells (sliding windows), `length < step` leaves gaps, equal values touch.

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
    """Distance between corners [quantum]."""
    count: int
    length: int
    """Cell length [quantum]."""
    quantum: Quantum = "ns"

    def __post_init__(self) -> None:
        for what in ("step", "length", "count"):
            if getattr(self, what) <= 0:
                raise InvalidQuery(f"axis {self.name!r} needs a {what} above zero; got {getattr(self, what)}")
        # Python integers do not overflow, unlike the int64 arrays made from them.
        if max(abs(self.origin), abs(self.stop), self.step, self.length) >= LARGEST:
            raise InvalidQuery(
                f"axis {self.name!r} reaches beyond what can be counted; use fewer or smaller cells nearer to 0"
            )

    @property
    def corners(self) -> NDArray[np.int64]:
        """Lower corners [quantum], shape (count,).

        Raises
        ------
        TooLarge
            There are more than `MAX_LISTED`; restrict the axis first.
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
        """Return the cells from `first` up to, not including, `stop`."""
        return replace(self, origin=self.origin + first * self.step, count=stop - first)

    def repeat_over(self, start: int, stop: int) -> "Regular":
        """Repeat the first cell step by step, forwards and backwards, over a source [quantum].

        The first corner is the last one at or before the start of the source; the last corner is the last one within
        the source, whose stop is exclusive (design section 4).
        """
        first, last = (start - self.origin) // self.step, (stop - self.origin - 1) // self.step
        return self.part(first, last + 1)


@dataclass(frozen=True, eq=False)
class Instants:
    """Increasing instants as cells: the time axis of readings with a common clock."""

    token_name: ClassVar[str] = "Instants"

    name: str
    times_ns: NDArray[np.int64]
    """Strictly increasing instants [ns since 1970 UTC], shape (count,)."""
    interval_ns: int = 0
    """Usual spacing [ns]; 0 if the spacings disagree."""

    def __post_init__(self) -> None:
        if not len(self.times_ns) or np.any(np.diff(self.times_ns) <= 0):
            raise InvalidQuery(
                f"axis {self.name!r} needs instants in strictly increasing order; got unordered, repeated or none"
            )

    @property
    def count(self) -> int:
        return len(self.times_ns)

    @property
    def corners(self) -> NDArray[np.int64]:
        """Instants [ns since 1970 UTC], shape (count,)."""
        return self.times_ns

    @property
    def origin(self) -> int:
        """First instant [ns since 1970 UTC]."""
        return int(self.times_ns[0])

    @property
    def stop(self) -> int:
        """Half-open end: one nanosecond after the last instant [ns since 1970 UTC]."""
        return int(self.times_ns[-1]) + 1

    def part(self, first: int, stop: int) -> "Instants":
        return Instants(self.name, self.times_ns[first:stop], self.interval_ns)


_SEXAGESIMAL = re.compile(r"([+-]?)([0-9]{1,3}):([0-9]{1,2})(?::([0-9]{1,2}(?:\.[0-9]+)?))?")
_LENGTH = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(arcsec|arcmin|deg|degree|degrees|m|km)?")
_UNIT_QUANTA = {"arcsec": 1_000_000, "arcmin": 60_000_000, "deg": 3_600_000_000, "m": 1_000, "km": 1_000_000}


def is_count(value: object) -> bool:
    """Return whether a value is a positive integer (bool excluded)."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) > 0


def axis_of(name: str, value: object, count: int | None, step: int, quantum: Quantum) -> Regular:
    """Return touching cells from a start to a stop, or `count` cells from a start.

    Raises
    ------
    InvalidQuery
        An unreadable coordinate, a stop that is not after the start, or neither a stop nor a count.
    """
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise InvalidQuery(f"{name} needs a start and a stop; got {value!r}")
        start, stop = (quanta(item, quantum, name) for item in value)
        if stop <= start:
            raise InvalidQuery(f"{name} needs a stop after its start; got {value!r}")
        # Rounded up: the last cell may extend beyond the stop.
        whole = -(-(stop - start) // step)
        if count is not None and count != whole:
            raise InvalidQuery(
                f"{name} from {value[0]} to {value[1]} holds {whole} cells, but shape says {count}; give one of them"
            )
        return Regular(name, start, step, whole, step, quantum)
    if count is None:
        raise InvalidQuery(
            f"{name} needs (start, stop), or a start together with shape=(rows, columns); got {value!r} alone"
        )
    return Regular(name, quanta(value, quantum, name), step, int(count), step, quantum)


def quanta(value: object, quantum: Quantum, what: str) -> int:
    """Return a coordinate or length in whole quanta, rounded once."""
    try:
        if isinstance(value, str):
            return _parse_quanta(value.strip(), quantum, what)
        if isinstance(value, int | float | np.number) and not isinstance(value, bool):
            # Decimal, because a product of binary floats would be rounded twice.
            return _require_whole(Decimal(repr(float(value))) * PER_UNIT[quantum])
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, InvalidQuery):
            raise
    unit = "degrees or 'd:mm:ss' text" if quantum == "uas" else "metres"
    raise InvalidQuery(f"{what} needs {unit}; got {value!r}")


def _parse_quanta(text: str, quantum: Quantum, what: str) -> int:
    degrees = _SEXAGESIMAL.fullmatch(text)
    if degrees and quantum == "uas":
        sign, whole, minutes, seconds = degrees.groups()
        if int(minutes) >= 60 or Decimal(seconds or "0") >= 60:
            raise ValueError(text)
        total = (int(whole) * 3600 + int(minutes) * 60) * 1_000_000 + round(Decimal(seconds or "0") * 1_000_000)
        # The sign applies to the whole coordinate: "-0:30:00" is negative.
        return -total if sign == "-" else total
    plain = _LENGTH.fullmatch(text)
    if plain is None:
        raise ValueError(text)
    unit = (plain[2] or ("deg" if quantum == "uas" else "m")).replace("degrees", "deg").replace("degree", "deg")
    if (unit in ("m", "km")) != (quantum == "mm"):
        raise InvalidQuery(f"{what} needs {'degrees' if quantum == 'uas' else 'metres'} on this grid; got {text!r}")
    return _require_whole(Decimal(plain[1]) * _UNIT_QUANTA[unit])


def _require_whole(exact: Decimal) -> int:
    if not abs(exact) < LARGEST:
        # Check before rounding: the integer of "1e99999999" has 100 million digits.
        raise ValueError(exact)
    return round(exact)


AGREEMENT: Final = 0.1
"""Tolerance of a spacing around the median, as a share of it."""
AGREEING: Final = 0.9
"""Share of spacings that must agree for the median to count as the interval."""


def usual_spacing_ns(times_ns: NDArray[np.int64], *, minimum: int = 2) -> int:
    """Return the median spacing of instants [ns], 0 if too few spacings agree with it.

    At least 90 % must agree within 10 %.

    Parameters
    ----------
    times_ns
        Increasing instants [ns since 1970 UTC].
    minimum
        Minimum number of spacings to infer from; a single one always agrees with itself.

    Examples
    --------
    >>> usual_spacing_ns(np.array([0, 600, 1200, 1801, 9000]), minimum=2), usual_spacing_ns(np.array([0, 600]))
    (0, 0)
    >>> usual_spacing_ns(np.array([0, 600, 1200, 1801]))
    600
    """
    spacing = np.diff(times_ns)
    if len(spacing) < minimum:
        return 0
    # Each station of an array asks: the two in the middle are found in a third of the time of `np.median`.
    middle = len(spacing) // 2
    ordered = np.partition(spacing, (middle - 1, middle))
    median = int(ordered[middle]) if len(spacing) % 2 else round((int(ordered[middle - 1]) + int(ordered[middle])) / 2)
    agrees = np.abs(spacing - median) <= AGREEMENT * median
    return median if np.count_nonzero(agrees) >= AGREEING * len(spacing) else 0
