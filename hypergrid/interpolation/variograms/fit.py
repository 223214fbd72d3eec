"""Fit variograms to empirical ones by weighted least squares.

For given ranges (and smoothness or exponent) the semivariance is linear in nugget and partial sills: these are solved
exactly, with none below zero, at each trial (variable projection, Golub and Pereyra 1973). The remaining search has one
or two dimensions: a coarse grid of starts, and scipy's `least_squares` from the best of them.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import ArrayLike

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.interpolation.points import Floats
from hypergrid.interpolation.variograms.empirical import Binning, EmpiricalVariogram, empirical_variogram
from hypergrid.interpolation.variograms.models import MODELS
from hypergrid.interpolation.variograms.variogram import Structure, Variogram, sum_structures

Weights = Literal["pairs/distance^2", "pairs/semivariance^2", "pairs", "equal"]
"""Weights of the bins: gstat's fit.method 7 (its default), 2 (Cressie 1985), 1 and 6."""

STARTS = 24
"""Ranges in the coarse grid, from least to greatest; nested sums use fewer per term."""

POLISHED = 4
"""Number of best starts that are refined."""

ALIKE = 1e-9
"""Relative difference of the bins below which they differ only by rounding."""
REWEIGHTED = 50
"""Maximum iterations of reweighting, for weights that depend on the fit."""


@dataclass(frozen=True)
class Constraints:
    """Constraints on the parameters of a fit.

    Raises
    ------
    InvalidQuery
        A nugget below zero, or an invalid interval of ranges.
    """

    nugget: float | None = None
    """Fixed nugget [square of the variable's unit]; None to fit it."""
    smoothness: float | None = None
    """Fixed smoothness of matern terms; None to fit it."""
    exponent: float | None = None
    """Fixed exponent of a power term; None to fit it."""
    range_m: tuple[float, float] | None = None
    """Range limits [m]; defaults to half the shortest distance and ten times the cutoff."""

    def __post_init__(self) -> None:
        low, high = self.range_m or (1.0, 2.0)
        # Written so that NaN is refused as well.
        if not (0 < low < high < math.inf and 0 <= (self.nugget or 0.0) < math.inf):
            raise InvalidQuery(
                "a fit needs a nugget of zero or more, and the least range above zero and below the greatest; got "
                f"nugget {self.nugget}, range_m {self.range_m}"
            )


@dataclass(frozen=True, eq=False)
class VariogramFit:
    """Fitted variogram, with its empirical variogram and goodness of fit."""

    variogram: Variogram
    bins: EmpiricalVariogram
    weights: Weights
    weighted_residual: float
    """Sum over the bins of weight times squared misfit (gstat's SSErr)."""
    explained: float
    """Explained share of the weighted variation between bins; a pure nugget explains 0."""
    reasons: tuple[str, ...]
    """Why the fit is poor, one sentence each; empty if it is not."""

    @property
    def poor(self) -> bool:
        """Whether to inspect the plot before using the variogram."""
        return bool(self.reasons)

    @property
    def warning(self) -> str:
        """Message for the user; empty if the fit is not poor."""
        return f"the fit of the variogram is poor: {'; '.join(self.reasons)}" if self.reasons else ""


def fit_variogram(
    positions_m: Floats,
    values: Floats,
    *,
    model: str | Sequence[str] = "exponential",
    weights: Weights = "pairs/distance^2",
    binning: Binning | None = None,
    constraints: Constraints | None = None,
) -> VariogramFit:
    """Fit a variogram to station values, pooled over all slices.

    Parameters
    ----------
    positions_m
        Stations (x, y) [m], shape (stations, 2).
    values
        Values, NaN where missing, shape (slices, stations); a single slice may have shape (stations,).
    model
        A model's name, or several for a nested sum.
    weights
        Weighting of the bins.
    binning, constraints
        Binning of pairs by distance, and fixed parameters.

    Raises
    ------
    NotFound
        Unknown model or weights.
    InvalidQuery
        No pairs, fewer bins than parameters, or constant values.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> places = rng.uniform(0, 1000, (60, 2))
    >>> fit = fit_variogram(places, np.sin(places[:, 0] / 300), model="gaussian")
    >>> fit.poor, fit.variogram.model
    (True, 'gaussian')
    """
    how = binning or Binning()
    bins = empirical_variogram(positions_m, values, binning=how)
    fit = fit_bins(bins, model=model, weights=weights, constraints=constraints)
    return replace(fit, variogram=replace(fit.variogram, anisotropy=how.anisotropy))


