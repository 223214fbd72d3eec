"""Interpolations of a chain: in space their grids, layers, stations, targets and fields, in time their values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings
from hypergrid.execution.operators.cells import Cells
from hypergrid.interpolation import Field, Stations, Targets, Variogram
from hypergrid.interpolation.methods.conditioning import conditioning_note, models_of
from hypergrid.interpolation.methods.in_time import KnownReadings, Ticks, estimate
from hypergrid.interpolation.methods.station_selection import PARAMETERS, treat_coincident
from hypergrid.interpolation.solvers.trend import ELEVATION, NETWORK_M, trend_of
from hypergrid.interpolation.variograms.variogram import check_validity
from hypergrid.interpolation.weight_cache import WEIGHTS, key_of
from hypergrid.perspective import Convert, Interpolate, InterpolateInTime, Merge, Perspective
from hypergrid.perspective.build.restrict import find_reading_instants_ns, find_standing_instants_ns
from hypergrid.perspective.build.station_projection import mask_in_reach, place_stations
from hypergrid.perspective.functions.user_function_calls import Fault
from hypergrid.topology import Grid, Metres, Points, Regular, SeriesAxis, TimeAxis

Floats = NDArray[np.float64]
Covariate = Callable[[str, Floats], Floats]
"""Maps the name of a layer and points (x, y) [degree or m], shape (points, 2), to its values, NaN where unknown."""


def stations_of(axis: SeriesAxis, used: NDArray[np.intp], metres: Metres, covariates: Mapping[str, Floats]) -> Stations:
    places = metres.project(np.stack([axis.x[used], axis.y[used]], axis=1))
    names = tuple(axis.series[i].station for i in used)
    return Stations(places, names, {name: values[used] for name, values in covariates.items()})


def covariates_of(axis: SeriesAxis, names: tuple[str, ...], at: Covariate) -> dict[str, Floats]:
    """Return the covariates of series by name, shape (series,), NaN where unknown.

    The elevation of a station is that of its deployment; without one, and for every other covariate, the layer at its
    position is used.
    """
    covariates = {}
    points = np.stack([axis.x, axis.y], axis=1)
    placed = np.isfinite(points).all(axis=1)
    for name in names:
        values = np.full(axis.count, np.nan)
        values[placed] = at(name, points[placed])
        if name == ELEVATION:
            values = np.where(np.isfinite(axis.elevation_m), axis.elevation_m, values)
        covariates[name] = values
    return covariates


@dataclass(frozen=True, eq=False)
class ReportingStations:
    """The stations that an interpolation uses, of those that its source has."""

    used: NDArray[np.intp]
    """Indices of their series, increasing."""
    stations: Stations
    network_m: Floats | None
    """If there is a trend: elevations of all stations that could report [m]."""
    metres: Metres
    placed_count: int
    """Number of stations that could report."""
    left_out: Mapping[str, tuple[str, ...]]
    """Stations that are not used, by what they lack; none without any."""
    notes: tuple[str, ...]
    """Notes on their places."""

    @property
    def heights_m(self) -> Floats | None:
        """Elevations of the used stations [m], if the interpolation needs them."""
        return self.stations.covariates.get(ELEVATION)


def select_stations(
    node: Perspective, operator: Interpolate, has_reports: NDArray[np.bool_], *, is_part: bool = False
) -> ReportingStations:
    """Select the stations that an interpolation uses: placed, near, reporting, and with all covariates.

    Parameters
    ----------
    node, operator
        The interpolation.
    has_reports
        Whether each series of its source reports, shape (series,).
    is_part
        Whether those that do not report are used, too, as they may outside of these slices.
    """
    axis = node.source.stations
    placing = place_stations(axis, operator)
    names = operator.covariates
    covariates = covariates_of(axis, names, make_layer_lookup(node, operator))
    known = np.ones(axis.count, dtype=bool)
    for covariate in covariates.values():
        known &= np.isfinite(covariate)
    lacking = {
        "without a position": placing.placed,
        "without a value in this time": has_reports | ~mask_reach(node),
        f"without {' or '.join(names)}": known | ~placing.near | ~has_reports,
    }
    left_out = {what: tuple(axis.series[i].station for i in np.flatnonzero(~kept)) for what, kept in lacking.items()}
    used = np.flatnonzero(placing.near & (has_reports | is_part) & known)
    network_m = covariates[ELEVATION][placing.near & known] if ELEVATION in covariates else None
    return ReportingStations(
        used,
        stations_of(axis, used, placing.metres, covariates),
        network_m,
        placing.metres,
        int((placing.near & known).sum()),
        {what: stations for what, stations in left_out.items() if stations},
        placing.notes,
    )


@dataclass(frozen=True, eq=False)
class PreparedInterpolation:
    """An interpolation that is ready to estimate."""

    field: Field
    merged_count: int
    """Number of stations merged into others at the same place."""
    notes: tuple[str, ...]


def prepare_interpolation(
    operator: Interpolate, stations: Stations, values: Floats, network_m: Floats | None = None
) -> PreparedInterpolation:
    """Prepare the field of values (slices, stations), with coincident stations treated as requested.

    Parameters
    ----------
    operator
        The interpolation.
    stations, values
        The reporting stations, and their values.
    network_m
        If there is a trend: elevations of all stations that could report [m], shape (could report,).

    Raises
    ------
    InvalidQuery, SingularSystem
        Stations that the method, or the step, rejects.
    """
    method_name, given = operator.method, operator.arguments
    used, values, notes = treat_coincident(method_name, stations, values, given)
    notes = (*filter(None, [given.get("because")]), *notes)
    model = given.get("variogram")
    if isinstance(model, Variogram):
        # Before anything is solved: an unsolvable system would suggest another remedy.
        notes += check_validity(method_name, model, used.positions_m)
    own = {name: value for name, value in given.items() if name not in {item.name for item in PARAMETERS}}
    if trend_of(given) is not None:
        own[NETWORK_M] = network_m
    try:
        field = operator.row.prepare(used, values, own)
    except Fault as fault:
        # Where a user's method failed while its trend was chosen is no cell.
        fault.at = None
        raise
    notes += field.notes
    models = models_of(field)
    if not isinstance(model, Variogram):
        # A fitted model is known only now.
        notes += tuple(
            dict.fromkeys(note for each in models for note in check_validity(method_name, each, used.positions_m))
        )
    if given.get("variance_of") == "noise-free":
        notes += _noise_notes(models)
    notes += conditioning_note(method_name, field)
    if used.count and not np.ptp(used.positions_m, axis=0).any():
        notes += ("all stations that are used are in one place: where the field is known it is the same everywhere",)
    return PreparedInterpolation(field, stations.count - used.count, notes)


def _noise_notes(models: tuple[Variogram, ...]) -> tuple[str, ...]:
    """Note that a noise-free variance was requested but there is no noise to omit."""
    if not models or any(model.noise > 0 for model in models):
        return ()
    why = (
        "the nugget is micro-scale, a part of the field; give the variogram nugget_is='measurement error' (also beside "
        "'fit') where it is the instruments' noise"
        if any(model.nugget > 0 for model in models)
        else "the variogram has no nugget"
    )
    return (f"variance_of='noise-free' changes nothing: {why}",)


def targets_of(
    node: Perspective, operator: Interpolate, metres: Metres, cells: NDArray[np.intp]
) -> tuple[Targets, NDArray[np.bool_]]:
    """Convert cells to targets, with the mask of the cells that became targets.

    Cells with unknown covariates do not become targets.

    Parameters
    ----------
    node, operator
        The interpolation. A block is a mean over `quadrature` by `quadrature` points (Gauss-Legendre), which on levels
        are all at the height of the cell's centre.
    metres
        Projection to metres.
    cells
        Flat cells of its grid or points, shape (cells,).
    """
    space, names, given = get_grid(node), operator.covariates, operator.arguments
    at = make_layer_lookup(node, operator)
    points = space.centres(cells)
    weights = np.ones(1)
    if given.get("support") == "block":
        nodes, shares = np.polynomial.legendre.leggauss(given.get("quadrature", 4))
        # Gauss-Legendre nodes lie in -1 to 1 and their weights add up to 2; cells have side 1 and weight 1.
        along = nodes / 2.0
        offsets = np.stack(np.meshgrid(along, along), axis=-1).reshape(-1, 2)
        weights = np.outer(shares, shares).ravel() / 4.0
        points = (points[:, None, :] + offsets * np.array(space.size)).reshape(-1, 2)
    parts, heights_m = len(weights), space.heights_m(cells)
    values = {name: at(name, points) for name in names if name != ELEVATION or heights_m is None}
    if ELEVATION in names and heights_m is not None:
        values[ELEVATION] = np.repeat(heights_m, parts)
    known = np.ones(len(cells), dtype=bool)
    for covariate in values.values():
        known &= np.isfinite(covariate).reshape(-1, parts).all(axis=1)
    if not known.all():
        kept = np.repeat(known, parts)
        points = points[kept]
        values = {name: covariate[kept] for name, covariate in values.items()}
    # Projecting 40,000 cells takes 25 ms, as long as the rest of updating a surface.
    places_m = points
    if not metres.is_given:
        places_m = WEIGHTS.get(key_of("metres", metres.description, points), lambda: metres.project(points))
    return Targets(places_m, values, weights), known


def is_by_slice(operator: Interpolate) -> bool:
    """Return whether the field of some slices is that of all, cut to these slices."""
    # Nothing may be fitted to all slices, and no note may be about all of them.
    given = operator.arguments
    fixed = isinstance(given.get("variogram"), Variogram) or not operator.row.has_variance
    return fixed and given.get("trend") is None and given.get("radius_m") is None


def field_key(node: Perspective, operator: Interpolate) -> str:
    return node.source.token + repr(operator.content())


def note_prefix(node: Perspective) -> str:
    """Return the prefix of an interpolation's notes, which distinguishes the parts of a recipe."""
    if isinstance(node.operator, Merge):
        return f"{node.operator.function}: "
    return f"{node.operator.calls[-1].name}: " if isinstance(node.operator, Convert) else ""


