"""Selection of stations and variables: by name, by region, by CF standard name."""

from collections.abc import Mapping, Sequence

import numpy as np

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Station
from hypergrid.core.units import Variable
from hypergrid.topology.wkt import Region


def select_stations(
    known: Mapping[str, Station], names: Sequence[str], region: Region | None
) -> tuple[str, ...] | None:
    """Select stations by name and region; None: all stations.

    Raises
    ------
    NotFound
        A name is unknown.
    """
    for name in names:
        if name not in known:
            unknown = NotFound.among("station", name, known)
            raise unknown
    if region is None:
        return tuple(names) or None
    candidates = tuple(names or known)
    positions = (known[name].position for name in candidates)
    places = np.array([(position.lon, position.lat) for position in positions]).reshape(-1, 2)
    return tuple(candidates[index] for index in np.flatnonzero(region.holds(places[:, 0], places[:, 1])))


def select_variables(
    known: Mapping[str, Variable], names: Sequence[str], standard_names: Sequence[str]
) -> tuple[str, ...]:
    """Select variables by name or CF standard name; an empty tuple means all.

    Raises
    ------
    InvalidQuery
        Both are given.
    NotFound
        No variable has such a standard name.
    """
    if names and standard_names:
        raise InvalidQuery("ask by variable or by standard_name; got both")
    there = dict.fromkeys(variable.standard_name for variable in known.values() if variable.standard_name)
    for name in standard_names:
        if name not in there:
            unknown = NotFound.among("standard name", name, there)
            raise unknown
    return tuple(names) or tuple(
        variable.name for variable in known.values() if variable.standard_name in standard_names
    )
