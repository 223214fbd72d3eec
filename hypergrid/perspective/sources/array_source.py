"""Base of an array in memory, the input of `hg.base`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, InvalidUnit, NotFound
from hypergrid.core.lazy_libraries import pd, xr
from hypergrid.core.readings import Series, Stamp, Statistic
from hypergrid.core.times import FIRST_YEAR, LAST_YEAR, SECOND_NS, Window
from hypergrid.core.tokens import token
from hypergrid.core.units import KNOWN_VARIABLES, Variable, check_unit, convert, counter_fault
from hypergrid.layers.layer import Layer
from hypergrid.perspective.sources.series_selection import Select, select_series, take_series
from hypergrid.topology import Instants, SeriesAxis, Space, TimeAxis, usual_spacing_ns
from hypergrid.topology.space import System


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Readings with a common clock: shape (instants, series), NaN where missing."""

    variable: Variable
    token: str
    times_ns: NDArray[np.int64]
    values: NDArray[np.float64]
    axis: SeriesAxis
    layers: Mapping[str, Layer] = field(default_factory=dict)
    interval_ns: int = 0
    """Usual spacing of the instants [ns]; 0 if they disagree."""
    snapshot: None = None

    @property
    def carries_intervals(self) -> bool:
        return any(item.interval_s > 0 for item in self.axis.series)

    @property
    def statistics(self) -> tuple[str, ...]:
        return tuple(sorted({item.statistic for item in self.axis.series}))

    @property
    def extent(self) -> Window | None:
        """Window from the first interval's start to the last one's end.

        For samples it ends 1 ns after the last one.
        """
        return find_span(self.times_ns, self.axis) if len(self.times_ns) else None

    def time_axis(self, window: Window) -> Instants | None:
        """Return the stamps of values that begin or are stamped in a window, or None."""
        first, stop = self._find_range(
            Window(window.start_ns, window.stop_ns + int(find_before_ns(self.axis).max(initial=0)))
        )
        return Instants("time", self.times_ns[first:stop], self.interval_ns) if stop > first else None

    def series_axis(self, _window: Window) -> SeriesAxis:
        return self.axis

    def read(self, window: Window, unread: tuple[int, ...] = ()) -> NDArray[np.float64]:
        """Return the values stamped in a window, shape (instants, series)."""
        first, stop = self._find_range(window)
        values = self.values[first:stop]
        if unread:
            # The values of the source are shared, so they are not changed in place.
            values = values.copy()
            values[:, list(unread)] = np.nan
        return values

    def select_series(self, select: Select) -> ArraySource:
        """Return the source restricted to the selected series.

        Raises
        ------
        InvalidQuery
            No series matches.
        """
        # Unlike an archive, an array is a deliberate choice: by default all its statistics are read.
        every = (("statistic", self.statistics),) if "statistic" not in dict(select) else ()
        chosen = select_series(self.variable.name, self.axis.series, (*select, *every))
        if len(chosen) == self.axis.count:
            return self
        axis = take_series(self.axis, chosen)
        return replace(self, token=token(self.token, select), values=self.values[:, chosen], axis=axis)

    def layer(self, name: str) -> Layer:
        if name not in self.layers:
            not_found = NotFound.among(kind="layer", given=name, existing=self.layers)
            raise NotFound(f"{not_found}; give one with hg.base(…, layers={{{name!r}: dataarray}})")
        return self.layers[name]

    def _find_range(self, window: Window) -> tuple[int, int]:
        first, stop = np.searchsorted(self.times_ns, [window.start_ns, window.stop_ns])
        return int(first), int(stop)


def _refuse_off_globe(lon: NDArray[np.float64], lat: NDArray[np.float64], labels: Sequence[str]) -> None:
    """Refuse positions off the globe; NaN is a station without a position.

    Raises
    ------
    InvalidQuery
        The message names the first such stations.
    """
    off = np.flatnonzero((np.abs(lat) > 90.0) | (lon < -180.0) | (lon > 360.0))
    if len(off):
        shown = ", ".join(f"{labels[i]} at lon {lon[i]:g}, lat {lat[i]:g}" for i in off[:3])
        more = f" and {len(off) - 3} more" if len(off) > 3 else ""
        raise InvalidQuery(
            f"hg.base needs longitudes within -180 to 360 and latitudes within -90 to 90 degrees; got {shown}{more}; "
            "check whether lon and lat are swapped, or give x and y [m]"
        )


