"""Second opinion: random cells of a surface recomputed by PyKrige, a kriging by other authors, and compared.

PyKrige gets what the run used: values at the stations, positions, variogram, and drift. It solves each slice by itself;
converts, merges and aggregates over time are then evaluated on its estimates. Neither the solvers here nor their
shortcuts (one system for all slices, means before the interpolation, cached weights) take part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.lazy_libraries import pykrige, xr
from hypergrid.core.pacing import give_way
from hypergrid.core.result_names import value_of
from hypergrid.core.times import format_instant
from hypergrid.core.units import to_cf
from hypergrid.execution.operators.cells import Cells, mask_uncovered
from hypergrid.execution.operators.elementwise import convert_values, locate_values, merge_sources
from hypergrid.execution.operators.grids import count_possible_slices
from hypergrid.execution.operators.interpolations import get_grid
from hypergrid.execution.planning.dependencies import find_covered_cells, recurred
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.interpolation import Field, Stations, Targets
from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.methods.conditioning import assess_conditioning
from hypergrid.interpolation.methods.detrended import DetrendedField
from hypergrid.interpolation.methods.fitted_variogram import SliceFields
from hypergrid.interpolation.methods.kriging_methods import EmptyField
from hypergrid.interpolation.points import COINCIDENT_M, are_on_sphere, group_masks
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.variograms.interop import DEGREE_M, list_pykrige_coordinates, to_pykrige
from hypergrid.perspective import Aggregate, Convert, Interpolate, Merge, Perspective, Recur, Surface
from hypergrid.rewrite import rewrite
from hypergrid.topology import Instants, changes_cells

Floats = NDArray[np.float64]
Numbers = NDArray[np.intp]

ATTRIBUTE: Final = "hypergrid_second_opinion"
"""Attribute of a result that holds the opinion as JSON."""
ROUNDING: Final = 1e-10
"""Greatest difference of two correct solvers, relative to the values' size."""
# Beyond it any solver loses digits in proportion.
WELL_CONDITIONED: Final = 1e4
"""Condition number of a system up to which `ROUNDING` holds; a greater one allows proportionally more."""
MAX_CELLS: Final = 10_000
"""Maximum cells of an opinion."""
MAX_S: Final = 120.0
"""Maximum projected time of one [s]."""
SLICE_S: Final = 1e-3
CUBE_S: Final = 1e-9
WINDOW_S: Final = 2e-4
"""Measured times of PyKrige for a slice, for each station cubed, and for each cell of a moving window [s]."""
TIED: Final = 1e-9
"""Relative difference of two distances below which either station may be the last neighbour."""
MEANS: Final[dict[str, Callable[..., Floats]]] = {
    "mean": np.nanmean, "sum": np.nansum, "min": np.nanmin, "max": np.nanmax,
}  # fmt: skip
"""Aggregates over time that are evaluated here, by name."""


class _Incomparable(Exception):
    """What PyKrige cannot recompute; its text completes "no second opinion: "."""


@dataclass(frozen=True)
class CellComparison:
    """Cells of the surface, or of an interpolation below it, compared with PyKrige's."""

    subject: str
    """The interpolation; empty for the surface."""
    cells: int
    """Number of compared cells."""
    total: int
    """Number of all cells."""
    differing: int
    """Number of cells that differ by more than rounding, or are missing in one of the two only."""
    greatest: float
    """Greatest absolute difference [unit]."""
    size: float
    """Greatest absolute value by PyKrige, in the compared cells and the slices that they were made of [unit]."""
    allowed: float
    """Greatest difference relative to `size` that counts as rounding."""
    unit: str
    worst: str
    """The cell that differs most, with both values; empty if none differs."""
    missing: int
    """Number of compared cells that are missing in both."""
    tied: int
    """Number of cells left out, because stations at equal distances compete to be the last neighbour."""

    @property
    def relative(self) -> float:
        """Greatest difference relative to the values' size."""
        return self.greatest / self.size if self.size else self.greatest

    def describe(self) -> str:
        """Describe the comparison in one sentence."""
        of = f" of {self.subject} (not of the surface)" if self.subject else ""
        left_out = f", without {self.tied:,} between stations at equal distances" if self.tied else ""
        compared = f"{self.cells:,} of {self.total:,} cells{of}{left_out}"
        if self.cells == self.missing:
            return f"{compared} were recomputed, which are all missing in both"
        number = f"{self.greatest:.3g} {self.unit}".strip()
        if not self.differing:
            beyond = f", {self.allowed:.0e} is rounding in ill-conditioned systems" if self.allowed > ROUNDING else ""
            return f"{compared} agree, greatest difference {number} ({self.relative:.1g} of the values' size{beyond})"
        return f"{compared} were recomputed, {self.differing:,} DIFFER, greatest difference {number}: {self.worst}"


