"""Air temperature as a Gaussian field of known covariance, its truth at any cells, and the best linear estimate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

EARTH_M: Final = 6_371_008.8
SECOND_NS: Final = 10**9
DAY_S: Final = 86_400.0
TINY: Final = 1e-9
"""What is added to a covariance's diagonal, as a share of its sill, so that its root exists in floating point."""

SHAPES: Final[Mapping[str, Callable[[Floats], Floats]]] = MappingProxyType(
    {
        # Effective ranges: 95 % of the sill is reached at 1.
        "exponential": lambda ratio: np.exp(-2.9957 * ratio),
        "matern": lambda ratio: (1.0 + 4.7439 * ratio) * np.exp(-4.7439 * ratio),
    }
)
"""Correlation by distance over range: rough as an exponential, or smooth as Matérn's of order 3/2."""


@dataclass(frozen=True)
class Places:
    """Points: longitude and latitude [degree], elevation [m], one value each."""

    lon: Floats
    lat: Floats
    elevation: Floats

    def __len__(self) -> int:
        return len(self.lon)

    def __getitem__(self, index: NDArray[np.int64]) -> "Places":
        return Places(self.lon[index], self.lat[index], self.elevation[index])


@dataclass(frozen=True)
class Component:
    """One of the independent fields of a climate: separable in space and time."""

    sill: float
    """Variance at one place and instant [K2]."""
    range_m: float
    """Effective range [m]."""
    shape: Literal["exponential", "matern"]
    memory_s: float | None = None
    """e-folding time of an autoregression of order 1 [s]; without it the field never changes."""

    def in_space(self, first: Places, second: Places) -> Floats:
        """Return covariances (first, second) [K2] of one instant."""
        return self.sill * SHAPES[self.shape](distances(first, second) / self.range_m)

    def in_time(self, times_s: Floats) -> Floats:
        """Return correlations (time, time) of one place."""
        if self.memory_s is None:
            return np.ones((len(times_s), len(times_s)))
        return np.exp(-np.abs(times_s[:, np.newaxis] - times_s) / self.memory_s)


@dataclass(frozen=True)
class Climate:
    """What the air temperature of a country is drawn from."""

    mean_c: float
    """At sea level, at the network's southern edge [degC]."""
    wave_k: float
    """Half of what a mean day warms and cools by, the same everywhere [K]."""
    components: tuple[Component, ...]
    lapse_k_per_m: float = 0.0
    north_k_per_degree: float = 0.0
    noise_k: float = 0.2
    """Standard deviation of a reading's error, independent of all others [K]."""
    offset_k: float = 0.1
    """Standard deviation of what an instrument always errs by [K]."""

    def common(self, times_s: Floats) -> Floats:
        """Return what all places share at instants since midnight UTC [degC]."""
        return self.mean_c + self.wave_k * np.cos(2.0 * np.pi * (times_s / DAY_S - 14.0 / 24.0))

    def drift(self, places: Places, south: float) -> Floats:
        """Return what elevation and latitude add [K]."""
        return self.lapse_k_per_m * places.elevation + self.north_k_per_degree * (places.lat - south)

    def drift_terms(self, places: Places) -> Floats:
        """Return the functions (places, terms) whose factors kriging has to find: one, elevation, latitude."""
        terms = [np.ones(len(places))]
        if self.lapse_k_per_m:
            terms.append(places.elevation / 1000.0)
        if self.north_k_per_degree:
            terms.append(places.lat - places.lat.mean())
        return np.stack(terms, axis=1)


def distances(first: Places, second: Places) -> Floats:
    """Return distances (first, second) [m] along the chord, by which any covariance of space holds on a sphere."""
    ours, theirs = (_unit_vectors(places) for places in (first, second))
    return EARTH_M * np.sqrt(np.maximum(2.0 - 2.0 * ours @ theirs.T, 0.0))


def _unit_vectors(places: Places) -> Floats:
    lon, lat = np.radians(places.lon), np.radians(places.lat)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


