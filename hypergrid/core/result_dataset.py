"""Results as datasets that still answer to the names that their variables had."""

from __future__ import annotations

import json
import warnings
from collections.abc import Hashable
from typing import Any, Final

import pandas as pd
import xarray as xr

from hypergrid.core.result_names import (
    ABOUT_CELLS,
    VALUE,
    drop_bounds,
    drop_file_variables,
    find_names,
    link_variables,
    make_name,
    name_role,
)

_OLD: Final = frozenset({VALUE, *ABOUT_CELLS})


class ResultDataset(xr.Dataset):  # type: ignore[no-untyped-call]
    """Dataset of a result: its variables have their quantity's name, and a table of it leaves out bounds.

    The names of earlier versions (`value`, `variance`, `count`, …) are answered with a warning that has the new one.
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - as of any dataset
        if isinstance(key, list):
            # A comprehension has a frame of its own, which the warning would name.
            return super().__getitem__(list(map(self._translate, key)))
        return super().__getitem__(self._translate(key))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as of any dataset
        return super().__getattr__(self._translate(name))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._translate(key))

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401 - as of any dataset
        super().__setitem__(self._translate(key), value)

    def __delitem__(self, key: Any) -> None:  # noqa: ANN401 - as of any dataset
        super().__delitem__(self._translate(key))

    def assign(self, variables: Any = None, **more: Any) -> Any:  # noqa: ANN401 - as of any dataset
        given = {**(variables or {}), **more}
        return super().assign(dict(zip(map(self._translate, given), given.values(), strict=True)))

    def rename(self, name_dict: Any = None, **names: Any) -> Any:  # noqa: ANN401 - as of any dataset
        given = {**(name_dict or {}), **names}
        return super().rename(dict(zip(map(self._translate, given), given.values(), strict=True)))

    def drop_vars(self, names: Any, **options: Any) -> Any:  # noqa: ANN401 - as of any dataset
        given = names(self) if callable(names) else names
        listed = [given] if isinstance(given, str) else list(given)
        return super().drop_vars(list(map(self._translate, listed)), **options)

    def where(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as of any dataset
        masked = super().where(*arguments, **options)
        return ResultDataset(masked.data_vars, masked.coords, masked.attrs)

    def to_dataframe(self, *arguments: Any, **options: Any) -> pd.DataFrame:  # noqa: ANN401 - as of any dataset
        """Convert to a table with a row per cell, without the bounds of coordinates."""
        plain = drop_bounds(self)
        return xr.Dataset.to_dataframe(plain, *arguments, **options)

    def _translate(self, key: Any) -> Any:  # noqa: ANN401 - a key of any kind
        if not isinstance(key, Hashable) or key not in _OLD or key in self._variables:
            return key
        name = find_names(self).get(str(key))
        if name is None:
            return key
        warnings.warn(
            f"the variable {key!r} of a result is now {name!r}; the next release does not know the old name",
            DeprecationWarning,
            stacklevel=3,
        )
        return name


def restore(dataset: xr.Dataset) -> xr.Dataset:
    """Return the result that a file was written of; anything else unchanged.

    Values that a file of before calls `value` get the name of the variable that was asked for.
    """
    if not find_names(dataset):
        return dataset
    own = drop_file_variables(dataset)
    names = find_names(own)
    if names[VALUE] == VALUE:
        query = own.attrs.get("hypergrid_query")
        quantity = VALUE if query is None else make_name(str(json.loads(query)["variable"]), {*map(str, own.coords)})
        renamed = {name: name_role(quantity, role) for role, name in names.items()}
        own = link_variables(own.rename({name: new for name, new in renamed.items() if name != new}))
    return ResultDataset(own.data_vars, own.coords, own.attrs)
