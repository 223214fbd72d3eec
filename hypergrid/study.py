"""Studies of a query's stations: fit a variogram, cross-validate a method, compare methods."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.errors import InvalidQuery
from hypergrid.execution import Outcome, to_dataset
from hypergrid.execution import simulate as simulated
from hypergrid.kriging import METHODS, Comparison, CrossValidation, Samples
from hypergrid.kriging import compare_methods as compare
from hypergrid.kriging import cross_validate as validate
from hypergrid.kriging.fit import VariogramFit
from hypergrid.kriging.fit import fit_variogram as fit
from hypergrid.perspective.uncertain import parse_memory
from hypergrid.query import Query, base
from hypergrid.topology import Metres, SeriesAxis

Floats = NDArray[np.float64]


def samples_of(data: Query | xr.DataArray) -> Samples:
    """Return a query's values at its stations, positions in metres.

    Parameters
    ----------
    data
        A query, of which the steps before its first interpolation over space count, or an array as `hg.base` takes.

    Raises
    ------
    InvalidQuery
        The stations have no positions.
    """
    query = at_stations(data if isinstance(data, Query) else base(data))
    axis = query.surface().perspective.topology.space
    if not isinstance(axis, SeriesAxis):
        message = "a study needs values at stations; this query gives a map that no interpolation made"
        raise InvalidQuery(message)
    result = query.compute()["value"]
    places = np.stack([axis.x, axis.y], axis=1)
    known = np.isfinite(places).all(axis=1)
    if not known.any():
        message = f"none of the {axis.count} stations has a position; a study of space needs them"
        raise InvalidQuery(message)
    placed = Metres(axis).of(places[known])
    positions = np.full((axis.count, placed.shape[1]), np.nan)
    positions[known] = placed
    names = tuple(series.station for series in axis.series)
    return Samples.of(result.to_numpy(), positions, axis.elevation_m, names=names, unit=str(result.attrs["units"]))


def at_stations(query: Query) -> Query:
    """Return the part of a query that ends at the stations: what lies before its first interpolation over space."""
    steps = query.question.steps
    maps = (number for number, step in enumerate(steps) if step.op == "interpolate" and "time" not in dict(step.cells))
    first = next(maps, len(steps))
    if first == len(steps):
        return query
    return replace(query, question=replace(query.question, steps=steps[:first], variance=False, correlation_time=None))


def fit_variogram(data: Query | xr.DataArray, *, model: str = "exponential", **options: Any) -> VariogramFit:  # noqa: ANN401
    """Fit a variogram to a query's stations, all its slices together; options are those of `kriging.fit`."""
    return _fitted(samples_of(data), model, **options)


def _fitted(samples: Samples, model: str, **options: Any) -> VariogramFit:  # noqa: ANN401 - options of kriging.fit
    placed = np.isfinite(samples.positions_m).all(axis=1)
    return fit(samples.positions_m[placed], samples.values[:, placed], model=model, **options)


def cross_validate(
    data: Query | xr.DataArray,
    method: str,
    *,
    by: str = "station",
    parameters: Mapping[str, object] | None = None,
    model: str = "exponential",
) -> CrossValidation:
    """Leave stations, regions or times out, estimate them from what is left, and score the estimates.

    Parameters
    ----------
    data
        A query that ends at the stations, or an array.
    method
        Name of a method of interpolation.
    by
        "station", "region", or "time_block": the variogram is fitted to the other blocks of time.
    parameters
        The method's parameters, as a query writes them; by "time_block" without a variogram.
    model
        By "time_block", the variogram model that is fitted.

    Raises
    ------
    HyperGridError
        As `hypergrid.kriging.cross_validate`, and by "time_block" where the method takes no variogram.
    """
    samples = samples_of(data)
    if by != "time_block":
        return validate(samples, method, parameters=parameters, by=by)  # type: ignore[arg-type]
    if all(item.name != "variogram" for item in METHODS[method].parameters):
        message = f"{method} fits nothing, so leaving times out would change nothing; leave out by station or by region"
        raise InvalidQuery(message)
    placed = np.isfinite(samples.positions_m).all(axis=1)

    def fitted(values: Floats) -> dict[str, object]:
        return {"variogram": fit(samples.positions_m[placed], values[:, placed], model=model).variogram}

    return validate(samples, method, parameters=parameters, by="time_block", fit=fitted)


def compare_methods(data: Query | xr.DataArray) -> list[Comparison]:
    """Cross-validate every method on a query's stations, kriging with a variogram fitted to them; best first."""
    samples = samples_of(data)
    model = _fitted(samples, "exponential").variogram
    return compare(
        samples.values,
        samples.positions_m,
        samples.elevation_m,
        variogram=model,
        names=samples.names,
        unit=samples.unit,
    )


def simulate(
    query: Query, *, count: int, seed: int | np.random.Generator, correlation_time: str | None = None
) -> xr.DataArray:
    """Simulate the field that a query interpolates, given its readings: each realisation is as the truth might be.

    Over realisations, the mean is the interpolated value and the variance the kriging variance of the noise-free value;
    so is that of whatever is computed from them, such as a maximum or a mean over a region.

    Parameters
    ----------
    query
        A query whose last step is kriging from all stations.
    count
        How many realisations.
    seed
        Where chance comes from: the same number gives the same realisations.
    correlation_time
        Time after which the field's slices have lost all but 1/e of their correlation ("6h"), "0s" where they are
        independent, or "estimate"; needed where there are several.

    Returns
    -------
    Dimensions realisation, time, then lat and lon, or y and x.

    Raises
    ------
    InvalidQuery
        The query does not end with such an interpolation, the correlation is not known, or the variogram is none.
    InvalidTime
        `correlation_time` is no duration.
    TooLarge
        Too many cells to simulate together, or realisations for the memory.

    Examples
    --------
    >>> import hypergrid as hg, numpy as np, xarray as xr
    >>> places = {"x": ("station", [0.0, 90.0]), "y": ("station", [0.0, 0.0])}
    >>> coords = {"time": np.array(["2007-10-01"], "datetime64[ns]"), **places}
    >>> readings = xr.DataArray([[1.0, 3.0]], dims=("time", "station"), coords=coords)
    >>> model = hg.variogram("exponential", psill=1.0, range_m=100.0)
    >>> cells = hg.grid(x=-5, y=-5, step=10, shape=(1, 10))
    >>> query = hg.base(readings).interpolate("ordinary_kriging", grid=cells, variogram=model)
    >>> made = hg.simulate(query, count=2, seed=1)
    >>> dict(made.sizes), made.values[:, 0, 0, [0, 9]].round(9).tolist()
    ({'realisation': 2, 'time': 1, 'y': 1, 'x': 10}, [[1.0, 3.0], [1.0, 3.0]])
    """
    plan = query.plan()
    made = simulated(
        plan, count=count, generator=np.random.default_rng(seed), memory=parse_memory(correlation_time)
    )  # fmt: skip
    shown = to_dataset(query.question, plan.surface, Outcome(made[0].reshape(len(made[0]), -1)))["value"]
    attributes = {**shown.attrs, "long_name": f"simulated {shown.attrs['long_name']}, given the readings"}
    return xr.DataArray(made, shown.coords, ("realisation", *shown.dims), "value", attributes)
