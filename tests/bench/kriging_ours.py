"""The same work by this program: through the public interface, and by the field alone."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.parameters import bind
from hypergrid.core.result_names import by_role, value_of
from hypergrid.interpolation.methods.registry import METHODS
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.weight_cache import WEIGHTS
from tests.bench.kriging_cases import Case

Floats = NDArray[np.float64]
Work = Callable[[], Floats]

METHOD = "ordinary_kriging"


def query(case: Case, readings: xr.DataArray, *, neighbours: int | None = None, columns: int | None = None) -> hg.Query:
    """Return the query of every slice on the case's grid, or on one with another number of columns."""
    return hg.base(readings).interpolate(
        METHOD,
        grid=hg.grid(x=0.0, y=0.0, step=case.cell_m, shape=(case.side, case.side)),
        variogram=_variogram(case),
        neighbours=neighbours,
    )


def all_slices(case: Case, readings: xr.DataArray, *, neighbours: int | None = None) -> Floats:
    """Return every slice, shape (slices, rows, columns): from the readings to the dataset."""
    return value_of(query(case, readings, neighbours=neighbours).compute()).to_numpy()


def time_mean(case: Case, readings: xr.DataArray) -> Floats:
    """Return the mean over all slices, shape (1, rows, columns): from the readings to the dataset."""
    return value_of(query(case, readings).aggregate("mean", time="all").compute()).to_numpy()


def all_variances(case: Case, readings: xr.DataArray) -> tuple[Floats, Floats]:
    """Return every slice and its kriging variance, each of shape (slices, rows, columns)."""
    result = query(case, readings).with_variance().compute()
    return value_of(result).to_numpy(), by_role(result)["variance"].to_numpy()


def kernel(case: Case, readings: xr.DataArray) -> Work:
    """Return the field's own evaluation: stations and values go in, an array of shape (slices, cells) comes out.

    In it: the set of reporting stations of each slice, the missing stations kriged from those present, the dual form,
    and the product with the right-hand sides of the cells. Not in it: the query, its plan, its tokens, the blocks, the
    counts and the dataset around the values. What depends on the places alone (the inverse of the system and the
    right-hand sides) is made in the first call and found in the weight cache by the later ones; `forget` before a call
    puts it in again.
    """
    row = METHODS[METHOD]
    given = row.parse(bind(METHOD, row.parameters, {"variogram": _variogram(case)}, variable_unit="degC"))
    places = np.stack([readings["x"].to_numpy(), readings["y"].to_numpy()], axis=1)
    values = readings.to_numpy()
    stations = Stations(places, tuple(map(str, range(case.stations))))
    y, x = np.meshgrid(case.centres_m, case.centres_m, indexing="ij")
    targets = Targets(np.stack([x.ravel(), y.ravel()], axis=1))
    return lambda: row.prepare(stations, values, given).estimate(targets)


def forget() -> None:
    """Drop the weights that earlier calls left, so that the next one makes its own."""
    WEIGHTS.clear()


def _variogram(case: Case) -> hg.Variogram:
    return hg.variogram("exponential", psill=case.psill, range_m=case.range_m, nugget=case.nugget)
