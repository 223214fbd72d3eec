"""Result files: a registry of formats, and atomic writes."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.lazy_libraries import pd, xr
from hypergrid.core.registry import Registry
from hypergrid.core.result_names import (
    GRID_MAPPING,
    STANDARD_ERROR,
    VALUE,
    by_role,
    find_names,
    link_variables,
    name_role,
    value_of,
)
from hypergrid.execution.results.tables import make_rows
from hypergrid.execution.results.zarr_sink import ignore_zarr_warnings
from hypergrid.formats import covjson

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
    dataset = by_role(dataset)
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


@dataclass(frozen=True)
class ResultFormat:
    """A file format for results."""

    name: str
    media_type: str
    suffix: str
    to_bytes: Callable[[xr.Dataset], bytes]


_LONLAT: Final = {
    "grid_mapping_name": "latitude_longitude",
    "long_name": "WGS 84",
    "longitude_of_prime_meridian": 0.0,
    "semi_major_axis": 6_378_137.0,
    "inverse_flattening": 298.257223563,
}
"""Attributes of the grid mapping of maps in degrees (CF, appendix F)."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")

FORMATS: Registry[ResultFormat] = Registry("result format")
"""Result formats by name."""


def _add_file_variables(dataset: xr.Dataset) -> xr.Dataset:
    """Add what the conventions ask of a file, and a result in memory has otherwise: its grid, and standard errors."""
    names = find_names(dataset)
    if names.get(VALUE) == VALUE:
        from hypergrid.core.result_dataset import restore  # noqa: PLC0415 - loads xarray

        # Its variables may have the names of before, beside which those of a file are not found.
        dataset = restore(dataset)
        names = find_names(dataset)
    if "variance" in names:
        value, variance = value_of(dataset), dataset[names["variance"]]
        standard_name = value.attrs.get("standard_name")
        attributes = {
            "long_name": f"standard error of {value.attrs.get('long_name', value.name)}",
            # The modifier that CF knows of an uncertainty (appendix C); it has none for a variance.
            **({} if standard_name is None else {"standard_name": f"{standard_name} standard_error"}),
            "units": value.attrs.get("units", "1"),
            "coverage_content_type": "qualityInformation",
        }
        error = (variance.dims, np.sqrt(np.maximum(variance.to_numpy(), 0.0)), attributes)
        dataset = dataset.assign({name_role(names[VALUE], STANDARD_ERROR): error})
    dataset = link_variables(dataset) if names else dataset
    if {"lat", "lon"} <= set(dataset.dims):
        dataset = dataset.assign({GRID_MAPPING: ((), np.int32(0), _LONLAT)})
        for name in dataset.data_vars:
            if {"lat", "lon"} <= set(dataset[name].dims):
                dataset[name].attrs["grid_mapping"] = GRID_MAPPING
    return dataset


def _netcdf_bytes(dataset: xr.Dataset) -> bytes:
    dataset = _add_file_variables(dataset)
    buffer = io.BytesIO()
    # A scalar cannot be compressed.
    encoding: dict[Hashable, dict[str, Any]] = {
        name: {"zlib": True, "complevel": 4} for name, variable in dataset.data_vars.items() if variable.ndim
    }
    for name, coordinate in dataset.coords.items():
        # CF 2.5.1: coordinates and bounds have no missing values.
        if coordinate.dtype.kind == "f" and (name in dataset.dims or str(name).endswith("_bounds")):
            encoding[name] = {"_FillValue": None}
    dataset.to_netcdf(buffer, engine="h5netcdf", encoding=encoding)
    return buffer.getvalue()


def _make_rows(dataset: xr.Dataset) -> pd.DataFrame:
    """Return long rows: time, place, value, count, unit."""
    unit = value_of(dataset).attrs.get("units", "")
    return make_rows(dataset).assign(unit=unit)


def _parquet_bytes(dataset: xr.Dataset) -> bytes:
    """Encode the rows as Parquet with UTC instants; provenance is in the frame's attributes."""
    frame = _make_rows(dataset)
    frame["time"] = frame["time"].dt.tz_localize("UTC")
    frame.attrs = {str(name): str(text) for name, text in dataset.attrs.items()}
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()


def _coverage_bytes(dataset: xr.Dataset) -> bytes:
    return json.dumps(covjson.result_json(dataset), allow_nan=False, separators=(",", ":")).encode()


def _csv_bytes(dataset: xr.Dataset) -> bytes:
    frame = _make_rows(dataset)
    frame["time"] = frame["time"].map({time: f"{time.isoformat()}Z" for time in frame["time"].unique()})
    for name in frame.select_dtypes(["object", "string"]):
        frame[name] = frame[name].map(escape_formula)
    return str(frame.to_csv(index=False)).encode()


def escape_formula(cell: object) -> object:
    """Prefix text that a spreadsheet would run as a formula with an apostrophe."""
    # Station names are arbitrary text.
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def zarr_files(dataset: xr.Dataset) -> dict[str, bytes]:
    """Return the files of a result's Zarr store by path, with consolidated metadata."""
    # Consolidated metadata let clients open the store without listing its files.
    held: dict[str, Buffer] = {}
    with ignore_zarr_warnings():
        dataset.to_zarr(MemoryStore(held), mode="w", consolidated=True)
    return {path: held[path].to_bytes() for path in sorted(held)}


def _zarr_bytes(dataset: xr.Dataset) -> bytes:
    """Encode a zipped Zarr store."""
    return _zip(zarr_files(dataset))


