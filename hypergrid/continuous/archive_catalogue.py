"""Streams and relations of an archive: a stream for each variable, of all of them, rain; stations and surfaces."""

from collections.abc import Mapping
from typing import Final

from hypergrid.continuous.expressions import Attribute, Attributes
from hypergrid.continuous.records import Groups, StreamCatalogue
from hypergrid.continuous.surface_catalogue import NamedSurface, list_surfaces
from hypergrid.core.errors import InvalidUnit
from hypergrid.core.units import DIMENSIONLESS_TEXT, convert, is_known_counter
from hypergrid.query import OpenArchive

READINGS: Final = "readings"
"""Stream of all readings, whose values are each in the unit of their variable."""
OBS: Final = "obs"
"""Stream of packets: what a station measured at one stamp, with a column for each variable."""
RAIN: Final = "rain"
"""Stream of amounts of rain, of archives with a counter or amounts of rain, unless a variable has its name."""
STATIONS: Final = "stations"
NEIGHBOURS: Final = "neighbours"

STATION_ATTRIBUTES: Final[Attributes] = (
    Attribute("station", "text"),
    Attribute("name", "text"),
    Attribute("lon", "number", "degree"),
    Attribute("lat", "number", "degree"),
    Attribute("elevation_m", "number", "m"),
)
"""Relation of the stations at their positions."""

NEIGHBOUR_ATTRIBUTES: Final[Attributes] = (
    Attribute("station", "text"),
    Attribute("neighbour", "text"),
    Attribute("distance_m", "number", "m"),
    Attribute("dz_m", "number", "m"),
)
"""Relation of each station and those nearest to it; `dz_m` is the station's elevation less the neighbour's [m]."""

SERIES_OF_VARIABLE: Final = 1_000_000
"""Numbers of the series of a variable: the first is this many times the variable's number in the archive."""


def variable_attributes(unit: str) -> Attributes:
    """Return the attributes of the stream of a variable.

    Parameters
    ----------
    unit
        Unit of its values.
    """
    return (
        Attribute("station", "text"),
        Attribute("series", "integer"),
        Attribute("height_m", "number", "m"),
        Attribute("value", "number", None if unit in DIMENSIONLESS_TEXT else unit),
        *_RECEIVED,
    )


_RECEIVED: Final[Attributes] = (
    Attribute("flag", "integer"),
    Attribute("slice", "integer"),
    Attribute("time", "time"),
    Attribute("arrival", "time"),
)

READING_ATTRIBUTES: Final[Attributes] = (
    Attribute("station", "text"),
    Attribute("series", "integer"),
    Attribute("variable", "text"),
    Attribute("height_m", "number", "m"),
    Attribute("value", "number"),
    *_RECEIVED,
)


RAIN_ATTRIBUTES: Final[Attributes] = (
    Attribute("station", "text"),
    Attribute("series", "integer"),
    Attribute("height_m", "number", "m"),
    Attribute("mm", "number", "mm"),
    *_RECEIVED,
)


def packet_attributes(archive: OpenArchive) -> Attributes:
    """Return the attributes of the stream of packets."""
    variables = (
        Attribute(name, "number", None if item.unit in DIMENSIONLESS_TEXT else item.unit)
        for name, item in archive.variables.items()
        if name not in _OF_PACKETS
    )
    return (
        Attribute("station", "text"),
        Attribute("slice", "integer"),
        Attribute("time", "time"),
        Attribute("arrival", "time"),
        *variables,
    )


_OF_PACKETS: Final = ("station", "slice", "time", "arrival")


def list_rain_variables(archive: OpenArchive) -> tuple[str, ...]:
    """Return the variables that rain is read from: counters in a unit of rain, or else amounts of it."""
    counters = [name for name, item in archive.variables.items() if is_known_counter(item) and _is_of_rain(item.unit)]
    return tuple(counters) or tuple(name for name in archive.variables if name == PRECIPITATION)


PRECIPITATION: Final = "precipitation"


def _is_of_rain(unit: str) -> bool:
    if unit in ("mm", "kg m-2"):
        return True
    try:
        convert(1.0, unit, "mm")
    except InvalidUnit:
        return False
    return True


def list_streams(archive: OpenArchive, named: Mapping[str, NamedSurface] | None = None) -> StreamCatalogue:
    """Return what continuous queries of an archive may name.

    Quality flags are those of the archive, so queries take good and untested readings unless they name `flag` (R8).
    Stations that never moved make `stations` and `neighbours` static. Surfaces of standing queries are relations
    `surface_NAME`: those of `named`, from `list_surfaces`, if they are known already. Rates are means over the time
    that a variable's readings span.
    """
    variables = {name: variable_attributes(variable.unit) for name, variable in archive.variables.items()}
    rates = {name: rate for name in variables if (rate := _mean_rate(archive, name)) > 0}
    streams = {READINGS: READING_ATTRIBUTES, OBS: packet_attributes(archive)}
    if gauges := list_rain_variables(archive):
        streams[RAIN] = RAIN_ATTRIBUTES
    flagged = frozenset((READINGS, RAIN)) & streams.keys() | variables.keys()
    streams |= variables
    totals = {
        READINGS: sum(rates.values()),
        OBS: max(rates.values(), default=0.0),
        RAIN: sum(rates.get(name, 0.0) for name in gauges),
    }
    counts = {name: float(archive.store.readings(name)) for name in rates}
    whole = sum(counts.values())
    # A packet has at least one reading.
    if whole:
        counts |= {READINGS: whole, OBS: whole}
    if whole and gauges:
        counts[RAIN] = sum(counts.get(name, 0.0) for name in gauges)
    listed = list_surfaces(archive) if named is None else named
    surfaces = {name: each for name, each in listed.items() if each.problem is None}
    has_moved = any(len(station.positions) > 1 for station in archive.stations.values())
    return StreamCatalogue(
        streams=streams,
        relations={
            STATIONS: STATION_ATTRIBUTES,
            NEIGHBOURS: NEIGHBOUR_ATTRIBUTES,
            **{name: each.attributes for name, each in surfaces.items() if name not in streams},
        },
        static=frozenset() if has_moved else frozenset((STATIONS, NEIGHBOURS)),
        flagged=flagged,
        rates={**{name: rate for name, rate in totals.items() if name in streams and rate > 0}, **rates},
        counts=counts,
        groups=_count_sources(archive, streams),
        origins={name: each.origin for name, each in surfaces.items()},
    )


def _count_sources(archive: OpenArchive, streams: Mapping[str, Attributes]) -> Groups:
    """Return how many stations, variables and series each stream has at most."""
    series = {name: len(archive.store.series(name)) for name in archive.variables}
    whole = sum(series.values())
    groups: dict[str, dict[str, float]] = {}
    for name, attributes in streams.items():
        # Columns of packets are variables, whatever their names.
        columns = {"station"} if name == OBS else {part.name for part in attributes}
        numbers = {
            "station": len(archive.stations),
            "variable": len(archive.variables),
            "series": series.get(name, whole),
        }
        groups[name] = {column: number for column, number in numbers.items() if column in columns}
    return groups


def _mean_rate(archive: OpenArchive, variable: str) -> float:
    """Return the mean rate of a variable's readings [1/s], 0 if it has none."""
    extent = archive.store.extent(variable)
    if extent is None or archive.as_of is not None:
        return 0.0
    return archive.store.readings(variable) / max((extent.stop_ns - extent.start_ns) / 1e9, 1.0)