def get_grid(node: Perspective) -> Grid | Points:
    if not isinstance(node.topology.space, Grid | Points):
        raise TypeError("an interpolation has a grid, or points")
    return node.topology.space


def mask_reach(node: Perspective) -> NDArray[np.bool_]:
    """Mask the stations that may affect an interpolation, shape (series,)."""
    if not isinstance(node.operator, Interpolate):
        raise TypeError(f"{node.operator.describe()} is no interpolation")
    return mask_in_reach(node.source.stations, get_grid(node), node.operator)


def make_layer_lookup(node: Perspective, operator: Interpolate) -> Covariate:
    """Return the layer lookup of the base source; layers that the operator lacks are NaN."""
    source, layers = node.bases[0].source, dict(operator.layers)

    def at(name: str, points: NDArray[np.float64]) -> NDArray[np.float64]:
        return source.layer(name).sample(points) if name in layers else np.full(len(points), np.nan)

    return at


def count_stations_used(field: Field, targets: Targets) -> NDArray[np.int64]:
    """Return the stations used, shape (slices, 1), or (slices, targets) if counted by target."""
    counts = field.counts[:, None] if field.counts_are_even else field.counts_at(targets)
    return counts.astype(np.int64)


# Shared by the boxes of one interpolation: the network with its systems, and the requested places.
#
# A run has few of either, whatever the time cells of its boxes; the first box makes them, the others only add values.

