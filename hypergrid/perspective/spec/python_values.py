"""Durations and times as Python, numpy and pandas write them, in the form that a query's JSON holds."""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import Window, format_instant, format_timedelta, parse_instant
from hypergrid.topology.axes import Quantum, quanta

_WORDS: Final[Mapping[str, str]] = {
    "hourly": "1h", "daily": "1day", "monthly": "month", "seasonal": "season", "yearly": "year", "annual": "year",
    "ME": "month", "MS": "month", "YE": "year", "YS": "year",
}  # fmt: skip
"""Words for time cells; the last four are pandas' aliases."""
_LETTERS: Final[Mapping[str, str]] = {"D": "day", "H": "h", "h": "h", "T": "min", "min": "min", "S": "s", "s": "s"}
"""Units of pandas' frequencies that have a fixed length."""
_FREQUENCY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)?(D|H|h|T|min|S|s)")
_MONTH: Final = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?")
_QUANTA: Final[Mapping[str, Quantum]] = {"lon": "uas", "lat": "uas", "x": "mm", "y": "mm", "z": "mm"}
_LENGTHS: Final = ("step", "length", "offset", "periodic", "within", "phase")
"""Keys of time cells that may hold a duration."""


def write_duration(value: object) -> object:
    """Return a duration as text; anything that is not a duration of Python, numpy or pandas stays as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> [write_duration(value) for value in ("1D", "hourly", "10min", pd.Timedelta("90min"), pd.offsets.Hour(3), None)]
    ['1day', '1h', '10min', '90min', '3h', None]
    """
    if isinstance(value, np.timedelta64):
        return format_timedelta(value)
    if isinstance(value, timedelta):
        return format_timedelta(np.timedelta64(value))
    # An offset of pandas, such as `pd.offsets.Hour(3)`.
    word = getattr(value, "freqstr", value)
    if not isinstance(word, str):
        return value
    match = _FREQUENCY.fullmatch(word)
    return f"{match[1] or 1}{_LETTERS[match[2]]}" if match else _WORDS.get(word, word)


def write_time_cells(spec: object) -> object:
    """Return time cells with their durations as text."""
    if isinstance(spec, Mapping):
        return {key: write_duration(value) if key in _LENGTHS else value for key, value in spec.items()}
    return write_duration(spec)


def write_bounds(name: str, bounds: object) -> tuple[Any, Any]:
    """Return the bounds of a clip: a pair, or a slice without a step.

    Parameters
    ----------
    name
        The dimension; instants of "time" are checked, and those that are not text are converted.
    bounds
        Start and stop (excluded).

    Raises
    ------
    InvalidQuery
        Not two bounds, or no coordinates with the stop after the start.
    InvalidTime
        A bound in time is not an instant, or the stop is not after the start.
    """
    pair = bounds
    if isinstance(bounds, slice):
        if bounds.step is not None or bounds.start is None or bounds.stop is None:
            raise InvalidQuery(
                f"a slice for clip of {name!r} needs a start and a stop (which is excluded), and no step; got {bounds}"
            )
        pair = (bounds.start, bounds.stop)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidQuery(f"clip of {name!r} needs a start and a stop, ('2007-10-01', '2007-10-04'); got {bounds!r}")
    if name == "time":
        start, stop = map(_write_instant, pair)
        Window.parse(start, stop)
    else:
        start, stop = pair
        if name in _QUANTA:
            check_ends(name, pair, _QUANTA[name])
    return start, stop


def check_ends(name: str, bounds: Sequence[object], quantum: Quantum) -> tuple[int, int]:
    """Return the bounds of a clip in space, in quanta.

    Raises
    ------
    InvalidQuery
        A bound is no coordinate, or the stop is not after the start.
    """
    start, stop = bounds
    low, high = quanta(start, quantum, name), quanta(stop, quantum, name)
    if high <= low:
        raise InvalidQuery(f"clip of {name!r} needs a stop after its start; got {start!r} to {stop!r}")
    return low, high


def _write_instant(value: object) -> object:
    if isinstance(value, str) and (match := _MONTH.fullmatch(value)):
        # A year or a month stands for its start.
        value = f"{match[1]}-{match[2] or '01'}-01"
    if isinstance(value, date) and not isinstance(value, datetime):
        value = value.isoformat()
    instant_ns = parse_instant(value)
    return value if isinstance(value, str) else format_instant(instant_ns)
