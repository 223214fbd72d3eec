"""What is known of an interpolation from its perspective alone: its grid, its layers, what its field depends on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation import Field, Stations, Targets, Variogram
from hypergrid.interpolation.methods.conditioning import conditioning_note, models_of
from hypergrid.interpolation.methods.station_selection import PARAMETERS, replace_values, treat_coincident
from hypergrid.interpolation.solvers.trend import ELEVATION, NETWORK_M, trend_of
from hypergrid.interpolation.variograms.variogram import check_validity
from hypergrid.interpolation.weight_cache import WEIGHTS, key_of
from hypergrid.perspective import Base, Convert, Interpolate, Merge, Perspective
from hypergrid.perspective.build.station_projection import mask_in_reach
from hypergrid.topology import Grid, Metres, Points, SeriesAxis

Floats = NDArray[np.float64]
Covariate = Callable[[str, Floats], Floats]
"""Name of a layer and points (x, y) [degree or m], shape (points, 2), to its values there, NaN where unknown."""


def stations_of(axis: SeriesAxis, used: NDArray[np.intp], metres: Metres, covariates: Mapping[str, Floats]) -> Stations:
    """Return some series as the stations of an interpolation."""
    places = metres.project(np.stack([axis.x[used], axis.y[used]], axis=1))
    names = tuple(axis.series[i].station for i in used)
    return Stations(places, names, {name: values[used] for name, values in covariates.items()})


def covariates_of(axis: SeriesAxis, names: tuple[str, ...], at: Covariate) -> dict[str, Floats]:
    """Return covariates of series by name, shape (series,), NaN where unknown.

    The elevation of a station is the one that its deployment gives; where it gives none, and for everything else, the
    layer at its position counts.
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
class PreparedInterpolation:
    """An interpolation that is ready to be asked."""

    field: Field
    merged_count: int
    """How many stations fewer there are because some are one with others."""
    notes: tuple[str, ...]


def prepare_interpolation(
    operator: Interpolate, stations: Stations, values: Floats, network_m: Floats | None = None
) -> PreparedInterpolation:
    """Return the field of values (slices, stations), what is in one place treated as the step asks.

    Parameters
    ----------
    operator
        The interpolation.
    stations, values
        Those that report, and what.
    network_m
        Where there is a trend, the elevations of all stations that could report [m], shape (could report,).

    Raises
    ------
    InvalidQuery, SingularSystem
        Stations that the method, or the step, refuses.
    """
    method_name, given = operator.method, operator.arguments
    used, values, notes = treat_coincident(method_name, stations, values, given)
    model = given.get("variogram")
    if isinstance(model, Variogram):
        # Before anything is solved: the remedy of a system that cannot be is another one.
        notes += check_validity(method_name, model, used.positions_m)
    own = {name: value for name, value in given.items() if name not in {item.name for item in PARAMETERS}}
    if trend_of(given) is not None:
        own[NETWORK_M] = network_m
    field = operator.row.prepare(used, values, own)
    notes += tuple(getattr(field, "notes", ()))
    models = models_of(field)
    if not isinstance(model, Variogram):
        # What was fitted is known only now.
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
    """Return a note where a noise-free variance was asked for and there is no noise to leave out."""
    if not models or any(model.nugget > 0 and model.nugget_is == "measurement error" for model in models):
        return ()
    why = (
        "the nugget is micro-scale, a part of the field; give the variogram nugget_is='measurement error' (also beside "
        "'fit') where it is the instruments' noise"
        if any(model.nugget > 0 for model in models)
        else "the variogram has no nugget"
    )
    return (f"variance_of='noise-free' changes nothing: {why}",)


def targets_of(
    space: Grid | Points,
    cells: NDArray[np.intp],
    metres: Metres,
    names: tuple[str, ...],
    at: Covariate,
    given: Mapping[str, Any],
) -> tuple[Targets, NDArray[np.bool_]]:
    """Return cells as the targets of an interpolation, and which of the cells they are.

    A cell whose covariates are not known is no target.

    Parameters
    ----------
    space, cells
        The grid, or points, and flat cells of it, shape (cells,).
    metres, at
        Positions to metres, and layers.
    names
        Covariates that targets need.
    given
        The method's parameters: a block is a mean over `quadrature` by `quadrature` points (Gauss-Legendre), on levels
        all at the height of the cell's centre.
    """
    points = space.centres(cells)
    weights = np.ones(1)
    if given.get("support") == "block":
        nodes, shares = np.polynomial.legendre.leggauss(given.get("quadrature", 4))
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
    # Projecting 40,000 cells takes 25 ms, as long as all else of a surface that is brought up to date.
    places_m = points
    if not metres.is_given:
        places_m = WEIGHTS.get(key_of("metres", metres.description, points), lambda: metres.project(points))
    return Targets(places_m, values, weights), known


