"""What an archive holds, as a notebook shows it: stations on a small map, variables with units and spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.errors import NotFound
from hypergrid.core.html import escape, format_line, format_table, join_parts
from hypergrid.core.lazy_libraries import pd
from hypergrid.core.readings import Station
from hypergrid.core.times import format_instant
from hypergrid.core.units import unit_symbol
from hypergrid.perspective.sources.archive_source import find_station_id

MAP_PIXELS: Final = 300
"""Longer side of the map of stations."""
_MARGIN: Final = 22
_MAX_MARKS: Final = 2000
"""Maximum number of stations drawn; beyond it every second, third … one."""
_MAX_NAMED: Final = 30
_MAX_VARIABLES: Final = 60

T = TypeVar("T")


class StationTable(Mapping[str, Station]):
    """Stations of an archive by id: a mapping, and a table; `stations["Col"]` takes a name as well.

    Examples
    --------
    >>> from hypergrid.core.readings import Position, Station
    >>> stations = StationTable({"c": Station("c", "Col", (Position(None, 7.18, 45.87, 2411.0),))})
    >>> stations.to_pandas().loc["c", "elevation"]
    2411.0
    """

    def __init__(self, stations: Mapping[str, Station]) -> None:
        self._stations = stations

    def __getitem__(self, station: str) -> Station:
        station_id = find_station_id(self._stations, station)
        if station_id not in self._stations:
            raise NotFound.among("station", station, self._stations)
        return self._stations[str(station_id)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stations)

    def __len__(self) -> int:
        return len(self._stations)

    def __contains__(self, station: object) -> bool:
        return station in self._stations

    def get(self, station: str, default: T | None = None) -> Station | T | None:  # type: ignore[override]
        return self._stations.get(station, default)

    def __repr__(self) -> str:
        return f"{len(self)} stations\n{self.to_pandas()}"

    def _repr_html_(self) -> str:
        return join_parts(
            format_line(f"{len(self)} stations"), draw_stations(self), format_table(self.tabulate_places(), index=True)
        )

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per station.

        Returns
        -------
        Index station (its id); columns name, lon and lat [degree], elevation [m] of the latest position, NaN where
        unknown, and positions, the number of places that the station has had.
        """
        rows = [
            (each.name, each.position.lon, each.position.lat, each.position.elevation_m, len(each.positions))
            for each in self.values()
        ]
        columns = ["name", "lon", "lat", "elevation", "positions"]
        return pd.DataFrame(rows, index=pd.Index(list(self), name="station", dtype=object), columns=columns)

    def tabulate_places(self) -> pd.DataFrame:
        """Return the table as it is shown: with the unit, and the number of positions only if one has moved."""
        table = self.to_pandas().rename(columns={"elevation": "elevation [m]"})
        return table if (table["positions"] > 1).any() else table.drop(columns="positions")


def draw_stations(stations: Mapping[str, Station]) -> str:
    """Return the stations as a small map in SVG, north up; empty if none has a position."""
    placed = [each for each in stations.values() if np.isfinite([each.position.lon, each.position.lat]).all()]
    if not placed:
        return "<p>No station has a position.</p>" if stations else ""
    lon = np.array([each.position.lon for each in placed])
    lat = np.array([each.position.lat for each in placed])
    # A degree of longitude shrinks with the cosine of the latitude.
    x, y = (lon - lon.min()) * np.cos(np.radians(lat.mean())), lat.max() - lat
    scale = (MAP_PIXELS - 2 * _MARGIN) / (max(float(x.max()), float(y.max())) or 1.0)
    width, height = (round(float(values.max()) * scale) + 2 * _MARGIN for values in (x, y))
    every = -(-len(placed) // _MAX_MARKS)
    marks = []
    for number in range(0, len(placed), every):
        station, left, top = placed[number], _MARGIN + x[number] * scale, _MARGIN + y[number] * scale
        marks.append(
            f'<circle cx="{left:.1f}" cy="{top:.1f}" r="3.5"><title>{escape(station.id)} {escape(station.name)}</title>'
            "</circle>"
        )
        if len(placed) <= _MAX_NAMED:
            marks.append(f'<text x="{left + 5:.1f}" y="{top - 4:.1f}">{escape(station.id)}</text>')
    unplaced = len(stations) - len(placed)
    note = f", {unplaced} without a position" if unplaced else ""
    shown = f", 1 of {every} drawn" if every > 1 else ""
    return (
        f'<svg width="{width + 40}" height="{height}" role="img" aria-label="map of {len(placed)} stations" '
        'font-size="10" fill="currentColor" font-family="sans-serif">'
        f"{''.join(marks)}</svg><p>{lon.min():.5g} to {lon.max():.5g}° E, {lat.min():.5g} to {lat.max():.5g}° N{shown}"
        f"{note}</p>"
    )


def tabulate_variables(archive: Archive) -> pd.DataFrame:
    """Return a row per variable: its unit, the time that its readings span, and their number.

    The number is left out as of an instant, where arrivals would have to be read.
    """
    rows = []
    for name, variable in list(archive.variables.items())[:_MAX_VARIABLES]:
        extent = archive.extent(name)
        first, last = (format_instant(extent.start_ns), format_instant(extent.stop_ns)) if extent else ("–", "–")
        row: dict[str, object] = {
            "variable": name,
            "name": variable.long_name,
            "unit": unit_symbol(variable.unit),
            "from": first,
            "to": last,
        }
        if archive.as_of_ns is None:
            row["readings"] = f"{archive.readings(name):,}"
        rows.append(row)
    return pd.DataFrame(rows)


def format_archive(archive: Archive, stations: StationTable) -> str:
    """Return an archive as HTML."""
    details = [f"snapshot {archive.snapshot}", f"{len(stations)} stations", f"{len(archive.variables)} variables"]
    if archive.as_of_ns is not None:
        details.append(f"as of {format_instant(archive.as_of_ns)}")
    left_out = len(archive.variables) - _MAX_VARIABLES
    more = f"<p>and {left_out} more variables</p>" if left_out > 0 else ""
    listed = f"<details><summary>Stations</summary>{format_table(stations.tabulate_places(), index=True)}</details>"
    return join_parts(
        format_line(archive.name, *details),
        format_table(tabulate_variables(archive)) if archive.variables else "",
        more,
        draw_stations(stations),
        listed if len(stations) else "",
    )