@dataclass(frozen=True)
class SecondOpinion:
    """What PyKrige makes of a result."""

    comparisons: tuple[CellComparison, ...]
    """Of the surface; or, if its cells cannot be recomputed, of each interpolation that can."""
    reasons: tuple[str, ...]
    """Why there is none, or none of the surface."""
    peer: str
    """Name and version of the other package."""
    seed: int
    """Seed of the choice of cells."""

    @property
    def agrees(self) -> bool:
        """Whether something was compared, and nothing differs by more than rounding."""
        return any(item.cells > item.missing for item in self.comparisons) and not self.differs

    @property
    def differs(self) -> bool:
        """Whether anything differs by more than rounding."""
        return any(item.differing for item in self.comparisons)

    def describe(self) -> str:
        """Describe the opinion in one sentence, for the notes of a result."""
        reasons = "".join(f" ({reason})" for reason in self.reasons)
        if not self.comparisons:
            return f"no second opinion by {self.peer}{reasons}"
        return (
            f"second opinion by {self.peer}: {', and '.join(map(CellComparison.describe, self.comparisons))}{reasons}"
        )

    def to_json(self) -> dict[str, Any]:
        comparisons = [{**asdict(item), "relative": item.relative} for item in self.comparisons]
        return {
            "agrees": self.agrees, "differs": self.differs, "sentence": self.describe(), "peer": self.peer,
            "seed": self.seed, "comparisons": comparisons, "reasons": list(self.reasons),
        }  # fmt: skip

    def note_in(self, dataset: xr.Dataset) -> xr.Dataset:
        """Return a dataset with the opinion in its attributes: as JSON, and as the last note of `comment`."""
        comment = "; ".join(filter(None, [dataset.attrs.get("comment", ""), self.describe()]))
        return dataset.assign_attrs({ATTRIBUTE: json.dumps(self.to_json()), "comment": comment})


def check_cells(cells: object) -> int:
    """Return a number of cells for `ask_second_opinion`.

    Raises
    ------
    InvalidQuery
        Not a whole number from 1 to `MAX_CELLS`.
    """
    if not isinstance(cells, int | np.integer) or isinstance(cells, bool) or not 1 <= cells <= MAX_CELLS:
        raise InvalidQuery(
            f"second_opinion needs the number of cells to recompute, from 1 to {MAX_CELLS:,}; got {cells!r}"
        )
    return int(cells)


def ask_second_opinion(
    surface: Surface, result: xr.Dataset, *, cells: int = 50, seed: int = 0, allowed_s: float = MAX_S
) -> SecondOpinion:
    """Recompute random cells of a result by PyKrige, and compare.

    Parameters
    ----------
    surface
        The surface of its query.
    result
        Its dataset, possibly opened lazily; only the chosen cells are read.
    cells
        Number of cells, in space and time; all if the surface has fewer.
    seed
        Seed of the choice.
    allowed_s
        Projected time above which there is no opinion [s].

    Raises
    ------
    InvalidQuery
        `cells` is not such a number, or the result has other cells than the surface.
    """
    cells = check_cells(cells)
    last = rewrite(surface).surface.perspective
    array = value_of(result)
    if array.shape != last.topology.shape:
        raise InvalidQuery(
            f"a second opinion needs the result of the query, of shape {last.topology.shape}; got {array.shape}"
        )

    def hold(picks: Numbers) -> Floats:
        places = np.unravel_index(picks, array.shape)
        chosen = {dim: xr.DataArray(at, dims="pick") for dim, at in zip(array.dims, places, strict=True)}
        return array.isel(chosen).to_numpy().astype(np.float64)

    return _form_opinion(last, hold, cells, seed, PeerKriging(allowed_s))


def _form_opinion(
    last: Perspective, hold: Callable[[Numbers], Floats], cells: int, seed: int, peer: PeerKriging
) -> SecondOpinion:
    steps = [item for item in last.list_chain() if isinstance(item.operator, Interpolate)]
    comparisons, reasons = list[CellComparison](), list[str]()
    if not steps:
        reasons.append("the query interpolates nothing in space")
    else:
        try:
            comparisons.append(_compare(last, hold, peer, cells, seed, subject=""))
        except _Incomparable as reason:
            reasons.append(str(reason))
    for step in steps if not comparisons and last not in steps else ():
        try:
            held = _compute_held(peer.evaluator, step)
            comparisons.append(_compare(step, held, peer, cells, seed, subject=step.operator.describe()))
        except _Incomparable as reason:
            reasons.append(str(reason))
    name = f"PyKrige {pykrige.__version__}" if comparisons else "PyKrige"
    return SecondOpinion(tuple(comparisons), tuple(dict.fromkeys(reasons)), name, seed)


