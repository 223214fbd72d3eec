"""The cases: networks of made-up readings with gaps in bursts, and the cells that they are kriged to.

Values are random walks: what they are changes no run time, and their size (a few units) no digit of the agreement.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

MISSING_SHARE = 0.1
"""Share of the readings that are missing."""


@dataclass(frozen=True)
class Case:
    """A network, its readings and a square grid of cells."""

    name: str
    stations: int
    side: int
    """Cells along each side of the grid."""
    slices: int
    cell_m: float
    """Side of a cell [m], whole millimetres, as a grid keeps it."""
    range_m: float
    burst_slices: float
    """Mean length of a gap [slices]; each station falls silent by itself, so that consecutive masks are alike."""
    neighbours: int | None = None
    """Nearest stations where the case asks for them."""
    peer_slices: int | None = None
    """Slices that the peer is timed on in each pair, its time extrapolated from them; all where None."""
    psill: float = 1.2
    nugget: float = 0.05
    seed: int = 0

    @property
    def extent_m(self) -> float:
        """Side of the grid [m]."""
        return self.side * self.cell_m

    @property
    def centres_m(self) -> NDArray[np.float64]:
        """Centres of the cells along x, and along y [m], shape (side,)."""
        return (np.arange(self.side) + 0.5) * self.cell_m

    @property
    def output_bytes(self) -> int:
        """What the values of all slices take [bytes]."""
        return self.slices * self.side**2 * 8

    def describe(self) -> str:
        """Return the case in words."""
        cells = f"{self.stations:,} stations, {self.side} x {self.side} cells, {self.slices:,} slices"
        return f"{cells}, {MISSING_SHARE:.0%} missing in bursts of {self.burst_slices:g} slices"


CASES = {
    "ref": Case("ref", 23, 23, 432, cell_m=30.0, range_m=250.0, burst_slices=45.0, seed=8),
    "mid": Case("mid", 200, 200, 1000, cell_m=100.0, range_m=5000.0, burst_slices=33.0, neighbours=20, peer_slices=2),
    "big": Case("big", 2000, 500, 50, cell_m=100.0, range_m=5000.0, burst_slices=33.0, neighbours=20, peer_slices=1),
}
"""43 masks in *ref*, 704 in *mid*, as many as slices in *big*; a seed whose few long gaps are 10 % of *ref*."""


def network(case: Case) -> xr.DataArray:
    """Return a case's readings, shape (slices, stations), NaN where missing, positions in projected metres."""
    random = np.random.default_rng(case.seed)
    values = random.normal(size=(case.slices, case.stations)).cumsum(axis=0) * 0.1
    values[_silent(random, case)] = np.nan
    places = random.uniform(0, case.extent_m, size=(case.stations, 2))
    coords: dict[str, Any] = {
        "time": pd.date_range("2007-10-01", periods=case.slices, freq="10min"),
        "x": ("station", places[:, 0]),
        "y": ("station", places[:, 1]),
    }
    return xr.DataArray(
        values, dims=("time", "station"), coords=coords, name="air_temperature", attrs={"units": "degC"}
    )


def masks(readings: xr.DataArray) -> int:
    """Return how many distinct sets of reporting stations there are."""
    return len(np.unique(np.isfinite(readings.to_numpy()), axis=0))


def _silent(random: np.random.Generator, case: Case) -> NDArray[np.bool_]:
    """Return which station is silent when, shape (slices, stations): a chain of two states for each station."""
    ends = 1 / case.burst_slices
    begins = ends * MISSING_SHARE / (1 - MISSING_SHARE)
    chance = random.random((case.slices, case.stations))
    silent = np.empty(chance.shape, dtype=bool)
    silent[0] = chance[0] < MISSING_SHARE
    for number in range(1, case.slices):
        silent[number] = np.where(silent[number - 1], chance[number] >= ends, chance[number] < begins)
    return silent
