"""Covariances of many points with many stations, fast: the largest part of kriging a map.

Small jobs, and models whose shape has no closed form, are done by numpy; large ones by compiled loops
(`kernel_loops.py`), which agree to a few last digits of the sill.
"""

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.points.distance import separations
from hypergrid.interpolation.variograms.models import matern_factor
from hypergrid.interpolation.variograms.variogram import Structure, Variogram

Floats = NDArray[np.float64]

WORTH_COMPILED = 2_000_000
"""Pairs of a point and a station in a job from which compiled loops are used; loading them costs half a second."""
FEW_COLUMNS = 8
"""Columns of a dual form up to which it pays to make each covariance and forget it."""
EXPONENTIAL, GAUSSIAN, SPHERICAL, MATERN_THREE_HALVES, MATERN_FIVE_HALVES, LINEAR = range(6)
"""Shapes that the compiled loops know."""


def negative_semivariance(
    points_m: Floats,
    stations_m: Floats,
    model: Variogram,
    *,
    origin: float = 0.0,
    exact_within_m: float | None = None,
    job_pairs: int = 0,
    out: Floats | None = None,
) -> Floats:
    """Return `origin - gamma` of each point with each station, shape (points, stations), into `out` where given.

    Parameters
    ----------
    points_m, stations_m
        Places whose plain distances the variogram takes [m]: on a plane, shape (…, 2), or on the sphere from its
        centre, shape (…, 3).
    origin
        Covariance at distance 0; 0 gives minus the semivariances.
    exact_within_m
        A station no farther from the point [m] has the covariance `origin`, so that the estimate is exact there; None
        where the nugget counts at every distance.
    job_pairs
        How many pairs the whole job has that this call is a part of: what decides between numpy and compiled loops.
    out
        Shape (points, stations); may be a part of a wider array.
    """
    result = np.empty((len(points_m), len(stations_m))) if out is None else out
    terms = _list_terms(model)
    if terms is None or max(result.size, job_pairs) <= WORTH_COMPILED:
        _fill_uncompiled(points_m, stations_m, model, origin, exact_within_m, result)
        return result
    # Not before it is worth the time that the import takes.
    from hypergrid.interpolation.kernels import covariance_loops  # noqa: PLC0415
    from hypergrid.interpolation.kernels.threads import share  # noqa: PLC0415

    points, stations = np.ascontiguousarray(points_m.T), np.ascontiguousarray(stations_m.T)
    level, near = origin - model.nugget, -1.0 if exact_within_m is None else exact_within_m

    def piece(rows: slice) -> None:
        covariance_loops.write_covariances(points, stations, terms, level, origin, near, result, rows.start, rows.stop)

    share(piece, _split_points(len(points_m)))
    return result


def carried(
    points_m: Floats,
    stations_m: Floats,
    model: Variogram,
    dual: Floats,
    *,
    origin: float = 0.0,
    exact_within_m: float | None = None,
    job_pairs: int = 0,
) -> Floats:
    """Return the product of `negative_semivariance` with the columns of a dual form, shape (columns, points).

    For few columns the covariances are never stored.

    Parameters
    ----------
    dual
        Shape (stations, columns).
    """
    terms = _list_terms(model)
    pairs = max(len(points_m) * len(stations_m), job_pairs)
    if terms is None or pairs <= WORTH_COMPILED or dual.shape[1] > FEW_COLUMNS:
        sides = negative_semivariance(
            points_m, stations_m, model, origin=origin, exact_within_m=exact_within_m, job_pairs=job_pairs
        )
        return np.asarray(dual.T @ sides.T)
    from hypergrid.interpolation.kernels import covariance_loops  # noqa: PLC0415
    from hypergrid.interpolation.kernels.threads import share  # noqa: PLC0415

    points, stations = np.ascontiguousarray(points_m.T), np.ascontiguousarray(stations_m.T)
    rows_of_dual = np.ascontiguousarray(dual.T)
    level, near = origin - model.nugget, -1.0 if exact_within_m is None else exact_within_m
    out = np.empty((dual.shape[1], len(points_m)))

    def piece(rows: slice) -> None:
        covariance_loops.write_products(
            points, stations, terms, level, origin, near, rows_of_dual, out, rows.start, rows.stop
        )

    share(piece, _split_points(len(points_m)))
    return out


def _split_points(points: int) -> list[slice]:
    edges = np.linspace(0, points, 9).astype(int).tolist()
    return [slice(start, stop) for start, stop in zip(edges[:-1], edges[1:], strict=True)]


def _list_terms(model: Variogram) -> Floats | None:
    """Return kind, partial sill and scale [1/m] of each term, shape (terms, 3); None for a shape no loop knows."""
    rows = [_pack_term(term) for term in model.structures if term.psill]
    known = [row for row in rows if row is not None]
    return np.array(known).reshape(-1, 3) if len(known) == len(rows) else None


def _pack_term(term: Structure) -> tuple[float, float, float] | None:
    kinds = {"exponential": (EXPONENTIAL, 3.0), "gaussian": (GAUSSIAN, 7.0 / 4.0), "spherical": (SPHERICAL, 1.0)}
    kinds["linear"] = (LINEAR, 1.0)
    if term.model == "matern" and term.smoothness is not None:
        half_integers = {0.5: EXPONENTIAL, 1.5: MATERN_THREE_HALVES, 2.5: MATERN_FIVE_HALVES}
        if term.smoothness in half_integers:
            kinds["matern"] = (half_integers[term.smoothness], matern_factor(term.smoothness))
    if term.model not in kinds:
        return None
    kind, factor = kinds[term.model]
    return float(kind), term.psill, factor / term.range_m


def _fill_uncompiled(
    points_m: Floats, stations_m: Floats, model: Variogram, origin: float, exact_within_m: float | None, out: Floats
) -> None:
    distance = separations(points_m, stations_m)
    np.subtract(origin, model.semivariance(distance), out=out)
    if exact_within_m is not None:
        out[distance <= exact_within_m] = origin