def array_source(array: xr.DataArray, *, layers: Mapping[str, object] | None = None) -> ArraySource:
    """Return an array as a source of readings.

    Parameters
    ----------
    array
        Dimensions time and station (or series). Coordinates lon and lat [degree], or x and y [m], of the stations, and
        optionally elevation [m]; values with `attrs["units"]` are converted. Station names are unique. Optional
        `statistic`, `interval_s` [s] and `stamp` of each series, as in an archive; an interval that is missing, 0, or
        shorter than the steps of the array is inferred from the values. `attrs["units"]` is the unit, the array's name
        the variable; for a counter `attrs["resolution"]` and `attrs["rollover"]` are optional [its unit]. Times without
        a zone are UTC.
    layers
        Layers by name, as for `make_array_layers`, or None.

    Raises
    ------
    InvalidQuery
        Missing dimensions or coordinates, missing, unordered or repeated times, no station or a repeated one, a layer
        in other coordinates.
    InvalidLayer, InvalidUnit
        Cells that cannot form a layer, or an unusable unit.
    """
    joint = next((dim for dim in ("station", "series") if dim in array.dims), None)
    if joint is None or set(array.dims) != {"time", joint}:
        raise InvalidQuery(
            f"hg.base needs the dimensions (time, station) or (time, series); got {tuple(map(str, array.dims))}"
        )
    # Use the variables: each lookup by name would build an array with all its coordinates.
    known = array.coords.variables
    if "time" not in known:
        raise InvalidQuery(f"hg.base needs a coordinate 'time' of datetime64; got {sorted(map(str, array.coords))}")
    system: System = "lonlat" if "lon" in known and "lat" in known else "metres"
    names = ("lon", "lat") if system == "lonlat" else ("x", "y")
    if any(name not in known or known[name].dims != (joint,) for name in names):
        raise InvalidQuery(
            f"hg.base needs coordinates lon and lat [degree], or x and y [m], along {joint!r}; "
            f"got {sorted(map(str, array.coords))}"
        )
    times = _read_instants(known["time"])
    variable = _make_variable(array)
    values = np.ascontiguousarray(_read_numbers(array.variable.transpose("time", joint).to_numpy(), "values"))
    x, y = (read_coordinate(known[name], name, UNIT_OF[system]) for name in names)
    if system == "lonlat":
        _refuse_off_globe(x, y, _read_labels(array, joint))
    series = make_array_series(array, joint, _read_labels(array, joint), variable.name, times, values)
    axis = SeriesAxis(series, x, y, _read_elevation(array, joint), system)
    beside = make_array_layers(layers or {}, axis.system)
    # The same array with other layers is another source; a merge of both must not confuse them.
    tokens = ({name: layer.token for name, layer in beside.items()},) if beside else ()
    return ArraySource(
        variable,
        token(times, values, axis.token(), variable, *tokens),
        times,
        values,
        axis,
        beside,
        usual_spacing_ns(times),
    )


def _read_numbers(values: NDArray[Any], what: str) -> NDArray[np.float64]:
    """Return values as floats; refuses text, datetimes and complex numbers."""
    kind = values.dtype.kind
    if kind in "biuf" or kind == "O":
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            pass
    raise InvalidQuery(
        f"hg.base needs {what} that are real numbers; got {values.dtype}; convert them, missing ones to NaN"
    )


def _make_variable(array: xr.DataArray) -> Variable:
    name = str(array.name or "value")
    known = KNOWN_VARIABLES.get(name)
    unit = check_unit(str(array.attrs.get("units", known.unit if known else "unknown")))
    text: dict[str, Any] = {"standard_name": known.standard_name, "long_name": known.long_name} if known else {}
    declared = {key: _read_declared(array, key) for key in ("resolution", "rollover")}
    fault = counter_fault(**declared)
    if fault:
        raise InvalidQuery(f"hg.base: {fault}; set array.attrs['resolution'] and ['rollover'] in {unit!r}")
    return Variable(name, unit, **text, resolution=declared["resolution"], rollover=declared["rollover"])


