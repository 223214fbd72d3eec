"""Cross-validation of a method on the user's own values, by leaving out stations.

There are three ways to leave out. By station: each is estimated from all others. By region: all stations of a region at
once, as on a map far from stations. By time block: parameters are fitted on the other blocks, then each station of the
block is estimated from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.html import escape, format_table, join_parts
from hypergrid.core.lazy_libraries import pd, xr
from hypergrid.core.pacing import give_way
from hypergrid.core.parameters import bind
from hypergrid.interpolation.methods.automatic import AUTO
from hypergrid.interpolation.methods.detrended import keeps_variance
from hypergrid.interpolation.methods.fitted_variogram import VariogramRequest
from hypergrid.interpolation.methods.registry import METHODS
from hypergrid.interpolation.points import Floats, Samples, Stations, Targets, group_masks
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import invert
from hypergrid.interpolation.solvers.trend import Trend, trend_of
from hypergrid.interpolation.variograms.variogram import Variogram

Z95 = 1.959963984540054
"""Half-width of the interval that holds 95 % of a standard normal distribution."""

BANDS = 4
"""Default number of elevation bands, with about equally many stations each."""


@dataclass(frozen=True)
class Score:
    """Errors of estimates; NaN if undefined."""

    count: int
    """Pairs of a value and its estimate."""
    missed: int
    """Values without an estimate, excluded from the errors below."""
    rmse: float
    """Root mean squared error [unit of the values]."""
    bias: float
    """Mean of estimate minus value [unit of the values]."""
    mae: float
    """Mean absolute error [unit of the values]."""
    standardised_mean: float
    """Mean of the errors divided by their stated standard deviations; 0 if calibrated."""
    standardised_variance: float
    """Variance of the same; 1 if calibrated, above 1 if the method is overconfident."""
    coverage_95: float
    """Share of the values within 1.96 stated standard deviations of their estimates; 0.95 if calibrated."""

    def to_json(self) -> dict[str, float | int | None]:
        """Convert to JSON; undefined numbers become null."""
        return {name: None if np.isnan(value) else value for name, value in asdict(self).items()}


def score(values: Floats, estimate: Floats, variance: Floats | None) -> Score:
    """Score estimates.

    Parameters
    ----------
    values, estimate, variance
        Of equal shape; NaN in `values` is skipped, NaN in `estimate` is counted as missed. A method without variance
        has None.
    """
    wanted = np.isfinite(values)
    known = wanted & np.isfinite(estimate)
    error = estimate[known] - values[known]
    count = len(error)
    mean, covered = (float("nan"), float("nan")), float("nan")
    if variance is not None:
        sure = variance[known] > 0
        if sure.any():
            standardised = error[sure] / np.sqrt(variance[known][sure])
            mean = float(standardised.mean()), float(standardised.var())
            covered = float(np.mean(np.abs(standardised) <= Z95))
    return Score(
        count,
        int(wanted.sum()) - count,
        float(np.sqrt(np.mean(error**2))) if count else float("nan"),
        float(error.mean()) if count else float("nan"),
        float(np.abs(error).mean()) if count else float("nan"),
        *mean,
        covered,
    )


def by_station(values: Floats, estimate: Floats, variance: Floats | None, names: tuple[str, ...]) -> pd.DataFrame:
    """Score each station, one row per station in their order."""
    rows = [
        asdict(score(values[:, i], estimate[:, i], None if variance is None else variance[:, i]))
        for i in range(len(names))
    ]
    return pd.DataFrame(rows, index=pd.Index(names, name="station"), columns=list(Score.__annotations__))


def by_elevation(
    values: Floats,
    estimate: Floats,
    variance: Floats | None,
    elevation_m: Floats,
    *,
    edges_m: Floats | None = None,
) -> pd.DataFrame:
    """Score each elevation band, lowest first.

    Parameters
    ----------
    values, estimate, variance
        Shape (slices, stations).
    elevation_m
        Shape (stations,) [m]; stations of unknown elevation are in the last row, whose band is NaN.
    edges_m
        Increasing edges of bands [m], including lower ones and the very last; defaults to quartiles of the stations.
        Stations outside are in no row.

    Returns
    -------
    Columns low_m, high_m, stations, and those of `Score`.
    """
    known = np.isfinite(elevation_m)
    edges = edges_m
    if edges is None:
        shares = np.linspace(0.0, 1.0, BANDS + 1)
        edges = np.unique(np.quantile(elevation_m[known], shares)) if known.any() else np.empty(0)
        edges = np.repeat(edges, 2) if len(edges) == 1 else edges
    rows = []
    for low, high, last in zip(edges[:-1], edges[1:], np.arange(1, len(edges)) == len(edges) - 1, strict=True):
        inside = (elevation_m >= low) & ((elevation_m <= high) if last else (elevation_m < high))
        rows.append((float(low), float(high), np.flatnonzero(inside)))
    if not known.all():
        rows.append((float("nan"), float("nan"), np.flatnonzero(~known)))
    table = [
        {
            "low_m": low,
            "high_m": high,
            "stations": len(columns),
            **asdict(
                score(values[:, columns], estimate[:, columns], None if variance is None else variance[:, columns])
            ),
        }
        for low, high, columns in rows
    ]
    return pd.DataFrame(table, columns=["low_m", "high_m", "stations", *Score.__annotations__])


# Estimates of left-out values: by refitting, and for kriging on all stations in closed form.
#
# With P the inverse of the bordered matrix of the stations present and z their values, the errors of a group G that is
# estimated from all others are `inv(P_GG) (P z)_G`, value minus estimate, with the covariance `inv(P_GG)`; for one
# station `(P z)_i / P_ii` and `1 / P_ii` (Dubrule 1983). One inverse per mask replaces one system per station.

Estimates = tuple[Floats, Floats | None]
"""Estimates and, if the method has them, variances; shape (slices, stations), NaN where missing."""


def has_closed_form(method: str, given: Mapping[str, Any], stations: int) -> bool:
    """Check for a closed form of leaving out: kriging on all stations without further options."""
    neighbours = given.get("neighbours")
    known = ("variogram", "neighbours", "mean", "degree", "drift")
    plain = all(value is None for name, value in given.items() if name not in known)
    model = given.get("variogram")
    return (
        METHODS[method].has_variance
        and plain
        and (method == AUTO or isinstance(model, Variogram))
        and (neighbours is None or neighbours >= stations)
    )


def leave_out(
    method: str,
    given: Mapping[str, Any],
    stations: Stations,
    values: Floats,
    parts: NDArray[np.intp],
) -> Estimates:
    """Estimate each part of the stations from the others, one field per part.

    Parameters
    ----------
    method, given
        Name of the method, and its parameters as `prepare` takes them.
    stations
        Stations of the values, with the covariates that the method needs.
    values
        Shape (slices, stations), NaN where missing; missing values are not estimated.
    parts
        Part with which each station is left out, shape (stations,).
    """
    row = METHODS[method]
    estimate = np.full(values.shape, np.nan)
    known = row.has_variance and keeps_variance(trend_of(given))
    variance = np.full(values.shape, np.nan) if known else None
    for part in np.unique(parts):
        give_way()
        out, kept = np.flatnonzero(parts == part), np.flatnonzero(parts != part)
        field = row.prepare(stations.take_stations(kept), values[:, kept], given)
        taken = stations.take_stations(out)
        targets = Targets(taken.positions_m, taken.covariates)
        estimate[:, out] = field.estimate(targets)
        if variance is not None:
            variance[:, out] = field.variance(targets)
    missing = ~np.isfinite(values)
    estimate[missing] = np.nan
    if variance is not None:
        variance[missing] = np.nan
    return estimate, variance


def leave_out_in_closed_form(
    method: str,
    given: Mapping[str, Any],
    stations: Stations,
    values: Floats,
    parts: NDArray[np.intp],
) -> Estimates:
    """Compute `leave_out` for kriging on all stations, from one inverse per mask.

    Raises
    ------
    SingularSystem
        As for the method itself.
    """
    if not has_closed_form(method, given, stations.count):
        raise ValueError(f"{method} with these parameters has no closed form of leaving out")
    estimate, variance = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    if not stations.count:
        return estimate, variance
    # Large networks would take neighbours by themselves.
    of_all = {"neighbours": stations.count} if method == AUTO else {}
    field = METHODS[method].prepare(stations, values, {**given, **of_all})
    if not isinstance(field, KrigingField):
        raise TypeError(f"{method} has a closed form of leaving out, but no field of all stations")
    matrix, drift = field.system.matrix(), field.system.drift
    columns, functions = drift.columns(stations), np.arange(stations.count, field.system.size)
    for mask, slices in group_masks(np.isfinite(values)):
        give_way()
        present = np.flatnonzero(mask)
        inner = parts[present]
        known = _mask_left_over(inner, columns[present], field)
        if not known.any():
            continue
        rows = np.concatenate([present, functions])
        solved = invert(matrix[np.ix_(rows, rows)], label=method, functions=len(functions))
        solved = solved[: len(present), : len(present)]
        line = values[np.ix_(slices, present)] - field.mean
        errors, grown = _leave_out_parts(solved, line @ solved, inner, known)
        estimate[np.ix_(slices, present)] = line - errors + field.mean
        variance[np.ix_(slices, present)] = grown
    return estimate, variance


def _mask_left_over(parts: NDArray[np.intp], columns: Floats, field: KrigingField) -> NDArray[np.bool_]:
    """Mask the stations whose complement of their part determines an estimate, shape (stations,)."""
    if not len(parts):
        return np.zeros(0, dtype=bool)
    labels, part_index = np.unique(parts, return_inverse=True)
    drift, others = field.system.drift, parts != labels[:, None]
    enough = others.sum(axis=1) >= drift.drift.min_stations()
    return np.asarray((enough & drift.is_determined(columns * others[:, :, None]))[part_index])


def _leave_out_parts(
    solved: Floats, carried: Floats, parts: NDArray[np.intp], known: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Compute errors (slices, stations) and variances (stations,) of left-out parts; NaN if unknown."""
    errors, variance = np.full(carried.shape, np.nan), np.full(len(parts), np.nan)
    labels = np.unique(parts[known])
    if len(np.unique(parts)) == len(parts):
        diagonal = np.diagonal(solved)[known]
        errors[:, known], variance[known] = carried[:, known] / diagonal, 1.0 / diagonal
        return errors, variance
    for label in labels:
        out = np.flatnonzero(parts == label)
        covariance = np.linalg.inv(solved[np.ix_(out, out)])
        errors[:, out] = carried[:, out] @ covariance
        variance[out] = np.diagonal(covariance)
    return errors, variance


