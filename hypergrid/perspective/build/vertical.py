"""Interpolation onto levels, and elevation bands of stations and cells."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Series
from hypergrid.interpolation.solvers.trend import ELEVATION
from hypergrid.layers.layer import Layer
from hypergrid.perspective.tree import Perspective, Source
from hypergrid.topology import PER_UNIT, Bands, Grid, Levels, SeriesAxis, describe_levels, levels

FAR_M: Final = 5_000.0
"""Largest distance of a level above or below all stations [m]; height trends hold in the troposphere at best."""


def list_layers_on_levels(method: str, names: tuple[str, ...], stations: SeriesAxis, source: Source) -> tuple[str, ...]:
    """Return the layers that an interpolation onto levels needs.

    The elevation layer is needed only for stations without an elevation in their deployment; cells have the height of
    their level.

    Parameters
    ----------
    method, names
        Method, and its covariates.
    stations, source
        Interpolated stations, and the source of layers.

    Raises
    ------
    InvalidQuery
        The method ignores heights, or no station has one.
    """
    if ELEVATION not in names:
        raise InvalidQuery(
            f"{method} does not look at heights, so that every level of the grid would be alike; give it "
            "trend='lapse_rate' or 'profile', or use external_drift_kriging; or leave z out of the grid"
        )
    unknown = np.isnan(stations.elevation_m) & np.isfinite(stations.x) & np.isfinite(stations.y)
    if not unknown.any():
        return tuple(name for name in names if name != ELEVATION)
    try:
        # Only checks that the layer exists.
        source.layer(ELEVATION)
    except NotFound:
        if np.isnan(stations.elevation_m).all():
            _refuse_no_heights("interpolating onto levels", stations)
        return tuple(name for name in names if name != ELEVATION)
    return names


def make_bands(along: Mapping[str, Any], node: Perspective) -> Bands:
    """Return the elevation bands of an aggregate over z, for stations or a ground grid.

    Raises
    ------
    InvalidQuery, NotFound
        Other dimensions besides z, readings, no known height, no elevation layer, or invalid cells.
    """
    space = node.topology.space
    if len(along) > 1:
        others = ", ".join(name for name in along if name != "z")
        raise InvalidQuery(f"bands of elevation are cells in place of {others}; give one or the other")
    if node.holds_readings:
        raise InvalidQuery(
            "an aggregate over z needs values in time cells; align the readings with an aggregate over time first"
        )
    if isinstance(space, SeriesAxis):
        refuse_alike(space)
        refuse_moved(space)
        heights_m, terrain = space.elevation_m, ""
        if np.isnan(heights_m).all():
            _refuse_no_heights("an aggregate over z", space)
    elif isinstance(space, Grid):
        try:
            layer = node.bases[0].source.layer(ELEVATION)
        except NotFound as error:
            raise NotFound(f"{error}; bands of a grid on the ground are those of its cells' elevation") from error
        heights_m, terrain = layer.sample(space.centres(np.arange(space.count))), layer.token
        if np.isnan(heights_m).all():
            raise InvalidQuery(
                f"layer {ELEVATION!r} knows the height of no cell of the grid; give a layer of the grid's area"
            )
    else:
        raise TypeError("an aggregate over z needs stations or a grid")
    known = np.rint(heights_m[np.isfinite(heights_m)] * PER_UNIT["mm"])
    # Bands are half-open: 1 mm more includes the highest cell.
    bands = Bands(levels(along["z"], (int(known.min()), int(known.max()) + 1)), space, heights_m, terrain)
    if (bands.band < 0).all():
        kind = "stations" if isinstance(space, SeriesAxis) else "cells"
        raise InvalidQuery(
            f"no band holds any of the {kind}, which lie from {np.nanmin(heights_m):.7g} to {np.nanmax(heights_m):.7g} "
            f"m; the bands are {describe_levels(bands.z)}: give bands of their heights"
        )
    return bands


def refuse_far_levels(axis: Levels, stations: SeriesAxis, ground: Layer | None) -> None:
    """Refuse levels more than `FAR_M` above the highest or below the lowest station.

    Parameters
    ----------
    axis
        Levels of a grid.
    stations
        Interpolated stations.
    ground
        Layer with the elevation of stations that have none.
    """
    heights_m, unknown = stations.elevation_m, np.isnan(stations.elevation_m)
    if ground is not None and unknown.any():
        heights_m = np.where(unknown, ground.sample(np.stack([stations.x, stations.y], axis=1)), heights_m)
    if np.isnan(heights_m).all():
        return
    low, high = float(np.nanmin(heights_m)), float(np.nanmax(heights_m))
    is_far = (axis.centres < low - FAR_M) | (axis.centres > high + FAR_M)
    if is_far.any():
        named = ", ".join(f"{height:.7g}" for height in axis.centres[is_far][:4]) + (", …" if is_far.sum() > 4 else "")
        raise InvalidQuery(
            f"{is_far.sum()} of {axis.count} levels ({named} m) are more than {FAR_M / 1000:g} km above or below all "
            f"stations, which lie from {low:.7g} to {high:.7g} m: a trend of these says nothing there; heights are in "
            "metres above sea level"
        )


def _refuse_no_heights(what: str, stations: SeriesAxis) -> None:
    raise InvalidQuery(
        f"{what} needs to know how high stations lie; none of the {stations.count} has an elevation: give elevation_m "
        "in the deployment file, or the coordinate 'elevation' [m] of the array"
    )


def refuse_moved(stations: SeriesAxis) -> None:
    # Their values belong to several places.
    if stations.moved:
        raise InvalidQuery(
            f"stations moved while these readings were taken: {', '.join(stations.moved)}; clip the time so that it "
            "ends before or begins after the move, or leave them out with .select(station=…)"
        )


def refuse_alike(stations: SeriesAxis) -> None:
    # Otherwise heights, statistics or feeds of one place would be blended.
    by_station: dict[str, list[Series]] = {}
    for series in stations.series:
        by_station.setdefault(series.station, []).append(series)
    twice = next((several for several in by_station.values() if len(several) > 1), None)
    if twice is not None:
        names = ("height_m", "statistic", "replicate", "interval_s", "source")
        differing = [name for name in names if len({getattr(series, name) for series in twice}) > 1] or ["source"]
        offers = "; ".join(", ".join(f"{name}={getattr(series, name)!r}" for name in differing) for series in twice[:4])
        raise InvalidQuery(
            f"station {twice[0].station!r} has {len(twice)} series of this variable ({offers}); "
            f"choose one of each station, for example .select({differing[0]}={getattr(twice[0], differing[0])!r})"
        )