def _compute_held(evaluator: Evaluator, step: Perspective) -> Callable[[Numbers], Floats]:
    """Return a function that computes chosen cells of an interpolation as a run does."""

    def hold(picks: Numbers) -> Floats:
        times, places = np.divmod(picks, step.topology.space.count)
        values = np.empty(len(picks))
        for time in np.unique(times):
            at = times == time
            values[at] = evaluator.block(step, places[at], np.array([time])).value[0]
        return values

    return hold


def _compare(
    node: Perspective, hold: Callable[[Numbers], Floats], peer: PeerKriging, cells: int, seed: int, *, subject: str
) -> CellComparison:
    """Compare random cells of a perspective with PyKrige's."""
    total, columns = node.topology.count, node.topology.space.count
    picks = np.sort(np.random.default_rng(seed).choice(total, min(cells, total), replace=False))
    times, places = np.divmod(picks, columns)
    theirs = np.empty(len(picks))
    peer.start()
    # PyKrige solves a slice at a time: a cell needs the slices of its own time only.
    for time in np.unique(times):
        at = times == time
        theirs[at] = peer.compute(node, places[at], np.array([time]))[0]
    free = ~np.isin(places, sorted(peer.tied))
    picks, ours, theirs = picks[free], hold(picks[free]), theirs[free]
    both = np.isfinite(ours) & np.isfinite(theirs)
    gap = np.abs(np.where(both, ours, 0.0) - np.where(both, theirs, 0.0))
    # Not of the result, where one wrong value would excuse others.
    size = float(np.nanmax(np.abs(theirs), initial=peer.size))
    allowed = ROUNDING * max(peer.condition / WELL_CONDITIONED, 1.0)
    alone = ~both & ~(np.isnan(ours) & np.isnan(theirs))
    differs = alone | (gap > allowed * size)
    worst = ""
    if differs.any():
        number = int(np.argmax(np.where(alone, np.inf, gap)))
        time, cell = divmod(int(picks[number]), columns)
        x, y = get_grid(node).centres(np.array([cell]))[0]
        names = ("lon", "lat") if get_grid(node).system == "lonlat" else ("x", "y")
        when = format_instant(int(node.topology.time.corners[time]))
        where = f"{when}, {names[0]} {x:.10g}, {names[1]} {y:.10g}"
        worst = f"{ours[number]:.8g} where PyKrige has {theirs[number]:.8g}, at {where}"
    return CellComparison(
        subject, len(picks), total, int(differs.sum()), float(gap.max(initial=0.0)), size, allowed,
        to_cf(node.unit), worst, int((np.isnan(ours) & np.isnan(theirs)).sum()), int((~free).sum()),
    )  # fmt: skip