def fit_groups(values: Floats, groups: ArrayLike, fit: Callable[[Floats], VariogramFit]) -> dict[object, VariogramFit]:
    """Fit a variogram to each group of slices.

    Parameters
    ----------
    values
        Shape (slices, stations).
    groups
        Group of each slice, such as its hour of day, its season, or its own number; shape (slices,).
    fit
        Fits a variogram to some of the slices, as `fit_variogram` does for the positions of the stations.

    Returns
    -------
    Mapping of each group, in order, to its fit. A group that cannot be fitted gets the pooled fit, marked as poor for
    that reason.

    Raises
    ------
    NotFound, InvalidQuery
        All slices together cannot be fitted, or the groups do not match the slices.
    """
    labels = np.asarray(groups)
    if labels.shape != (len(values),):
        raise InvalidQuery(f"a fit by group needs one label a slice: shape ({len(values)},); got shape {labels.shape}")
    pooled = fit(values)
    result: dict[object, VariogramFit] = {}
    for label in np.unique(labels):
        try:
            result[label.item()] = fit(values[labels == label])
        except InvalidQuery as error:
            reason = f"group {label} could not be fitted, and has the variogram of all slices ({error})"
            result[label.item()] = replace(pooled, reasons=(*pooled.reasons, reason))
    return result


def fit_bins(
    bins: EmpiricalVariogram,
    *,
    model: str | Sequence[str] = "exponential",
    weights: Weights = "pairs/distance^2",
    constraints: Constraints | None = None,
) -> VariogramFit:
    """Fit a variogram to an empirical one.

    Raises
    ------
    NotFound
        Unknown model or weights.
    InvalidQuery
        Fewer bins than parameters, or constant values.
    """
    names = (model,) if isinstance(model, str) else tuple(model)
    free = constraints or Constraints()
    if weights not in get_args(Weights):
        raise NotFound.among(kind="weights of a fit", given=weights, existing=get_args(Weights))
    problem = _FitProblem(names, bins, free)
    if problem.parameters > len(bins.pairs):
        raise InvalidQuery(
            f"fitting {' + '.join(names)} needs {problem.parameters} bins that hold pairs, one a parameter; got "
            f"{len(bins.pairs)}; raise bins or cutoff_m, or take a simpler model"
        )
    if not (bins.semivariance > 0).any():
        raise InvalidQuery(
            "fitting a variogram needs values that vary; all pairs are equal; give the variogram, or more slices"
        )
    weight = _find_weights(weights, bins, bins.semivariance)
    fit_model = problem.solve(weight)
    if weights == "pairs/semivariance^2":
        for _ in range(REWEIGHTED):
            before, weight = fit_model, _find_weights(weights, bins, fit_model.semivariance(bins.distance_m))
            fit_model = problem.solve(weight)
            if np.allclose(
                fit_model.semivariance(bins.distance_m), before.semivariance(bins.distance_m), rtol=1e-10, atol=0
            ):
                break
    misfit = bins.semivariance - fit_model.semivariance(bins.distance_m)
    residual = float(weight @ misfit**2)
    centre = float(weight @ bins.semivariance / weight.sum())
    variation = float(weight @ (bins.semivariance - centre) ** 2)
    # If bins differ only by rounding, the explained share is meaningless and varies by machine.
    explained = 1.0 - residual / variation if variation > ALIKE**2 * centre**2 * weight.sum() else 0.0
    reasons = list_doubts(fit_model, bins, explained=explained, weight=weight, free=problem.parameters)
    return VariogramFit(fit_model, bins, weights, residual, explained, reasons)


