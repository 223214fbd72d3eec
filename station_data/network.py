"""The stations: 20 across Q1's grid, four just outside it, uniform scatter for larger networks."""

from dataclasses import dataclass

import numpy as np

from station_data.terrain import elevation


@dataclass(frozen=True)
class Station:
    """One station of the network, located on the terrain."""

    id: str
    name: str
    lon: float
    """Longitude [degree]."""
    lat: float
    """Latitude [degree]."""

    @property
    def elevation_m(self) -> float:
        """Elevation of the terrain at the station [m], to the decimetre."""
        return round(float(elevation(self.lon, self.lat)), 1)


# Seconds east of 7:10:37 and north of 45:52:01; the grid of Q1 is 0 to 23 in both. Four columns by five rows, each
# moved off its lattice point by one or two arc-seconds so that distances differ; the last four are outside.
_SITES: tuple[tuple[str, float, float], ...] = (
    ("Col", 8.1, 11.3),
    ("Lac", 14.6, 7.1),
    ("Hospice", 8.7, 16.8),
    ("Combe", 1.4, 1.5),
    ("Moraine", 8.1, 2.9),
    ("Gravier", 14.9, 1.7),
    ("Torrent", 20.3, 3.1),
    ("Pierrier", 3.4, 7.6),
    ("Tourbière", 9.2, 6.4),
    ("Grand Pré", 20.6, 7.9),
    ("Arête", 2.1, 11.2),
    ("Source", 14.7, 12.1),
    ("Éboulis", 20.9, 12.1),
    ("Croix", 3.3, 16.0),
    ("Virage", 14.2, 15.7),
    ("Belvédère", 20.1, 16.7),
    ("Névé", 2.5, 20.7),
    ("Tunnel", 8.4, 21.2),
    ("Pont", 14.7, 20.4),
    ("Cairn", 21.8, 21.6),
    ("Cime ouest", -3.2, 10.4),
    ("Aval", 10.6, -3.6),
    ("Cime est", 26.4, 13.8),
    ("Amont", 13.3, 26.7),
)
_WEST_DEG = 7.0 + 10.0 / 60.0 + 37.0 / 3600.0
_SOUTH_DEG = 45.0 + 52.0 / 60.0 + 1.0 / 3600.0
# Steps of the R2 sequence (powers of the inverse of the plastic number): any number of points covers the square evenly.
_R2 = np.array([0.7548776662466927, 0.5698402909980532])


def stations(count: int = 24) -> tuple[Station, ...]:
    """Make stations "1" to `count`; larger networks extend smaller ones.

    Parameters
    ----------
    count
        Number of stations, at least 1. Beyond 24, stations fill a square of 39 arc-seconds around the grid.

    Raises
    ------
    ValueError
        If `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"stations needs a count of at least 1; got {count}")
    sites = list(_SITES[:count])
    for number in range(len(_SITES) + 1, count + 1):
        east, north = np.mod(0.5 + number * _R2, 1.0) * 39.0 - 8.0
        sites.append((f"Point {number}", float(east), float(north)))
    return tuple(
        Station(str(number), name, round(_WEST_DEG + east / 3600.0, 6), round(_SOUTH_DEG + north / 3600.0, 6))
        for number, (name, east, north) in enumerate(sites, start=1)
    )
