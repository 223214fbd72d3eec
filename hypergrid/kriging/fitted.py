"""Kriging with a variogram that is fitted to the values themselves: once, pooled over all slices, or slice by slice.

Pooled, every slice has the same variogram, and so the same weights; that is what one network usually wants. By slice,
each has its own system; that costs a solve a slice, and few stations hardly determine a variogram. Where values cannot
be fitted (fewer than three distances, values that do not vary) the fallback is stated: an exponential variogram without
a nugget, of a third of the network's extent.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.errors import InvalidQuery, NotFound
from hypergrid.kriging.fit import fit_variogram
from hypergrid.kriging.methods import Field
from hypergrid.kriging.models import MODELS
from hypergrid.kriging.places import Stations, Targets
from hypergrid.kriging.trend import ROUNDING, less
from hypergrid.kriging.variogram import Variogram, parse_variogram

Floats = NDArray[np.float64]
Build = Callable[[Variogram, slice], Field]
"""Variogram and which slices to their field."""

BY: Final = ("all", "slice")
FITTED_MODEL: Final = "exponential"
LEAST_STATIONS: Final = 5
"""Stations in one slice from which a variogram of its own is fitted to it; below, it has the pooled one."""


@dataclass(frozen=True)
class ToFit:
    """A variogram that is to be fitted to the values."""

    model: str = FITTED_MODEL
    by: Literal["all", "slice"] = "all"

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"{self.model} fitted {'by slice' if self.by == 'slice' else 'once'}"

    def to_json(self) -> dict[str, str]:
        """Return the form that `parse_model` reads."""
        return {"fit": self.model, "by": self.by}


def parse_model(value: object) -> Variogram | ToFit:
    """Return a variogram as it is given, or what is to be fitted: "fit", "fit_by_slice", {"fit": model, "by": "slice"}.

    Raises
    ------
    InvalidQuery, NotFound
        Neither; a model or a way of fitting that does not exist.
    """
    if isinstance(value, ToFit):
        return value
    if isinstance(value, str):
        if value not in ("fit", "fit_by_slice"):
            message = f"a variogram is given with its model, or it is 'fit' or 'fit_by_slice'; got {value!r}"
            raise InvalidQuery(message)
        return ToFit(by="slice" if value == "fit_by_slice" else "all")
    if not isinstance(value, Mapping) or "fit" not in value:
        return parse_variogram(value)
    for key in value:
        if key not in ("fit", "by"):
            raise NotFound.among(kind="key of a variogram that is fitted", given=key, existing=("fit", "by"))
    by = value.get("by", "all")
    if by not in BY:
        raise NotFound.among(kind="way to fit a variogram", given=by, existing=BY)
    return ToFit(_known(value["fit"]), by)


def _known(model: object) -> str:
    if not isinstance(model, str) or model not in MODELS:
        raise NotFound.among(kind="variogram model", given=model, existing=MODELS)
    return model


@dataclass(frozen=True)
class Resolved:
    """A variogram that was fitted, and what is to be said of it."""

    variogram: Variogram
    notes: tuple[str, ...]


def resolve_variogram(wanted: ToFit, stations: Stations, values: Floats) -> Resolved:
    """Return the variogram fitted to all slices together.

    Parameters
    ----------
    wanted
        Which model.
    stations, values
        Where and what, shape (slices, stations), NaN where missing.
    """
    try:
        if not _varies(values):
            message = "within each slice all values are equal"
            raise InvalidQuery(message)
        fit = fit_variogram(stations.positions_m, values, model=wanted.model)
    except InvalidQuery as error:
        found = _fallback(stations, values)
        return Resolved(found, (f"variogram not fitted ({error}); taken instead: {_words(found)}",))
    notes = (f"variogram fitted to {len(values)} slices of {stations.count} stations: {_words(fit.variogram)}",)
    return Resolved(fit.variogram, notes + ((fit.warning,) if fit.poor else ()))


def _varies(values: Floats) -> bool:
    """Return whether values of some slice differ by more than their rounding."""
    heard = values[np.isfinite(values).any(axis=1)]
    if not len(heard):
        return False
    spread = np.nanmax(heard, axis=1) - np.nanmin(heard, axis=1)
    return bool(spread.max() > ROUNDING * np.nanmax(np.abs(heard)))


def _fallback(stations: Stations, values: Floats) -> Variogram:
    sill = float(np.nanvar(values)) if _varies(values) else 1.0
    extent = float(np.linalg.norm(np.ptp(stations.positions_m, axis=0)))
    return Variogram("exponential", sill, extent / 3.0 or 1.0)


def _words(model: Variogram) -> str:
    shape = f"{model.model} psill {model.psill:.4g} range {model.range_m:.4g} m nugget {model.nugget:.4g}"
    return shape + "".join(
        f" + {term.model} psill {term.psill:.4g} range {term.range_m:.4g} m" for term in model.nested
    )


class BySlice:
    """The field of many slices, each with a variogram of its own."""

    def __init__(self, fields: list[Field], notes: tuple[str, ...]) -> None:
        self._fields = fields
        self.notes = notes
        """What a reader of the result should know."""

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,)."""
        return np.concatenate([field.counts for field in self._fields])

    def at(self, targets: Targets) -> Floats:
        """Return estimates, shape (slices, targets)."""
        return np.concatenate([field.at(targets) for field in self._fields])

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        """Return the stations behind each estimate, shape (slices, targets)."""
        found = np.empty((len(self._fields), targets.count), dtype=np.int32)
        for row, field in zip(found, self._fields, strict=True):
            by_target = getattr(field, "counts_at", None)
            row[:] = field.counts[0] if by_target is None else by_target(targets)[0]
        return found

    def variance(self, targets: Targets) -> Floats:
        """Return the variance of the estimates' errors, shape (slices, targets)."""
        return np.concatenate([field.variance(targets) for field in self._fields])


def field_by_slice(wanted: ToFit, stations: Stations, values: Floats, build: Build) -> BySlice:
    """Return a field in which each slice has a variogram of its own, where enough of its stations report."""
    pooled = resolve_variogram(wanted, stations, values)
    fields, own = [], 0
    for number in range(len(values)):
        rows = slice(number, number + 1)
        model = pooled.variogram
        if np.isfinite(values[rows]).sum() >= LEAST_STATIONS:
            # Values of one slice that do not vary, say, have no variogram.
            with suppress(InvalidQuery):
                model = fit_variogram(stations.positions_m, values[rows], model=wanted.model).variogram
                own += 1
        fields.append(build(model, rows))
    note = f"variogram fitted by slice in {own} of {len(values)} slices; in the others, the one of all slices"
    return BySlice(fields, (note, *pooled.notes))


def build_fitted(model: ToFit, stations: Stations, values: Floats, build: Build) -> Field:
    """Return the field of slices under a variogram that is fitted to values (slices, stations)."""
    if model.by == "slice" and len(values) and stations.count:
        return field_by_slice(model, stations, values, build)
    resolved = resolve_variogram(model, stations, values)
    field = build(resolved.variogram, slice(None))
    field.notes = resolved.notes  # type: ignore[attr-defined]
    return field


def residuals(columns: Floats, values: Floats) -> Floats:
    """Return what least squares on drift functions leave of each slice, shape (slices, stations).

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
    # A slice whose stations do not determine the functions is left with the least coefficients that fit.
    coefficients = np.einsum("sij,sj->si", np.linalg.pinv(normal, hermitian=True), sides)
    return less(values, coefficients @ columns.T)
