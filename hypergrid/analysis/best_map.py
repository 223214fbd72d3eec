"""Picture of the best method in a comparison: its map and standard error."""

import textwrap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.result_names import by_role, value_of
from hypergrid.core.times import format_instant, parse_instant
from hypergrid.core.units import unit_symbol
from hypergrid.interpolation import Comparison, Variogram
from hypergrid.layers.layer import Layer
from hypergrid.perspective import Base
from hypergrid.plots.kinds import FIELD_COLOURS, HALO, Picture, find_edges, split_title
from hypergrid.plots.labels import describe_bases
from hypergrid.plots.variogram import describe_model
from hypergrid.query import Query, base
from hypergrid.topology import Grid, grid

ERROR_COLOURS = "magma_r"
"""Light where the error is small; perceptually uniform."""

CELLS = 300
"""Cells along the longer side of the map."""

NOTE_WIDTH = 140
"""Line width of notes below the picture [characters]."""

MARGIN = 0.04
"""Margin of the map on every side, as a share of the stations' extent."""


@dataclass(frozen=True, eq=False)
class BestMap:
    """One time cell of the best mappable method with a variance, and its inputs."""

    dataset: xr.Dataset
    """Value and variance on a grid, one time."""
    values: xr.DataArray
    """Values at the stations, shape (series,), with their coordinates."""
    best_method: Comparison
    rank: int
    """Rank in the comparison, 1 for the smallest error of all."""
    comparisons: int
    """Number of methods that could be compared."""
    source: str
    """Archive, snapshot and software."""
    what: str
    """Name of the values with their statistic."""


def map_of_best(data: Query | xr.DataArray, compared: Sequence[Comparison], *, time: str | None = None) -> BestMap:
    """Compute one time cell with the best method that estimates its variance.

    Parameters
    ----------
    data
        Subject of the comparison: a query, of which the steps at the stations are used, or an array.
    compared
        The comparison, best first.
    time
        Instant of the time cell; if absent, the middle one of those with the most values.

    Raises
    ------
    InvalidQuery
        No usable method estimates its variance, or the time cell does not exist.
    """
    ranked = [each for each in compared if each.validation is not None]
    known = [each for each in ranked if each.validation is not None and each.validation.variance is not None]
    if not known:
        why = "; ".join(f"{each.label}: {each.problem}" for each in compared if each.problem)
        raise InvalidQuery(
            "the picture shows the best method that knows its uncertainty, and none that could be used does"
            f"{f' ({why})' if why else ': compare a kriging method as well'}"
        )
    query = (data if isinstance(data, Query) else base(data)).at_stations()
    layers, source = _layers(query), describe_bases(query.surface().perspective)
    result = query.compute()
    values = value_of(result).rename(query.question.variable)
    slice_values = values.isel(time=[_find_time(values, time)])
    region, refused = _make_grid_around(slice_values), ""
    for chosen in known:
        asked = (
            base(slice_values, layers=layers)
            .interpolate(chosen.method, grid=region, **_parameters(chosen))
            .with_variance()
        )
        try:
            rank = ranked.index(chosen) + 1
            what = split_title(result)[0]
            return BestMap(asked.compute(), slice_values[0], chosen, rank, len(ranked), source, what)
        except (InvalidQuery, NotFound) as error:
            # A grid may lack the elevation that stations have; the next method may not need it.
            refused = refused or f"{chosen.label}: {error}"
    raise InvalidQuery(f"none of the methods that know their uncertainty can be mapped: {refused}")


def _layers(query: Query) -> dict[str, Layer]:
    """Return the elevation layer of a query's base source, if there is one."""
    operator = query.surface().perspective.list_bases()[0].operator
    if isinstance(operator, Base):
        with suppress(NotFound):
            return {"elevation": operator.source.layer("elevation")}
    return {}


def plot_comparison(best: BestMap) -> Figure:
    """Draw the map with the stations' values, and the standard error of each cell."""
    dataset = by_role(best.dataset)
    value = dataset["value"][0]
    error = np.sqrt(dataset["variance"][0].to_numpy())
    lonlat = "lon" in best.dataset.dims
    y, x = (find_edges(best.dataset, str(name)) for name in value.dims)
    stretch = 1 / np.cos(np.radians(float(y.mean()))) if lonlat else 1.0
    shape = (y[-1] - y[0]) * stretch / (x[-1] - x[0])
    height = float(np.clip(5.0 * shape, 3.2, 6.2))
    figure = Picture(figsize=(2 * height / shape + 2.4, height + 1.7), dpi=140, layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    unit = unit_symbol(str(value.attrs.get("units", "1")))
    name = str(value.attrs.get("long_name", "value"))
    measured = best.values.to_numpy()
    together = np.concatenate([value.to_numpy().ravel(), measured])
    norm = Normalize(float(np.nanmin(together)), float(np.nanmax(together)))
    _draw_panel(left, (x, y), value.to_numpy(), FIELD_COLOURS, f"{name} [{unit}]", norm)
    _draw_contours(left, (x, y), value.to_numpy())
    _draw_panel(right, (x, y), error, ERROR_COLOURS, f"standard error [{unit}]", None)
    east, north = (best.values[key].to_numpy() for key in (("lon", "lat") if lonlat else ("x", "y")))
    has_value = np.isfinite(measured)
    edge: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.7, "zorder": 3}
    left.scatter(east[has_value], north[has_value], c=measured[has_value], s=34, cmap=FIELD_COLOURS, norm=norm, **edge)
    right.scatter(east[has_value], north[has_value], c="white", s=16, **edge)
    left.set_title("Estimate; circles: what the stations measured", fontsize=9, loc="left")
    right.set_title("Standard error; circles: the stations that reported", fontsize=9, loc="left")
    for axes in (left, right):
        axes.set_aspect(stretch)
        axes.set_xlabel("longitude [degree east]" if lonlat else "x [m]")
        axes.ticklabel_format(useOffset=False)
        axes.locator_params(axis="both", nbins=6)
    left.set_ylabel("latitude [degree north]" if lonlat else "y [m]")
    instant = str(best.dataset["time"].to_numpy()[0].astype("datetime64[m]")).replace("T", " ")
    figure.suptitle(f"{best.what}, {instant} UTC, by {best.best_method.label}", fontsize=12, x=0.01, ha="left")
    figure.supxlabel(_format_footnote(best, unit), fontsize=7.5, color="0.3", x=0.01, ha="left")
    return figure


