"""Geostatistics of a query's stations: variogram fits, cross-validation, comparison of methods, simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.result_names import value_of
from hypergrid.core.units import parse_number
from hypergrid.execution import Outcome, to_dataset
from hypergrid.execution import simulate as simulated
from hypergrid.interpolation import METHODS, Comparisons, CrossValidation, Samples
from hypergrid.interpolation import compare_methods as compare
from hypergrid.interpolation import cross_validate as validate
from hypergrid.interpolation.solvers.trend import ELEVATION
from hypergrid.interpolation.variograms.empirical import Binning
from hypergrid.interpolation.variograms.fit import VariogramFit, fit_groups
from hypergrid.interpolation.variograms.fit import fit_variogram as fit
from hypergrid.interpolation.variograms.variogram import Anisotropy
from hypergrid.perspective.spec.correlation_time import parse_memory
from hypergrid.query import Query, base
from hypergrid.topology import Metres, SeriesAxis

Floats = NDArray[np.float64]

FIT_OPTIONS: Final = ("model", "cutoff_m", "bins", "anisotropy", "weights", "constraints", "binning")
"""Options of a variogram fit; `binning` replaces `cutoff_m`, `bins` and `anisotropy`."""

GROUPS: Final = ("hour", "month", "season")
"""Groupings of slices, in UTC; seasons are DJF, MAM, JJA and SON."""

SEASONS: Final = np.repeat(np.array(["DJF", "MAM", "JJA", "SON"]), 3)
"""Season by month, starting with December."""

MAX_RANGE_FACTOR: Final = 2.0
"""Multiple of the network's extent from which a fitted range is reported, whatever the quality of the fit."""


def samples_of(data: Query | xr.DataArray) -> Samples:
    """Compute a query's values at its stations, with positions in metres.

    Parameters
    ----------
    data
        A query, of which the steps before its first spatial interpolation are used, or an array for `hg.base`.

    Raises
    ------
    InvalidQuery
        The stations have no positions, or the values are directions.
    """
    return _read_samples(data)[0]


def _read_samples(data: Query | xr.DataArray) -> tuple[Samples, NDArray[np.datetime64]]:
    """Compute a query's values at its stations, and their times."""
    query = (data if isinstance(data, Query) else base(data)).at_stations()
    perspective = query.surface().perspective
    axis = perspective.topology.space
    if not isinstance(axis, SeriesAxis):
        raise InvalidQuery(
            "a study needs values at stations; this query gives bands of elevation: leave that aggregate out"
        )
    if perspective.unit == "degree":
        raise InvalidQuery(
            "a study of directions has no meaning: 350 and 10 degree would give 180; study the components that "
            "interpolate('recipe', …) takes: speed.merge('eastward_wind', direction), and 'northward_wind'"
        )
    result = value_of(query.compute())
    places = np.stack([axis.x, axis.y], axis=1)
    known = np.isfinite(places).all(axis=1)
    if not known.any():
        raise InvalidQuery(f"none of the {axis.count} stations has a position; a study of space needs them")
    placed = Metres(axis).project(places[known])
    positions = np.full((axis.count, placed.shape[1]), np.nan)
    positions[known] = placed
    names = tuple(series.station for series in axis.series)
    unit = str(result.attrs["units"])
    samples = Samples.of(result.to_numpy(), positions, axis.elevation_m, names=names, unit=unit)
    return samples, result["time"].to_numpy().astype("datetime64[ns]")


def fit_variogram(data: Query | xr.DataArray, **options: object) -> VariogramFit:
    """Fit one variogram to all slices at a query's stations.

    `hypergrid.plots.plot_variogram(fit, unit="degC").savefig("fit.png")` draws it.

    Parameters
    ----------
    data
        A query, of which the steps before its first spatial interpolation are used, or an array for `hg.base`.
    options
        `model`: "exponential" if absent, or several names for a sum. `cutoff_m`: greatest distance of pairs [m], or
        text ("2 km"); a third of the network's diagonal if absent. `bins`: number of bins up to it, 15 if absent.
        `anisotropy`, `weights` and `constraints`: as for `hypergrid.interpolation.variograms.fit.fit_variogram`;
        `binning`: a `Binning` instead of `cutoff_m`, `bins` and `anisotropy`.

    Raises
    ------
    NotFound
        An option, model, or weighting that does not exist.
    InvalidQuery, InvalidUnit
        An invalid option, no pairs, fewer bins than parameters, constant values, or directions.
    """
    chosen = _fit_options(options)
    return _fit_samples(samples_of(data), **chosen)


