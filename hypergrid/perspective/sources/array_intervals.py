"""The series of an array in memory: how often each has a value, and what a value is of, where the array says so."""

from typing import Any, Final, get_args

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.readings import Series, Stamp, Statistic
from hypergrid.core.times import SECOND_NS
from hypergrid.topology import usual_spacing_ns

MIN_OWN_SPACINGS: Final = 4
"""A series that leaves instants out has an interval of its own where so many spacings, at least, agree on it."""
_SHORTER: Final = 0.9
"""A declared interval below this share of the spacing is that of the instrument, not of the array."""


def make_array_series(  # noqa: PLR0913 - what an array says of its series
    array: xr.DataArray,
    joint: str,
    labels: list[str],
    variable: str,
    times_ns: NDArray[np.int64],
    values: NDArray[np.float64],
) -> tuple[Series, ...]:
    """Return the series of an array.

    The interval of a series is the median spacing of the instants at which it has values where 90 % of the spacings
    agree within 10 %, else that of all instants; 0 where neither agrees. Fewer than three instants tell none. A
    statistic and a stamp that are given without an interval are those of such values.

    Parameters
    ----------
    array, joint
        The array, and its dimension of stations or series.
    labels
        Names of the stations.
    variable
        Name of the variable.
    times_ns
        Its instants, in increasing order [ns since 1970 UTC], shape (instants,).
    values
        Shape (instants, series), NaN where missing.

    Raises
    ------
    InvalidQuery
        An interval that is negative or no number, or 0 with a statistic of intervals; a statistic or stamp that does
        not exist.
    """
    declared_s = _read_intervals_s(array, joint)
    statistics = _read_words(array, joint, "statistic", "sample", get_args(Statistic), len(labels))
    stamps = _read_words(array, joint, "stamp", "instant", get_args(Stamp), len(labels))
    _refuse_no_interval(labels, statistics, declared_s)
    spacing_ns = _find_spacings_ns(times_ns, values)
    sensor_series = []
    for number, label in enumerate(labels):
        interval_s = spacing_ns[number] / SECOND_NS
        own: dict[str, Any] = {"interval_s": interval_s}
        statistic_fields = {"statistic": statistics[number], "stamp": stamps[number]}
        if statistics[number] != "sample" and declared_s is None:
            own |= statistic_fields
        # A result that is taken as an array again has the statistic of its instruments, which is not that of its cells.
        elif statistics[number] != "sample" and declared_s is not None and declared_s[number] > _SHORTER * interval_s:
            own = {"interval_s": float(declared_s[number]), **statistic_fields}
        sensor_series.append(Series(variable, label, source="array", **own))
    return tuple(sensor_series)


def _find_spacings_ns(times_ns: NDArray[np.int64], values: NDArray[np.float64]) -> list[int]:
    whole = usual_spacing_ns(times_ns)
    present = np.isfinite(values)
    complete = np.asarray(present.all(axis=0))
    return [
        whole if complete[number] else usual_spacing_ns(times_ns[present[:, number]], minimum=MIN_OWN_SPACINGS) or whole
        for number in range(values.shape[1])
    ]


def _read_along(array: xr.DataArray, joint: str, name: str) -> NDArray[Any] | None:
    known = array.coords.variables
    return known[name].to_numpy() if name in known and known[name].dims == (joint,) else None


def _refuse_no_interval(labels: list[str], statistics: list[Any], declared_s: NDArray[np.float64] | None) -> None:
    """Refuse values that stand for intervals of no length."""
    wrong = (
        [] if declared_s is None else np.flatnonzero((declared_s == 0) & (np.array(statistics) != "sample")).tolist()
    )
    if wrong:
        message = (
            f"hg.base needs an 'interval_s' above 0 of values that stand for intervals; got 0 for {len(wrong)} of "
            f"{len(labels)} series ({labels[wrong[0]]}: {statistics[wrong[0]]}); give their seconds, or drop the "
            "coordinate 'interval_s', so that the interval is that of the values"
        )
        raise InvalidQuery(message)


def _read_intervals_s(array: xr.DataArray, joint: str) -> NDArray[np.float64] | None:
    given = _read_along(array, joint, "interval_s")
    if given is None:
        return None
    if given.dtype.kind not in "iuf" or not (np.isfinite(given) & (given >= 0)).all():
        wrong = next(
            (str(interval) for interval in given if not (isinstance(interval, int | float) and interval >= 0)),
            str(given[0]),
        )
        message = (
            f"the coordinate 'interval_s' of hg.base needs seconds above 0, or 0 where the interval is not known; got "
            f"{wrong}"
        )
        raise InvalidQuery(message)
    return given.astype(np.float64)


def _read_words(
    array: xr.DataArray, joint: str, name: str, otherwise: str, known: tuple[str, ...], count: int
) -> list[Any]:
    given = _read_along(array, joint, name)
    words = [otherwise] * count if given is None else [str(word) for word in given]
    wrong = [word for word in words if word not in known]
    if wrong:
        message = f"the coordinate {name!r} of hg.base needs {', '.join(known)}; got {wrong[0]!r}"
        raise InvalidQuery(message)
    return words