By = Literal["station", "region", "time_block"]
WAYS: tuple[By, ...] = ("station", "region", "time_block")


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Result of a cross-validation."""

    method: str
    given: tuple[Mapping[str, Any], ...]
    """Parameters of each time block, otherwise one set for all."""
    by: By
    in_closed_form: bool
    samples: Samples
    """Values that were estimated."""
    not_used: tuple[str, ...]
    """Stations without a position, or without a value."""
    estimate: Floats
    """Shape (slices, stations), NaN where missing."""
    variance: Floats | None
    """Error variance stated by the method, same shape; None if it has none."""
    score: Score
    stations: pd.DataFrame
    """Score of each station."""
    bands: pd.DataFrame
    """Score of each elevation band."""

    def __repr__(self) -> str:
        """Format the scores on one line, with the elevation bands below it."""
        total = self.score
        unit = f" {self.samples.unit}" if self.samples.unit else ""
        parts = [
            f"CrossValidation of {self.method} by {self.by}: {total.count:,} of {total.count + total.missed:,} values",
            f"RMSE {total.rmse:.4g}{unit}",
            f"bias {total.bias:+.3g}{unit}",
        ]
        if np.isfinite(total.coverage_95):
            parts.append(f"{total.coverage_95:.1%} in the 95 % interval")
        lines = [", ".join(parts)]
        for low, high, count, rmse, bias in self.bands[["low_m", "high_m", "count", "rmse", "bias"]].itertuples(
            index=False
        ):
            band = f"{low:,.0f} to {high:,.0f} m" if np.isfinite(low) else "elevation unknown"
            lines.append(f"  {band}: {count:,} values, RMSE {rmse:.4g}{unit}, bias {bias:+.3g}{unit}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        lines = "".join(f"<br>{escape(line)}" for line in repr(self).splitlines()[1:])
        stations = self.stations.dropna(axis="columns", how="all")
        shown = stations[
            [name for name in ("count", "missed", "rmse", "bias", "mae", "coverage_95") if name in stations]
        ]
        return join_parts(f"<p>{escape(repr(self).splitlines()[0])}{lines}</p>", format_table(shown, index=True))

    def to_dataset(self) -> xr.Dataset:
        """Convert to value, estimate, error (estimate minus value) and variance, with dimensions slice and station."""
        dims, unit = ("slice", "station"), {"units": self.samples.unit}
        data: dict[str, Any] = {
            "value": (dims, self.samples.values, unit),
            "estimate": (dims, self.estimate, unit),
            "error": (dims, self.estimate - self.samples.values, unit),
        }
        if self.variance is not None:
            data["variance"] = (dims, self.variance, {"units": f"({self.samples.unit})2"})
        coords = {
            "station": ("station", list(self.samples.names)),
            "x": ("station", self.samples.positions_m[:, 0], {"units": "m"}),
            "y": ("station", self.samples.positions_m[:, 1], {"units": "m"}),
            "elevation": ("station", self.samples.elevation_m, {"units": "m"}),
        }
        return xr.Dataset(data, coords, {"method": self.method, "left_out_by": self.by})

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON: the score, by station and by band; parameters as a query accepts them."""
        # Parsing adds others, such as the one neighbour of the nearest station.
        accepted = {parameter.name for parameter in METHODS[self.method].parameters}
        own = [{name: value for name, value in given.items() if name in accepted} for given in self.given]
        return {
            "method": self.method,
            "parameters": [write_parameters(given) for given in own],
            "by": self.by,
            "in_closed_form": self.in_closed_form,
            "unit": self.samples.unit,
            "not_used": list(self.not_used),
            "score": self.score.to_json(),
            "stations": _to_records(self.stations.reset_index()),
            "bands": _to_records(self.bands),
        }


