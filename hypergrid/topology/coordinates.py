"""Coordinates as people write them to whole numbers of quanta, and axes from a start and a stop or a count."""

import re
from decimal import Decimal

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.topology.axes import LARGEST, PER_UNIT, Quantum, Regular

_SEXAGESIMAL = re.compile(r"([+-]?)([0-9]{1,3}):([0-9]{1,2})(?::([0-9]{1,2}(?:\.[0-9]+)?))?")
_LENGTH = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(arcsec|arcmin|deg|degree|degrees|m|km)?")
_UNIT_QUANTA = {"arcsec": 1_000_000, "arcmin": 60_000_000, "deg": 3_600_000_000, "m": 1_000, "km": 1_000_000}


def is_count(value: object) -> bool:
    """Return whether something is a whole number above zero."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) > 0


def axis_of(name: str, value: object, count: int | None, step: int, quantum: Quantum) -> Regular:
    """Return the touching cells from a start to a stop, or so many from a start.

    Raises
    ------
    InvalidQuery
        A coordinate that cannot be read, a stop that is not after the start, or neither a stop nor a count.
    """
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
            return _parse_quanta(value.strip(), quantum, what)
        if isinstance(value, int | float | np.number) and not isinstance(value, bool):
            return _require_whole(Decimal(repr(float(value))) * PER_UNIT[quantum])
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, InvalidQuery):
            raise
    unit = "degrees or 'd:mm:ss' text" if quantum == "uas" else "metres"
    message = f"{what} needs {unit}; got {value!r}"
    raise InvalidQuery(message)


def _parse_quanta(text: str, quantum: Quantum, what: str) -> int:
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
    return _require_whole(Decimal(plain[1]) * _UNIT_QUANTA[unit])


def _require_whole(exact: Decimal) -> int:
    if not abs(exact) < LARGEST:
        # Checked before rounding: "1e99999999" has as many digits.
        raise ValueError(exact)
    return round(exact)