def fit_variogram_by_group(
    data: Query | xr.DataArray, *, by: str | ArrayLike, **options: object
) -> dict[object, VariogramFit]:
    """Fit a variogram to each group of a query's slices, such as each hour of the day.

    Parameters
    ----------
    data, options
        As in `fit_variogram`.
    by
        "hour" (0 to 23), "month" (1 to 12) or "season" (DJF, MAM, JJA, SON) of the slice's start in UTC; or a label of
        each slice, shape (slices,).

    Returns
    -------
    Fit by group. A group that cannot be fitted gets the fit to all slices, with a note in the fit.

    Raises
    ------
    NotFound, InvalidQuery, InvalidUnit
        As for `fit_variogram`; also an unknown grouping, or labels that do not match the slices.
    """
    NotFound.refuse_unknown("way to group slices", [by] if isinstance(by, str) else [], GROUPS)
    chosen = _fit_options(options)
    samples, times = _read_samples(data)
    groups = _label_groups(times, by) if isinstance(by, str) else np.asarray(by)
    placed = np.isfinite(samples.positions_m).all(axis=1)
    return fit_groups(samples.values[:, placed], groups, partial(fit, samples.positions_m[placed], **chosen))


def _label_groups(times: NDArray[np.datetime64], by: str) -> NDArray[Any]:
    if by == "hour":
        return times.astype("datetime64[h]").astype(np.int64) % 24
    months = times.astype("datetime64[M]").astype(np.int64) % 12
    # `SEASONS` begins with December.
    return months + 1 if by == "month" else SEASONS[(months + 1) % 12]


def _fit_options(given: Mapping[str, object]) -> dict[str, Any]:
    """Convert options to those of `interpolation.variograms.fit.fit_variogram`."""
    NotFound.refuse_unknown("option of fit_variogram", given, FIT_OPTIONS)
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    of_bins: dict[str, object] = {
        name: chosen.pop(name) for name in ("cutoff_m", "bins", "anisotropy") if name in chosen
    }
    if "binning" in chosen:
        if of_bins:
            raise InvalidQuery(f"fit_variogram takes binning, or {' and '.join(of_bins)}; got both; give one of them")
        return chosen
    given_cutoff = of_bins.get("cutoff_m")
    cutoff = None if given_cutoff is None else parse_number(given_cutoff, "m", label="cutoff_m of fit_variogram")
    bins = of_bins.get("bins", Binning.bins)
    if not isinstance(bins, int) or isinstance(bins, bool):
        raise InvalidQuery(f"bins of fit_variogram needs a whole number, of one or more; got {bins!r}")
    ellipse = of_bins.get("anisotropy")
    if ellipse is not None and not isinstance(ellipse, Anisotropy):
        raise InvalidQuery(
            f"anisotropy of fit_variogram needs a hypergrid.interpolation.variograms.variogram.Anisotropy; got "
            f"{ellipse!r}"
        )
    return {**chosen, "binning": Binning(cutoff, bins, ellipse)}


def _fit_samples(samples: Samples, **options: Any) -> VariogramFit:  # noqa: ANN401 - options of fit_variogram
    placed = np.isfinite(samples.positions_m).all(axis=1)
    return fit(samples.positions_m[placed], samples.values[:, placed], **options)


def cross_validate(
    data: Query | xr.DataArray,
    method: str,
    *,
    by: str = "station",
    parameters: Mapping[str, object] | None = None,
    model: str = "exponential",
) -> CrossValidation:
    """Cross-validate a method: leave out stations, regions or times, estimate them, and score the estimates.

    Parameters
    ----------
    data
        A query that ends at the stations, or an array.
    method
        Name of a method of interpolation.
    by
        "station", "region", or "time_block"; for the latter the variogram is fitted to the other blocks of time.
    parameters
        The method's parameters, as in a query; without a variogram for "time_block".
    model
        Model of the variogram fitted for "time_block".

    Raises
    ------
    HyperGridError
        As for `hypergrid.interpolation.cross_validate`; also for "time_block" if the method takes no variogram.
    """
    samples = _add_layers(samples_of(data), data, method, parameters or {})
    if by != "time_block":
        return validate(samples, method, parameters=parameters, by=by)  # type: ignore[arg-type]
    if all(item.name != "variogram" for item in METHODS[method].parameters):
        raise InvalidQuery(
            f"{method} fits nothing, so leaving times out would change nothing; leave out by station or by region"
        )
    placed = np.isfinite(samples.positions_m).all(axis=1)

    def fitted(values: Floats) -> dict[str, object]:
        return {"variogram": fit(samples.positions_m[placed], values[:, placed], model=model).variogram}

    return validate(samples, method, parameters=parameters, by="time_block", fit=fitted)


