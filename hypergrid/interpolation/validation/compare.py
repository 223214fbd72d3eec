"""Comparison of methods by cross-validation on the user's own values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from hypergrid.core.errors import HyperGridError
from hypergrid.core.html import escape, format_line, format_table, join_parts
from hypergrid.core.lazy_libraries import pd, pykrige
from hypergrid.core.units import unit_symbol
from hypergrid.interpolation.methods.registry import METHODS
from hypergrid.interpolation.points import Floats, Samples
from hypergrid.interpolation.validation.cross_validate import (
    By,
    CrossValidation,
    Score,
    assemble_validation,
    cross_validate,
    leave_out_in_closed_form,
    score,
    spatial_folds,
)
from hypergrid.interpolation.variograms.interop import DEGREE_M, from_pykrige, list_pykrige_coordinates
from hypergrid.interpolation.variograms.variogram import Variogram

Candidates = Mapping[str, tuple[str, Mapping[str, object]]]
"""Maps each candidate's label to its method and parameters."""

QUICK: Candidates = {
    "auto": ("auto", {}),
    "nearest": ("nearest", {}),
    "inverse distance": ("inverse_distance", {}),
    "inverse distance, power 3": ("inverse_distance", {"power": 3.0}),
    "inverse distance, 8 nearest": ("inverse_distance", {"neighbours": 8}),
    "linear": ("linear", {}),
    "thin plate spline": ("radial_basis", {}),
    "thin plate spline, smoothed": ("radial_basis", {"smoothing": 100.0}),
    "linear kernel": ("radial_basis", {"kernel": "linear"}),
}
"""Default candidates, in this order."""
PEER: Final = "PyKrige's default"
"""Label of ordinary kriging as PyKrige does it without further parameters."""
MOST_PEER_SLICES: Final = 200
"""Slices in which that is validated, as each is fitted and solved by itself."""


_SHOWN = ("count", "rmse", "bias", "mae", "coverage_95")
"""Scores in the table of a comparison."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Result of one method in a comparison."""

    label: str
    method: str
    validation: CrossValidation | None
    """None if the method could not be used."""
    common: Score | None
    """Score on the values that every method could estimate; determines the order."""
    problem: str | None = None
    """Reason why the method could not be used."""
    notes: tuple[str, ...] = ()
    """Reasons to doubt the variogram in use."""

    @property
    def scored_on(self) -> str:
        """Number of values that determine the order, as text; empty if the method failed."""
        if self.common is None or self.validation is None:
            return ""
        count, values = self.common.count, self.validation.score.count + self.validation.score.missed
        if count == values:
            return f"scored on all {values:,} values"
        return f"scored on the {count:,} of {values:,} values that every method estimates"

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "method": self.method,
            "problem": self.problem,
            "notes": list(self.notes),
            "scored_on": self.scored_on,
            "common": None if self.common is None else self.common.to_json(),
            "validation": None if self.validation is None else self.validation.to_json(),
        }


