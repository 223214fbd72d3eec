"""Placement of the stations of an interpolation: projection, and exclusion of distant ones.

Neither depends on values or on the clip: exclusion follows from the station positions and the step's whole grid, the
projection from the remaining stations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.geodesy import places_m
from hypergrid.interpolation import Variogram
from hypergrid.interpolation.methods.station_selection import far_limit_m, join_names
from hypergrid.interpolation.points import separations
from hypergrid.perspective.tree import Interpolate
from hypergrid.topology import Grid, Metres, Points, SeriesAxis

Floats = NDArray[np.float64]

SIDE_POINTS = 33
"""Points per side when outlining a grid in degrees, whose sides are not great circles."""


MARGIN = 1.02
"""Factor on the radius of the reach test; exceeds the difference between plane and sphere distances."""


@dataclass(frozen=True, eq=False)
class GridDistance:
    """Distances of stations from a grid."""

    distance_m: Floats
    """Distance from the grid [m], 0 inside, NaN without a position; shape (series,)."""
    diagonal_m: float
    """Diagonal of the grid [m]."""
    excluded: tuple[tuple[str, float], ...]
    """Stations too far away to be used, with their distances [m]."""


def measure_grid_distance(axis: SeriesAxis, grid: Grid, given: Mapping[str, Any]) -> GridDistance:
    """Measure the distances of stations from the whole grid of a step.

    Parameters
    ----------
    axis
        Stations, at least one of them with a position.
    grid
        Grid of the step, before any clip.
    given
        Parameters of the step; `ignore_beyond_m` and `variogram` are used if present.

    Raises
    ------
    InvalidQuery
        No station is within `ignore_beyond_m`.
    """
    placed = np.isfinite(axis.x) & np.isfinite(axis.y)
    distance = np.full(axis.count, np.nan)
    distance[placed], diagonal = _measure_from_grid(np.stack([axis.x[placed], axis.y[placed]], axis=1), grid)
    model, limit = given.get("variogram"), given.get("ignore_beyond_m")
    if limit is None:
        # A model fitted to the values is not known yet, and its range is about the size of the network.
        range_m = model.effective_range_m if isinstance(model, Variogram) else 0.0
        limit = far_limit_m(distance[placed], diagonal_m=diagonal, range_m=range_m)
    beyond = np.flatnonzero(distance > limit)
    if len(beyond) == np.count_nonzero(placed):
        raise InvalidQuery(
            f"ignore_beyond_m={limit:g} leaves none of the {len(beyond)} stations: the nearest is "
            f"{np.nanmin(distance):,.0f} m from the grid; raise it"
        )
    return GridDistance(distance, diagonal, tuple((axis.series[i].station, float(distance[i])) for i in beyond))


@dataclass(frozen=True, eq=False)
class StationPlacing:
    """Projection and masks of the stations of an interpolation."""

    metres: Metres
    placed: NDArray[np.bool_]
    """Mask of series with a position, shape (series,)."""
    near: NDArray[np.bool_]
    """Mask of series near enough to be used, shape (series,)."""
    notes: tuple[str, ...]


def place_stations(axis: SeriesAxis, operator: Interpolate) -> StationPlacing:
    """Return the placement of the stations of an interpolation.

    Raises
    ------
    InvalidQuery, NotFound
        Great circles between projected coordinates; unknown distance measure.
    """
    placed = np.isfinite(axis.x) & np.isfinite(axis.y)
    excluded = dict(operator.excluded_stations)
    near = placed & ~np.array([series.station in excluded for series in axis.series], dtype=bool)
    named = join_names(f"{name} ({distance / 1000:,.0f} km)" for name, distance in excluded.items())
    notes = (f"stations far outside the grid are not used (ignore_beyond_m): {named}",) if excluded else ()
    # A single position entered as 0, 0 must not shift the plane of all others or force the sphere.
    kept = replace(axis, x=np.where(near, axis.x, np.nan), y=np.where(near, axis.y, np.nan))
    return StationPlacing(Metres(kept, operator.arguments.get("distance") or "auto"), placed, near, notes)


def mask_in_reach(axis: SeriesAxis, cells: Grid | Points, operator: Interpolate) -> NDArray[np.bool_]:
    """Return the mask of stations that can affect an estimate at some cell, shape (series,).

    These have a position and are not excluded as too far from the step's whole grid. If the step uses only stations
    within a radius and learns from no others, they are also within that radius of the given cells. The number of
    neighbours does not narrow the mask.

    Parameters
    ----------
    axis, operator
        Stations, and their interpolation.
    cells
        Requested cells.
    """
    excluded = dict(operator.excluded_stations)
    near = np.isfinite(axis.x) & np.isfinite(axis.y)
    near &= ~np.array([series.station in excluded for series in axis.series], dtype=bool)
    given = operator.arguments
    radius_m, merges = given.get("radius_m"), given.get("coincident") == "merge" or "merge_within_m" in given
    fixed = isinstance(given.get("variogram"), Variogram) or not operator.row.has_variance
    learns = not fixed or given.get("trend") is not None or "degree" in given or operator.covariates
    # Which reporting stations are the nearest neighbours is known only with the values.
    if radius_m is None or merges or learns or not near.any():
        return near
    distance, diagonal = _measure_from_grid(np.stack([axis.x[near], axis.y[near]], axis=1), cells)
    # Plane and sphere distances differ, and the outline is sampled: err on the side of one station more.
    near[near] = distance <= MARGIN * radius_m + diagonal / SIDE_POINTS
    return near


def _measure_from_grid(points: Floats, grid: Grid | Points) -> tuple[Floats, float]:
    """Return the distances of points from the box of a grid, and its diagonal.

    Distances [m] are 0 inside, shape (points,); the diagonal is in [m].
    """
    left, low, right, high = grid.box
    y = np.clip(points[:, 1], low, high)
    if grid.system == "metres":
        inside = np.stack([np.clip(points[:, 0], left, right), y], axis=1)
        return np.linalg.norm(points - inside, axis=1), float(np.hypot(right - left, high - low))
    beyond, width = (points[:, 0] - left) % 360.0, right - left
    inside = (beyond <= width) & (y == points[:, 1])
    # West and east of the grid the nearer side counts, around the earth.
    x = np.where(beyond <= width, points[:, 0], np.where(beyond - width < 360.0 - beyond, right, left))
    places, outline = places_m(points[:, 0], points[:, 1]), _make_outline(left, right, low, high)
    onto = separations(places[:, None], places_m(x, y)[:, None])[:, 0, 0]
    distance = np.minimum(separations(places, outline).min(axis=1), onto)
    return np.where(inside, 0.0, distance), float(separations(outline, outline).max())


def _make_outline(left: float, right: float, low: float, high: float) -> Floats:
    """Outline a grid in degrees by points on the sphere [m], shape (4 * SIDE_POINTS, 3)."""
    x, y = np.linspace(left, right, SIDE_POINTS), np.linspace(low, high, SIDE_POINTS)
    lon = np.concatenate([x, x, np.full(SIDE_POINTS, left), np.full(SIDE_POINTS, right)])
    lat = np.concatenate([np.full(SIDE_POINTS, low), np.full(SIDE_POINTS, high), y, y])
    return places_m(lon, lat)