def _find_weights(name: Weights, bins: EmpiricalVariogram, semivariance: Floats) -> Floats:
    pairs = bins.pairs.astype(np.float64)
    if name == "pairs/distance^2":
        return np.asarray(pairs / bins.distance_m**2)
    if name == "pairs/semivariance^2":
        # A bin of zero semivariance would have infinite weight.
        floor = 1e-6 * float(bins.semivariance.max())
        return np.asarray(pairs / np.maximum(semivariance, floor) ** 2)
    return pairs if name == "pairs" else np.ones_like(pairs)


class _FreeParameter(NamedTuple):
    """Parameter to be searched: its term, name and bounds; ranges are logarithmic."""

    term: int
    name: str
    low: float
    high: float


class _FitProblem:
    """Terms of the sum, with known and unknown parameters."""

    def __init__(self, names: tuple[str, ...], bins: EmpiricalVariogram, free: Constraints) -> None:
        if not names:
            raise InvalidQuery("fitting a variogram needs the name of a model; got none")
        self._bins, self._nugget = bins, free.nugget
        low, high = free.range_m or (float(bins.distance_m[0]) / 2, bins.cutoff_m * 10)
        self._unknowns: list[_FreeParameter] = []
        self._known: list[dict[str, float]] = []
        self._names = names
        for term, name in enumerate(names):
            row = MODELS[name]
            # An unbounded model has no range: its partial sill is the increase up to the cutoff.
            self._known.append({"range_m": bins.cutoff_m})
            if row.is_bounded and name != "nugget":
                self._unknowns.append(_FreeParameter(term, "range_m", math.log(low), math.log(high)))
            if row.parameter:
                given = getattr(free, row.parameter)
                if given is None:
                    self._unknowns.append(_FreeParameter(term, row.parameter, *row.bounds))
                else:
                    self._known[term][row.parameter] = given
        self.parameters = len(self._unknowns) + sum(name != "nugget" for name in names) + (self._nugget is None)

    def solve(self, weight: Floats) -> Variogram:
        """Find the variogram of least weighted squares."""
        root = np.sqrt(weight / weight.max())
        if not self._unknowns:
            return self._make_variogram(np.empty(0), root)[0]

        def misfit(tried: Floats) -> Floats:
            return self._make_variogram(tried, root)[1]

        scored = sorted((float(np.sum(misfit(start) ** 2)), tuple(start)) for start in self._list_starts())
        low, high = (np.array([getattr(unknown, end) for unknown in self._unknowns]) for end in ("low", "high"))
        tolerances = {"xtol": 1e-12, "ftol": 1e-14, "gtol": 1e-14, "max_nfev": 200}
        ends = [
            scipy.optimize.least_squares(misfit, start, bounds=(low, high), **tolerances)
            for _, start in scored[:POLISHED]
        ]
        best = min(ends, key=lambda end: end.cost)
        return self._make_variogram(best.x, root)[0]

    def _list_starts(self) -> list[Floats]:
        each = max(4, round(STARTS ** (1 / max(1, len(self._unknowns) - 1)))) if len(self._unknowns) > 2 else STARTS
        inner = [np.linspace(u.low, u.high, (each if u.name == "range_m" else 6) + 2)[1:-1] for u in self._unknowns]
        return [np.array(start) for start in itertools.product(*inner)]

    def _make_variogram(self, tried: Floats, root: Floats) -> tuple[Variogram, Floats]:
        """Solve for the sills at trial parameters; return the variogram and its weighted misfit, shape (bins,)."""
        given = [dict(known) for known in self._known]
        for unknown, value in zip(self._unknowns, tried, strict=True):
            bounded = float(np.clip(value, unknown.low, unknown.high))
            given[unknown.term][unknown.name] = math.exp(bounded) if unknown.name == "range_m" else bounded
        shapes = [Structure(n, float(n != "nugget"), **g) for n, g in zip(self._names, given, strict=True)]
        columns = [shape.semivariance(self._bins.distance_m) for shape in shapes]
        wanted = self._bins.semivariance - (self._nugget or 0.0)
        if self._nugget is None:
            columns.append(np.ones_like(wanted))
        # scipy's solver is unreliable for numbers far from one.
        unit = float(self._bins.semivariance.max())
        matrix = np.stack(columns, axis=1) * root[:, None]
        sills, _ = scipy.optimize.nnls(matrix, wanted / unit * root)
        nugget = float(sills[-1] * unit) if self._nugget is None else self._nugget
        terms = [
            replace(shape, psill=float(sill * unit) if shape.psill else 0.0)
            for shape, sill in zip(shapes, sills, strict=False)
        ]
        return sum_structures(terms, nugget), np.asarray((matrix @ sills - wanted / unit * root), dtype=np.float64)


