"""What a result does not hold, in words: zones beyond the grid, stations beyond the bands, values without coverage."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from hypergrid.perspective import Aggregate, Perspective
from hypergrid.topology import Bands, SeriesAxis, Space, ZoneCells

_NAMED: Final = 20
"""Names at most in a note."""


def outside_of(target: Space) -> list[str]:
    """Return notes for a reader of the result about what the new cells do not hold, or are not held by."""
    if isinstance(target, ZoneCells):
        held, zones = target.held, target.zones.names
        found = {
            "zones outside the grid": held == 0,
            "zones partly outside the grid": (held > 0) & (held < 1),
        }
        return [
            f"{what}: {_some([zones[i] for i in np.flatnonzero(which)])}"
            for what, which in found.items()
            if which.any()
        ]
    if not isinstance(target, Bands):
        return []
    unknown = np.isnan(target.heights_m)
    found = {"without a known elevation": unknown, "with an elevation outside all bands": target.is_outside}
    space = target.source
    here = {what: which for what, which in found.items() if which.any()}
    kind, notes = "cell", [f"{which.sum():,} cells {what} are in no band" for what, which in here.items()]
    if isinstance(space, SeriesAxis):
        names = [series.station for series in space.series]
        kind = "station"
        notes = [
            f"stations {what} are in no band: {_some([names[i] for i in np.flatnonzero(which)])}"
            for what, which in here.items()
        ]
    empty = [f"{low:.7g} to {high:.7g} m" for low, high in target.z.bounds[np.diff(target.edges) == 0]]
    return [*notes, f"bands that hold no {kind}: {_some(empty)}"] if empty else notes


def unlike(spaces: Sequence[Space]) -> list[str]:
    """Return notes for a reader of a merge about bands of elevation that are not made of the same."""
    bands = [space for space in spaces if isinstance(space, Bands)]
    for other in bands[1:]:
        first, second = bands[0].source, other.source
        if not isinstance(first, SeriesAxis) or not isinstance(second, SeriesAxis):
            if first.token() != second.token():
                return ["the bands that are merged are made of different cells on the ground"]
            continue
        one, two = _stations(bands[0], first), _stations(other, second)
        alone = {"first": sorted(one - two), "other": sorted(two - one)}
        parts = [f"{_some(names)} in the {which} source alone" for which, names in alone.items() if names]
        if parts:
            return [f"the bands that are merged are made of different stations: {', '.join(parts)}"]
    return []


def _stations(bands: Bands, axis: SeriesAxis) -> set[str]:
    return {axis.series[i].station for i in bands.order.tolist()}


def nothing_known(surface: Perspective) -> str:
    """Return a note about a result in which every value is missing: the coverage that its steps ask for."""
    asked = []
    for item in surface.chain():
        operator = item.operator
        if isinstance(operator, Aggregate) and operator.min_coverage > 0:
            default = " (its default)" if operator.min_coverage == operator.row.min_coverage else ""
            asked.append(f"{operator.function} {operator.min_coverage:.0%}{default}")
    if not asked:
        return "every value is missing"
    return (
        f"every value is missing: of what a cell could hold {', '.join(dict.fromkeys(asked))} must be there; "
        "min_coverage says how much, 0 takes what there is"
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
