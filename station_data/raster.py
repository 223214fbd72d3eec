"""The terrain of the pass as a GeoTIFF."""

from pathlib import Path

import numpy as np

from station_data.terrain import CENTRE_LAT, CENTRE_LON, elevation

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
