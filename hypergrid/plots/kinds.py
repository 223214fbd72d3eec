"""Pictures of results; the kind is named, or inferred from the result.

Only matplotlib's object interface is used: without global state, the threads of a server can draw.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.colors import Colormap
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Station
from hypergrid.core.registry import Registry
from hypergrid.core.result_names import by_role, find_names, value_of
from hypergrid.core.times import parse_instant
from hypergrid.core.units import unit_symbol
from hypergrid.plots.labels import count_levels, describe_level, describe_source, is_map, place_names
from hypergrid.topology import SeriesAxis


class Picture(Figure):
    """Figure in memory, without a window, and unknown to pyplot's list of open figures."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - options of a figure
        super().__init__(**options)
        FigureCanvasAgg(self)

    def png(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()

    _repr_png_ = png


Stations = Mapping[str, Station] | Sequence[Station] | SeriesAxis
"""Stations of an archive, or of a query."""


class StationMark(NamedTuple):
    """A station on a map."""

    name: str
    x: float
    """Longitude [degree] or x [m]."""
    y: float
    """Latitude [degree] or y [m]."""


def mark_stations(stations: Stations) -> tuple[StationMark, ...]:
    """Return the marks of stations, those without a position as NaN."""
    if isinstance(stations, SeriesAxis):
        named = (series.station for series in stations.series)
        return tuple(dict.fromkeys(map(StationMark, named, stations.x.tolist(), stations.y.tolist())))
    listed = stations.values() if isinstance(stations, Mapping) else stations
    return tuple(StationMark(each.id, each.position.lon, each.position.lat) for each in listed)


@dataclass(frozen=True)
class Canvas:
    """Where a picture is drawn, and how."""

    axes: Axes
    colours: str | Colormap
    """Colour map of cells."""
    stations: tuple[StationMark, ...] = ()
    """Stations to mark on a map."""
    is_own: bool = True
    """Whether the figure is that of this picture alone."""
    limits: tuple[float, float] | None = None
    """Values of the first and the last colour; None: those of the drawn cells."""

    @property
    def figure(self) -> Figure | SubFigure:
        return self.axes.figure

    def draw_cells(self, x: NDArray[Any], y: NDArray[Any], values: NDArray[np.float64]) -> QuadMesh:
        """Draw cells between edges, missing ones as background."""
        low, high = self.limits or (None, None)
        return self.axes.pcolormesh(x, y, np.ma.masked_invalid(values), cmap=self.colours, vmin=low, vmax=high)

    def add_legend(self, corner: Literal["outside upper right", "outside right upper"]) -> None:
        """Add a legend beside the axes, so that it never covers what is drawn."""
        if self.is_own:
            self.figure.legend(loc=corner, fontsize=7, frameon=False)
        else:
            self.axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=7, frameon=False)


Draw = Callable[[Canvas, xr.Dataset], str]

KINDS: Registry[Draw] = Registry("kind of picture")
"""Drawing functions by name; each returns the title."""

HALO = (withStroke(linewidth=1.6, foreground="white"),)
"""White outline that keeps labels readable on any colour."""

FIELD_COLOURS = "viridis"
"""Perceptually uniform, and readable without colour vision."""

DIRECTION_COLOURS = "twilight"
"""Perceptually uniform both ways round, so that 359 degrees look like 1."""

_DIRECTION = re.compile(r"(\w+_)?(direction|azimuth)(_\w+)?")
"""Standard names of what goes round."""

_TITLE = re.compile(r"(.+), \S+ to \S+(?:, (.+))?")
"""Title of a result: statistic and quantity, time, interpolation."""


LINE_COLOURS = tuple(f"C{number}" for number in range(10))
"""Colours of successive lines; when they repeat, the next line style is used."""

LINE_STYLES = (("-", "o"), ("--", "s"), (":", "^"))
"""Dashes of lines, and markers of single values."""

MAX_LABELLED = 40
"""Maximum number of stations whose names are written on a map."""

MAX_NAMED = len(LINE_COLOURS) * len(LINE_STYLES)
"""Maximum number of distinguishable lines, and of names in a legend."""


