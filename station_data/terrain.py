"""The terrain of the pass in closed form, and local coordinates for all formulas."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

CENTRE_LON = 7.0 + 10.0 / 60.0 + 48.5 / 3600.0
"""Longitude of the centre of Q1's grid [degree]."""
CENTRE_LAT = 45.0 + 52.0 / 60.0 + 12.5 / 3600.0
"""Latitude of the centre of Q1's grid [degree]."""
METRES_PER_DEGREE = 2.0 * np.pi * 6_371_008.8 / 360.0
"""Length of one degree of latitude on the sphere of the mean earth radius [m]."""
REFERENCE_M = 2450.0
"""Elevation of the saddle, at which the reference temperature holds [m]."""
AXIS_DEG = 60.0
"""Bearing of the pass road, along which the terrain falls on both sides [degree, clockwise from north]."""
FLANK_M, FLANK_WIDTH_M = 165.0, 400.0
FALL_M, FALL_LENGTH_M = 60.0, 420.0
HOLLOW_M, HOLLOW_WIDTH_M = 60.0, 220.0
HOLLOW_EAST_M, HOLLOW_NORTH_M = -60.0, -220.0


def local_metres(lon: ArrayLike, lat: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Convert positions [degree] to offsets east and north of the pass's centre [m]; arrays broadcast."""
    east = (np.asarray(lon, dtype=np.float64) - CENTRE_LON) * METRES_PER_DEGREE * np.cos(np.radians(CENTRE_LAT))
    north = (np.asarray(lat, dtype=np.float64) - CENTRE_LAT) * METRES_PER_DEGREE
    return east, north


def across_road(lon: ArrayLike, lat: ArrayLike) -> NDArray[np.float64]:
    """Compute the distance from the road over the pass [m], positive on its south-eastern side."""
    east, north = local_metres(lon, lat)
    bearing = np.radians(AXIS_DEG)
    return east * np.cos(bearing) - north * np.sin(bearing)


def elevation(lon: ArrayLike, lat: ArrayLike) -> NDArray[np.float64]:
    """Compute the elevation of the terrain [m].

    A saddle (flanks rise on both sides of the road, the road falls away from the summit) with a round hollow beside the
    road, in which cold air collects.

    Parameters
    ----------
    lon, lat
        Position [degree]; any shapes that broadcast.

    Returns
    -------
    ndarray
        Elevation [m], of the broadcast shape.
    """
    east, north = local_metres(lon, lat)
    bearing = np.radians(AXIS_DEG)
    along = east * np.sin(bearing) + north * np.cos(bearing)
    across = east * np.cos(bearing) - north * np.sin(bearing)
    flank = FLANK_M * (1.0 - np.exp(-0.5 * (across / FLANK_WIDTH_M) ** 2))
    relative = (along / FALL_LENGTH_M) ** 2
    fall = FALL_M * relative / (1.0 + relative)
    distance_squared = (east - HOLLOW_EAST_M) ** 2 + (north - HOLLOW_NORTH_M) ** 2
    hollow = HOLLOW_M * np.exp(-0.5 * distance_squared / HOLLOW_WIDTH_M**2)
    return np.asarray(REFERENCE_M + flank - fall - hollow, dtype=np.float64)


REACH_ARCSEC = 60.0
"""Distance from the centre of the pass to each edge [arc-second]; the farthest station is 27 away."""


def write_terrain(path: Path, *, step_arcsec: float = 0.5) -> Path:
    """Write the elevation at cell centres around the pass as a GeoTIFF in EPSG:4326.

    At half an arc-second, interpolation between the centres stays within 0.1 m of the terrain.

    Parameters
    ----------
    path
        Output file; an existing one is replaced.
    step_arcsec
        Side of a cell [arc-second].

    Returns
    -------
    Path
        `path`.

    Raises
    ------
    ValueError
        If the step is not above zero, or leaves fewer than two cells per side.
    """
    import rasterio  # noqa: PLC0415 - GDAL is slow to load, and stations are drawn without it

    if not 0.0 < step_arcsec <= REACH_ARCSEC:
        raise ValueError(f"write_terrain needs a step above 0, at most {REACH_ARCSEC:g} arc-seconds; got {step_arcsec}")
    count, step = int(2.0 * REACH_ARCSEC / step_arcsec), step_arcsec / 3600.0
    west, north = CENTRE_LON - count / 2 * step, CENTRE_LAT + count / 2 * step
    lon = west + (np.arange(count) + 0.5) * step
    lat = north - (np.arange(count) + 0.5) * step
    heights = elevation(lon[None, :], lat[:, None]).astype(np.float32)
    placed = rasterio.transform.from_origin(west, north, step, step)
    with rasterio.open(
        path, "w", driver="GTiff", width=count, height=count, count=1, dtype="float32", crs="EPSG:4326",
        transform=placed, nodata=-9999.0, compress="deflate",
    ) as raster:  # fmt: skip
        raster.write(heights, 1)
        raster.set_band_unit(1, "m")
    return path