MIN_PAIRS = 30
"""Minimum pairs per bin for a reliable semivariance (Journel and Huijbregts 1978, III.42)."""

SPARE_BINS = 2
"""Minimum bins in excess of parameters; with fewer, a fit follows the noise."""

# Below it, a pure nugget does about as well.
MIN_EXPLAINED = 0.3
"""Least explained share of the variation between bins."""

MAX_MISFIT = 0.25
"""Weighted root-mean-square misfit, relative to the semivariance, above which the shape does not fit."""


def list_doubts(
    variogram: Variogram, bins: EmpiricalVariogram, *, explained: float, weight: Floats, free: int
) -> tuple[str, ...]:
    """List why a fit is poor, one sentence each; empty if it is not.

    Parameters
    ----------
    variogram, bins, explained
        The fit, the empirical variogram, and the explained share of the weighted variation between bins.
    weight
        Weights of the bins, shape (bins,).
    free
        Number of fitted parameters.
    """
    reasons = []
    few = int(np.count_nonzero(bins.pairs < MIN_PAIRS))
    if few:
        reasons.append(
            f"{few} of {len(bins.pairs)} bins hold fewer than {MIN_PAIRS} pairs (give more slices, or fewer bins)"
        )
    if len(bins.pairs) < free + SPARE_BINS:
        reasons.append(f"{len(bins.pairs)} bins are few for {free} parameters (raise bins, or take a simpler model)")
    misfit = bins.semivariance - variogram.semivariance(bins.distance_m)
    off = float(np.sqrt((weight @ misfit**2) / (weight @ bins.semivariance**2)))
    if off > MAX_MISFIT:
        reasons.append(f"it misses the bins by {off:.0%} of their semivariance (try another model)")
    if any(term.model != "nugget" for term in variogram.structures):
        reasons.extend(_list_structural_doubts(variogram, bins, explained))
    return tuple(reasons)


def _list_structural_doubts(variogram: Variogram, bins: EmpiricalVariogram, explained: float) -> list[str]:
    if explained < MIN_EXPLAINED:
        return [
            f"it explains {max(explained, 0.0):.0%} of how the bins differ: no structure shows at these distances, and "
            "a pure nugget does about as well"
        ]
    reach = max((t.effective_range_m for t in variogram.structures if np.isfinite(t.effective_range_m)), default=0.0)
    if reach > bins.cutoff_m:
        return [
            f"its range of {reach:,.0f} m lies beyond the greatest distance, {bins.cutoff_m:,.0f} m: range and sill "
            "are extrapolated, only their ratio is known (raise cutoff_m, take out the trend, or take a linear model)"
        ]
    if 0 < reach < bins.distance_m[0]:
        return [
            f"its range of {reach:,.0f} m lies below the shortest distance, {bins.distance_m[0]:,.0f} m: range and "
            "nugget cannot be told apart"
        ]
    return []