@overload
def plot(dataset: xr.Dataset, *, ax: Axes, **options: Any) -> Axes: ...  # noqa: ANN401 - those of the function


@overload
def plot(dataset: xr.Dataset, *, ax: None = None, **options: Any) -> Picture: ...  # noqa: ANN401 - the same


def plot(  # type: ignore[misc]  # noqa: PLR0913 - what is drawn, of which cells, and how it looks
    dataset: xr.Dataset,
    *,
    variable: str = "value",
    kind: str | None = None,
    time: object = 0,
    level: int = 0,
    stations: Stations = (),
    cmap: str | Colormap | None = None,
    limits: tuple[float, float] | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Picture | Axes:
    """Draw a result.

    Parameters
    ----------
    dataset
        Result of a query.
    variable
        Which of the result's variables, by its name or by its role: "value" if absent, "count", "variance", ….
    kind
        "map", "day_by_hour" or "lines"; inferred from the result's dimensions if absent.
    time
        Time cell of a map: its index from 0, or an instant in it ("2007-10-01T06:00", a datetime).
    level
        Index of the level of a map on a grid with z, from 0, the lowest; the title names it.
    stations
        Stations to mark on a map, such as `archive.stations`.
    cmap
        Colour map: a name or an object of matplotlib; if absent, that of directions is cyclic.
    limits
        Values of the first and the last colour, for pictures that are compared; if absent, those of all cells of the
        result, so that its time cells and levels share their colours.
    ax
        Axes of matplotlib to draw into; a figure of its own if absent.
    title
        Replaces the title made from the result.

    Returns
    -------
    The figure, which a notebook shows, or the axes that were given.

    Raises
    ------
    InvalidQuery, NotFound
        The result has no value to draw, the variable, kind, time cell, level or colour map does not exist, or `limits`
        are not two ascending numbers.
    InvalidTime
        `time` is neither an index nor an instant.
    """
    shown = _choose_variable(dataset, variable)
    draw = KINDS[kind or _kind(shown)]
    along = _time_dimension(shown)
    number = _find_time_cell(shown, time)
    if not 0 <= level < count_levels(shown):
        raise InvalidQuery(f"level {level} does not exist; the result has {count_levels(shown)}, counted from 0")
    picture: Picture | None = None
    if ax is not None:
        axes = ax
    else:
        layout = ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97))
        picture = Picture(figsize=_figure_size(shown), dpi=120, layout=layout)
        axes = picture.add_subplot()
    drawn = shown.isel({along: slice(number, number + 1)}) if draw is _map else shown
    where = ""
    if draw is _map and is_map(shown) and "z" in shown.dims:
        drawn, where = drawn.isel(z=level), f", {describe_level(shown, level)}"
    limits = _find_limits(shown, is_mean=draw is not _map) if limits is None else _check_limits(limits)
    canvas = Canvas(axes, _find_colours(shown, cmap), mark_stations(stations), is_own=ax is None, limits=limits)
    made = draw(canvas, drawn)
    # A line each, as maps are narrow.
    lines = filter(None, [f"{title or made}{where}", _format_period(drawn), split_title(shown)[1]])
    axes.set_title("\n".join(lines), fontsize=10, loc="left")
    if picture is None:
        return axes
    # The layout keeps clear of a strip at the bottom, which names the source of the picture.
    picture.text(0.99, 0.008, _format_source(dataset), fontsize=6.5, color="0.35", ha="right", va="bottom")
    return picture


def _choose_variable(dataset: xr.Dataset, name: str) -> xr.Dataset:
    """Return the result by its roles, with one of its variables as the value."""
    names = find_names(dataset) if isinstance(dataset, xr.Dataset) else {}
    if not names:
        got = (
            f"the variables {sorted(map(str, dataset))}" if isinstance(dataset, xr.Dataset) else type(dataset).__name__
        )
        raise InvalidQuery(f"hg.plot needs a result, the dataset that compute() returns, with its values; got {got}")
    shown = by_role(dataset)
    of_cells = {names.get(str(role), str(role)): str(role) for role in shown if shown[role].dims == shown["value"].dims}
    role = of_cells.get(name, name)
    if role not in of_cells.values():
        raise NotFound.among("variable of the result", name, list(of_cells))
    if role != "value":
        shown = shown.assign(value=shown[role])
    if not np.isfinite(shown["value"].to_numpy()).any():
        raise InvalidQuery(
            "the result holds no value, only missing cells; there is nothing to draw (look at its counts)"
        )
    return shown