def _read_declared(array: xr.DataArray, key: str) -> float | None:
    """Return a declared property of a counter [the array's unit], or None."""
    given = array.attrs.get(key)
    if given is None:
        return None
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidQuery(
            f"hg.base: the {key} of a counter needs a number, in the array's unit; got {given!r}"
        ) from error


def _read_instants(times: xr.Variable) -> NDArray[np.int64]:
    """Return instants [ns since 1970 UTC], shape (instants,); zoned times are converted to UTC."""
    index = times.to_index()
    # Datetimes with a zone may arrive as objects.
    if index.dtype.kind == "O" and all(isinstance(instant, datetime) for instant in index):
        index = pd.to_datetime(index, utc=True)
    if not isinstance(index, pd.DatetimeIndex):
        raise InvalidQuery(
            f"hg.base needs a coordinate 'time' of datetime64; got {index.dtype}; convert it, for example with "
            "pandas.to_datetime"
        )
    index = index if index.tz is None else index.tz_convert("UTC").tz_localize(None)
    missing = np.flatnonzero(index.isna())
    if len(missing):
        raise InvalidQuery(
            f"hg.base needs a time for every row; {len(missing)} of {len(index)} are NaT, the first is number "
            f"{missing[0]}; drop them, for example with array.sel(time=array.time.notnull())"
        )
    if len(index) and not (index.year.min() >= FIRST_YEAR and index.year.max() <= LAST_YEAR):
        raise InvalidQuery(
            f"hg.base needs times between {FIRST_YEAR} and {LAST_YEAR}, which nanoseconds can count; got "
            f"{index.min()} to {index.max()}; leave the others out"
        )
    instants_ns = index.to_numpy().astype("datetime64[ns]").astype(np.int64)
    if not len(instants_ns) or np.any(np.diff(instants_ns) <= 0):
        raise InvalidQuery(
            "hg.base needs times in strictly increasing order, at least one; sort them, or drop the repeated"
        )
    return instants_ns


def _read_labels(array: xr.DataArray, joint: str) -> list[str]:
    """Return the station names, unique and at least one."""
    names = next((name for name in (joint, "station") if _is_along(array, name, joint)), None)
    labels = [
        str(label)
        for label in (range(array.sizes[joint]) if names is None else array.coords.variables[names].to_numpy())
    ]
    if not labels:
        raise InvalidQuery(f"hg.base needs at least one {joint}; the array has none")
    twice = [label for label, count in Counter(labels).items() if count > 1]
    if twice:
        raise InvalidQuery(
            f"hg.base needs each {joint} once; {', '.join(map(repr, twice[:5]))} come{'s' * (len(twice) == 1)} more "
            f"than once: take one of each, for example with .isel({joint}=…), or name them apart"
        )
    return labels


def _is_along(array: xr.DataArray, name: str, joint: str) -> bool:
    return name in array.coords and array.coords.variables[name].dims == (joint,)


def _read_elevation(array: xr.DataArray, joint: str) -> NDArray[np.float64]:
    for name in ("elevation", "elevation_m"):
        if _is_along(array, name, joint):
            return read_coordinate(array.coords.variables[name], name, "m")
    return np.full(array.sizes[joint], np.nan)


UNIT_OF: Final[Mapping[System, str]] = {"lonlat": "degree", "metres": "m"}
"""Coordinate unit of each system."""