class PeerKriging:
    """Perspectives computed from PyKrige's estimates."""

    def __init__(self, allowed_s: float) -> None:
        self._allowed_s = allowed_s
        self.evaluator = Evaluator()
        """Computes the values at the stations."""
        self._solvers: dict[tuple[bytes, bytes, bool], Any] = {}
        self.start()

    def start(self) -> None:
        """Reset what is collected for a comparison."""
        self.size, self.condition, self._projected_s = 0.0, 1.0, 0.0
        self.tied: set[int] = set()
        """Places whose last neighbour is one of several at equal distances."""

    def compute(self, node: Perspective, places: Numbers, times: Numbers) -> Floats:
        """Compute some time cells of some places, shape (times, places), NaN where missing.

        Raises
        ------
        _Incomparable
            A step that PyKrige lacks, or that is not evaluated here.
        """
        operator = node.operator
        if isinstance(operator, Interpolate):
            return self._interpolate(node, operator, places, times)
        if isinstance(operator, Aggregate):
            return self._aggregate(node, operator, places, times)
        if isinstance(operator, Recur):
            needed, numbers = recurred(node, times)
            return self.compute(node.source, places, needed)[numbers]
        values = [self.compute(source, places, times) for source in node.sources]
        if isinstance(operator, Convert):
            placed = any(row.placed for row in operator.list_rows())
            where = locate_values(node, places)[0].select_times(times) if placed else None
            return convert_values(operator, values[0], where)
        if not isinstance(operator, Merge):
            raise _Incomparable(f"the surface comes from {operator.describe()}, which interpolates nothing in space")
        single = np.ones((1, 1), dtype=np.int64)
        return merge_sources(node, operator, [Cells(part, single, single) for part in values]).value

    def _aggregate(self, node: Perspective, operator: Aggregate, places: Numbers, times: Numbers) -> Floats:
        """Aggregate over time, by numpy's own functions."""
        source, time = node.source.topology, node.topology.time
        function = MEANS.get(operator.function)
        if function is None or changes_cells(source.space, node.topology.space) or isinstance(time, Instants):
            raise _Incomparable(
                f"{operator.describe_call()} over {', '.join(operator.dimensions)} is not evaluated by the second "
                f"opinion, only {', '.join(MEANS)} over time"
            )
        needed, cover = find_covered_cells(source.time, time, operator, times)
        values = self.compute(node.source, places, needed)
        possible = count_possible_slices(source.time, time)
        result = np.full((len(times), len(places)), np.nan)
        for row, cell in enumerate(times):
            listed = np.arange(cover.first[row], cover.stop[row])
            members = values[listed if cover.members is None else cover.members[listed]]
            count = np.isfinite(members).sum(axis=0)
            known = count > 0
            result[row, known] = function(members[:, known], axis=0)
            most_possible = possible[cell if len(possible) > 1 else 0, 0]
            result[row] = mask_uncovered(result[row], count, most_possible, operator.min_coverage)
        return result

    def _interpolate(self, node: Perspective, operator: Interpolate, places: Numbers, times: Numbers) -> Floats:
        field, targets, known = self.evaluator.get_interpolation(node, operator, places)
        result = np.full((len(times), len(places)), np.nan)
        if isinstance(field, EmptyField):
            return result
        by_slice = isinstance(field, SliceFields)
        rows: Iterable[tuple[Field, Numbers]] = (
            ((field.inner_fields[time], np.array([row])) for row, time in enumerate(times))
            if by_slice
            else [(field.take_slices(times), np.arange(len(times)))]
        )
        for part, numbers in rows:
            kriging = _check_field(operator, part, targets)
            result[np.ix_(numbers, np.flatnonzero(known))] = self._krige(kriging, targets, places[known])
        self.size = float(np.nanmax(np.abs(result), initial=self.size))
        return result

    def _krige(self, field: KrigingField | LocalField, targets: Targets, places: Numbers) -> Floats:
        """Krige every slice of a field by itself, shape (slices, targets)."""
        condition = assess_conditioning(field)
        self.condition = max(self.condition, 1.0 if condition is None else condition.number)
        values, stations = field.values, field.system.stations
        self._check_work(field, targets, len(values))
        result = np.full((len(values), targets.count), np.nan)
        for mask, slices in group_masks(np.isfinite(values)):
            present = np.flatnonzero(mask)
            if len(present) < 2:
                # PyKrige needs two stations; the weight of a single one is 1.
                result[slices] = values[np.ix_(slices, present)] if len(present) else np.nan
                continue
            neighbours = None
            if isinstance(field, LocalField):
                neighbours = min(field.selection.neighbours, len(present))
                if neighbours < len(present):
                    self._note_ties(field, present, targets, places, neighbours)
            points, options = _list_options(field, targets, stations, neighbours)
            for number in slices.tolist():
                give_way()
                try:
                    solver = self._get_solver(field, mask, values[number, present], exact=targets.parts == 1)
                    # The weights depend on the places only; a new object would compute statistics of its own first.
                    solver.Z = values[number, present]
                    estimate, _ = solver.execute("points", *points, **options)
                except (np.linalg.LinAlgError, ValueError) as error:
                    raise _Incomparable(
                        f"PyKrige cannot solve the system of {len(present)} stations: {error}"
                    ) from error
                result[number] = targets.mean(np.asarray(estimate, dtype=np.float64))
        return result

    def _check_work(self, field: KrigingField | LocalField, targets: Targets, slices: int) -> None:
        stations = field.system.stations.count
        window_s = WINDOW_S * targets.count if isinstance(field, LocalField) else CUBE_S * stations**3
        self._projected_s += slices * (SLICE_S + window_s)
        if field.system.drift.drift.count_coefficients() > 1:
            # Its universal kriging solves a growing system of each station first.
            self._projected_s += CUBE_S * stations**4 / 6.0
        if self._projected_s > self._allowed_s:
            raise _Incomparable(
                f"PyKrige solves each slice by itself, and {slices:,} slices of {stations:,} stations would take it "
                f"more than {self._allowed_s:.0f} s: give fewer cells, or clip the query to a shorter time"
            )

    def _note_ties(
        self, field: LocalField, present: Numbers, targets: Targets, places: Numbers, neighbours: int
    ) -> None:
        model, stations = field.system.model, field.system.stations
        from_m, to_m = model.isotropic(targets.positions_m), model.isotropic(stations.positions_m[present])
        distance = np.sort(np.linalg.norm(from_m[:, None] - to_m, axis=-1), axis=1)
        last, next_ = distance[:, neighbours - 1], distance[:, neighbours]
        self.tied.update(places[next_ - last <= TIED * next_].tolist())

    def _get_solver(
        self, field: KrigingField | LocalField, mask: NDArray[np.bool_], line: Floats, *, exact: bool
    ) -> Any:  # noqa: ANN401 - PyKrige has no types
        """Return PyKrige's solver for the stations that report."""
        key = (field.system.key, mask.tobytes(), exact)
        if key not in self._solvers:
            system = field.system
            stations, drift = system.stations.take_stations(np.flatnonzero(mask)), system.drift.drift
            keywords = to_pykrige(system.model)
            # A mean over a cell is no reading, even where one of its points is a station.
            keywords["exact_values"] = keywords["exact_values"] and exact
            x, y, of_sphere = list_pykrige_coordinates(stations.positions_m)
            if of_sphere:
                keywords |= of_sphere | {
                    "variogram_model": "custom", "variogram_parameters": [],
                    "variogram_function": lambda _, degree: system.model.semivariance(degree * DEGREE_M),
                }  # fmt: skip
            kind = pykrige.OrdinaryKriging
            if columns := _list_drift_columns(drift, stations, system.stations):
                kind = pykrige.UniversalKriging
                keywords |= {"drift_terms": ["specified"], "specified_drift": columns}
            self._solvers[key] = kind(x, y, line, **keywords)
            # By default places within 1e-10 coincide, closer than projected longitudes and latitudes are exact.
            self._solvers[key].eps = COINCIDENT_M / DEGREE_M if of_sphere else COINCIDENT_M
        return self._solvers[key]


