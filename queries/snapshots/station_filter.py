"""Which stations and variables are asked for: by name, by box, by CF standard name."""

from collections.abc import Mapping, Sequence

import numpy as np

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Station
from hypergrid.core.units import Variable
from hypergrid.topology.wkt import Region


def select_stations(
    known: Mapping[str, Station], names: Sequence[str], region: Region | None
) -> tuple[str, ...] | None:
    """Return the ids of the stations that are named and stand in a region; None: all are asked for.

    Raises
    ------
    NotFound
        There is no such station.
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
    """Return the names that are given, or those of the variables with a standard name; empty: all are asked for.

    Raises
    ------
    InvalidQuery
        Both are given.
    NotFound
        No variable has such a standard name.
    """
    if names and standard_names:
        message = "ask by variable or by standard_name; got both"
        raise InvalidQuery(message)
    there = dict.fromkeys(variable.standard_name for variable in known.values() if variable.standard_name)
    for name in standard_names:
        if name not in there:
            unknown = NotFound.among("standard name", name, there)
            raise unknown
    return tuple(names) or tuple(
        variable.name for variable in known.values() if variable.standard_name in standard_names
    )