@dataclass(frozen=True)
class Weather:
    """One draw of a climate at stations, of which any later question has one answer.

    The field at other places is drawn when it is asked for, on the condition of what it is at the stations. That is
    exact, so that the cells need not be known beforehand, but two calls draw two fields between the stations.
    """

    climate: Climate
    seed: int
    stations: Places
    times_ns: NDArray[np.int64]
    parts: tuple[Floats, ...]
    """Each component's values (time, station) [K]."""
    readings: Floats
    """What the instruments read (time, station) [degC]; missing where nothing was reported."""

    @property
    def times_s(self) -> Floats:
        """Return instants since midnight UTC of the first day [s]."""
        return (self.times_ns - self.times_ns[0] // (86_400 * SECOND_NS) * (86_400 * SECOND_NS)) / SECOND_NS

    def true_means(self, window_ns: tuple[int, int], cells: Places) -> Floats:
        """Return the mean air temperature [degC] of a half-open window at each cell's centre, without any noise."""
        within = self._within(window_ns)
        rng = np.random.default_rng([self.seed, 1])
        times_s = self.times_s[within]
        share = np.full(len(times_s), 1.0 / len(times_s))
        places, first = _distinct(self.stations)
        found = self.climate.common(times_s).mean() + self.climate.drift(cells, self.stations.lat.min())
        for component, part in zip(self.climate.components, self.parts, strict=True):
            at_stations = part[within][:, first].mean(axis=0)
            among = component.in_space(places, places)
            among[np.diag_indices_from(among)] += TINY * component.sill
            between = component.in_space(cells, places)
            weights = np.linalg.solve(among, between.T).T
            left = component.in_space(cells, cells) - weights @ between.T
            # What a mean over time leaves of an instant's variance; separable covariances need nothing else.
            left *= share @ component.in_time(times_s) @ share
            left[np.diag_indices_from(left)] += 100.0 * TINY * component.sill
            found = found + weights @ at_stations + np.linalg.cholesky(left) @ rng.standard_normal(len(cells))
        return found

    def kriged_means(self, window_ns: tuple[int, int], cells: Places) -> tuple[Floats, Floats]:
        """Return the best linear unbiased estimate [degC] of `true_means`, and its variance [K2].

        It is universal kriging of the stations' means over what they reported in the window, by the covariance that
        these means truly have, with the day's course and all variances known, and the factors of the drift unknown.
        """
        within = self._within(window_ns)
        times_s = self.times_s[within]
        common = self.climate.common(times_s)
        held = np.isfinite(self.readings[within])
        known = held.any(axis=0)
        stations = self.stations[np.flatnonzero(known)]
        held = held[:, known]
        shares = (held / held.sum(axis=0)).T
        departures = np.where(held, self.readings[within][:, known] - common[:, np.newaxis], 0.0)
        means = (shares.T * departures).sum(axis=0)
        whole = np.full(len(times_s), 1.0 / len(times_s))
        among = np.diag(self.climate.offset_k**2 + self.climate.noise_k**2 / held.sum(axis=0))
        between = np.zeros((len(cells), len(stations)))
        alone = 0.0
        for component in self.climate.components:
            in_time = component.in_time(times_s)
            among += component.in_space(stations, stations) * (shares @ in_time @ shares.T)
            between += component.in_space(cells, stations) * (shares @ in_time @ whole)
            alone += component.sill * float(whole @ in_time @ whole)
        together = Places(*(np.concatenate(pair) for pair in zip(_columns(stations), _columns(cells), strict=True)))
        terms = self.climate.drift_terms(together)
        at_stations, at_cells = terms[: len(stations)], terms[len(stations) :]
        solved = np.linalg.solve(among, np.column_stack([means, at_stations, between.T]))
        of_means, of_terms, weights = solved[:, 0], solved[:, 1 : 1 + terms.shape[1]], solved[:, 1 + terms.shape[1] :]
        normal = at_stations.T @ of_terms
        factors = np.linalg.solve(normal, at_stations.T @ of_means)
        estimate = common.mean() + at_cells @ factors + weights.T @ (means - at_stations @ factors)
        missed = at_cells - weights.T @ at_stations
        variance = alone - np.einsum("cs,sc->c", between, weights)
        variance += np.einsum("ct,tc->c", missed, np.linalg.solve(normal, missed.T))
        return estimate, variance

    def _within(self, window_ns: tuple[int, int]) -> Bools:
        return (window_ns[0] <= self.times_ns) & (self.times_ns < window_ns[1])


def draw(climate: Climate, *, seed: int, stations: Places, times_ns: NDArray[np.int64], reported: Bools) -> Weather:
    """Draw a climate at stations and evenly spaced instants.

    Parameters
    ----------
    climate : Climate
        What it is drawn from.
    seed : int
        Equal seeds draw equal weather.
    stations : Places
        Where. Stations at one place see one field, each with an instrument of its own.
    times_ns : array
        When, evenly spaced [ns since 1970].
    reported : array
        Which readings there are (time, station).
    """
    rng = np.random.default_rng([seed, 0])
    places, _ = _distinct(stations)
    place_of = _place_of(stations)
    step_s = float(times_ns[1] - times_ns[0]) / SECOND_NS
    parts = []
    for component in climate.components:
        among = component.in_space(places, places)
        among[np.diag_indices_from(among)] += TINY * component.sill
        root = np.linalg.cholesky(among)
        kept = 1.0 if component.memory_s is None else float(np.exp(-step_s / component.memory_s))
        values = np.empty((len(times_ns), len(places)))
        values[0] = root @ rng.standard_normal(len(places))
        for at in range(1, len(times_ns)):
            values[at] = kept * values[at - 1]
            if kept < 1.0:
                values[at] += np.sqrt(1.0 - kept**2) * (root @ rng.standard_normal(len(places)))
        parts.append(values[:, place_of])
    weather = Weather(climate, seed, stations, times_ns, tuple(parts), np.empty(reported.shape))
    truth = climate.common(weather.times_s)[:, np.newaxis] + climate.drift(stations, stations.lat.min()) + sum(parts)
    offsets = climate.offset_k * rng.standard_normal(len(stations))
    weather.readings[:] = truth + offsets + climate.noise_k * rng.standard_normal(truth.shape)
    weather.readings[~reported] = np.nan
    return weather


def _columns(places: Places) -> tuple[Floats, Floats, Floats]:
    return places.lon, places.lat, places.elevation


def _distinct(stations: Places) -> tuple[Places, NDArray[np.int64]]:
    """Return each place once, and a station that stands there."""
    _, first = np.unique(np.stack([stations.lon, stations.lat]), axis=1, return_index=True)
    return stations[first], first


def _place_of(stations: Places) -> NDArray[np.int64]:
    _, inverse = np.unique(np.stack([stations.lon, stations.lat]), axis=1, return_inverse=True)
    return np.asarray(inverse).ravel()