def _check_field(operator: Interpolate, field: Field, targets: Targets) -> KrigingField | LocalField:
    """Return a field that PyKrige can recompute.

    Raises
    ------
    _Incomparable
        It cannot, and why.
    """
    method = operator.method
    if isinstance(field, DetrendedField):
        raise _Incomparable(
            f"{method} has a trend that is fitted before the kriging, which PyKrige does not do; "
            "external_drift_kriging can be compared"
        )
    if not isinstance(field, KrigingField | LocalField):
        raise _Incomparable(f"{method} is no kriging, and PyKrige has nothing else")
    drift = field.system.drift.drift
    if drift.mean is not None:
        raise _Incomparable(f"{method} knows the mean, and PyKrige always estimates it")
    if drift.count_coefficients() > 1 and are_on_sphere(targets.positions_m):
        raise _Incomparable(f"{method} has a drift on the sphere, and PyKrige's universal kriging needs a plane")
    if isinstance(field, LocalField):
        if drift.count_coefficients() > 1:
            raise _Incomparable(f"{method} uses neighbours, and PyKrige's universal kriging has only all stations")
        selection = field.selection
        if selection.radius_m is not None or selection.octants is not None:
            raise _Incomparable(f"{method} uses a radius or octants, and PyKrige only selects a number of neighbours")
        if selection.neighbours < 2:
            raise _Incomparable(f"{method} uses one neighbour, and PyKrige needs at least two")
        if targets.parts > 1:
            raise _Incomparable(f"{method} averages over cells, and PyKrige has its neighbours around a point")
    return field


def _list_options(
    field: KrigingField | LocalField, targets: Targets, stations: Stations, neighbours: int | None
) -> tuple[tuple[Floats, Floats], dict[str, Any]]:
    """List points and options of PyKrige's `execute`."""
    options: dict[str, Any] = {"backend": "vectorized"}
    if neighbours is not None:
        options = {"backend": "loop", "n_closest_points": neighbours}
    if columns := _list_drift_columns(field.system.drift.drift, targets, stations):
        options["specified_drift_arrays"] = columns
    return list_pykrige_coordinates(targets.positions_m)[:2], options


def _list_drift_columns(drift: Drift, places: Stations | Targets, stations: Stations) -> list[Floats]:
    """List the drift functions beside the constant, centred and scaled by all stations, shape (places,) each."""
    pairs = [(places.positions_m[:, i], stations.positions_m[:, i]) for i in range(2 if drift.degree else 0)]
    pairs += [(places.covariates[name], stations.covariates[name]) for name in drift.covariates]
    columns = [(values - known.mean()) / (np.ptp(known) or 1.0) for values, known in pairs]
    if drift.degree == 2:
        x, y = columns[:2]
        columns += [x * x, x * y, y * y]
    return columns
