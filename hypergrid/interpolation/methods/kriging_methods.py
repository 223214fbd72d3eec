"""Kinds of kriging, one row each; they differ in the drift."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.parameters import Parameter
from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.local.neighbourhood import NeighbourSelection
from hypergrid.interpolation.methods.detrended import with_trend
from hypergrid.interpolation.methods.fitted_variogram import build_fitted, find_residuals, parse_model
from hypergrid.interpolation.methods.registry import METHODS, Method
from hypergrid.interpolation.points import Field, Floats, Stations, Targets
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.variograms.variogram import Variogram

SUPPORTS = ("point", "block")
"""Support of an estimate: the value at a cell's centre, or the mean over the cell."""
VARIANCES = ("observable", "noise-free")
"""Target of a variance: an observable reading, or the value without instrument noise."""
LARGEST_QUADRATURE = 16
"""Points per side of a cell beyond which accuracy no longer improves."""

COMMON = (
    Parameter(
        "variogram",
        "variogram",
        "model, psill, range_m and nugget; or fit (to the stations), or fit_by_slice",
        required=False,
        default="fit",
    ),
    Parameter("neighbours", "count", "nearest stations to use; all where absent", required=False),
    Parameter(
        "radius_m", "number", "stations farther away are not used; no limit where absent", unit="m", required=False
    ),
    Parameter("octants", "count", "stations to use at most in each eighth of the horizon", required=False),
    Parameter("support", "text", "point (a cell's centre) or block (its mean)", required=False, default="point"),
    Parameter("quadrature", "count", "Gauss-Legendre points a side of a block", required=False, default=4),
    Parameter("variance_of", "text", "observable or noise-free", required=False, default="observable"),
)


class EmptyField(Field):
    """Field of a network without stations: every estimate is missing."""

    def __init__(self, slices: int) -> None:
        self._slices = slices

    @property
    def counts(self) -> NDArray[np.int32]:
        return np.zeros(self._slices, dtype=np.int32)

    def estimate(self, targets: Targets) -> Floats:
        return np.full((self._slices, targets.count), np.nan)

    def variance(self, targets: Targets) -> Floats:
        return self.estimate(targets)


def parse_kriging(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parameters that all kinds of kriging share, and parse the variogram.

    Raises
    ------
    InvalidQuery, NotFound
        A parameter that does not fit.
    """
    for name, known in (("support", SUPPORTS), ("variance_of", VARIANCES)):
        if given[name] not in known:
            raise NotFound.among(kind=f"{name} of kriging", given=given[name], existing=known)
    if given["quadrature"] > LARGEST_QUADRATURE:
        raise InvalidQuery(
            f"kriging needs 'quadrature' of at most {LARGEST_QUADRATURE} points a side; got {given['quadrature']}"
        )
    if given["support"] == "block" and given["quadrature"] < 2:
        raise InvalidQuery(
            f"kriging needs 'quadrature' of at least 2 points a side for support='block'; got {given['quadrature']}: "
            "one point is support='point'"
        )
    if given["radius_m"] is not None and not given["radius_m"] > 0:
        raise InvalidQuery(f"kriging needs 'radius_m' above zero; got {given['radius_m']:g}")
    # Defaults are omitted, so that queries without these parameters keep their token.
    later = {"radius_m": None, "octants": None, "support": "point", "quadrature": 4, "variance_of": "observable"}
    kept = {name: value for name, value in given.items() if name not in later or value != later[name]}
    return {**kept, "variogram": parse_model(given["variogram"])}


def make_kriging_field(label: str, drift: Drift, stations: Stations, values: Floats, given: Mapping[str, Any]) -> Field:
    """Build the field of a kind of kriging, from all stations or the nearest.

    Parameters
    ----------
    label
        Name of the method in messages.
    drift
        Form of the mean.
    stations, values, given
        As for `Method.prepare`; the variogram is a `Variogram`, or a request to fit one.
    """
    if not stations.count:
        return EmptyField(len(values))
    wanted = given["variogram"]
    if not isinstance(wanted, Variogram):
        # Fitted to the residuals of the drift; the fields are then built from the values themselves.
        left = (
            find_residuals(drift.place_on(stations).columns(stations), values)
            if drift.count_coefficients() > 1
            else values
        )
        return build_fitted(
            wanted,
            stations,
            left,
            lambda model, rows: make_kriging_field(label, drift, stations, values[rows], {**given, "variogram": model}),
        )
    system, neighbours = KrigingSystem.of(stations, wanted, drift, label=label), given.get("neighbours")
    noise_free = given.get("variance_of") == "noise-free"
    radius_m, octants = given.get("radius_m"), given.get("octants")
    if radius_m is None and octants is None and (neighbours is None or neighbours >= stations.count):
        return KrigingField(system, values, noise_free=noise_free)
    selection = NeighbourSelection(neighbours or stations.count, radius_m, octants)
    return LocalField(system, values, selection, noise_free=noise_free)


def _parse_universal(given: Mapping[str, Any]) -> dict[str, Any]:
    if given["degree"] > 2:
        raise InvalidQuery(f"universal_kriging needs 'degree' of 1 or 2; got {given['degree']}")
    return parse_kriging(given)


def _parse_external(given: Mapping[str, Any]) -> dict[str, Any]:
    names = given["drift"]
    if given["degree"] not in (0, 1, 2):
        raise InvalidQuery(f"external_drift_kriging needs 'degree' of 0, 1 or 2; got {given['degree']:g}")
    if len(set(names)) != len(names):
        raise InvalidQuery(f"external_drift_kriging needs each covariate once; got {', '.join(names)}")
    return {**parse_kriging(given), "degree": int(given["degree"])}


def _add_method(
    name: str,
    summary: str,
    parameters: tuple[Parameter, ...],
    drift: Callable[[Mapping[str, Any]], Drift],
    *,
    parse: Callable[[Mapping[str, Any]], dict[str, Any]] = parse_kriging,
    **more: Any,  # noqa: ANN401 - further members of the row
) -> None:
    def prepare(stations: Stations, values: Floats, given: Mapping[str, Any]) -> Field:
        return make_kriging_field(name, drift(given), stations, values, given)

    members = {"linear": True, "has_variance": True, "parse": parse, "prepare": prepare, **more}
    METHODS.add(name, with_trend(Method(name, summary, (*parameters, *COMMON), **members)))


_add_method(
    "ordinary_kriging",
    "Best linear unbiased estimate under a given variogram and a constant, unknown mean.",
    (),
    lambda _given: Drift(),
)
_add_method(
    "simple_kriging",
    "Best linear estimate under a given variogram with a sill, and a known mean.",
    (Parameter("mean", "number", "mean of the field", unit="variable"),),
    lambda given: Drift(mean=given["mean"]),
    # With a known mean the estimate is affine; it is linear in the values only if the mean is 0.
    linear=False,
)
_add_method(
    "universal_kriging",
    "Kriging with a mean that is a polynomial of x and y, of unknown coefficients.",
    (Parameter("degree", "count", "1 (a plane) or 2", required=False, default=1),),
    lambda given: Drift(degree=given["degree"]),
    parse=_parse_universal,
)
_add_method(
    "external_drift_kriging",
    "Kriging with a mean that is linear in covariates that are known everywhere, such as elevation.",
    (
        Parameter("drift", "names", "names of layers", required=False, default=("elevation",)),
        Parameter("degree", "number", "of a polynomial of x and y beside them", required=False, default=0),
    ),
    lambda given: Drift(degree=given["degree"], covariates=given["drift"]),
    parse=_parse_external,
    covariates=lambda given: tuple(given["drift"]),
)
