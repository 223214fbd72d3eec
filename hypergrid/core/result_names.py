"""Names of the variables of a result: its quantity's own, and suffixes of it for what is known of each cell.

A result of the air temperature has the variables `air_temperature`, `air_temperature_count`, and so on. Code that works
on any result takes them by their roles (`value`, `count`, …), which were their names before.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.lazy_libraries import xr

VALUE: Final = "value"
STANDARD_ERROR: Final = "standard_error"
"""Role of a variable that files derive from the variance."""
ABOUT_CELLS: Final = ("variance", "variance_low", "count", "count_possible", STANDARD_ERROR)
"""Roles other than the value, which are suffixes of its name."""
GRID_MAPPING: Final = "crs"
"""Variable of a file that describes the coordinates of its map."""
_SHARED: Final = ("extrapolated", GRID_MAPPING)
"""Variables with the same name in every result."""


def make_name(words: str, taken: Container[str] = ()) -> str:
    """Make the name of a variable in files from words, unlike those taken by coordinates."""
    # NetCDF allows these letters, and CF separates names in attributes by blanks.
    name = re.sub(r"[^\w.@+-]+", "_", words).lstrip(".@+-") or VALUE
    return f"{name}_{VALUE}" if name in taken or name in ("bounds", *_SHARED) else name


def name_role(quantity: str, role: str) -> str:
    """Return the name of a role's variable in a result of a quantity."""
    return f"{quantity}_{role}" if role in ABOUT_CELLS else quantity if role == VALUE else role


def find_names(dataset: xr.Dataset) -> dict[str, str]:
    """Return the variables of a result by role; empty if it is none.

    Results written under the names `value`, `count`, … are results too.
    """
    held = [str(name) for name in dataset.data_vars if name not in _SHARED]
    if VALUE in held and not {name_role(VALUE, role) for role in ABOUT_CELLS} & set(held):
        return {role: role for role in (VALUE, *ABOUT_CELLS) if role in held}
    derived = {name_role(name, role) for name in held for role in ABOUT_CELLS}
    values = [name for name in held if name not in derived]
    if len(values) > 1:
        # Others were added or renamed by hand.
        linked = [name for name in values if dataset[name].attrs.get("ancillary_variables")]
        values = linked if len(linked) == 1 else [name for name in values if name_role(name, "count") in held]
    if len(values) != 1:
        return {}
    names = {role: name_role(values[0], role) for role in (VALUE, *ABOUT_CELLS)}
    return {role: name for role, name in names.items() if name in held}


def by_role(dataset: xr.Dataset) -> xr.Dataset:
    """Return a result with the roles of its variables as their names; anything else unchanged."""
    return dataset.rename({name: role for role, name in find_names(dataset).items() if name != role})


def value_of(dataset: xr.Dataset) -> xr.DataArray:
    """Return the values of a result, under their own name.

    Raises
    ------
    InvalidQuery
        The dataset is no result of a query.
    """
    names = find_names(dataset)
    if VALUE not in names:
        raise InvalidQuery(
            "the result of a query is needed, with its values and their count; got the variables "
            f"{', '.join(map(str, dataset.data_vars)) or 'none'}; drop or rename the others"
        )
    return dataset[names[VALUE]]


def link_variables(dataset: xr.Dataset) -> xr.Dataset:
    """Return a result whose values name the variables about them (CF 3.4, `ancillary_variables`)."""
    names = find_names(dataset)
    about = [name for role, name in names.items() if role != VALUE]
    linked = dataset.copy(deep=False)
    attributes = {key: text for key, text in value_of(dataset).attrs.items() if key != "ancillary_variables"}
    linked[names[VALUE]].attrs = attributes | ({"ancillary_variables": " ".join(about)} if about else {})
    return linked


def drop_file_variables(dataset: xr.Dataset) -> xr.Dataset:
    """Return the result that a file was written of, without what only files hold, by station if it can be."""
    names = find_names(dataset)
    own = dataset.drop_vars([GRID_MAPPING, names.get(STANDARD_ERROR, GRID_MAPPING)], errors="ignore").copy(deep=False)
    own = index_stations(own)
    for name in own.data_vars:
        own[name].attrs.pop("grid_mapping", None)
    return link_variables(own) if names else own


def index_series(dataset: xr.Dataset) -> xr.Dataset:
    """Return a result at stations with the dimension "series", whether or not a station has several."""
    if "station" not in dataset.dims:
        return dataset
    return dataset.reset_index("station").rename_dims(station="series")


def index_stations(dataset: xr.Dataset) -> xr.Dataset:
    """Return a result with the dimension "station" if each station has a single series."""
    if "series" not in dataset.dims or not dataset["station"].to_index().is_unique:
        return dataset
    return dataset.swap_dims(series="station")


def drop_bounds(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset without the bounds of its coordinates."""
    return dataset.drop_vars([name for name, variable in dataset.variables.items() if "bounds" in variable.dims])