def cross_validate(
    samples: Samples,
    method: str,
    *,
    parameters: Mapping[str, object] | None = None,
    by: By = "station",
    fit: Callable[[Floats], Mapping[str, object]] | None = None,
) -> CrossValidation:
    """Estimate values from others, and score the estimates.

    Parameters
    ----------
    samples
        Values at stations.
    method
        Name of an interpolation method.
    parameters
        The method's parameters, as in a query; with `fit`, those that it does not return.
    by
        Unit of leaving out: "station", "region" (four of about equally many stations) or "time_block" (four of equally
        many consecutive slices).
    fit
        Maps values (slices, stations) of the other time blocks, stations as in `samples`, to parameters. For
        "time_block" only.

    Raises
    ------
    NotFound
        Unknown method, parameter, or way to leave out.
    InvalidQuery, SingularSystem
        Parameters or stations that the method rejects, here with one part left out; a covariate that the samples
        lack.
    """
    row = METHODS[method]
    if by not in WAYS:
        raise NotFound.among(kind="way to leave out", given=by, existing=WAYS)
    # With fixed parameters an estimate only uses its own slice, so leaving out other times would change nothing.
    if (fit is None) == (by == "time_block"):
        raise InvalidQuery(
            "cross-validation by time_block needs fit=…, a function of the other blocks' values to parameters: with "
            "fixed parameters an estimate uses its own slice alone; leave out by station or by region"
            if fit is None
            else f"cross-validation by {by} takes fixed parameters; got fit=…, which belongs to by='time_block'"
        )
    usable = samples.usable_mask
    used = samples.take_stations(usable)
    if len(used.names) < 2:
        raise InvalidQuery(
            f"cross-validation of {method} by {by} needs at least two stations with a position and values; got "
            f"{len(used.names)}; give more stations, or a longer time"
        )

    def parsed(more: Mapping[str, object]) -> dict[str, Any]:
        given = {**(parameters or {}), **more}
        return row.parse(bind(method, row.parameters, given, variable_unit=samples.unit))

    alone = np.arange(len(used.names))
    if fit is None:
        labels = alone if by == "station" else spatial_folds(samples)
        given: tuple[dict[str, Any], ...] = (parsed({}),)
        estimate, variance = _leave_out(method, given[0], used, labels)
    else:
        blocks = time_folds(samples)
        estimate = np.full(used.values.shape, np.nan)
        variance = np.full(used.values.shape, np.nan) if row.has_variance else None
        given = ()
        for block in np.unique(blocks):
            give_way()
            held = blocks == block
            given = (*given, parsed(fit(samples.values[~held])))
            inside = replace(used, values=used.values[held])
            estimate[held], variances = _leave_out(method, given[-1], inside, alone)
            if variance is not None and variances is not None:
                variance[held] = variances
    closed = all(has_closed_form(method, parameters, len(used.names)) for parameters in given)
    return assemble_validation(samples, (estimate, variance), method=method, given=given, by=by, in_closed_form=closed)


