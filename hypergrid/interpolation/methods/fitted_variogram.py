"""Kriging with a variogram fitted to the values: pooled over all slices, or slice by slice.

A pooled variogram gives every slice the same weights, which is usually right for one network. By slice, each has its
own system; that costs one solve per slice, and few stations hardly determine a variogram. If no variogram can be fitted
(fewer than three distances, constant values) a note states the fallback: estimates use an exponential variogram without
a nugget, with a range of a third of the network's extent, and have no variance.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from dataclasses import field as member
from typing import ClassVar, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound, SingularSystem
from hypergrid.interpolation.methods.conditioning import is_singular
from hypergrid.interpolation.points import Field, Floats, Stations, Targets
from hypergrid.interpolation.solvers.trend import ROUNDING, subtract_trend
from hypergrid.interpolation.variograms.fit import fit_variogram
from hypergrid.interpolation.variograms.models import MODELS
from hypergrid.interpolation.variograms.variogram import NuggetIs, Variogram, check_validity, parse_variogram
from hypergrid.interpolation.weight_cache import WEIGHTS, key_of

Build = Callable[[Variogram, slice], Field]
"""Builds the field of a variogram and a range of slices."""

FIT_BY: Final = ("all", "slice")
KEYS: Final = ("fit", "by", "nugget_is")
FITTED_MODEL: Final = "exponential"
MIN_STATIONS: Final = 5
"""Minimum stations in a slice to fit its own variogram; others use the pooled one."""

# For larger values, hashing alone would run longer than work may go without yielding.
MAX_KEYED_BYTES: Final = 16 << 20
"""Maximum size of values whose fit is cached."""
MIN_SLICES: Final = 3
"""Fits to fewer slices carry a note that variances are too small."""
NARROW: Final = (
    "variances take the fitted variogram as the true one: with fits to a single slice, 95 % intervals held 88 % of the "
    "truth at 10 stations, 91 % at 20 and 93 % at 50 in simulations (more slices hold more)"
)
"""Measured by `tests/hypergrid/interpolation/test_fitted_coverage.py`; from three slices it was 94 % at 20 stations."""


@dataclass(frozen=True)
class VariogramRequest:
    """Request to fit a variogram to the values."""

    token_name: ClassVar[str] = "ToFit"

    model: str = FITTED_MODEL
    by: Literal["all", "slice"] = "all"
    # Omitted from the token if unused.
    nugget_is: NuggetIs = member(default="micro-scale", metadata={"omit_default": True})

    def __str__(self) -> str:
        """Format for messages."""
        nugget = "" if self.nugget_is == "micro-scale" else f", its nugget {self.nugget_is}"
        return f"{self.model} fitted {'by slice' if self.by == 'slice' else 'once'}{nugget}"

    def to_json(self) -> dict[str, str]:
        """Convert to the form that `parse_model` reads."""
        document = {"fit": self.model, "by": self.by}
        return document if self.nugget_is == "micro-scale" else {**document, "nugget_is": self.nugget_is}


def parse_model(value: object) -> Variogram | VariogramRequest:
    """Parse a variogram, or a request to fit one.

    A request is "fit", "fit_by_slice", or {"fit": model, "by": "all" or "slice", "nugget_is": "measurement error"}.

    Raises
    ------
    InvalidQuery, NotFound
        Neither; unknown model or way of fitting.
    """
    if isinstance(value, VariogramRequest):
        return value
    if isinstance(value, str):
        if value not in ("fit", "fit_by_slice"):
            raise InvalidQuery(f"a variogram is given with its model, or it is 'fit' or 'fit_by_slice'; got {value!r}")
        return VariogramRequest(by="slice" if value == "fit_by_slice" else "all")
    if not isinstance(value, Mapping) or "fit" not in value:
        return parse_variogram(value)
    for key in value:
        if key not in KEYS:
            raise NotFound.among(kind="key of a variogram that is fitted", given=key, existing=KEYS)
    by, nugget_is = value.get("by", "all"), value.get("nugget_is", "micro-scale")
    if by not in FIT_BY:
        raise NotFound.among(kind="way to fit a variogram", given=by, existing=FIT_BY)
    if nugget_is not in get_args(NuggetIs):
        raise NotFound.among(kind="meaning of a nugget (nugget_is)", given=nugget_is, existing=get_args(NuggetIs))
    NotFound.refuse_unknown("variogram model", [value["fit"]], MODELS)
    return VariogramRequest(value["fit"], by, nugget_is)


FLAT_SHARE: Final = 0.9
"""Share of the nugget in the semivariance across the network from which a map is nearly flat."""
DIFFERENT: Final = 3.0
"""Standard deviation of the stations' means, in errors of a mean, from which they differ."""


