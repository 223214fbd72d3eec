"""Studies of a query's stations: fit a variogram, cross-validate a method, compare methods."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from hypergrid.errors import InvalidQuery
from hypergrid.kriging import Comparison, CrossValidation, Samples
from hypergrid.kriging import compare_methods as compare
from hypergrid.kriging import cross_validate as validate
from hypergrid.kriging.fit import VariogramFit
from hypergrid.kriging.fit import fit_variogram as fit
from hypergrid.query import Query, base
from hypergrid.topology import Metres, SeriesAxis


def samples_of(data: Query | xr.DataArray) -> Samples:
    """Return a query's values at its stations, positions in metres.

    Parameters
    ----------
    data
        A query that ends at the stations (aligned by an aggregate, not interpolated), or an array as `hg.base` takes.

    Raises
    ------
    InvalidQuery
        The query gives a map, or its stations have no positions.
    """
    query = data if isinstance(data, Query) else base(data)
    axis = query.surface().perspective.topology.space
    if not isinstance(axis, SeriesAxis):
        message = "a study needs values at stations; this query gives a map: leave its interpolate step out"
        raise InvalidQuery(message)
    result = query.compute()["value"]
    places = np.stack([axis.x, axis.y], axis=1)
    known = np.isfinite(places).all(axis=1)
    if not known.any():
        message = f"none of the {axis.count} stations has a position; a study of space needs them"
        raise InvalidQuery(message)
    positions = np.full(places.shape, np.nan)
    positions[known] = Metres(axis).of(places[known])
    names = tuple(series.station for series in axis.series)
    return Samples.of(result.to_numpy(), positions, axis.elevation_m, names=names, unit=str(result.attrs["units"]))


def fit_variogram(data: Query | xr.DataArray, *, model: str = "exponential", **options: Any) -> VariogramFit:  # noqa: ANN401
    """Fit a variogram to a query's stations, all its slices together; options are those of `kriging.fit`."""
    return _fitted(samples_of(data), model, **options)


def _fitted(samples: Samples, model: str, **options: Any) -> VariogramFit:  # noqa: ANN401 - options of kriging.fit
    placed = np.isfinite(samples.positions_m).all(axis=1)
    return fit(samples.positions_m[placed], samples.values[:, placed], model=model, **options)


def cross_validate(
    data: Query | xr.DataArray, method: str, *, by: str = "station", parameters: Mapping[str, object] | None = None
) -> CrossValidation:
    """Leave stations (or regions) out, estimate them from the others, and score the estimates.

    Parameters
    ----------
    data
        A query that ends at the stations, or an array.
    method
        Name of a method of interpolation.
    by
        "station" or "region".
    parameters
        The method's parameters, as a query writes them.
    """
    return validate(samples_of(data), method, parameters=parameters, by=by)  # type: ignore[arg-type]


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
