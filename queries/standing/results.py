"""Results in the archive's folder: a NetCDF file a day of time cells, in which later values replace earlier ones."""

import os
from pathlib import Path

import numpy as np
import xarray as xr

from hypergrid.export import write
from hypergrid.times import DAY_NS

FOLDER = "results"
"""Folder beside the catalogue; in it one a standing query."""


def keep(folder: Path, dataset: xr.Dataset) -> list[Path]:
    """Bring computed time cells into the files of their days; a process that dies leaves each file old or new.

    Parameters
    ----------
    folder
        Of the standing query; files are named by the day (UTC) that their time cells begin in, `2007-10-01.nc`, or
        `all.nc` where time cells come again.
    dataset
        As `Query.compute` returns it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if "time" not in dataset.dims:
        return [_replace(folder / "all.nc", dataset)]
    days = dataset["time"].to_numpy().astype("datetime64[ns]").astype(np.int64) // DAY_NS
    written = []
    for day in np.unique(days).tolist():
        path = folder / f"{np.datetime64(day, 'D')}.nc"
        written.append(_replace(path, _joined(path, dataset.isel(time=np.flatnonzero(days == day)))))
    return written


def _joined(path: Path, new: xr.Dataset) -> xr.Dataset:
    if not path.exists():
        return new
    with xr.open_dataset(path) as opened:
        old = opened.load()
    if set(old.sizes) != set(new.sizes) or any(
        old.sizes[name] != new.sizes[name] for name in old.sizes if name != "time"
    ):
        # Stations came or went: what was computed before has other places.
        return new
    stays = old.isel(time=np.flatnonzero(~np.isin(old["time"].to_numpy(), new["time"].to_numpy())))
    names = [name for name in new.variables if name in old.variables]
    joined = xr.concat([stays[names], new[names]], "time", data_vars="minimal", coords="minimal", compat="override")
    return joined.sortby("time").assign_attrs(new.attrs)


def _replace(path: Path, dataset: xr.Dataset) -> Path:
    half = path.with_name(f".{path.name}.part.nc")
    write(dataset, half)
    os.replace(half, path)
    return path