@dataclass(frozen=True)
class ResolvedVariogram:
    """Fitted variogram with its notes."""

    variogram: Variogram
    notes: tuple[str, ...]
    is_assumed: bool = False
    """Whether none could be fitted: the shape is assumed, the sill arbitrary."""

    @property
    def nbytes(self) -> int:
        """Approximate memory used by numbers and notes [bytes]."""
        return 512 + sum(map(len, self.notes))


def resolve_variogram(wanted: VariogramRequest, stations: Stations, values: Floats) -> ResolvedVariogram:
    """Fit the variogram to all slices together, with a cache keyed by the values.

    Parameters
    ----------
    wanted
        Requested model.
    stations, values
        Stations, and values of shape (slices, stations), NaN where missing.
    """
    if values.nbytes > MAX_KEYED_BYTES:
        return _fit(wanted, stations, values)
    # A fit is 40 % of the cost of one position, and all positions of a map at one time share it.
    key = key_of("fitted variogram", wanted, stations.positions_m, values)
    return WEIGHTS.get(key, lambda: _fit(wanted, stations, values))


def _fit(wanted: VariogramRequest, stations: Stations, values: Floats) -> ResolvedVariogram:
    try:
        if not _varies(values):
            raise InvalidQuery("within each slice all values are equal")
        fit = fit_variogram(stations.positions_m, values, model=wanted.model)
    except InvalidQuery as error:
        resolved_model = _make_fallback(stations, values)
        note = (
            f"variogram not fitted ({error}): estimates take the shape of an {resolved_model.model} one with a "
            f"range of "
            f"{resolved_model.range_m:.4g} m, and every variance is missing, since its sill is not known"
        )
        # Weights do not depend on the unknown sill, but variances do.
        return ResolvedVariogram(resolved_model, (note,), is_assumed=True)
    resolved_model = replace(fit.variogram, nugget_is=wanted.nugget_is)
    notes = (
        f"variogram fitted to {len(values)} slices of {stations.count} stations: {_describe_model(resolved_model)}",
    )
    reporting_slices = int(np.isfinite(values).any(axis=1).sum())
    narrow = (NARROW,) if wanted.by == "slice" or reporting_slices < MIN_SLICES else ()
    flat = _note_flatness(resolved_model, stations, values)
    return ResolvedVariogram(resolved_model, notes + flat + ((fit.warning,) if fit.poor else ()) + narrow)


def _note_flatness(model: Variogram, stations: Stations, values: Floats) -> tuple[str, ...]:
    """Warn that a variogram without structure draws a flat map, where the means of the stations differ."""
    extent = np.linalg.norm(np.ptp(stations.positions_m, axis=0))
    counts = np.isfinite(values).sum(axis=0)
    if model.nugget < FLAT_SHARE * float(model.semivariance(np.array(extent))) or (counts < 2).all():
        return ()
    steady = counts > 1
    means = np.nanmean(values[:, steady], axis=0)
    errors = np.nanstd(values[:, steady], axis=0, ddof=1) / np.sqrt(counts[steady])
    spread, error = float(np.ptp(means)), float(np.sqrt(np.mean(errors**2)))
    if not means.std() > DIFFERENT * error:
        return ()
    return (
        f"the map is nearly flat, as the fitted variogram has hardly any structure, but the means of the stations "
        f"differ by {spread:.3g}, {spread / error:.0f} times the error of one: interpolate by 'auto', or give the "
        "variogram",
    )


def _varies(values: Floats) -> bool:
    """Check whether the values of some slice differ by more than rounding."""
    reporting_values = values[np.isfinite(values).any(axis=1)]
    if not len(reporting_values):
        return False
    spread = np.nanmax(reporting_values, axis=1) - np.nanmin(reporting_values, axis=1)
    return bool(spread.max() > ROUNDING * np.nanmax(np.abs(reporting_values)))


def _make_fallback(stations: Stations, values: Floats) -> Variogram:
    # Of the values' magnitude, so that the system is well scaled.
    sill = float(np.nanvar(values)) if _varies(values) else 0.0
    extent = float(np.linalg.norm(np.ptp(stations.positions_m, axis=0)))
    return Variogram("exponential", sill or 1.0, extent / 3.0 or 1.0)


