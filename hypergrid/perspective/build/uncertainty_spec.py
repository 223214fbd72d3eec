"""Check which variances can be computed: of estimates, and of their means and sums."""

from hypergrid.core.errors import InvalidQuery
from hypergrid.perspective.tree import Aggregate, Interpolate, Perspective

_NOT_ALL = ("neighbours", "radius_m", "octants")
"""Parameters that make a method use only some stations."""


def split_aggregates(perspective: Perspective) -> tuple[Perspective, tuple[Perspective, ...]]:
    """Split off the trailing aggregates over an interpolation, lowest first."""
    steps: list[Perspective] = []
    node = perspective
    while isinstance(node.operator, Aggregate) and node.source.is_interpolated:
        steps.append(node)
        node = node.source
    return node, tuple(reversed(steps))


def check_variance(perspective: Perspective) -> None:
    """Refuse a variance that cannot be computed.

    Raises
    ------
    InvalidQuery
        No interpolation, a later step that is not a mean or sum, a mean of estimates that do not use all stations, or a
        correlation time without a mean over time.
    """
    node, aggregates = split_aggregates(perspective)
    operator = node.operator
    if not isinstance(operator, Interpolate):
        where = f"ends with {type(operator).__name__.lower()} after it" if node.is_interpolated else "has none"
        raise InvalidQuery(
            f"variance belongs to an interpolated estimate, and to means and sums of such; this query {where}; ask for "
            "it where interpolate, or aggregates after it, are the last steps"
        )
    for item in aggregates:
        if not item.aggregate.row.linear:
            raise InvalidQuery(
                f"the variance of a {item.aggregate.function} of interpolated values is not known; ask for that of a "
                "mean or sum, or take it from simulated fields (hg.simulate)"
            )
    _check_method(operator, node.source.topology.space.count, is_averaged=bool(aggregates))
    over_time = any("time" in item.aggregate.dimensions for item in aggregates)
    if operator.error_correlation is not None and not over_time:
        raise InvalidQuery(
            "correlation_time is for means over time; this query has none after its interpolation: leave it out"
        )


def _check_method(operator: Interpolate, stations: int, *, is_averaged: bool) -> None:
    given = operator.arguments
    used = [name for name in _NOT_ALL if given.get(name) is not None]
    # As many neighbours as stations means all stations.
    if used == ["neighbours"] and given["neighbours"] >= stations:
        used = []
    if is_averaged and used:
        raise InvalidQuery(
            f"the variance of a mean is known for {operator.method} from all stations only; leave out "
            f"{', '.join(used)}, or ask for the variance of the single estimates"
        )