def _draw_panel(
    axes: Axes,
    edges: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    values: np.ndarray[Any, Any],
    colours: str,
    label: str,
    norm: Normalize | None,
) -> None:
    image = axes.pcolormesh(*edges, np.ma.masked_invalid(values), cmap=colours, norm=norm, rasterized=True)
    axes.set_facecolor("0.85")
    axes.figure.colorbar(image, ax=axes, label=label, orientation="horizontal", shrink=0.75, aspect=32, pad=0.02)


def _draw_contours(
    axes: Axes, edges: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], values: np.ndarray[Any, Any]
) -> None:
    """Draw contour lines, which keep the map readable without colours."""
    if np.ptp(values[np.isfinite(values)]) == 0:
        return
    centres = [(edge[:-1] + edge[1:]) / 2 for edge in edges]
    lines = axes.contour(*centres, np.ma.masked_invalid(values), levels=10, colors="black", linewidths=0.5, alpha=0.6)
    for text in axes.clabel(lines, fontsize=7, fmt="%g"):
        text.set_path_effects(list(HALO))


def _format_footnote(best: BestMap, unit: str) -> str:
    """Describe how the method was chosen, and its error and coverage in that test."""
    score = best.best_method.common
    if score is None:
        return best.source
    why = "" if best.rank == 1 else ", the first that knows its uncertainty and needs no more than the stations"
    covered = f"; its 95 % intervals hold {score.coverage_95:.1%}" if np.isfinite(score.coverage_95) else ""
    model = best.best_method.validation.given[0].get("variogram") if best.best_method.validation else None
    fitted = (
        f"\nVariogram fitted to all slices: {describe_model(model, *_length_scale(model))}" if model is not None else ""
    )
    doubts = "".join("\n" + textwrap.fill(f"Note: {note}", NOTE_WIDTH) for note in best.best_method.notes)
    return (
        f"Leave-one-out by station, {best.best_method.scored_on}: root-mean-square error {score.rmse:.3g} "
        f"{unit}{covered}.\n"
        f"Rank {best.rank} of {best.comparisons} methods{why}.{fitted}{doubts}\n{best.source}"
    )


def _length_scale(model: Variogram) -> tuple[float, str]:
    return (1000.0, "km") if max(term.range_m for term in model.structures) >= 5000 else (1.0, "m")


def _parameters(chosen: Comparison) -> dict[str, Any]:
    return {} if chosen.validation is None else dict(chosen.validation.to_json()["parameters"][0])


def _find_time(values: xr.DataArray, time: str | None) -> int:
    if time is None:
        value_counts = np.isfinite(values.to_numpy()).sum(axis=1)
        full = np.flatnonzero(value_counts == value_counts.max())
        return int(full[len(full) // 2])
    times = values["time"].to_numpy()
    wanted = np.datetime64(parse_instant(time), "ns")
    indices = np.flatnonzero(times == wanted)
    if not len(indices):
        first, last = (format_instant(int(each.astype("datetime64[ns]").astype(np.int64))) for each in times[[0, -1]])
        raise InvalidQuery(f"there is no time cell {time}; they go from {first} to {last}")
    return int(indices[0])


def _make_grid_around(values: xr.DataArray) -> Grid:
    lonlat = "lon" in values.coords
    has_value = np.isfinite(values.to_numpy()).any(axis=0)
    x, y = (values[key].to_numpy()[has_value] for key in (("lon", "lat") if lonlat else ("x", "y")))
    x, y = x[np.isfinite(x)], y[np.isfinite(y)]
    # A degree of longitude is shorter than one of latitude: the side that is longer on the ground gets the cells.
    wide, tall = np.ptp(x), np.ptp(y)
    step = max(wide * (np.cos(np.radians(y.mean())) if lonlat else 1.0), tall) * (1 + 2 * MARGIN) / CELLS
    step = float(f"{step:.2g}")
    west, south = (float(np.floor((v.min() - MARGIN * np.ptp(v)) / step) * step) for v in (x, y))
    shape = tuple(int(np.ceil((v.max() + MARGIN * np.ptp(v) - low) / step)) for v, low in ((y, south), (x, west)))
    if lonlat:
        return grid(lon=round(west, 6), lat=round(south, 6), step=step, shape=shape)
    return grid(x=round(west, 3), y=round(south, 3), step=step, shape=shape)
