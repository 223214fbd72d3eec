"""Simulated networks with a known truth at every cell, for judging recipes beside plain kriging.

Each replicate is a network of its own: 40 stations at random, 36 cells, terrain of 200 to 1,800 m, and slices of
independent Gaussian fields with an exponential correlation, drawn at stations and cells together by Cholesky.
The truth at a cell is the value at its centre. Wind has independent components around a mean wind along x; rain is the
square of a censored Gaussian field (Bardossy and Plate 1992), wet in 40 % of places and times. Temperature and
dew point fall with height, with an inversion in every fourth slice; the clear-sky index is a Gaussian field within
0.05 and 1.1.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import ndtri

import hypergrid as hg
from hypergrid.physics import moisture, sun
from hypergrid.query import Query

Floats = NDArray[np.float64]

SEED: Final = 20_190_719
STATIONS, SIDE, SLICES = 40, 6, 12
DEGREES: Final = 1.0
"""Extent of the network in longitude and latitude."""
WEST, SOUTH = 7.0, 46.0
RANGE_DEGREES: Final = 0.6
"""E-folding distance of the fields."""
WIND_SD_M_S: Final = 2.0
WET_SHARE: Final = 0.4
TIMES = np.datetime64("2007-06-20T00:00", "ns") + np.arange(SLICES) * np.timedelta64(2, "h")

CASES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "wind_speed, mean wind 0 m/s": ("wind_speed", "m s-1"),
        "wind_speed, mean wind 2 m/s": ("wind_speed", "m s-1"),
        "wind_speed, mean wind 6 m/s": ("wind_speed", "m s-1"),
        "rain, 40 % wet": ("rain", "mm"),
        "air_temperature": ("air_temperature", "degC"),
        "surface_temperature": ("surface_temperature", "degC"),
        "dew_point": ("dew_point", "degC"),
        "relative_humidity": ("relative_humidity", "%"),
        "solar_radiation": ("solar_radiation", "W m-2"),
    }
)
"""What is simulated: the variable and its unit."""


@dataclass(frozen=True)
class Places:
    """Stations, then cells."""

    lon: Floats
    lat: Floats
    height_m: Floats
    root: Floats
    """Cholesky factor of the fields' correlation, shape (places, places)."""

    def field(self, random: np.random.Generator, slices: int = SLICES) -> Floats:
        """Return standard Gaussian fields, shape (slices, places)."""
        return random.standard_normal((slices, len(self.lon))) @ self.root.T


@dataclass(frozen=True)
class Network:
    """Readings of one replicate and what is true at its cells."""

    values: Mapping[str, Floats]
    """By variable, shape (slices, stations); companions of recipes included."""
    truth: Floats
    """Shape (slices, rows, columns)."""
    places: Places

    def query(self, name: str, unit: str) -> Query:
        """Return the readings of a variable as a query with a layer of elevation."""
        places = self.places
        here = slice(0, STATIONS)
        coords = {
            "time": TIMES,
            "station": [f"s{number:02d}" for number in range(STATIONS)],
            "lon": ("station", places.lon[here]),
            "lat": ("station", places.lat[here]),
            "elevation": ("station", places.height_m[here]),
        }
        array = xr.DataArray(
            self.values[name], dims=("time", "station"), coords=coords, name=name, attrs={"units": unit}
        )
        return hg.base(array, layers={"elevation": self._terrain()})

    def _terrain(self) -> xr.DataArray:
        # Layers are bilinear between their points, which are the centres of the cells and a margin that repeats them.
        lon, lat = _centres()
        inner = self.places.height_m[STATIONS:].reshape(SIDE, SIDE)
        step = DEGREES / SIDE
        lons, lats = (axis[0] + step * np.arange(-1, SIDE + 1) for axis in (lon, lat))
        return xr.DataArray(
            np.pad(inner, 1, mode="edge"), dims=("lat", "lon"), coords={"lon": lons, "lat": lats}, attrs={"units": "m"}
        )


def grid() -> hg.Grid:
    """Return the cells whose truth is known."""
    return hg.grid(lon=WEST, lat=SOUTH, step=DEGREES / SIDE, shape=(SIDE, SIDE))


def networks(case: str, replicates: int) -> Iterator[Network]:
    """Yield the replicates of a case; each has a seed of its own, so that fewer of them are the first of many."""
    for number in range(replicates):
        random = np.random.default_rng([SEED, list(CASES).index(case), number])
        yield _network(case, random)


def _network(case: str, random: np.random.Generator) -> Network:
    places = _places(random)
    values = _values(case, random, places)
    name = CASES[case][0]
    truth = values[name][:, STATIONS:].reshape(SLICES, SIDE, SIDE)
    return Network({each: part[:, :STATIONS] for each, part in values.items()}, truth, places)


def _centres() -> tuple[Floats, Floats]:
    step = DEGREES / SIDE
    inside = (np.arange(SIDE) + 0.5) * step
    return WEST + inside, SOUTH + inside


def _places(random: np.random.Generator) -> Places:
    lon, lat = (part.ravel() for part in np.meshgrid(*_centres()))
    lon = np.concatenate([random.uniform(WEST, WEST + DEGREES, STATIONS), lon])
    lat = np.concatenate([random.uniform(SOUTH, SOUTH + DEGREES, STATIONS), lat])
    east = (lon - lon.mean()) * np.cos(np.radians(SOUTH + DEGREES / 2))
    distance = np.hypot(east[:, None] - east, lat[:, None] - lat)
    root = np.linalg.cholesky(np.exp(-distance / RANGE_DEGREES) + 1e-10 * np.eye(len(lon)))
    ground = root @ random.standard_normal(len(lon))
    height = 1_000.0 + 800.0 * np.tanh(ground)
    return Places(lon, lat, height, root)


def _values(case: str, random: np.random.Generator, places: Places) -> dict[str, Floats]:
    name = CASES[case][0]
    if name == "wind_speed":
        mean = float(case.split()[-2])
        east, north = (WIND_SD_M_S * places.field(random) for _ in range(2))
        east = east + mean
        direction = np.degrees(np.arctan2(-east, -north)) % 360.0
        return {"wind_speed": np.hypot(east, north), "wind_direction": direction}
    if name == "rain":
        latent = places.field(random)
        return {"rain": np.square(2.0 * np.maximum(latent - ndtri(1.0 - WET_SHARE), 0.0))}
    if name == "solar_radiation":
        return {name: _radiation(random, places)}
    km = places.height_m / 1_000.0
    inverted = np.where(np.arange(SLICES) % 4 == 0, 12.0, 0.0)[:, None] * np.minimum(km - 0.8, 0.0)
    warm = 18.0 - 6.5 * km + inverted + places.field(random)
    dew = warm - 1.0 - 3.0 * np.abs(places.field(random)) - 2.0 * km
    if name == "relative_humidity":
        return {name: moisture.relative_humidity(dew, warm), "air_temperature": warm}
    return {name: dew if name == "dew_point" else warm}


def _radiation(random: np.random.Generator, places: Places) -> Floats:
    starts = TIMES.astype(np.int64)
    clear = sun.clear_sky_of_cells(starts, 0, places.lon, places.lat, places.height_m, turbidity=sun.TURBIDITY)
    index = np.clip(0.6 + 0.25 * places.field(random), 0.05, 1.1)
    return np.asarray(np.maximum(index * clear, 0.0))