def make_array_layers(given: Mapping[str, object], system: System) -> dict[str, Layer]:
    """Return layers by name.

    Parameters
    ----------
    given
        For each name a `Layer`, or an `xarray.DataArray` with dimensions (lat, lon) or (y, x) in any order and both as
        evenly spaced coordinates, NaN where unknown; `attrs["units"]`.
    system
        Coordinate system of the readings, which the layers must share.

    Raises
    ------
    InvalidQuery
        Neither a layer nor an array, other dimensions, or the other coordinate system.
    InvalidLayer, InvalidUnit
        Cells that cannot form a layer, or an unusable unit.
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidQuery(f"layers needs a mapping, such as {{'elevation': dataarray}}; got {type(given).__name__}")
    return {name: _make_layer(name, field, system) for name, field in given.items()}


def read_coordinate(values: xr.Variable, name: str, unit: str) -> NDArray[np.float64]:
    """Return a coordinate [unit], converted from the unit in its attributes if any; shape (cells,).

    Raises
    ------
    InvalidQuery
        Not numeric.
    InvalidUnit
        Unknown or incompatible unit.
    """
    try:
        numbers, given = values.to_numpy().astype(np.float64), str(values.attrs.get("units", unit))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidQuery(
            f"coordinate {name!r} needs numbers in {unit!r}; got {values.dtype}: {error}; convert it"
        ) from error
    # CF distinguishes lon and lat by unit: degrees_east, degree_N, ….
    if unit == "degree" and given.startswith("degree"):
        return numbers
    try:
        return convert(numbers, given, unit)
    except InvalidUnit as error:
        raise InvalidUnit(
            f"coordinate {name!r} needs values in {unit!r}: {error}; set its attrs['units'] to what they are in"
        ) from error


def _make_layer(name: str, field: object, system: System) -> Layer:
    row, column = ("lat", "lon") if system == "lonlat" else ("y", "x")
    if isinstance(field, Layer):
        if field.system != system:
            raise InvalidQuery(
                f"layer {name!r} is in {field.system}, the stations are in {system}; reproject one of them"
            )
        return field
    if not isinstance(field, xr.DataArray):
        raise InvalidQuery(f"layer {name!r} needs an xarray.DataArray or a hypergrid Layer; got {type(field).__name__}")
    if set(field.dims) != {row, column} or any(axis not in field.coords for axis in (row, column)):
        raise InvalidQuery(
            f"layer {name!r} needs the dimensions and coordinates ({row}, {column}), as the stations have; got "
            f"{tuple(map(str, field.dims))} with {sorted(map(str, field.coords))}; rename, squeeze or reproject it"
        )
    try:
        return Layer(
            name,
            x=read_coordinate(field[column].variable, column, UNIT_OF[system]),
            y=read_coordinate(field[row].variable, row, UNIT_OF[system]),
            values=field.transpose(row, column).to_numpy().astype(np.float64),
            unit=str(field.attrs.get("units", "unknown")),
            system=system,
            description="array",
        )
    except InvalidUnit as error:
        remedy = ", or give the layer another name: 'elevation' is kept in metres" if name == "elevation" else ""
        advice = "" if "coordinate" in str(error) else f"; set its attrs['units'] to the unit of its values{remedy}"
        raise InvalidUnit(f"layer {name!r}: {error}{advice}") from error


MIN_OWN_SPACINGS: Final = 4
"""Minimum number of agreeing spacings to infer an interval for a series with gaps."""
_SHORTER: Final = 0.9
"""Share of the spacing below which a declared interval belongs to the instrument, not to the array."""


def make_array_series(  # noqa: PLR0913 - what an array says of its series
    array: xr.DataArray,
    joint: str,
    labels: list[str],
    variable: str,
    times_ns: NDArray[np.int64],
    values: NDArray[np.float64],
) -> tuple[Series, ...]:
    """Return the series of an array.

    The interval of a series is the median spacing of the instants at which it has values if 90 % of the spacings agree
    within 10 %, else that of all instants, else 0. Fewer than three instants give 0. A statistic and stamp without an
    interval refer to this interval.

    Parameters
    ----------
    array, joint
        Array, and its dimension of stations or series.
    labels
        Station names.
    variable
        Name of the variable.
    times_ns
        Increasing instants [ns since 1970 UTC], shape (instants,).
    values
        Shape (instants, series), NaN where missing.

    Raises
    ------
    InvalidQuery
        A negative or non-numeric interval, an interval of 0 with an interval statistic, or an unknown statistic or
        stamp.
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
        # An array made from a result still has the statistic of its instruments, which does not apply to its cells.
        elif statistics[number] != "sample" and declared_s is not None and declared_s[number] > _SHORTER * interval_s:
            own = {"interval_s": float(declared_s[number]), **statistic_fields}
        sensor_series.append(Series(variable, label, source="array", **own))
    return tuple(sensor_series)


