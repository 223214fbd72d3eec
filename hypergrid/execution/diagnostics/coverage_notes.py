"""What a result does not hold, in words: zones beyond the grid, stations beyond the bands, values without coverage."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from hypergrid.perspective import Aggregate, Perspective
from hypergrid.topology import Bands, SeriesAxis, Space, ZoneCells

_MAX_NAMED: Final = 20
"""Names at most in a note."""


def list_outside_notes(target: Space) -> list[str]:
    """Return notes for a reader of the result about what the new cells do not hold, or are not held by."""
    if isinstance(target, ZoneCells):
        held, zones = target.share_in_grid, target.zones.names
        masks_by_problem = {
            "zones outside the grid": held == 0,
            "zones partly outside the grid": (held > 0) & (held < 1),
        }
        return [
            f"{what}: {_format_names([zones[i] for i in np.flatnonzero(mask)])}"
            for what, mask in masks_by_problem.items()
            if mask.any()
        ]
    if not isinstance(target, Bands):
        return []
    unknown = np.isnan(target.heights_m)
    masks_by_problem = {"without a known elevation": unknown, "with an elevation outside all bands": target.is_outside}
    space = target.source
    nonempty_masks = {what: mask for what, mask in masks_by_problem.items() if mask.any()}
    kind, notes = "cell", [f"{mask.sum():,} cells {what} are in no band" for what, mask in nonempty_masks.items()]
    if isinstance(space, SeriesAxis):
        names = [series.station for series in space.series]
        kind = "station"
        notes = [
            f"stations {what} are in no band: {_format_names([names[i] for i in np.flatnonzero(mask)])}"
            for what, mask in nonempty_masks.items()
        ]
    empty = [f"{low:.7g} to {high:.7g} m" for low, high in target.z.bounds[np.diff(target.edges) == 0]]
    return [*notes, f"bands that hold no {kind}: {_format_names(empty)}"] if empty else notes


def note_unlike_bands(spaces: Sequence[Space]) -> list[str]:
    """Return notes for a reader of a merge about bands of elevation that are not made of the same."""
    bands = [space for space in spaces if isinstance(space, Bands)]
    for other in bands[1:]:
        first, second = bands[0].source, other.source
        if not isinstance(first, SeriesAxis) or not isinstance(second, SeriesAxis):
            if first.token() != second.token():
                return ["the bands that are merged are made of different cells on the ground"]
            continue
        first_stations, two = _band_stations(bands[0], first), _band_stations(other, second)
        alone = {"first": sorted(first_stations - two), "other": sorted(two - first_stations)}
        parts = [
            f"{_format_names(names)} in the {source_name} source alone" for source_name, names in alone.items() if names
        ]
        if parts:
            return [f"the bands that are merged are made of different stations: {', '.join(parts)}"]
    return []


def _band_stations(bands: Bands, axis: SeriesAxis) -> set[str]:
    return {axis.series[i].station for i in bands.order.tolist()}


def note_all_missing(surface: Perspective) -> str:
    """Return a note about a result in which every value is missing: the coverage that its steps ask for."""
    asked = []
    for item in surface.list_chain():
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


def _format_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"
