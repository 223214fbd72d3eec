"""Space as stations see it (a joint axis of points) and as surfaces see it (a grid), each in its own coordinates."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.errors import InvalidQuery
from hypergrid.streams.elements import Series
from hypergrid.tokens import token
from hypergrid.topology.axes import LARGEST, PER_UNIT, Quantum, Regular

System = Literal["lonlat", "metres"]

_SEXAGESIMAL = re.compile(r"([+-]?)([0-9]{1,3}):([0-9]{1,2})(?::([0-9]{1,2}(?:\.[0-9]+)?))?")
_LENGTH = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(arcsec|arcmin|deg|degree|degrees|m|km)?")
_UNIT_QUANTA = {"arcsec": 1_000_000, "arcmin": 60_000_000, "deg": 3_600_000_000, "m": 1_000, "km": 1_000_000}


@dataclass(frozen=True, eq=False)
class SeriesAxis:
    """The joint axis of stations: one cell a series, at its station's position."""

    series: tuple[Series, ...]
    x: NDArray[np.float64]
    """Longitude [degree] or projected x [m], NaN where unknown, shape (series,)."""
    y: NDArray[np.float64]
    """Latitude [degree] or projected y [m], NaN where unknown, shape (series,)."""
    elevation_m: NDArray[np.float64]
    system: System = "lonlat"
    moved: tuple[str, ...] = ()
    """Stations that moved during the time that is asked for."""

    @property
    def count(self) -> int:
        """How many series."""
        return len(self.series)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one slice."""
        return (len(self.series),)

    def token(self) -> str:
        """Content token."""
        return self._token

    @cached_property
    def _token(self) -> str:
        return token(self.series, self.x, self.y, self.elevation_m, self.system)


@dataclass(frozen=True)
class Grid:
    """Cells on two regular axes, rows first: cell `row * x.count + column`."""

    y: Regular
    """Rows: lat, or y [m]."""
    x: Regular
    """Columns: lon, or x [m]."""

    @property
    def system(self) -> System:
        """Coordinates: lonlat, or metres."""
        return "lonlat" if self.x.quantum == "uas" else "metres"

    @property
    def count(self) -> int:
        """How many cells."""
        return self.y.count * self.x.count

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return (self.y.count, self.x.count)

    def centres(self, cells: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return x and y of the centres of flat cells [degree or m], shape (cells, 2)."""
        rows, columns = np.divmod(cells, self.x.count)
        return np.stack([self.x.centres[columns], self.y.centres[rows]], axis=1)

    def token(self) -> str:
        """Content token."""
        return self._token

    @cached_property
    def _token(self) -> str:
        return token(self.y, self.x)


def grid(
    *,
    lon: object = None,
    lat: object = None,
    x: object = None,
    y: object = None,
    step: object,
    shape: Sequence[int] | None = None,
) -> Grid:
    """Describe a grid of cells.

    Parameters
    ----------
    lon, lat
        Start and stop, half-open, or the start alone together with `shape`: degrees, or "d:mm:ss" text.
    x, y
        The same in projected metres, in place of `lon` and `lat`.
    step
        Side of a cell: degrees (metres with `x` and `y`), or text such as "1arcsec", "0.5arcmin", "100m".
    shape
        Rows and columns.

    Raises
    ------
    InvalidQuery
        A coordinate that cannot be read, a step that is not above zero, a grid of no cells.

    Examples
    --------
    >>> grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23)).shape
    (23, 23)
    """
    geographic = lon is not None and lat is not None and x is None and y is None
    projected = x is not None and y is not None and lon is None and lat is None
    if not geographic and not projected:
        message = f"a grid needs lon and lat, or x and y; got lon={lon!r}, lat={lat!r}, x={x!r}, y={y!r}"
        raise InvalidQuery(message)
    quantum: Quantum = "uas" if geographic else "mm"
    step_quanta = quanta(step, quantum, "step")
    if step_quanta <= 0:
        message = f"a grid needs a step above zero; got {step!r}"
        raise InvalidQuery(message)
    if shape is not None and not (
        isinstance(shape, list | tuple) and len(shape) == 2 and all(_is_count(item) for item in shape)
    ):
        message = f"a grid's shape needs two whole numbers above zero, rows and columns; got {shape!r}"
        raise InvalidQuery(message)
    rows, columns = shape if shape is not None else (None, None)
    names = ("lat", "lon") if geographic else ("y", "x")
    made = Grid(
        _axis(names[0], lat if geographic else y, rows, step_quanta, quantum),
        _axis(names[1], lon if geographic else x, columns, step_quanta, quantum),
    )
    if geographic:
        _check_globe(made)
    return made


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) > 0


