"""Commute linear steps: a mean of interpolated slices is the interpolated mean of the stations.

Exact if the interpolation is one linear map of the values of all stations in every slice, with gaps filled by kriging
(kriging from all stations, reporting or not, with a variogram that is given or fitted once), and the aggregate is a
mean or a sum over time alone. With a known mean (simple kriging) a sum would have to contain that mean once per slice,
so only means commute.
"""

from dataclasses import replace

from hypergrid.perspective.tree import Aggregate, Interpolate, Perspective, Surface


def commute(surface: Surface) -> tuple[Surface, str]:
    """Move linear aggregates over time below the interpolation, to the stations.

    ::

        interpolate 864 slices > mean of all   becomes   mean of 864 slices of the stations > interpolate 1
    """
    notes: list[str] = []
    return replace(surface, perspective=_commute_node(surface.perspective, notes)), "; ".join(dict.fromkeys(notes))


def _commute_node(node: Perspective, notes: list[str]) -> Perspective:
    sources = tuple(_commute_node(source, notes) for source in node.sources)
    if any(new is not old for new, old in zip(sources, node.sources, strict=True)):
        node = node.with_source(*sources)
    operator = node.operator
    if not isinstance(operator, Aggregate) or operator.at_stations or not is_commutative(node):
        return node
    below = node.source.operator
    notes.append(
        f"{below.method} and {operator.function} are linear: {node.topology.time.count:,} in place of "  # type: ignore[union-attr]
        f"{node.source.topology.time.count:,} slices are interpolated"
    )
    return replace(node, operator=replace(operator, at_stations=True))


def is_commutative(node: Perspective) -> bool:
    """Return whether an aggregate commutes with the interpolation below it."""
    operator = node.operator
    if not isinstance(operator, Aggregate) or not operator.row.linear or operator.dimensions != ("time",):
        return False
    below = node.source.operator
    if not isinstance(below, Interpolate):
        return False
    known_mean = bool(below.arguments.get("mean"))
    return below.is_linear(node.source.source.topology.space.count) and (operator.function == "mean" or not known_mean)
