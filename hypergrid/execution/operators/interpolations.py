"""What is known of an interpolation from its perspective alone: its grid, its layers, what its field depends on."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.operators.interpolation_inputs import Covariate
from hypergrid.interpolation import Field, Targets, Variogram
from hypergrid.perspective import Base, Convert, Interpolate, Merge, Perspective
from hypergrid.perspective.build.station_projection import mask_in_reach
from hypergrid.topology import Grid, Points, SeriesAxis


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
