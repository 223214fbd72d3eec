"""A field of some slices of another, made of what is known already: nothing is fitted, factored or triangulated anew.

What depends on all slices (a variogram fitted to all of them, the network that is used) stays as it is, so that the
estimates of a slice do not depend on which others are asked for.
"""

import copy

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.methods.detrended import DetrendedField
from hypergrid.interpolation.methods.fitted_variogram import SliceFields
from hypergrid.interpolation.methods.inverse_distance import InverseDistanceField
from hypergrid.interpolation.methods.registry import Field
from hypergrid.interpolation.points.points import Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.masks import group_masks

Slices = NDArray[np.intp]

DERIVED = ("complete", "_dual", "_losses")
"""What a field keeps once it is computed, of all its slices."""


def field_of(field: Field, slices: Slices) -> Field:
    """Return the field of some slices, shape (chosen,), in their order."""
    if isinstance(field, KrigingField):
        return _subset_kriging(field, slices)
    if isinstance(field, LocalField | InverseDistanceField):
        part = copy.copy(field)
        part._present, part._values = field._present[slices], field._values[slices]
        if isinstance(part, InverseDistanceField):
            part._masks = [(np.flatnonzero(mask), rows) for mask, rows in group_masks(part._present)]
        return part
    if isinstance(field, DetrendedField):
        around = copy.copy(field)
        around._inner = field_of(field._inner, slices)
        around._trend = copy.copy(field._trend)
        around._trend.coefficients = field._trend.coefficients[slices]
        around.__dict__.pop("complete", None)
        if hasattr(around, "_kriged"):
            around._kriged = around._inner
        return around
    if isinstance(field, SliceFields):
        return SliceFields([field.inner_fields[number] for number in slices.tolist()], field.notes)
    return FieldSubset(field, slices)


def replace_values(field: Field, values: NDArray[np.float64]) -> Field | None:
    """Return the field of other values over the same network, shape (slices, stations); None where it must be built."""
    if isinstance(field, LocalField):
        return field.replace_values(values)
    if isinstance(field, KrigingField):
        part = copy.copy(field)
        for name in DERIVED:
            part.__dict__.pop(name, None)
        part.present, part._values = np.isfinite(values), np.asarray(values, dtype=np.float64)
        part._drop_undetermined()
        return part
    return None


def _subset_kriging(field: KrigingField, slices: Slices) -> KrigingField:
    part = copy.copy(field)
    complete = part.__dict__.get("complete")
    for name in DERIVED:
        part.__dict__.pop(name, None)
    part.present, part._values = field.present[slices], field._values[slices]
    if complete is not None:
        # Gaps that are filled already are not filled again.
        part.__dict__["complete"] = complete[slices]
    return part


class FieldSubset:
    """Some slices of a field that cannot be cut: all are estimated, one surface a set of stations, and these taken."""

    def __init__(self, field: Field, slices: Slices) -> None:
        self._field, self._slices = field, slices

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,)."""
        return self._field.counts[self._slices]

    @property
    def inner_fields(self) -> tuple[Field, ...]:
        """The field of all slices."""
        return (self._field,)

    def estimate(self, targets: Targets) -> NDArray[np.float64]:
        """Return estimates, shape (slices, targets)."""
        return self._field.estimate(targets)[self._slices]

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        """Return the stations behind each estimate, shape (slices, targets)."""
        by_target = getattr(self._field, "counts_at", None)
        counts = self._field.counts[:, None] if by_target is None else by_target(targets)
        return np.asarray(counts, dtype=np.int32)[self._slices]

    def variance(self, targets: Targets) -> NDArray[np.float64]:
        """Return the variance of the estimates' errors, shape (slices, targets)."""
        return self._field.variance(targets)[self._slices]
