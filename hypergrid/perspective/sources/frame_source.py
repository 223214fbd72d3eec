"""Long table of readings as an array, for `hg.base`: one row per station and time."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, InvalidUnit, TooLarge
from hypergrid.core.lazy_libraries import pd, xr

MAX_CELLS: Final = 2**27
"""Maximum number of different times multiplied by stations: 1 GiB of values."""

_NEEDED: Final = "the columns station, time, value, and lon and lat [degree] or x and y [m]"


def make_array(readings: object) -> xr.DataArray:
    """Return the readings given to `hg.base` as an array.

    Raises
    ------
    InvalidQuery
        Neither an array nor a table, or as `array_of_frame`.
    """
    if isinstance(readings, pd.DataFrame):
        return array_of_frame(readings)
    if not isinstance(readings, xr.DataArray):
        raise InvalidQuery(
            "hg.base needs an xarray.DataArray with dimensions (time, station), or a pandas.DataFrame with "
            f"{_NEEDED}; got {type(readings).__name__}"
        )
    return readings


def describe_values(array: xr.DataArray, variable: str | None, unit: str | None) -> xr.DataArray:
    """Return the array under the name of a variable and with a unit, if they are given.

    Raises
    ------
    InvalidQuery
        A name or unit that is not text.
    InvalidUnit
        The array's attributes have another unit.
    """
    for what, given in (("variable", variable), ("unit", unit)):
        if given is not None and not isinstance(given, str):
            raise InvalidQuery(f"hg.base needs {what} as text; got {given!r}")
    if variable is not None:
        array = array.rename(variable)
    if unit is None:
        return array
    if array.attrs.get("units", unit) != unit:
        raise InvalidUnit(
            f"hg.base got unit={unit!r} for an array in {array.attrs['units']!r}; leave the unit out, and convert the "
            f"values in the query: .convert('scale', factor=…, offset=…, unit={unit!r})"
        )
    return array.assign_attrs(units=unit)


def array_of_frame(frame: pd.DataFrame) -> xr.DataArray:
    """Return a table of readings as an array (time, station).

    Parameters
    ----------
    frame
        Columns station, time (or a DatetimeIndex), value, and lon and lat [degree] or x and y [m] of the station;
        optionally elevation [m]. Other columns are ignored. NaN is a missing value or an unknown position.

    Raises
    ------
    InvalidQuery
        A missing column, no rows, a row without a station or time, values that are not numbers, a station with two
        values at one time or with several positions.
    TooLarge
        Too many different times for an array; round them.
    """
    table = _find_columns(frame)
    system = ("lon", "lat") if {"lon", "lat"} <= set(table.columns) else ("x", "y")
    places = [*system, *(name for name in ("elevation",) if name in table.columns)]
    lost = sorted({"station", "time", "value", *system} - set(map(str, table.columns)))
    if lost:
        missing = "lon and lat, or x and y" if {"x", "y"} & set(lost) else ", ".join(lost)
        raise InvalidQuery(
            f"hg.base needs {_NEEDED} of a DataFrame; without {missing}: it has "
            f"{', '.join(map(str, table.columns))}; rename some with frame.rename(columns={{'old': 'new'}})"
        )
    _check_rows(table)
    labels, stations = pd.factorize(table["station"].astype(str))
    instants, times = pd.factorize(table["time"], sort=True)
    if len(times) * len(stations) > MAX_CELLS:
        raise TooLarge(
            "hg.base", "cells of times by stations", len(times) * len(stations), MAX_CELLS,
            "round the times to the stations' interval, for example frame['time'].dt.floor('10min'), or give less",
        )  # fmt: skip
    _refuse_repeated(table, labels * len(times) + instants)
    values = np.full((len(times), len(stations)), np.nan)
    values[instants, labels] = _read_numbers(table, "value")
    coords = {name: ("station", _find_places(table, name, labels, len(stations))) for name in places}
    return xr.DataArray(values, {"time": times, "station": stations.to_numpy(str), **coords}, ("time", "station"))


def _find_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the levels of its index that are needed as columns."""
    if "time" not in frame.columns and isinstance(frame.index, pd.DatetimeIndex):
        return frame.rename_axis(index="time").reset_index()
    named = [name for name in frame.index.names if name in ("station", "time") and name not in frame.columns]
    return frame.reset_index(named) if named else frame


def _check_rows(table: pd.DataFrame) -> None:
    if not len(table):
        raise InvalidQuery(f"hg.base needs at least one row; the DataFrame with {_NEEDED} has none")
    for name in ("station", "time"):
        unknown = np.flatnonzero(table[name].isna())
        if len(unknown):
            raise InvalidQuery(
                f"hg.base needs a {name} in every row; {len(unknown):,} of {len(table):,} have none, the first is row "
                f"{unknown[0]}; drop them with frame.dropna(subset=[{name!r}])"
            )


def _refuse_repeated(table: pd.DataFrame, cells: NDArray[np.intp]) -> None:
    repeated = np.flatnonzero(pd.Series(cells).duplicated())
    if len(repeated):
        row = table.iloc[repeated[0]]
        raise InvalidQuery(
            f"hg.base needs one value of each station and time; {len(repeated):,} rows repeat one, the first is row "
            f"{repeated[0]}: station {row['station']} at {row['time']}; drop them with "
            "frame.drop_duplicates(['station', 'time']), or average them with groupby"
        )


def _read_numbers(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
    numbers = pd.to_numeric(table[name], errors="coerce")
    wrong = np.flatnonzero(numbers.isna() & table[name].notna())
    # pandas counts instants as nanoseconds.
    if len(wrong) or table[name].dtype.kind in "mM":
        given = table[name].iloc[wrong[0]] if len(wrong) else table[name].dtype
        raise InvalidQuery(
            f"hg.base needs numbers in the column {name!r}; got {given!r}"
            + (f" in row {wrong[0]}, and {len(wrong) - 1:,} more" if len(wrong) else "")
            + f"; convert it, for example with pandas.to_numeric(frame[{name!r}], errors='coerce')"
        )
    return numbers.to_numpy(np.float64, na_value=np.nan)


def _find_places(table: pd.DataFrame, name: str, labels: NDArray[np.intp], count: int) -> NDArray[np.float64]:
    """Return the one coordinate of each station, NaN where no row has it, shape (stations,)."""
    grouped = pd.Series(_read_numbers(table, name)).groupby(labels)
    low, high = (getattr(grouped, end)().reindex(range(count)).to_numpy(np.float64) for end in ("min", "max"))
    moved = np.flatnonzero(high > low)
    if len(moved):
        station = table["station"].iloc[int(np.argmax(labels == moved[0]))]
        raise InvalidQuery(
            f"hg.base needs one position of each station; {name} of station {station} runs from "
            f"{low[moved[0]]:.10g} to {high[moved[0]]:.10g}; give a station that moved two names"
        )
    return np.asarray(low, np.float64)