def is_by_slice(operator: Interpolate) -> bool:
    """Return whether a field of some slices is that of all, cut: nothing is fitted to them, or said of all of them."""
    given = operator.arguments
    fixed = isinstance(given.get("variogram"), Variogram) or not operator.row.has_variance
    return fixed and given.get("trend") is None and given.get("radius_m") is None


def field_key(node: Perspective, operator: Interpolate) -> str:
    """Return what a field depends on."""
    return node.source.token + repr(operator.content())


def note_prefix(node: Perspective) -> str:
    """Return what begins a note of an interpolation, so that the parts of a recipe are told apart."""
    if isinstance(node.operator, Merge):
        return f"{node.operator.function}: "
    return f"{node.operator.calls[-1].name}: " if isinstance(node.operator, Convert) else ""


def get_grid(node: Perspective) -> Grid | Points:
    """Return the grid, or the points, that an interpolation is on."""
    if not isinstance(node.topology.space, Grid | Points):
        message = "an interpolation has a grid, or points"
        raise TypeError(message)
    return node.topology.space


def mask_reach(node: Perspective) -> NDArray[np.bool_]:
    """Return which stations may have a say in an interpolation, shape (series,)."""
    axis = node.source.topology.space
    if not isinstance(axis, SeriesAxis) or not isinstance(node.operator, Interpolate):
        message = "an interpolation starts from stations"
        raise TypeError(message)
    return mask_in_reach(axis, get_grid(node), node.operator)


def make_layer_lookup(node: Perspective) -> Covariate:
    """Return what looks up the layers of an interpolation where its readings come from; others are known nowhere."""
    base, operator = node.list_bases()[0].operator, node.operator

    def at(name: str, points: NDArray[np.float64]) -> NDArray[np.float64]:
        if not isinstance(base, Base) or not isinstance(operator, Interpolate):
            message = "an interpolation is of what a base has a source of"
            raise TypeError(message)
        return base.source.layer(name).sample(points) if name in dict(operator.layers) else np.full(len(points), np.nan)

    return at


def count_stations_used(field: Field, targets: Targets) -> NDArray[np.int64]:
    """Return the stations used, shape (slices, 1), or (slices, targets) where a method says so by target."""
    by_target = None if getattr(field, "counts_are_even", False) else getattr(field, "counts_at", None)
    return (field.counts[:, None] if by_target is None else by_target(targets)).astype(np.int64)


# What the boxes of one interpolation share: the network with its systems, and the places that are asked for in turn.
#
# Of both a run has a few, whichever time cells its boxes have; the first box makes them, the others only bring values.

PlacedTargets = tuple[Targets, NDArray[np.bool_]]
"""Targets, and which of the cells they are."""


@dataclass(frozen=True, eq=False)
class FieldNetwork:
    """The stations of an interpolation, ready for values of any slices."""

    field: Field
    """Of some slices."""
    used: NDArray[np.intp]
    """Which series are its stations."""
    metres: Metres
    stations: int
    """How many an estimate may use."""


class FieldCache:
    """By key of a field: its network, and the targets that were last asked for."""

    def __init__(self) -> None:
        self._networks: dict[str, FieldNetwork] = {}
        self._targets: dict[str, tuple[NDArray[np.intp], str, PlacedTargets]] = {}

    def keep(self, key: str, network: FieldNetwork) -> None:
        """Keep a network whose stations are the series themselves, one each, and all that it will ever have."""
        self._networks[key] = network

    def get_field(self, key: str, values: NDArray[np.float64]) -> tuple[Field, Metres, int] | None:
        """Return the field of values (slices, series), its plane and its stations; None where it must be prepared."""
        network = self._networks.get(key)
        field = None if network is None else replace_values(network.field, values[:, network.used])
        return None if network is None or field is None else (field, network.metres, network.stations)

    def get_targets(
        self, key: str, cells: NDArray[np.intp], metres: Metres, make: Callable[[], PlacedTargets]
    ) -> PlacedTargets:
        """Return cells as targets, made where they are not those that were asked for last."""
        last = self._targets.get(key)
        if last is None or last[1] != metres.description or not np.array_equal(last[0], cells):
            last = cells, metres.description, make()
            self._targets[key] = last
        return last[2]
