"""PyKrige's C backend as a good user calls it: one call a slice, with the stations that report and the variogram given.

Nothing is fitted or estimated by the way, the grid is handed over as two axes, and the nearest stations are asked for
where the case wants them. PyKrige solves a slice at a time, so a slice is what is timed.
"""

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pykrige.ok import OrdinaryKriging

from tests.bench.kriging_cases import Case

Floats = NDArray[np.float64]


def peer_slice(
    case: Case, readings: xr.DataArray, number: int, *, neighbours: int | None = None
) -> tuple[Floats, Floats]:
    """Return one slice's estimates and kriging variances, each of shape (rows, columns)."""
    estimate, variance = _kriging(case, readings, number).execute(
        "grid", case.centres_m, case.centres_m, backend="C", n_closest_points=neighbours
    )
    return np.asarray(estimate), np.asarray(variance)


def peer_points(case: Case, readings: xr.DataArray, number: int, places_m: Floats) -> Floats:
    """Return one slice's estimates from all stations at some places (x, y) [m], shape (places,)."""
    estimate, _ = _kriging(case, readings, number).execute("points", places_m[:, 0], places_m[:, 1], backend="C")
    return np.asarray(estimate)


def _kriging(case: Case, readings: xr.DataArray, number: int) -> OrdinaryKriging:
    x, y, values = readings["x"].to_numpy(), readings["y"].to_numpy(), readings[number].to_numpy()
    heard = np.isfinite(values)
    parameters = {"psill": case.psill, "range": case.range_m, "nugget": case.nugget}
    return OrdinaryKriging(
        x[heard], y[heard], values[heard], variogram_model="exponential", variogram_parameters=parameters
    )