def assemble_validation(
    samples: Samples,
    estimates: Estimates,
    *,
    method: str,
    given: tuple[Mapping[str, Any], ...],
    by: By,
    in_closed_form: bool,
) -> CrossValidation:
    """Score the estimates of the usable stations of samples."""
    usable, (estimate, variance) = samples.usable_mask, estimates
    used = samples.take_stations(usable)
    return CrossValidation(
        method,
        given,
        by,
        in_closed_form,
        used,
        tuple(name for name, kept in zip(samples.names, usable, strict=True) if not kept),
        estimate,
        variance,
        score(used.values, estimate, variance),
        by_station(used.values, estimate, variance, used.names),
        by_elevation(used.values, estimate, variance, used.elevation_m),
    )


def _leave_out(method: str, given: Mapping[str, Any], samples: Samples, parts: NDArray[np.intp]) -> Estimates:
    known = samples.stations.covariates
    for name in METHODS[method].covariates(given):
        if name not in known:
            raise InvalidQuery(
                f"cross-validation of {method} needs the covariate {name!r} at the stations; known are "
                f"{', '.join(known)}; give data that have a layer of that name, or leave it out of drift"
            )
    closed = has_closed_form(method, given, len(samples.names))
    left = leave_out_in_closed_form if closed else leave_out
    return left(method, given, samples.stations, samples.values, parts)


