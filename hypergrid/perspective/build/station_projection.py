"""How an interpolation places its stations: in which metres, and which of them lie too far outside its grid.

What is too far follows from the stations' positions and the whole grid of the step, before anything is clipped; the
metres, from the stations that are left. So neither depends on values or on the clip.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation import Variogram
from hypergrid.interpolation.points.distance import separations
from hypergrid.interpolation.methods.station_selection import far_limit_m, join_names
from hypergrid.perspective.tree.operators import Interpolate
from hypergrid.core.geodesy import places_m
from hypergrid.topology import Grid, Metres, Points, SeriesAxis

Floats = NDArray[np.float64]

SIDE_POINTS = 33
"""Points on each side of a grid in degrees that its outline is measured by: its sides are no great circles."""


MARGIN = 1.02
"""Times a radius within which stations are taken to be in reach: more than distances on a plane and a sphere differ."""


@dataclass(frozen=True, eq=False)
class GridDistance:
    """How far stations are from a grid."""

    distance_m: Floats
    """From the grid, 0 inside, NaN without a position; shape (series,)."""
    diagonal_m: float
    """Of the grid."""
    excluded: tuple[tuple[str, float], ...]
    """Stations that are too far to be used, with their distances [m]."""


def measure_grid_distance(axis: SeriesAxis, grid: Grid, given: Mapping[str, Any]) -> GridDistance:
    """Return how far stations are from the whole grid of a step.

    Parameters
    ----------
    axis
        Stations, at least one of them with a position.
    grid
        The grid as the step gives it, before any clip.
    given
        The step's parameters: `ignore_beyond_m` and `variogram` are read, where they are there.

    Raises
    ------
    InvalidQuery
        No station is as near as is asked.
    """
    placed = np.isfinite(axis.x) & np.isfinite(axis.y)
    distance = np.full(axis.count, np.nan)
    distance[placed], diagonal = _measure_from_grid(np.stack([axis.x[placed], axis.y[placed]], axis=1), grid)
    model, limit = given.get("variogram"), given.get("ignore_beyond_m")
    if limit is None:
        # A model that is fitted to the values is not known yet, and its range is of the network's size.
        range_m = model.effective_range_m if isinstance(model, Variogram) else 0.0
        limit = far_limit_m(distance[placed], diagonal_m=diagonal, range_m=range_m)
    beyond = np.flatnonzero(distance > limit)
    if len(beyond) == np.count_nonzero(placed):
        message = (
            f"ignore_beyond_m={limit:g} leaves none of the {len(beyond)} stations: the nearest is "
            f"{np.nanmin(distance):,.0f} m from the grid; raise it"
        )
        raise InvalidQuery(message)
    return GridDistance(distance, diagonal, tuple((axis.series[i].station, float(distance[i])) for i in beyond))


@dataclass(frozen=True, eq=False)
class StationPlacing:
    """Where the stations of an interpolation are."""

    metres: Metres
    placed: NDArray[np.bool_]
    """Which series have a position, shape (series,)."""
    near: NDArray[np.bool_]
    """Which of them are near enough to be used, shape (series,)."""
    notes: tuple[str, ...]


def place_stations(axis: SeriesAxis, operator: Interpolate) -> StationPlacing:
    """Return where the stations of an interpolation are.

    Raises
    ------
    InvalidQuery, NotFound
        Great circles between projected coordinates; no such way to measure distance.
    """
    placed = np.isfinite(axis.x) & np.isfinite(axis.y)
    excluded = dict(operator.excluded_stations)
    near = placed & ~np.array([series.station in excluded for series in axis.series], dtype=bool)
    named = join_names(f"{name} ({distance / 1000:,.0f} km)" for name, distance in excluded.items())
    notes = (f"stations far outside the grid are not used (ignore_beyond_m): {named}",) if excluded else ()
    # One zero in place of a position must not move the plane of all others, or turn it into a sphere.
    kept = replace(axis, x=np.where(near, axis.x, np.nan), y=np.where(near, axis.y, np.nan))
    return StationPlacing(Metres(kept, operator.arguments.get("distance") or "auto"), placed, near, notes)


def mask_in_reach(axis: SeriesAxis, cells: Grid | Points, operator: Interpolate) -> NDArray[np.bool_]:
    """Return the stations that may have a say in an estimate at some cell, whichever of them report; shape (series,).

    Those that have a position, are not too far outside the step's whole grid and, where the step takes only stations
    within a radius and learns from no others, within that radius of these cells. How many neighbours it takes does not
    tell: which of those that report are the nearest is known only with their values.

    Parameters
    ----------
    axis, operator
        What is interpolated, and how.
    cells
        Those that are wanted.
    """
    excluded = dict(operator.excluded_stations)
    near = np.isfinite(axis.x) & np.isfinite(axis.y)
    near &= ~np.array([series.station in excluded for series in axis.series], dtype=bool)
    given = operator.arguments
    radius_m, merges = given.get("radius_m"), given.get("coincident") == "merge" or "merge_within_m" in given
    fixed = isinstance(given.get("variogram"), Variogram) or not operator.row.has_variance
    learns = not fixed or given.get("trend") is not None or "degree" in given or operator.covariates
    if radius_m is None or merges or learns or not near.any():
        return near
    distance, diagonal = _measure_from_grid(np.stack([axis.x[near], axis.y[near]], axis=1), cells)
    # Distances on a plane are off from those on the sphere, and an outline has points at intervals: better one more.
    near[near] = distance <= MARGIN * radius_m + diagonal / SIDE_POINTS
    return near


def _measure_from_grid(points: Floats, grid: Grid | Points) -> tuple[Floats, float]:
    """Return the distance of points from the box of a grid [m], 0 inside, shape (points,), and its diagonal [m]."""
    left, low, right, high = grid.box
    y = np.clip(points[:, 1], low, high)
    if grid.system == "metres":
        inside = np.stack([np.clip(points[:, 0], left, right), y], axis=1)
        return np.linalg.norm(points - inside, axis=1), float(np.hypot(right - left, high - low))
    beyond, width = (points[:, 0] - left) % 360.0, right - left
    inside = (beyond <= width) & (y == points[:, 1])
    x = np.where(beyond <= width, points[:, 0], np.where(beyond - width < 360.0 - beyond, right, left))
    places, outline = places_m(points[:, 0], points[:, 1]), _make_outline(left, right, low, high)
    onto = separations(places[:, None], places_m(x, y)[:, None])[:, 0, 0]
    distance = np.minimum(separations(places, outline).min(axis=1), onto)
    return np.where(inside, 0.0, distance), float(separations(outline, outline).max())


def _make_outline(left: float, right: float, low: float, high: float) -> Floats:
    """Return points around a grid in degrees, on the sphere [m], shape (4 * SIDE_POINTS, 3)."""
    x, y = np.linspace(left, right, SIDE_POINTS), np.linspace(low, high, SIDE_POINTS)
    lon = np.concatenate([x, x, np.full(SIDE_POINTS, left), np.full(SIDE_POINTS, right)])
    lat = np.concatenate([np.full(SIDE_POINTS, low), np.full(SIDE_POINTS, high), y, y])
    return places_m(lon, lat)