def _find_time_cell(dataset: xr.Dataset, time: object) -> int:
    """Return the index of a time cell, which is given itself or as an instant in it."""
    along = _time_dimension(dataset)
    count = dataset.sizes[along]
    if isinstance(time, int | np.integer) and not isinstance(time, bool):
        if not 0 <= time < count:
            raise InvalidQuery(f"time cell {time} does not exist; the result has {count}, counted from 0")
        return int(time)
    if along != "time":
        raise InvalidQuery(f"a result by {along.replace('_', ' ')} needs time as an index from 0; got {time!r}")
    instant = np.datetime64(parse_instant(time), "ns")
    starts = dataset["time"].to_numpy()
    number = int(np.searchsorted(starts, instant, side="right")) - 1
    ends = dataset["time_bounds"].to_numpy()[:, 1] if "time_bounds" in dataset else starts + np.timedelta64(1, "ns")
    if number < 0 or instant >= ends[number]:
        raise InvalidQuery(
            f"no time cell holds {_format_instant(instant)} UTC; the result has {count}, from "
            f"{_format_instant(starts[0])} to {_format_instant(ends[-1])} UTC"
        )
    return number


def _find_colours(dataset: xr.Dataset, name: str | Colormap | None) -> str | Colormap:
    if name is None:
        return DIRECTION_COLOURS if _is_direction(dataset) else FIELD_COLOURS
    if isinstance(name, str) and name not in colormaps:
        raise NotFound.among("colour map", name, list(colormaps))
    return name


def _is_direction(dataset: xr.Dataset) -> bool:
    """Check whether values go round: angles such as slopes have the same unit and do not."""
    attributes = value_of(dataset).attrs
    if attributes.get("units") != "degree":
        return False
    functions = str(dataset.attrs.get("hypergrid_functions", ""))
    # A merge may make differences of directions.
    is_mean = '"aggregate circular_mean"' in functions and '"merge ' not in functions
    return is_mean or _DIRECTION.fullmatch(str(attributes.get("standard_name", ""))) is not None


def _check_limits(limits: object) -> tuple[float, float]:
    try:
        low, high = np.asarray(limits, dtype=np.float64).tolist()
        if -np.inf < low < high < np.inf:
            return low, high
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidQuery(f"limits needs the values of the first and the last colour, in ascending order; got {limits!r}")


def _find_limits(dataset: xr.Dataset, *, is_mean: bool) -> tuple[float, float] | None:
    """Return the values that the colours of all cells span; None where means of cells are drawn."""
    if _is_direction(dataset):
        return 0.0, 360.0
    values = value_of(dataset).to_numpy()
    return None if is_mean else (float(np.nanmin(values)), float(np.nanmax(values)))


def picture_bytes(dataset: xr.Dataset, *, time: int = 0, level: int = 0) -> bytes:
    """Draw a result as PNG; of a map one time cell and level, counted from 0."""
    return plot(dataset, time=time, level=level).png()


def _figure_size(dataset: xr.Dataset) -> tuple[float, float]:
    """Return the size of the picture [inch]; a map's follows the shape of its region."""
    if not is_map(dataset):
        return 7.2, 5.6
    y, x = (dataset[f"{name}_bounds"].to_numpy() for name in value_of(dataset).dims[-2:])
    # A degree of longitude shrinks with the cosine of the latitude.
    stretch = 1 / np.cos(np.radians(y.mean())) if "lat" in dataset.dims else 1.0
    ratio = float((x.max() - x.min()) / ((y.max() - y.min()) * stretch))
    return float(np.clip(4.4 * ratio + 2.2, 4.5, 10.0)), 5.6