def _describe_model(model: Variogram) -> str:
    shape = f"{model.model} psill {model.psill:.4g} range {model.range_m:.4g} m nugget {model.nugget:.4g}"
    return shape + "".join(
        f" + {term.model} psill {term.psill:.4g} range {term.range_m:.4g} m" for term in model.nested
    )


class SliceFields(Field):
    """Field of many slices, each with its own variogram."""

    def __init__(self, fields: list[Field], notes: tuple[str, ...]) -> None:
        self.inner_fields = fields
        self.notes = notes

    @property
    def counts(self) -> NDArray[np.int32]:
        return np.concatenate([field.counts for field in self.inner_fields])

    def estimate(self, targets: Targets) -> Floats:
        return np.concatenate([field.estimate(targets) for field in self.inner_fields])

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        counts = np.empty((len(self.inner_fields), targets.count), dtype=np.int32)
        for row, field in zip(counts, self.inner_fields, strict=True):
            row[:] = field.counts_at(targets)[0]
        return counts

    def variance(self, targets: Targets) -> Floats:
        return np.concatenate([field.variance(targets) for field in self.inner_fields])

    def take_slices(self, slices: NDArray[np.intp]) -> "SliceFields":
        return SliceFields([self.inner_fields[number] for number in slices.tolist()], self.notes)


def field_by_slice(wanted: VariogramRequest, stations: Stations, values: Floats, build: Build) -> SliceFields:
    """Build a field in which each slice has its own variogram, if one can be fitted.

    A slice whose own variogram is unusable gets the pooled one.

    Raises
    ------
    InvalidQuery, SingularSystem
        The pooled variogram is unusable as well.
    """
    pooled = resolve_variogram(wanted, stations, values)
    fields, own, unusable = [], 0, 0
    for number in range(len(values)):
        rows = slice(number, number + 1)
        field = None
        if np.isfinite(values[rows]).sum() >= MIN_STATIONS:
            # A slice of constant values, for instance, has no variogram.
            with suppress(InvalidQuery):
                model = fit_variogram(stations.positions_m, values[rows], model=wanted.model).variogram
                field = _make_usable(replace(model, nugget_is=wanted.nugget_is), rows, stations, build)
                own += field is not None
                unusable += field is None
        fields.append(_make_pooled(pooled, rows, build) if field is None else field)
    note = f"variogram fitted by slice in {own} of {len(values)} slices; in the others, the one of all slices"
    if unusable:
        note += f" (in {unusable} of them the variogram of the slice itself gives a system without a unique solution)"
    return SliceFields(fields, (note, *pooled.notes))


def _make_pooled(pooled: ResolvedVariogram, rows: slice, build: Build) -> Field:
    """Build the field of slices under the pooled variogram, without variance if that is assumed."""
    field = build(pooled.variogram, rows)
    field.is_assumed = pooled.is_assumed
    return field


def _make_usable(model: Variogram, rows: slice, stations: Stations, build: Build) -> Field | None:
    """Build the field of a slice under its own variogram; None if singular or invalid."""
    try:
        check_validity("variogram", model, stations.positions_m)
        field = build(model, rows)
    except (InvalidQuery, SingularSystem):
        return None
    # Local kriging is only solved at its targets, too late to fall back to another variogram.
    return None if is_singular(field) else field


def build_fitted(model: VariogramRequest, stations: Stations, values: Floats, build: Build) -> Field:
    """Build the field of slices under a variogram fitted to values (slices, stations)."""
    if model.by == "slice" and len(values) and stations.count:
        return field_by_slice(model, stations, values, build)
    resolved = resolve_variogram(model, stations, values)
    field = _make_pooled(resolved, slice(None), build)
    field.notes = resolved.notes
    return field


def find_residuals(columns: Floats, values: Floats) -> Floats:
    """Compute the least-squares residuals of each slice from the drift functions, shape (slices, stations).

    Parameters
    ----------
    columns
        Drift functions at the stations, shape (stations, functions).
    values
        Shape (slices, stations), NaN where missing.
    """
    count = columns.shape[1]
    present = np.isfinite(values).astype(np.float64)
    products = (columns[:, :, None] * columns[:, None, :]).reshape(len(columns), count * count)
    normal = (present @ products).reshape(-1, count, count)
    sides = np.where(present > 0, values, 0.0) @ columns
    # If the stations do not determine the functions, the pseudo-inverse gives the coefficients of least norm.
    coefficients = np.einsum("sij,sj->si", np.linalg.pinv(normal, hermitian=True), sides)
    return subtract_trend(values, coefficients @ columns.T)
