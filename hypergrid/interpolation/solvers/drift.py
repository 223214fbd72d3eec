"""Drift of the field: a known mean, or functions of place with unknown coefficients.

Simple kriging knows the mean. Ordinary kriging assumes it constant; universal kriging, a polynomial of x and y; kriging
with external drift, linear in covariates such as elevation (Goovaerts 1997, chapter 5 and section 6.1). The drift
functions border the kriging system, which makes the estimate unbiased for any coefficients.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation.points import Floats, Stations, Targets

FLAT = 1e-9
"""Ratio of the least to the greatest eigenvalue at which drift functions are dependent."""

# Bilinear interpolation leaves some 1e-16 of a constant, and 6e-8 in a layer stored in 32 bits; scaled to one, that
# rounding would be a drift function like any other.
ALIKE = 1e-6
"""Spread of a covariate relative to its size (of x or y to the wider of the two) below which it is constant."""


@dataclass(frozen=True)
class Drift:
    """Known mean, or form of the unknown mean."""

    mean: float | None = None
    """Known mean [the variable's unit]; None if only its form is known."""
    degree: int = 0
    """Degree of the polynomial of x and y: 0, 1 or 2."""
    covariates: tuple[str, ...] = ()
    """Names of the covariates in which the mean is linear."""

    def count_coefficients(self) -> int:
        """Count the unknown coefficients, which need at least as many stations."""
        return 0 if self.mean is not None else (self.degree + 1) * (self.degree + 2) // 2 + len(self.covariates)

    def min_stations(self) -> int:
        return max(self.count_coefficients(), 1)

    def place_on(self, stations: Stations) -> "PlacedDrift":
        """Centre and scale the drift functions on a network, so that they have similar magnitudes."""
        positions = stations.positions_m
        if self.degree and positions.shape[1] != 2:
            raise InvalidQuery(
                "a polynomial of x and y needs a plane; this network spans so much of the earth that its places are on "
                "the sphere; use ordinary_kriging, or ask for distance='plane' and accept its distortion"
            )
        raw = [positions[:, i] for i in range(positions.shape[1] if self.degree else 0)]
        raw += [stations.covariates[name] for name in self.covariates]
        middle = tuple(float(values.mean()) if len(values) else 0.0 for values in raw)
        spread = [float(np.abs(values - mid).max(initial=0.0)) for values, mid in zip(raw, middle, strict=True)]
        # The origin of positions is arbitrary, so their spread is compared to the wider axis: a line of stations is
        # constant across its length.
        along = len(raw) - len(self.covariates)
        whole = [max(spread[:along], default=0.0)] * along
        whole += [float(np.abs(values).max(initial=0.0)) for values in raw[along:]]
        # Divided by infinity, a constant becomes exactly 0.
        size = tuple(part if part > ALIKE * all_ else np.inf for part, all_ in zip(spread, whole, strict=True))
        return PlacedDrift(self, middle, size)


@dataclass(frozen=True)
class PlacedDrift:
    """Drift functions centred and scaled on a network."""

    drift: Drift
    middle: tuple[float, ...]
    """Means of x, y and the covariates over the stations."""
    size: tuple[float, ...]
    """Greatest distance of a station from the middle; infinite for a constant."""

    def columns(self, places: Stations | Targets) -> Floats:
        """Evaluate the drift functions, shape (places, functions); for targets, means over their parts."""
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
        """Reject a network that does not determine the coefficients.

        Raises
        ------
        InvalidQuery
            Too few stations.
        SingularSystem
            Dependent drift functions: stations on a line or a conic, a covariate that is constant or linear in x and y.
        """
        needed = self.drift.min_stations()
        if stations.count < needed:
            raise InvalidQuery(
                f"{label} needs at least {needed} stations with values (one an unknown coefficient of its mean); got "
                f"{stations.count}; select more stations, a longer time, or ordinary_kriging"
            )
        columns = self.columns(stations)
        if self.is_determined(columns[None])[0] and not self._hangs_on_rounding(columns, stations):
            return
        named = [*(["x and y"] if self.drift.degree else []), *self.drift.covariates]
        raise SingularSystem(
            f"{label} needs stations that differ independently in {', '.join(named)}; those of the {stations.count} "
            "stations depend on one another (all on one line, one elevation, or one linear in the other); leave one "
            "out, select other stations, or use ordinary_kriging"
        )

    def _hangs_on_rounding(self, columns: Floats, stations: Stations) -> bool:
        """Check whether a covariate differs from a combination of the other functions only by rounding."""
        first = 1 + (2 if self.drift.degree else 0)
        for column, name in enumerate(self.drift.covariates if self.drift.count_coefficients() else (), start=first):
            others = np.delete(columns, column, axis=1)
            left = columns[:, column] - others @ np.linalg.lstsq(others, columns[:, column], rcond=None)[0]
            rounding = ALIKE * np.abs(stations.covariates[name]).max() / self.size[column - 1]
            # With as many functions as stations the residuals are always zero.
            if stations.count > columns.shape[1] and np.abs(left).max() <= rounding:
                return True
        return False

    def is_determined(self, columns: Floats) -> NDArray[np.bool_]:
        """Check whether stations determine the coefficients, shape (sets,).

        Parameters
        ----------
        columns
            Drift functions at the stations of each set, zero rows for stations outside it; shape (sets, stations,
            functions).
        """
        if not self.drift.count_coefficients():
            return np.ones(len(columns), dtype=bool)
        values = np.linalg.eigvalsh(np.swapaxes(columns, 1, 2) @ columns)
        return np.asarray(values[:, 0] > FLAT * np.maximum(values[:, -1], 1e-300))