def _check_globe(made: Grid) -> None:
    limit = PER_UNIT["uas"]
    if not (-90 * limit <= made.y.origin and made.y.stop <= 90 * limit):
        got = f"{made.y.origin / limit} to {made.y.stop / limit}"
        message = f"a grid's latitudes must lie within -90 to 90 degrees; got {got}"
        raise InvalidQuery(message)
    if not (-180 * limit <= made.x.origin and made.x.stop <= 360 * limit):
        got = f"{made.x.origin / limit} to {made.x.stop / limit}"
        message = f"a grid's longitudes must lie within -180 to 360 degrees; got {got}"
        raise InvalidQuery(message)


def _axis(name: str, value: object, count: int | None, step: int, quantum: Quantum) -> Regular:
    if isinstance(value, list | tuple):
        if len(value) != 2:
            message = f"{name} needs a start and a stop; got {value!r}"
            raise InvalidQuery(message)
        start, stop = (quanta(item, quantum, name) for item in value)
        if stop <= start:
            message = f"{name} needs a stop after its start; got {value!r}"
            raise InvalidQuery(message)
        whole = -(-(stop - start) // step)
        if count is not None and count != whole:
            message = (
                f"{name} from {value[0]} to {value[1]} holds {whole} cells, but shape says {count}; give one of them"
            )
            raise InvalidQuery(message)
        return Regular(name, start, step, whole, step, quantum)
    if count is None:
        message = f"{name} needs (start, stop), or a start together with shape=(rows, columns); got {value!r} alone"
        raise InvalidQuery(message)
    return Regular(name, quanta(value, quantum, name), step, int(count), step, quantum)


def quanta(value: object, quantum: Quantum, what: str) -> int:
    """Return a coordinate or a length as a whole number of quanta, read in decimal so that nothing is rounded twice."""
    try:
        if isinstance(value, str):
            return _text_quanta(value.strip(), quantum, what)
        if isinstance(value, int | float | np.number) and not isinstance(value, bool):
            return _whole(Decimal(repr(float(value))) * PER_UNIT[quantum])
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, InvalidQuery):
            raise
    unit = "degrees or 'd:mm:ss' text" if quantum == "uas" else "metres"
    message = f"{what} needs {unit}; got {value!r}"
    raise InvalidQuery(message)


def _text_quanta(text: str, quantum: Quantum, what: str) -> int:
    degrees = _SEXAGESIMAL.fullmatch(text)
    if degrees and quantum == "uas":
        sign, whole, minutes, seconds = degrees.groups()
        if int(minutes) >= 60 or Decimal(seconds or "0") >= 60:
            raise ValueError(text)
        total = (int(whole) * 3600 + int(minutes) * 60) * 1_000_000 + round(Decimal(seconds or "0") * 1_000_000)
        return -total if sign == "-" else total
    plain = _LENGTH.fullmatch(text)
    if plain is None:
        raise ValueError(text)
    unit = (plain[2] or ("deg" if quantum == "uas" else "m")).replace("degrees", "deg").replace("degree", "deg")
    if (unit in ("m", "km")) != (quantum == "mm"):
        message = f"{what} needs {'degrees' if quantum == 'uas' else 'metres'} on this grid; got {text!r}"
        raise InvalidQuery(message)
    return _whole(Decimal(plain[1]) * _UNIT_QUANTA[unit])


def _whole(exact: Decimal) -> int:
    if not abs(exact) < LARGEST:
        # Checked before rounding: "1e99999999" has as many digits.
        raise ValueError(exact)
    return round(exact)
