"""Which share each slice and each cell of an interpolation has in the cells of the aggregates above it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.execution.diagnostics.space_cover import SpaceCover
from hypergrid.execution.operators.grids import count_possible_slices, cover_space
from hypergrid.perspective import Aggregate, Perspective
from hypergrid.perspective.functions.rows import AggregateRow
from hypergrid.topology import Instants, changes_cells, cover
from hypergrid.topology.zone_cells import WHOLE

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WeightShares:
    """Weights of what is aggregated in what it becomes."""

    weights: "scipy.sparse.csr_array"
    """Shape (target cells, source cells); nothing for what is missing."""
    min_shares: tuple[float, ...]
    """The least share of what is possible that a cell kept by each aggregate has, in their order."""


def find_time_shares(aggregates: Sequence[Perspective], present: NDArray[np.bool_]) -> WeightShares:
    """Return the share of each slice in each time cell of the last aggregate.

    Parameters
    ----------
    aggregates
        Linear aggregates, one on the other, lowest first.
    present
        Which slices of the interpolation are not missing, shape (slices,).
    """
    weights, known = _make_identity(present), present
    min_shares = []
    for item in aggregates:
        operator, source, target = _require_aggregate(item), item.source.topology.time, item.topology.time
        if "time" not in operator.dimensions or isinstance(target, Instants):
            min_shares.append(1.0)
            continue
        ranges = cover(source, target)
        members = ranges.list_members()
        sums = scipy.sparse.csr_array(
            (np.ones(len(members)), members, np.append(0, np.cumsum(ranges.sizes))), (target.count, len(known))
        )
        possible = count_possible_slices(source, target)[:, 0]
        weights, known, share = _lift_weights(sums, weights, known, operator, possible)
        min_shares.append(share)
    return WeightShares(weights, tuple(min_shares))


def find_cells_below(
    aggregates: Sequence[Perspective], cells: NDArray[np.intp]
) -> tuple[NDArray[np.intp], list[SpaceCover | None]]:
    """Return the cells of the interpolation that some cells of the last aggregate need, and the covers between."""
    covers: list[SpaceCover | None] = []
    for item in reversed(aggregates):
        source, target = item.source.topology.space, item.topology.space
        space_cover = None
        if changes_cells(source, target):
            space_cover = cover_space(source, target, cells, _require_aggregate(item).row)
            cells = space_cover.needed
        covers.append(space_cover)
    return cells, covers[::-1]


def find_space_shares(
    aggregates: Sequence[Perspective], covers: Sequence[SpaceCover | None], known: NDArray[np.bool_]
) -> WeightShares:
    """Return the share of each known cell of the interpolation in each cell of the last aggregate.

    Parameters
    ----------
    aggregates
        As for `find_time_shares`.
    covers
        As `find_cells_below` returns them.
    known
        Which of the cells below are not missing, shape (cells,); the weights have a column for each that is known.
    """
    weights = scipy.sparse.csr_array(_make_identity(known)[:, np.flatnonzero(known)])
    min_shares = []
    for item, between in zip(aggregates, covers, strict=True):
        if between is None:
            min_shares.append(1.0)
            continue
        if between.weights is None:
            sums = between.matrix(None)
            weights, known, share = _lift_weights(sums, weights, known, _require_aggregate(item), between.full)
        else:
            weights, known, share = _lift_area_weights(between, weights, known, _require_aggregate(item))
        min_shares.append(share)
    return WeightShares(weights, tuple(min_shares))


def refuse_mixed(aggregates: Sequence[Perspective], in_time: WeightShares, in_space: WeightShares) -> None:
    """Refuse aggregates whose missing cells are not those of time and of space apart.

    Raises
    ------
    InvalidQuery
        An aggregate over both kept a cell for what it has in time, and one for what it has in space, but not both
        together, so that weights are no product any more.
    """
    for item, time, space in zip(aggregates, in_time.min_shares, in_space.min_shares, strict=True):
        if time * space < _require_aggregate(item).min_coverage * (1 - 1e-12):
            message = (
                f"the variance needs {_require_aggregate(item).function} over time and over space in steps of their "
                f"own where "
                "both have gaps: aggregate over time first, then over space, or set min_coverage lower"
            )
            raise InvalidQuery(message)


def _lift_weights(
    sums: "scipy.sparse.csr_array",
    weights: "scipy.sparse.csr_array",
    known: NDArray[np.bool_],
    operator: Aggregate,
    possible: NDArray[np.int64],
) -> "tuple[scipy.sparse.csr_array, NDArray[np.bool_], float]":
    """Return the weights one aggregate further up, which of its cells are known, and the least share of those."""
    count = np.rint(sums @ known.astype(np.float64)).astype(np.int64)
    kept = (count > 0) & (count >= operator.min_coverage * possible * (1 - 1e-12))
    scale = np.where(kept, _value_weight(operator.row, count), 0.0)
    share = (count / np.maximum(possible, 1))[kept]
    above = scipy.sparse.csr_array(scipy.sparse.diags_array(scale) @ sums @ weights)
    above.eliminate_zeros()
    return above, kept, float(share.min(initial=1.0))


def _lift_area_weights(
    between: SpaceCover, weights: "scipy.sparse.csr_array", known: NDArray[np.bool_], operator: Aggregate
) -> "tuple[scipy.sparse.csr_array, NDArray[np.bool_], float]":
    """Return what `_lift_weights` does, for cells that weigh by area or share."""
    column = known.astype(np.int64)[:, None]
    count = between.sum_counts(column)[:, 0]
    if between.parts is None:
        share = count / between.full
        kept = (count > 0) & (share >= operator.min_coverage * (1 - 1e-12))
    else:
        share = between.coverage(column, np.ones((1, 1), np.int64))[:, 0]
        kept = (count > 0) & (share >= operator.min_coverage * (1 - WHOLE))
    sums = between.matrix(between.weights)
    mass = sums @ known.astype(np.float64)
    # As `SpaceCover.weighted` scales them.
    each = np.ones(len(count)) if between.of_sum else count / np.where(mass > 0, mass, 1.0)
    scale = np.where(kept, _value_weight(operator.row, count) * each, 0.0)
    above = scipy.sparse.csr_array(scipy.sparse.diags_array(scale) @ sums @ weights)
    above.eliminate_zeros()
    return above, kept, float(share[kept].min(initial=1.0))


def _value_weight(row: AggregateRow, count: NDArray[np.int64]) -> Floats:
    """Return the weight of a value in a cell of so many: what the function makes of a sum of 1."""
    if row.finish is None:
        message = f"{row.name} chooses a value, it has no weights"
        raise TypeError(message)
    return row.finish((np.ones(count.shape),), np.maximum(count, 1), {})


def _make_identity(known: NDArray[np.bool_]) -> "scipy.sparse.csr_array":
    identity = scipy.sparse.csr_array(scipy.sparse.diags_array(known.astype(np.float64)))
    identity.eliminate_zeros()
    return identity


def _require_aggregate(item: Perspective) -> Aggregate:
    if not isinstance(item.operator, Aggregate):
        message = f"{type(item.operator).__name__} is no aggregate"
        raise TypeError(message)
    return item.operator