def _name_places(dataset: xr.Dataset) -> str:
    if is_map(dataset):
        return "cells"
    return next(
        (kind for name, kind in (("zone", "zones"), ("point", "points"), ("z", "bands")) if name in dataset.dims),
        "series",
    )


def _kind(dataset: xr.Dataset) -> str:
    if is_map(dataset):
        return "map"
    return "day_by_hour" if _is_hourly(dataset) and dataset.sizes["time"] >= 48 else "lines"


def _time_dimension(dataset: xr.Dataset) -> str:
    """Return the dimension of the time cells: "time", or for example "hour_of_day"."""
    return str(dataset["time"].dims[0])


def _is_hourly(dataset: xr.Dataset) -> bool:
    if _time_dimension(dataset) != "time":
        return False
    steps = np.diff(dataset["time"].to_numpy())
    return bool(len(steps)) and bool((steps == np.timedelta64(1, "h")).all())


def _name(dataset: xr.Dataset) -> str:
    return str(value_of(dataset).attrs.get("long_name", "value"))


def split_title(dataset: xr.Dataset) -> tuple[str, str]:
    """Return the name of the values with their statistic, and the interpolation; empty if not known."""
    name = _name(dataset)
    parts = _TITLE.fullmatch(str(dataset.attrs.get("title", "")))
    if parts is None:
        return name, ""
    # The title is not about a count, for example.
    return parts[1] if name.lower() in parts[1].lower() else name, parts[2] or ""


def _label(dataset: xr.Dataset) -> str:
    return f"{_name(dataset)} [{unit_symbol(str(dataset['value'].attrs.get('units', '1')))}]"


def _format_instant(value: np.datetime64) -> str:
    return str(value.astype("datetime64[m]")).replace("T", " ")


def _format_period(dataset: xr.Dataset) -> str:
    bounds = dataset["time_bounds"].to_numpy() if "time_bounds" in dataset else None
    if "climatology_bounds" in dataset:
        along = _time_dimension(dataset)
        # A recurring cell without a block of time in the window has bounds of zero length.
        held = dataset["climatology_bounds"].to_numpy()
        numbers = dataset[along].to_numpy()
        period_name = f"{along.replace('_', ' ')} {numbers[0]}" + (f" to {numbers[-1]}" if len(numbers) > 1 else "")
        return f"{period_name}, {_format_instant(held[:, 0].min())} to {_format_instant(held[:, 1].max())} UTC"
    first = dataset["time"].to_numpy()[0]
    last = bounds[-1, 1] if bounds is not None else dataset["time"].to_numpy()[-1]
    return " to ".join(dict.fromkeys(map(_format_instant, (first, last)))) + " UTC"


def _format_source(dataset: xr.Dataset) -> str:
    archives, snapshots = (
        [name for name in str(dataset.attrs.get(f"hypergrid_{what}", "")).split(", ") if name not in ("", "array")]
        for what in ("archive", "snapshot")
    )
    return describe_source(archives, snapshots)


@KINDS.register("map")
def _map(canvas: Canvas, dataset: xr.Dataset) -> str:
    axes = canvas.axes
    if not is_map(dataset):
        raise InvalidQuery("a map needs a result on a grid; interpolate, or draw 'lines'")
    y, x = value_of(dataset).dims[-2:]
    values = value_of(dataset)[0]
    edges = {name: find_edges(dataset, str(name)) for name in (y, x)}
    image = canvas.draw_cells(edges[x], edges[y], values.to_numpy())
    axes.set_facecolor("0.85")
    canvas.figure.colorbar(image, ax=axes, label=_label(dataset), shrink=0.9)
    _draw_stations(canvas, edges[x], edges[y])
    lonlat = x == "lon"
    axes.set_aspect(1 / np.cos(np.radians(float(dataset[y].mean()))) if lonlat else 1)
    axes.set_xlabel("longitude [degree east]" if lonlat else "x [m]")
    axes.set_ylabel("latitude [degree north]" if lonlat else "y [m]")
    axes.ticklabel_format(useOffset=False)
    axes.locator_params(axis="x", nbins=5)
    return split_title(dataset)[0]