def _add_layers(samples: Samples, data: Query | xr.DataArray, method: str, parameters: Mapping[str, object]) -> Samples:
    """Add the layers of a drift at the stations; a missing value removes the position.

    The elevation of a station is that of its deployment, not of a layer.
    """
    defaults = {item.name: item.default for item in METHODS[method].parameters}
    given = parameters.get("drift", defaults.get("drift"))
    listed = [given] if isinstance(given, str) else given
    if "drift" not in defaults or not isinstance(listed, list | tuple):
        return samples
    names = [name for name in listed if isinstance(name, str) and name != ELEVATION]
    if not names:
        return samples
    perspective = (data if isinstance(data, Query) else base(data)).at_stations().surface().perspective
    axis, source = perspective.topology.space, perspective.bases[0].source
    if not isinstance(axis, SeriesAxis):
        return samples
    places = np.stack([axis.x, axis.y], axis=1)
    placed: NDArray[np.bool_] = np.asarray(np.isfinite(samples.positions_m).all(axis=1))
    covariates: dict[str, Floats] = {}
    for name in names:
        covariates[name] = np.full(axis.count, np.nan)
        covariates[name][placed] = source.layer(name).sample(places[placed])
        placed = placed & np.isfinite(covariates[name])
    positions = np.where(placed[:, None], samples.positions_m, np.nan)
    return replace(samples, positions_m=positions, covariates=covariates)


def compare_methods(data: Query | xr.DataArray) -> Comparisons:
    """Cross-validate every method on a query's stations, best first.

    Kriging uses a variogram fitted to the stations.

    Doubts about that variogram are in the notes of the methods that use it. If none can be fitted, their `problem`
    gives the reason.

    Raises
    ------
    InvalidQuery
        The stations have no positions, or the values are directions.
    """
    samples = samples_of(data)
    fitted, problem = None, None
    try:
        fitted = _fit_samples(samples)
    except InvalidQuery as error:
        problem = f"no variogram can be fitted: {error}"
    return compare(
        samples,
        variogram=fitted.variogram if fitted else None,
        doubts=_list_doubts(fitted, samples) if fitted else (),
        no_variogram=problem,
    )


def _list_doubts(fitted: VariogramFit, samples: Samples) -> tuple[str, ...]:
    """Return the doubts about a fit, one sentence each."""
    placed = samples.positions_m[np.isfinite(samples.positions_m).all(axis=1)]
    extent = float(np.linalg.norm(np.ptp(placed, axis=0)))
    reach = fitted.variogram.effective_range_m
    notes = (fitted.warning,) if fitted.poor else ()
    if not np.isfinite(reach) or reach <= MAX_RANGE_FACTOR * extent:
        return notes
    beyond = f"the fitted range of {reach:,.0f} m is {reach / extent:.1f} times the network's extent of {extent:,.0f} m"
    return (*notes, f"{beyond}: its values say no more than that semivariance grows with distance all across it")


def simulate(
    query: Query, *, count: int, seed: int | np.random.Generator, correlation_time: str | None = None
) -> xr.DataArray:
    """Simulate the interpolated field of a query, conditioned on its readings.

    Over realisations, the mean is the interpolated value and the variance the kriging variance of the noise-free value;
    the same holds for quantities computed from them, such as a maximum or a mean over a region.

    Parameters
    ----------
    query
        A query whose last step is kriging from all stations.
    count
        Number of realisations.
    seed
        Random seed or generator; equal seeds give equal realisations.
    correlation_time
        Time after which the correlation of the field's slices has fallen to 1/e ("6h"), "0s" if they are independent,
        or "estimate"; required for several slices.

    Returns
    -------
    Dimensions realisation, time, then lat and lon, or y and x.

    Raises
    ------
    InvalidQuery
        The query does not end with such an interpolation, the correlation is unknown, the variogram is missing,
        `count` is not a whole number above zero, or `seed` is negative or not a whole number.
    InvalidTime
        `correlation_time` is not a duration.
    TooLarge
        Too many cells to simulate jointly, or realisations for the memory.

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
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
        raise InvalidQuery(f"simulate needs count, a whole number above zero; got {count!r}")
    if not isinstance(seed, np.random.Generator) and (
        not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0
    ):
        raise InvalidQuery(
            f"simulate needs seed, a whole number of zero or more, or a numpy.random.Generator; got {seed!r}"
        )
    plan = query.plan()
    made = simulated(
        plan, count=int(count), generator=np.random.default_rng(seed), memory=parse_memory(correlation_time)
    )  # fmt: skip
    outcome = Outcome(made[0].reshape(len(made[0]), -1))
    shown = value_of(to_dataset(query.question, plan.surface, outcome, token=plan.original.token))
    attributes = {**shown.attrs, "long_name": f"simulated {shown.attrs['long_name']}, given the readings"}
    return xr.DataArray(made, shown.coords, ("realisation", *shown.dims), shown.name, attributes)