PlacedTargets = tuple[Targets, NDArray[np.bool_]]
"""Targets, and the mask of the cells that they come from."""


@dataclass(frozen=True, eq=False)
class FieldNetwork:
    """The stations of an interpolation, ready for the values of any slices."""

    field: Field
    """A field of some slices."""
    used: NDArray[np.intp]
    """Indices of the series that are its stations."""
    metres: Metres
    stations: int
    """Number of stations that an estimate may use."""


class FieldCache:
    """Caches networks by field key, and the last targets by perspective."""

    def __init__(self) -> None:
        self._networks: dict[str, FieldNetwork] = {}
        self._targets: dict[str, tuple[NDArray[np.intp], str, PlacedTargets]] = {}

    def keep(self, key: str, network: FieldNetwork) -> None:
        """Cache a network that is complete and has one station per series."""
        self._networks[key] = network

    def get_field(self, key: str, values: NDArray[np.float64]) -> tuple[Field, Metres, int] | None:
        """Return the field of values (slices, series), plane and station count; None if not cached."""
        network = self._networks.get(key)
        field = None if network is None else network.field.replace_values(values[:, network.used])
        return None if network is None or field is None else (field, network.metres, network.stations)

    def get_targets(
        self, key: str, cells: NDArray[np.intp], metres: Metres, make: Callable[[], PlacedTargets]
    ) -> PlacedTargets:
        """Return cells as targets, cached if they equal those of the last call."""
        last = self._targets.get(key)
        if last is None or last[1] != metres.description or not np.array_equal(last[0], cells):
            last = cells, metres.description, make()
            self._targets[key] = last
        return last[2]


def order_readings(readings: Readings, series: int) -> KnownReadings:
    """Place readings, ordered by series and time, at the instants that they represent."""
    return KnownReadings.of(readings.index, find_reading_instants_ns(readings), readings.value, series=series)


def order_cells(cells: Cells, time: TimeAxis) -> KnownReadings:
    """Place the values of time cells, shape (time, series), in the middle of their cells."""
    count, series = cells.value.shape
    index = np.repeat(np.arange(series, dtype=np.int32), count)
    instants_ns = np.tile(find_standing_instants_ns(time), series)
    return KnownReadings.of(index, instants_ns, cells.value.T.ravel(), series=series)


def interpolate_at_instants(
    known: KnownReadings,
    operator: InterpolateInTime,
    target: Regular,
    axis: SeriesAxis,
    times: NDArray[np.intp] | None = None,
) -> Cells:
    """Interpolate each series at each instant, or at the instants numbered `times`.

    The count is the number of readings used; possible is one at the instant of a reading, else the most that the method
    uses.
    """
    span = target if times is None else target.part(int(times[0]), int(times[-1]) + 1)
    ticks = Ticks(span.origin, span.step, span.count)
    value, count = estimate(operator.row.estimate, known, ticks, operator.gaps_ns(axis))
    if times is not None and len(times) < span.count:
        value, count = value[times - times[0]], count[times - times[0]]
    return Cells(value, count, np.where(count == 1, 1, operator.row.max_readings))