def write_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a method's parameters, parsed or not, to the JSON form of a query, without those not given."""
    return {
        name: value.to_json() if isinstance(value, Variogram | VariogramRequest | Trend) else value
        for name, value in given.items()
        if value is not None
    }


def _to_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows = table.to_dict("records")
    return [{str(name): None if pd.isna(value) else value for name, value in row.items()} for row in rows]


PARTS = 4
"""Default number of regions, or time blocks."""


def spatial_folds(samples: Samples) -> NDArray[np.intp]:
    """Assign each usable station to a region of about equally many stations, shape (usable stations,)."""
    usable = samples.usable_mask
    return bisect(samples.positions_m[usable], min(PARTS, int(usable.sum())))


def time_folds(samples: Samples) -> NDArray[np.intp]:
    """Assign each slice to a time block of equally many consecutive slices, shape (slices,).

    Raises
    ------
    InvalidQuery
        There is a single slice.
    """
    slices = len(samples.values)
    blocks = np.arange(slices) * min(PARTS, slices) // max(slices, 1)
    if len(np.unique(blocks)) < 2:
        raise InvalidQuery("leaving out a block of time needs another one to learn from; got 1 in all")
    return blocks


def bisect(positions_m: Floats, count: int) -> NDArray[np.intp]:
    """Assign stations to regions, shape (stations,), by repeatedly halving the largest across its longer side.

    Parameters
    ----------
    positions_m
        Shape (stations, 2) [m].
    count
        Number of regions, at most the number of stations.
    """
    labels = np.zeros(len(positions_m), dtype=np.intp)
    for label in range(1, count):
        largest = int(np.argmax(np.bincount(labels)))
        inside = np.flatnonzero(labels == largest)
        axis = int(np.argmax(np.ptp(positions_m[inside], axis=0)))
        order = inside[np.argsort(positions_m[inside, axis], kind="stable")]
        labels[order[len(order) // 2 :]] = label
    return labels
