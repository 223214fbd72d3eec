"""Commute linear steps: a mean of interpolated slices is the interpolated mean of the stations.

Exact where the interpolation is one linear map of the values of all stations in every slice, gaps filled by kriging
(kriging with a variogram that is given or fitted once, from all stations, whichever of them report), and the aggregate
is a mean or a sum over time alone. Of a known mean (simple kriging) the sum would have to hold it once a slice: there
only means commute.
"""

from dataclasses import replace

from hypergrid.perspective.tree.operators import Aggregate, Interpolate
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.perspective.tree.surface import Surface


def commute(surface: Surface) -> tuple[Surface, str]:
    """Return the surface whose linear aggregates over time are taken at the stations.

    ::

        interpolate 864 slices > mean of all   becomes   mean of 864 slices of the stations > interpolate 1
    """
    said: list[str] = []
    return replace(surface, perspective=_commuted(surface.perspective, said)), "; ".join(dict.fromkeys(said))


def _commuted(here: Perspective, said: list[str]) -> Perspective:
    sources = tuple(_commuted(source, said) for source in here.sources)
    if any(new is not old for new, old in zip(sources, here.sources, strict=True)):
        here = here.with_source(*sources)
    operator = here.operator
    if not isinstance(operator, Aggregate) or operator.at_stations or not commutes(here):
        return here
    below = here.source.operator
    said.append(
        f"{below.method} and {operator.function} are linear: {here.topology.time.count:,} in place of "  # type: ignore[union-attr]
        f"{here.source.topology.time.count:,} slices are interpolated"
    )
    return replace(here, operator=replace(operator, at_stations=True))


def commutes(here: Perspective) -> bool:
    """Return whether an aggregate commutes with the interpolation that it is of."""
    operator = here.operator
    if not isinstance(operator, Aggregate) or not operator.row.linear or operator.dimensions != ("time",):
        return False
    below = here.source.operator
    if not isinstance(below, Interpolate):
        return False
    known_mean = bool(below.given.get("mean"))
    return below.is_linear(here.source.source.topology.space.count) and (operator.function == "mean" or not known_mean)
