"""Maps as Cloud-optimised GeoTIFF: one band per time cell and level, north up."""

from typing import Final

import numpy as np
import xarray as xr

from hypergrid.core.errors import InvalidQuery

_MAX_BANDS: Final = 65_535
"""Limit of the file format."""


def geotiff_bytes(dataset: xr.Dataset) -> bytes:
    """Encode a map as a Cloud-optimised GeoTIFF.

    Bands are the time cells in their order (on a grid with levels: all levels of the first, then of the second, …),
    followed by the variances in the same order, if any. A band's description names it; missing values are NaN.

    Raises
    ------
    InvalidQuery
        The result is not a map, or has more bands than the format allows.
    """
    import rasterio  # noqa: PLC0415 - GDAL takes 0.1 s to load, and only this format needs it
    import rasterio.shutil  # noqa: PLC0415
    from rasterio.io import MemoryFile  # noqa: PLC0415
    from rasterio.transform import Affine  # noqa: PLC0415

    if not {"lat", "y"} & set(dataset.dims):
        raise InvalidQuery(
            "a GeoTIFF is a map, and this result has none; interpolate onto a grid, or choose netcdf, csv, parquet or "
            "covjson"
        )
    row, column = (str(name) for name in dataset["value"].dims[-2:])
    names = [name for name in ("value", "variance") if name in dataset.data_vars]
    labels = [f"{name} {label}" if len(names) > 1 else label for name in names for label in _describe_bands(dataset)]
    if len(labels) > _MAX_BANDS:
        raise InvalidQuery(
            f"a GeoTIFF has up to {_MAX_BANDS} bands; the result has {len(labels)}; clip its time, or choose zarr"
        )
    y, x = (dataset[f"{name}_bounds"].to_numpy() for name in (row, column))
    height, width = len(y), len(x)
    values = np.concatenate([dataset[name].to_numpy().reshape(-1, height, width) for name in names])
    # Rows of a result run from south to north.
    values = values[:, ::-1].astype(np.float64)
    transform = Affine((x[-1, 1] - x[0, 0]) / width, 0.0, x[0, 0], 0.0, -(y[-1, 1] - y[0, 0]) / height, y[-1, 1])
    profile = {
        "driver": "GTiff", "width": width, "height": height, "count": len(values), "dtype": "float64",
        "nodata": np.nan, "transform": transform, "crs": "EPSG:4326" if row == "lat" else None,
    }  # fmt: skip
    # GDAL's COG driver can only copy an existing dataset.
    with MemoryFile() as plain, MemoryFile(ext=".tif") as optimised:
        with plain.open(**profile) as written:
            written.write(values)
            written.descriptions = labels
            written.units = [
                str(dataset[name].attrs.get("units", "")) for name in names for _ in _describe_bands(dataset)
            ]
            written.update_tags(**{str(name): str(text) for name, text in dataset.attrs.items()})
        with plain.open() as source:
            rasterio.shutil.copy(source, optimised.name, driver="COG", compress="DEFLATE", predictor="YES")
        return bytes(optimised.getbuffer())


def _describe_bands(dataset: xr.Dataset) -> list[str]:
    """Return a label for each band of a variable; time varies slowest."""
    along = str(dataset["time"].dims[0])
    times = [str(time.astype("datetime64[s]")) + "Z" for time in dataset["time"].to_numpy()]
    if along != "time":
        times = [f"{along} {number}" for number in dataset[along].to_numpy()]
    if "z" not in dataset.dims:
        return times
    return [f"{time} at {height:g} m" for time in times for height in dataset["z"].to_numpy()]
