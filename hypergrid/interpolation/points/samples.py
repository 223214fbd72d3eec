"""Values at stations, the input of cross-validation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.points.points import Floats, Stations


@dataclass(frozen=True, eq=False)
class Samples:
    """Values at stations for validating methods.

    Raises
    ------
    InvalidQuery
        Inconsistent shapes.
    """

    values: Floats
    """Shape (slices, stations), NaN where missing."""
    positions_m: Floats
    """Shape (stations, 2), or (stations, 3) on the sphere [m]; stations without a finite position are ignored."""
    elevation_m: Floats
    """Shape (stations,) [m], NaN where unknown."""
    names: tuple[str, ...]
    unit: str = ""
    """Unit of the values."""
    covariates: Mapping[str, Floats] = field(default_factory=dict)
    """Covariates of the stations by name, in addition to elevation; shape (stations,) each."""

    @classmethod
    def of(
        cls,
        values: Floats,
        positions_m: Floats,
        elevation_m: Floats | None = None,
        *,
        names: tuple[str, ...] | None = None,
        unit: str = "",
    ) -> "Samples":
        """Build samples; by default stations are numbered and their elevations unknown."""
        count = np.shape(positions_m)[0] if np.ndim(positions_m) else 0
        elevation = np.full(count, np.nan) if elevation_m is None else np.asarray(elevation_m, dtype=np.float64)
        called = tuple(map(str, range(count))) if names is None else names
        places = np.asarray(positions_m, dtype=np.float64)
        return cls(np.asarray(values, dtype=np.float64), places, elevation, called, unit)

    def __post_init__(self) -> None:
        count = len(self.names)
        placed = self.positions_m.shape in ((count, 2), (count, 3))
        if self.values.shape[1:] != (count,) or not placed or len(self.elevation_m) != count:
            raise InvalidQuery(
                "samples need values (slices, stations), positions (stations, 2), elevations and names (stations); got "
                f"{self.values.shape}, {self.positions_m.shape}, {self.elevation_m.shape} and {count} names"
            )

    @property
    def stations(self) -> Stations:
        """The stations, with elevation and other covariates."""
        return Stations(self.positions_m, self.names, {"elevation": self.elevation_m, **self.covariates})

    @property
    def usable_mask(self) -> NDArray[np.bool_]:
        """Which stations have a position and at least one value, shape (stations,)."""
        placed = np.isfinite(self.positions_m).all(axis=1)
        return np.asarray(placed & np.isfinite(self.values).any(axis=0))

    def take_stations(self, stations: NDArray[np.bool_]) -> "Samples":
        """Select stations by a mask, shape (stations,)."""
        names = tuple(name for name, kept in zip(self.names, stations, strict=True) if kept)
        places, elevation = self.positions_m[stations], self.elevation_m[stations]
        covariates = {name: values[stations] for name, values in self.covariates.items()}
        return Samples(self.values[:, stations], places, elevation, names, self.unit, covariates)