def _find_spacings_ns(times_ns: NDArray[np.int64], values: NDArray[np.float64]) -> list[int]:
    whole = usual_spacing_ns(times_ns)
    present = np.isfinite(values)
    # Complete series share the spacing of the array, which is computed once.
    complete = np.asarray(present.all(axis=0))
    return [
        whole if complete[number] else usual_spacing_ns(times_ns[present[:, number]], minimum=MIN_OWN_SPACINGS) or whole
        for number in range(values.shape[1])
    ]


def _read_along(array: xr.DataArray, joint: str, name: str) -> NDArray[Any] | None:
    return array.coords.variables[name].to_numpy() if _is_along(array, name, joint) else None


def _refuse_no_interval(labels: list[str], statistics: list[Any], declared_s: NDArray[np.float64] | None) -> None:
    wrong = (
        [] if declared_s is None else np.flatnonzero((declared_s == 0) & (np.array(statistics) != "sample")).tolist()
    )
    if wrong:
        raise InvalidQuery(
            f"hg.base needs an 'interval_s' above 0 of values that stand for intervals; got 0 for {len(wrong)} of "
            f"{len(labels)} series ({labels[wrong[0]]}: {statistics[wrong[0]]}); give their seconds, or drop the "
            "coordinate 'interval_s', so that the interval is that of the values"
        )


def _read_intervals_s(array: xr.DataArray, joint: str) -> NDArray[np.float64] | None:
    given = _read_along(array, joint, "interval_s")
    if given is None:
        return None
    if given.dtype.kind not in "iuf" or not (np.isfinite(given) & (given >= 0)).all():
        wrong = next(
            (str(interval) for interval in given if not (isinstance(interval, int | float) and interval >= 0)),
            str(given[0]),
        )
        raise InvalidQuery(
            f"the coordinate 'interval_s' of hg.base needs seconds above 0, or 0 where the interval is not known; got "
            f"{wrong}"
        )
    return given.astype(np.float64)


def _read_words(
    array: xr.DataArray, joint: str, name: str, otherwise: str, known: tuple[str, ...], count: int
) -> list[Any]:
    given = _read_along(array, joint, name)
    words = [otherwise] * count if given is None else [str(word) for word in given]
    wrong = [word for word in words if word not in known]
    if wrong:
        raise InvalidQuery(f"the coordinate {name!r} of hg.base needs {', '.join(known)}; got {wrong[0]!r}")
    return words


Integers = NDArray[np.int64]


def has_intervals(time: TimeAxis, space: Space) -> bool:
    """Return whether values belong to intervals of an array at its stations.

    An aggregate over time assigns these by interval start, like archive readings.
    """
    if not isinstance(time, Instants) or not isinstance(space, SeriesAxis):
        return False
    return any(item.statistic != "sample" for item in space.series)


def find_before_ns(axis: SeriesAxis) -> Integers:
    """Return the time from interval start to stamp of each series [ns], shape (series,)."""
    return np.array([length if stamp == "end" else 0 for length, stamp in _list_intervals(axis)], dtype=np.int64)


def find_after_ns(axis: SeriesAxis) -> Integers:
    """Return the time from stamp to interval end of each series [ns], shape (series,).

    It is 1 for samples.
    """
    ends = [0 if stamp == "end" and length else max(length, 1) for length, stamp in _list_intervals(axis)]
    return np.array(ends, dtype=np.int64)


def _list_intervals(axis: SeriesAxis) -> list[tuple[int, str]]:
    """Return the interval length [ns], 0 for samples, and the stamp of each series."""
    return [
        (0 if item.statistic == "sample" else round(item.interval_s * SECOND_NS), item.stamp) for item in axis.series
    ]


def find_span(times_ns: Integers, axis: SeriesAxis) -> Window:
    """Return the window from the first interval's start to the last one's end."""
    return Window(
        int(times_ns[0]) - int(find_before_ns(axis).max()), int(times_ns[-1]) + int(find_after_ns(axis).max())
    )


def find_start_window(times_ns: Integers, axis: SeriesAxis) -> Window:
    """Return the window of interval starts, up to just after the last one."""
    before = find_before_ns(axis)
    return Window(int(times_ns[0]) - int(before.max()), int(times_ns[-1]) - int(before.min()) + 1)