def _zip(files: Mapping[str, bytes]) -> bytes:
    """Zip files by path, without compression; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, content in files.items():
            # A ZipInfo has a fixed time stamp instead of the current one, but also no permissions.
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def package_bytes(dataset: xr.Dataset, *, time: int = 0, level: int = 0) -> bytes:
    """Zip a result with its picture, its query, and a text that says what it is and where it comes from.

    `time` and `level` are the indices of the cells of a map that the picture shows.
    """
    from hypergrid.plots import picture_bytes  # noqa: PLC0415 - matplotlib takes a second to load

    files = {
        "README.txt": _describe_package(dataset).encode(),
        "values.nc": _netcdf_bytes(dataset),
        "picture.png": picture_bytes(dataset, time=time, level=level),
    }
    if "hypergrid_query" in dataset.attrs:
        question = json.loads(dataset.attrs["hypergrid_query"])
        files["query.json"] = f"{json.dumps(question, indent=2)}\n".encode()
    return _zip(files)


def _describe_package(dataset: xr.Dataset) -> str:
    about = {name: str(text) for name, text in dataset.attrs.items() if name not in ("title", "hypergrid_query")}
    lines = [
        str(dataset.attrs.get("title", "")),
        "",
        "values.nc    values with their coordinates, counts and uncertainty (NetCDF, CF conventions)",
        "picture.png  picture of the values",
        "query.json   query that gave them",
        "",
        "`hypergrid query --again values.nc --archive ARCHIVE` computes the values again and compares them.",
        "",
        *(f"{name}: {text}" for name, text in about.items()),
    ]
    return "\n".join(lines) + "\n"


def _png_bytes(dataset: xr.Dataset) -> bytes:
    """Draw the first time cell on the lowest level; `picture_bytes` draws others."""
    from hypergrid.plots import picture_bytes  # noqa: PLC0415 - matplotlib takes a second to load

    return picture_bytes(dataset)


for _row in (
    ResultFormat("netcdf", "application/x-netcdf", ".nc", _netcdf_bytes),
    ResultFormat("csv", "text/csv", ".csv", _csv_bytes),
    ResultFormat("parquet", "application/vnd.apache.parquet", ".parquet", _parquet_bytes),
    ResultFormat("covjson", covjson.MEDIA_TYPE, ".covjson", _coverage_bytes),
    ResultFormat("geotiff", "image/tiff; application=geotiff; profile=cloud-optimized", ".tif", geotiff_bytes),
    ResultFormat("png", "image/png", ".png", _png_bytes),
    ResultFormat("zarr", "application/zip", ".zarr.zip", _zarr_bytes),
    # Last, as its suffix ends that of a zipped Zarr store.
    ResultFormat("package", "application/zip", ".zip", package_bytes),
):
    FORMATS.add(_row.name, _row)


def to_bytes(dataset: xr.Dataset, name: str) -> bytes:
    """Encode a result in a format of `FORMATS`.

    Raises
    ------
    NotFound
        The format does not exist.
    """
    return FORMATS[name].to_bytes(dataset)


def check_path(path: Path) -> str:
    """Return the format of a path by its suffix, before anything is computed.

    Raises
    ------
    NotFound
        No format has this suffix, or the parent folder does not exist.
    InvalidQuery
        The path is taken by something that is not replaced: a folder, or for `.zarr` anything but a Zarr store.
    """
    name = _find_format(path)
    if not path.parent.is_dir():
        raise NotFound(f"the folder {path.parent} of the result {path.name} does not exist; make it first")
    if path.suffix == ".zarr":
        if path.exists() and not _is_zarr(path):
            raise InvalidQuery(f"the result {path} would replace something that is no Zarr store; choose another name")
    elif path.is_dir():
        raise InvalidQuery(f"the result {path} needs the name of a file; a folder is there; choose another name")
    return name


def _find_format(path: Path) -> str:
    if path.suffix == ".zarr":
        return "zarr"
    for row in FORMATS.values():
        if path.name.endswith(row.suffix):
            return row.name
    raise NotFound.among(
        kind="ending of a result file",
        given=path.suffix or path.name,
        existing=[".zarr", *(r.suffix for r in FORMATS.values())],
    )


def _is_zarr(path: Path) -> bool:
    return path.is_dir() and ((path / "zarr.json").is_file() or not any(path.iterdir()))


def write(dataset: xr.Dataset, path: str | Path) -> None:
    """Write a result to a path, in the format of its suffix.

    Suffixes are .nc, .csv, .parquet, .covjson, .tif, .png, .zarr, and .zip for a package of several of these.

    The file is written beside its target and renamed; an interrupted run leaves the old file or none.

    Raises
    ------
    NotFound, InvalidQuery
        The path cannot be used; see `check_path`.
    OSError
        The folder cannot be written.
    """
    target = Path(path)
    name = check_path(target)
    # The process id keeps concurrent writers of one target apart.
    scratch = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.suffix == ".zarr":
            with ignore_zarr_warnings():
                dataset.to_zarr(scratch, mode="w", consolidated=True)
            swap(scratch, target)
        else:
            scratch.write_bytes(to_bytes(dataset, name))
            scratch.rename(target)
    finally:
        if scratch.is_dir():
            shutil.rmtree(scratch)
        scratch.unlink(missing_ok=True)


def swap(scratch: Path, target: Path) -> None:
    """Replace a folder by another; the old one is restored on failure."""
    # A rename cannot replace a folder that is not empty.
    aside = scratch.with_suffix(".old")
    if target.is_dir():
        target.rename(aside)
    try:
        scratch.rename(target)
    except OSError:
        if aside.is_dir():
            aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)
