"""Labels for the parts of a result: places, levels and bands; does not load matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hypergrid.core.lazy_libraries import xr
from hypergrid.core.result_names import value_of
from hypergrid.core.version import VERSION
from hypergrid.perspective import Perspective
from hypergrid.perspective.sources.archive_source import ArchiveSource


def is_map(dataset: xr.Dataset) -> bool:
    """Return whether a result lies on a grid."""
    return bool({"lat", "y"} & set(dataset.dims))


def count_levels(dataset: xr.Dataset) -> int:
    """Return the number of levels of a map; 1 without a z axis."""
    return dataset.sizes["z"] if is_map(dataset) and "z" in dataset.dims else 1


def describe_bands(dataset: xr.Dataset) -> list[str]:
    return [f"{low:.7g} to {high:.7g} m" for low, high in dataset["z_bounds"].to_numpy()]


def describe_level(dataset: xr.Dataset, level: int) -> str:
    """Describe a level: the height of its estimates, or the bounds that it aggregates."""
    made = describe_bands(dataset)[level]
    is_made_of_levels = re.search(
        r"(^| )z: (?!point|area: point)", str(value_of(dataset).attrs.get("cell_methods", ""))
    )
    return made if is_made_of_levels else f"at {float(dataset['z'][level]):.7g} m (level {made})"


def place_names(dataset: xr.Dataset) -> list[str]:
    """Return the names of a result's stations, zones, points, or elevation bands."""
    if "point" in dataset.dims:
        x, y = ("lon", "lat") if "lon" in dataset.coords else ("x", "y")
        at = [
            f"{x_value:.7g}, {other:.7g}" for x_value, other in zip(dataset[x].values, dataset[y].values, strict=True)
        ]
        levels = [f" at {height:.7g} m" for height in dataset["z"].values] if "z" in dataset.dims else [""]
        return [place_name + level for level in levels for place_name in at]
    if "z" in dataset.dims:
        return describe_bands(dataset)
    return [str(name) for name in dataset["zone" if "zone" in dataset.dims else "station"].to_numpy()]


def part_shown(dataset: xr.Dataset) -> str:
    """Describe the part of a result that `picture_bytes` draws; empty if it draws everything."""
    if not is_map(dataset):
        return ""
    kinds = (("first", "time cells", len(value_of(dataset))), ("lowest", "levels", count_levels(dataset)))
    return ", ".join(f"the {ordinal} of {count} {what}" for ordinal, what, count in kinds if count > 1)


def describe_source(archives: Iterable[str], snapshots: Iterable[str]) -> str:
    """Name the archives and snapshots of a result, and the software."""
    return " · ".join([*archives, *(f"snapshot {snapshot[:8]}" for snapshot in snapshots), f"HyperGrid {VERSION}"])


def describe_bases(surface: Perspective) -> str:
    """Name the archives and snapshots that a surface reads, and the software."""
    read = [base.source.archive for base in surface.bases if isinstance(base.source, ArchiveSource)]
    return describe_source(sorted({archive.name for archive in read}), sorted({archive.snapshot for archive in read}))
