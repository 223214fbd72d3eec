"""Covariances between many points and many stations, the largest part of kriging a map.

Small jobs, and models whose shape has no closed form, use numpy; large ones use compiled loops (`covariance_loops.py`),
which agree with numpy to within the last few digits of the sill.
"""

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.points.distance import separations
from hypergrid.interpolation.variograms.models import matern_factor
from hypergrid.interpolation.variograms.variogram import Structure, Variogram

Floats = NDArray[np.float64]

# Loading the compiled loops takes half a second.
WORTH_COMPILED = 2_000_000
"""Pairs of point and station in a job above which compiled loops are used."""
FEW_COLUMNS = 8
"""Maximum columns of a dual form for which covariances are recomputed rather than stored."""
EXPONENTIAL, GAUSSIAN, SPHERICAL, MATERN_THREE_HALVES, MATERN_FIVE_HALVES, LINEAR = range(6)
"""Shapes implemented by the compiled loops."""


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
    """Compute `origin - gamma` for every pair of point and station, shape (points, stations).

    Parameters
    ----------
    points_m, stations_m
        Coordinates whose Euclidean distances the variogram takes [m]: on a plane, shape (…, 2), or on the sphere from
        its centre, shape (…, 3).
    origin
        Covariance at distance 0; 0 gives negative semivariances.
    exact_within_m
        A station within this distance of the point [m] has the covariance `origin`, which makes the estimate exact
        there; None if the nugget counts at every distance.
    job_pairs
        Pairs in the whole job that this call belongs to; selects numpy or compiled loops.
    out
        Output array, shape (points, stations); may be a view of a wider array.
    """
    result = np.empty((len(points_m), len(stations_m))) if out is None else out
    terms = _list_terms(model)
    if terms is None or max(result.size, job_pairs) <= WORTH_COMPILED:
        _fill_uncompiled(points_m, stations_m, model, origin, exact_within_m, result)
        return result
    # Importing this module takes half a second.
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
    """Multiply `negative_semivariance` by the columns of a dual form, shape (columns, points).

    With few columns the covariances are never stored.

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
    """Pack kind, partial sill and scale [1/m] of each term, shape (terms, 3); None if any shape has no loop."""
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
