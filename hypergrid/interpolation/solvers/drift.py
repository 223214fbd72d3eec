"""What is known of the mean of the field: its value, or functions of place whose coefficients are not known.

Simple kriging knows the mean. Ordinary kriging knows that it is constant; universal kriging, that it is a polynomial of
x and y; kriging with external drift, that it is linear in covariates such as elevation (Goovaerts 1997, chapter 5 and
section 6.1). The drift functions border the kriging system, so that the estimate is without bias whatever their
coefficients are.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation.points.points import Stations, Targets

Floats = NDArray[np.float64]

FLAT = 1e-9
"""Least over greatest eigenvalue of the drift functions' products below which stations do not tell them apart."""

ALIKE = 1e-6
"""Spread of a covariate over its own size (or of x and y over the wider of the two) below which it is constant.

What is left of a constant by bilinear shares is some 1e-16 of it, and 6e-8 where a layer is kept in 32 bits; scaled to
one, that rounding would be a drift function like any other.
"""


@dataclass(frozen=True)
class Drift:
    """What is known of the mean."""

    mean: float | None = None
    """The mean itself [the variable's unit]; None where only its form is known."""
    degree: int = 0
    """Of the polynomial of x and y: 0, 1 or 2."""
    covariates: tuple[str, ...] = ()
    """Names of covariates that the mean is linear in."""

    def count_coefficients(self) -> int:
        """Return how many unknown coefficients there are: as many stations are needed at least."""
        return 0 if self.mean is not None else (self.degree + 1) * (self.degree + 2) // 2 + len(self.covariates)

    def min_stations(self) -> int:
        """Return how many stations an estimate needs at least."""
        return max(self.count_coefficients(), 1)

    def place_on(self, stations: Stations) -> "PlacedDrift":
        """Return the drift functions centred and scaled on a network, so that their sizes are alike."""
        positions = stations.positions_m
        if self.degree and positions.shape[1] != 2:
            message = (
                "a polynomial of x and y needs a plane; this network spans so much of the earth that its places are on "
                "the sphere; use ordinary_kriging, or ask for distance='plane' and accept its distortion"
            )
            raise InvalidQuery(message)
        raw = [positions[:, i] for i in range(positions.shape[1] if self.degree else 0)]
        raw += [stations.covariates[name] for name in self.covariates]
        middle = tuple(float(values.mean()) if len(values) else 0.0 for values in raw)
        spread = [float(np.abs(values - mid).max(initial=0.0)) for values, mid in zip(raw, middle, strict=True)]
        # Positions count from an origin of their own: a line of stations is constant beside its length.
        along = len(raw) - len(self.covariates)
        whole = [max(spread[:along], default=0.0)] * along
        whole += [float(np.abs(values).max(initial=0.0)) for values in raw[along:]]
        size = tuple(part if part > ALIKE * all_ else np.inf for part, all_ in zip(spread, whole, strict=True))
        return PlacedDrift(self, middle, size)


@dataclass(frozen=True)
class PlacedDrift:
    """Drift functions on a network."""

    drift: Drift
    middle: tuple[float, ...]
    """Of x, y and the covariates over the stations."""
    size: tuple[float, ...]
    """How far stations are from the middle; infinite where they are all in it, so that the function is exactly 0."""

    def columns(self, places: Stations | Targets) -> Floats:
        """Return the drift functions at places, shape (places, functions); means over the parts of each target."""
        count = len(places.positions_m)
        if self.drift.mean is not None:
            columns = np.empty((count, 0))
        else:
            raw = [places.positions_m[:, i] for i in range(2 if self.drift.degree else 0)]
            raw += [places.covariates[name] for name in self.drift.covariates]
            scaled = [(r - mid) / size for r, mid, size in zip(raw, self.middle, self.size, strict=True)]
            squares = []
            if self.drift.degree == 2:
                x, y = scaled[:2]
                squares = [x * x, x * y, y * y]
            columns = np.stack([np.ones(count), *scaled, *squares], axis=1)
        return places.mean(columns) if isinstance(places, Targets) else columns

    def refuse_undetermined(self, label: str, stations: Stations) -> None:
        """Refuse a network that does not determine the coefficients.

        Raises
        ------
        InvalidQuery
            Too few stations.
        SingularSystem
            Their drift functions depend on each other: stations on a line or a conic, a covariate that is constant or
            linear in x and y.
        """
        needed = self.drift.min_stations()
        if stations.count < needed:
            message = (
                f"{label} needs at least {needed} stations with values (one an unknown coefficient of its mean); got "
                f"{stations.count}; select more stations, a longer time, or ordinary_kriging"
            )
            raise InvalidQuery(message)
        columns = self.columns(stations)
        if self.is_determined(columns[None])[0] and not self._hangs_on_rounding(columns, stations):
            return
        named = [*(["x and y"] if self.drift.degree else []), *self.drift.covariates]
        message = (
            f"{label} needs stations that differ independently in {', '.join(named)}; those of the {stations.count} "
            "stations depend on one another (all on one line, one elevation, or one linear in the other); leave one "
            "out, select other stations, or use ordinary_kriging"
        )
        raise SingularSystem(message)

    def _hangs_on_rounding(self, columns: Floats, stations: Stations) -> bool:
        """Return whether a covariate differs from what the other functions make of it by its rounding alone."""
        first = 1 + (2 if self.drift.degree else 0)
        for column, name in enumerate(self.drift.covariates if self.drift.count_coefficients() else (), start=first):
            others = np.delete(columns, column, axis=1)
            left = columns[:, column] - others @ np.linalg.lstsq(others, columns[:, column], rcond=None)[0]
            rounding = ALIKE * np.abs(stations.covariates[name]).max() / self.size[column - 1]
            # As many functions as stations leave nothing of anything.
            if stations.count > columns.shape[1] and np.abs(left).max() <= rounding:
                return True
        return False

    def is_determined(self, columns: Floats) -> NDArray[np.bool_]:
        """Return whether stations determine the coefficients, shape (sets,).

        Parameters
        ----------
        columns
            Drift functions at the stations of each set, rows of zeros for those that are not in it; shape (sets,
            stations, functions).
        """
        if not self.drift.count_coefficients():
            return np.ones(len(columns), dtype=bool)
        values = np.linalg.eigvalsh(np.swapaxes(columns, 1, 2) @ columns)
        return np.asarray(values[:, 0] > FLAT * np.maximum(values[:, -1], 1e-300))
