"""Covariances between many points and many stations, the largest part of kriging a map.

Small jobs, and models whose shape has no closed form, use numpy; large ones use compiled loops (`covariance_loops.py`),
which agree with numpy to within the last few digits of the sill.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.points import separations
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


class CovariancePairs(NamedTuple):
    """Points, stations and the covariance between them, as the compiled loops take them."""

    points: Floats
    """Coordinates [m], shape (2 or 3, points)."""
    stations: Floats
    """Shape (2 or 3, stations)."""
    terms: Floats
    """Kind, partial sill and scale [1/m] of each term of the variogram, shape (terms, 3)."""
    level: float
    """`origin` minus the nugget."""
    origin: float
    """Covariance at distance 0."""
    coincident_m: float
    """Within this distance [m] the covariance is `origin`; negative to disable."""


@dataclass(frozen=True)
class Covariance:
    """Covariance `origin - gamma` of a point and a station."""

    model: Variogram
    origin: float = 0.0
    """Covariance at distance 0; 0 gives negative semivariances."""
    exact_within_m: float | None = None
    """Distance from a station [m] within which the covariance is `origin`, which makes the estimate exact there.

    None if the nugget counts at every distance.
    """

    def evaluate(
        self, points_m: Floats, stations_m: Floats, *, job_pairs: int = 0, out: Floats | None = None
    ) -> Floats:
        """Compute the covariance of every pair of point and station, shape (points, stations).

        Parameters
        ----------
        points_m, stations_m
            Coordinates whose Euclidean distances the variogram takes [m]: on a plane, shape (…, 2), or on the sphere
            from its centre, shape (…, 3).
        job_pairs
            Pairs in the whole job that this call belongs to; selects numpy or compiled loops.
        out
            Output array, shape (points, stations); may be a view of a wider array.
        """
        result = np.empty((len(points_m), len(stations_m))) if out is None else out
        pairs = self._pack_pairs(points_m, stations_m, job_pairs)
        if pairs is None:
            distance = separations(points_m, stations_m)
            np.subtract(self.origin, self.model.semivariance(distance), out=result)
            if self.exact_within_m is not None:
                result[distance <= self.exact_within_m] = self.origin
            return result
        # Importing this module takes half a second.
        from hypergrid.interpolation.kernels import covariance_loops  # noqa: PLC0415
        from hypergrid.interpolation.kernels.threads import share  # noqa: PLC0415

        def piece(rows: slice) -> None:
            covariance_loops.write_covariances(pairs, result, rows.start, rows.stop)

        share(piece, _split_points(len(points_m)))
        return result

    def multiply(self, points_m: Floats, stations_m: Floats, dual: Floats, *, job_pairs: int = 0) -> Floats:
        """Multiply the covariances by the columns of a dual form, shape (columns, points).

        With few columns the covariances are never stored.

        Parameters
        ----------
        dual
            Shape (stations, columns).
        points_m, stations_m, job_pairs
            As in `evaluate`.
        """
        pairs = self._pack_pairs(points_m, stations_m, job_pairs) if dual.shape[1] <= FEW_COLUMNS else None
        if pairs is None:
            return np.asarray(dual.T @ self.evaluate(points_m, stations_m, job_pairs=job_pairs).T)
        from hypergrid.interpolation.kernels import covariance_loops  # noqa: PLC0415
        from hypergrid.interpolation.kernels.threads import share  # noqa: PLC0415

        rows_of_dual = np.ascontiguousarray(dual.T)
        out = np.empty((dual.shape[1], len(points_m)))

        def piece(rows: slice) -> None:
            covariance_loops.write_products(pairs, rows_of_dual, out, rows.start, rows.stop)

        share(piece, _split_points(len(points_m)))
        return out

    def _pack_pairs(self, points_m: Floats, stations_m: Floats, job_pairs: int) -> CovariancePairs | None:
        """Pack the input of the compiled loops; None if the job is small, or the model has no loop."""
        terms = _list_terms(self.model)
        if terms is None or max(len(points_m) * len(stations_m), job_pairs) <= WORTH_COMPILED:
            return None
        return CovariancePairs(
            np.ascontiguousarray(points_m.T),
            np.ascontiguousarray(stations_m.T),
            terms,
            self.origin - self.model.nugget,
            self.origin,
            -1.0 if self.exact_within_m is None else self.exact_within_m,
        )


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