def find_edges(dataset: xr.Dataset, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    bounds = dataset[f"{name}_bounds"].to_numpy()
    return np.append(bounds[:, 0], bounds[-1, 1])


def _draw_stations(canvas: Canvas, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
    inside = [mark for mark in canvas.stations if x[0] <= mark.x <= x[-1] and y[0] <= mark.y <= y[-1]]
    if not inside:
        return
    look: dict[str, Any] = {
        "markersize": 4,
        "markerfacecolor": "white",
        "markeredgecolor": "black",
        "linestyle": "none",
    }
    canvas.axes.plot([mark.x for mark in inside], [mark.y for mark in inside], "o", label="station", **look)
    for mark in inside if len(inside) <= MAX_LABELLED else ():
        canvas.axes.annotate(
            mark.name, (mark.x, mark.y), (3, 3), textcoords="offset points", fontsize=6, path_effects=HALO
        )
    # Outside the map, because stations can be in any corner.
    canvas.add_legend("outside upper right")


@KINDS.register("day_by_hour")
def _day_by_hour(canvas: Canvas, dataset: xr.Dataset) -> str:
    axes = canvas.axes
    if not _is_hourly(dataset):
        raise InvalidQuery("a picture of days by hours needs hourly cells; aggregate with time='1h'")
    values = value_of(dataset).mean([name for name in value_of(dataset).dims if name != "time"], skipna=True).to_numpy()
    times = dataset["time"].to_numpy()
    days = times.astype("datetime64[D]")
    first, count = days[0], int((days[-1] - days[0]) / np.timedelta64(1, "D")) + 1
    table = np.full((24, count), np.nan)
    hours, columns = (times - days) / np.timedelta64(1, "h"), (days - first) / np.timedelta64(1, "D")
    table[hours.astype(int), columns.astype(int)] = values
    edges = first + np.arange(count + 1) * np.timedelta64(1, "D")
    image = canvas.draw_cells(edges, np.arange(25), table)
    axes.set_facecolor("0.85")
    canvas.figure.colorbar(image, ax=axes, label=_label(dataset), shrink=0.9)
    axes.set_yticks(range(0, 25, 3))
    axes.set_ylabel("hour of the day (UTC)")
    _format_dates(axes)
    return f"{split_title(dataset)[0]}, hourly, mean of {dataset['value'][0].size} {_name_places(dataset)}"


@KINDS.register("lines")
def _lines(canvas: Canvas, dataset: xr.Dataset) -> str:
    axes = canvas.axes
    along = _time_dimension(dataset)
    others = [name for name in value_of(dataset).dims if name != along]
    values = value_of(dataset).stack(position=others).transpose(along, "position").to_numpy()
    names = None if is_map(dataset) else place_names(dataset)
    kind = {"zones": "zone", "bands": "band", "points": "point"}.get(_name_places(dataset), "station")
    is_named = names is not None and values.shape[1] <= MAX_NAMED
    for column in range(values.shape[1]):
        label = f"{kind} {names[column]}" if names is not None and is_named else None
        dashes, marker = LINE_STYLES[column // len(LINE_COLOURS) % len(LINE_STYLES)]
        look: dict[str, Any] = {"color": LINE_COLOURS[column % len(LINE_COLOURS)], "linestyle": dashes}
        look["marker"] = marker if len(values) < 3 else None
        axes.plot(dataset[along].to_numpy(), values[:, column], linewidth=0.9, label=label, **look)
    if is_named:
        canvas.add_legend("outside right upper")
    axes.set_ylabel(_label(dataset))
    axes.grid(visible=True, alpha=0.3)
    if along == "time":
        _format_dates(axes)
    else:
        axes.set_xlabel(str(dataset[along].attrs.get("long_name", along)))
    return f"{split_title(dataset)[0]}, {values.shape[1]} {_name_places(dataset)}"


def _format_dates(axes: Axes) -> None:
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("time (UTC)")