class Comparisons(list[Comparison]):
    """Results of several methods, best first; a notebook shows them as a table."""

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per method, best first.

        Returns
        -------
        Index method (its label); columns count, rmse, bias and mae [unit of the values] and coverage_95 on the values
        that every method estimates, missed (values without an estimate), and note: why it could not be used, or why to
        doubt it. NaN where undefined; the unit is in `attrs`.
        """
        rows = []
        for each in self:
            numbers = [np.nan if each.common is None else getattr(each.common, name) for name in _SHOWN]
            missed = np.nan if each.validation is None else each.validation.score.missed
            rows.append([*numbers, missed, each.problem or "; ".join(each.notes)])
        labels = pd.Index([each.label for each in self], name="method", dtype=object)
        table = pd.DataFrame(rows, index=labels, columns=[*_SHOWN, "missed", "note"])
        table = table.astype({"count": "Int64", "missed": "Int64"})
        table.attrs = {"unit": self.unit}
        return table

    @property
    def unit(self) -> str:
        """Unit of the errors; empty if unknown."""
        return next((each.validation.samples.unit for each in self if each.validation is not None), "")

    def __repr__(self) -> str:
        scores = self.to_pandas().drop(columns="note").to_string(float_format="{:.4g}".format)
        return f"Comparisons of {len(self)} methods\n{scores}"

    def _repr_html_(self) -> str:
        table = self.to_pandas()
        # Each note once below the table: several methods share a variogram, and the doubts about it.
        notes = [note for note in dict.fromkeys(table["note"]) if note]
        table["note"] = [notes.index(note) + 1 if note else "" for note in table["note"]]
        listed = f"<ol>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ol>" if notes else ""
        best = [f"best: {self[0].label}", self[0].scored_on] if self and self[0].common is not None else []
        unit = f", errors in {unit_symbol(self.unit)}" if self.unit else ""
        return join_parts(format_line(f"{len(self)} methods{unit}", *best), format_table(table, index=True), listed)


def compare_methods(
    samples: Samples,
    *,
    methods: Candidates | None = None,
    variogram: Variogram | None = None,
    doubts: tuple[str, ...] = (),
    no_variogram: str | None = None,
    by: By = "station",
) -> Comparisons:
    """Cross-validate methods on the same values, best first.

    They are ordered by the error on the values that all of them estimate. Methods that cannot be used come last, with
    the reason.

    Parameters
    ----------
    samples
        Values at stations.
    methods
        Candidates by label; defaults to `list_candidates(variogram)`, and `PEER` beside them.
    variogram
        Variogram of the values, for the methods that need one.
    doubts
        Reasons to doubt that variogram, noted at each method that uses it.
    no_variogram
        Reason for its absence: the problem of each method that needs one, with the default candidates.
    by
        "station" or "region", as in `cross_validate`.
    """
    comparisons = []
    for label, (method, parameters) in (list_candidates(variogram) if methods is None else methods).items():
        try:
            validation = cross_validate(samples, method, parameters=parameters, by=by)
        except HyperGridError as error:
            comparisons.append(Comparison(label, method, None, None, str(error)))
            continue
        if validation.score.count:
            fitted = variogram is not None and parameters.get("variogram") is variogram
            comparisons.append(Comparison(label, method, validation, None, notes=doubts if fitted else ()))
        else:
            comparisons.append(Comparison(label, method, None, None, f"{method} estimates none of the values left out"))
    if methods is None:
        comparisons.append(_compare_peer(samples, by))
    if methods is None and variogram is None and no_variogram is not None:
        comparisons += [Comparison(label, name, None, None, no_variogram) for label, name in _list_kriging().items()]
    return Comparisons(_sort_comparisons(comparisons))


def _compare_peer(samples: Samples, by: By) -> Comparison:
    """Validate ordinary kriging under the linear variogram that PyKrige fits to each slice by default."""
    used = samples.take_stations(samples.usable_mask)
    estimate = np.full(used.values.shape, np.nan)
    try:
        parts = spatial_folds(samples) if by == "region" else np.arange(len(used.names))
        chosen = np.linspace(0, len(used.values) - 1, min(MOST_PEER_SLICES, len(used.values))).round().astype(np.intp)
        for number, line in zip(chosen.tolist(), used.values[chosen], strict=True):
            # A line through the semivariances of pairs needs two pairs of stations.
            if np.isfinite(line).sum() < 3:
                continue
            given = {"variogram": _fit_by_peer(used, line)}
            estimate[number] = leave_out_in_closed_form(
                "ordinary_kriging", given, used.stations, used.values[number : number + 1], parts
            )[0]
    except (HyperGridError, ValueError, np.linalg.LinAlgError) as error:
        return Comparison(PEER, "ordinary_kriging", None, None, str(error))
    note = f"under the linear variogram that PyKrige {pykrige.__version__} fits to each slice by itself"
    if len(chosen) < len(used.values):
        note += f", in {len(chosen)} slices at even distances"
    validation = assemble_validation(
        samples, (estimate, None), method="ordinary_kriging", given=(), by=by, in_closed_form=True
    )
    return Comparison(PEER, "ordinary_kriging", validation, None, notes=(note,))


def _fit_by_peer(samples: Samples, line: Floats) -> Variogram:
    """Fit the variogram of `pykrige.OrdinaryKriging(x, y, values)` to one slice."""
    present = np.isfinite(line)
    slope, nugget = 0.0, 0.0
    # It refuses equal values, which any variogram estimates.
    if np.ptp(line[present]) > 0:
        x, y, of_sphere = list_pykrige_coordinates(samples.positions_m[present])
        slope, nugget = pykrige.OrdinaryKriging(x, y, line[present], **of_sphere).variogram_model_parameters
        slope = slope / DEGREE_M if of_sphere else slope
    parameters = [slope, nugget if slope or nugget else 1.0]
    return from_pykrige({"variogram_model": "linear", "variogram_parameters": parameters})


def list_candidates(variogram: Variogram | None) -> Candidates:
    """List the default candidates; with a variogram, also every method that needs nothing else."""
    if variogram is None:
        return QUICK
    return {**QUICK, **{label: (name, {"variogram": variogram}) for label, name in _list_kriging().items()}}


def _list_kriging() -> dict[str, str]:
    """List the methods that need at most a variogram, by label."""
    return {
        row.name.replace("_", " "): row.name
        for row in METHODS.values()
        if any(item.name == "variogram" for item in row.parameters)
        and not any(item.required for item in row.parameters)
    }


def _sort_comparisons(comparisons: list[Comparison]) -> list[Comparison]:
    validated = [item.validation for item in comparisons if item.validation is not None]
    if not validated:
        return comparisons
    # Methods miss different values: a linear surface, for instance, ends at the hull of the stations.
    everywhere = np.all([np.isfinite(validation.estimate) for validation in validated], axis=0)
    shared = np.where(everywhere, validated[0].samples.values, np.nan)
    scored = [
        item
        if item.validation is None
        else replace(item, common=score(shared, item.validation.estimate, item.validation.variance))
        for item in comparisons
    ]
    return sorted(scored, key=_rank)


def _rank(item: Comparison) -> tuple[bool, float]:
    known = item.common is not None and np.isfinite(item.common.rmse)
    return not known, item.common.rmse if item.common is not None and known else 0.0
