"""Parameters of every interpolation: coincident stations, those far outside the grid, and why it was chosen."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound, SingularSystem
from hypergrid.core.geodesy import RADIUS_M
from hypergrid.core.parameters import Parameter
from hypergrid.interpolation.points import Floats, Stations, are_on_sphere, number_places, straight_radius

Coincident = Literal["refuse", "merge", "keep"]
"""Treatment of coincident stations."""

# The median distance of stations from the grid keeps wide networks whole: a grid of a few cells in the middle of a
# country needs the country's stations, and only stations ten times farther out than half of them (zeros as position,
# swapped longitude and latitude) are another network.
FAR_DIAGONALS, FAR_RANGES, FAR_MEDIANS = 10.0, 5.0, 10.0
"""A station is far beyond all three: multiples of grid diagonal, variogram range, and median distance.

At least half of the stations always stay.
"""

LONGEST_REASON = 2_000
"""Length limit of `because` [characters]."""
MAX_SHOWN = 10
"""Maximum stations named in a note or a message."""

PARAMETERS = (
    Parameter("distance", "text", "auto, plane or great_circle", required=False),
    Parameter("coincident", "text", "refuse, merge or keep stations in one place", required=False),
    Parameter("merge_within_m", "number", "stations this near to each other are one place", unit="m", required=False),
    Parameter("ignore_beyond_m", "number", "stations farther from the grid are not used", unit="m", required=False),
    Parameter("because", "text", "why this method was chosen, for the notes of the result", required=False),
)
"""Parameters of every interpolation method, in addition to its own."""


def parse_selection(label: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the given parameters among `PARAMETERS`; absent ones are omitted.

    Parameters
    ----------
    label
        The step's method, for messages.
    given
        All of them, bound, None if absent.

    Raises
    ------
    NotFound
        Unknown treatment of coincident stations.
    InvalidQuery
        A distance below zero, a merge distance without merging, or a reason longer than `LONGEST_REASON`.
    """
    chosen = {item.name: given[item.name] for item in PARAMETERS if given[item.name] is not None}
    coincident = chosen.get("coincident")
    if coincident is not None and coincident not in get_args(Coincident):
        raise NotFound.among(kind="way to treat stations in one place", given=coincident, existing=get_args(Coincident))
    for name in ("merge_within_m", "ignore_beyond_m"):
        # Written so that NaN is refused as well.
        if name in chosen and not chosen[name] >= 0:
            raise InvalidQuery(f"{label} needs {name!r} of zero or more; got {chosen[name]:g}")
    if "merge_within_m" in chosen and coincident not in (None, "merge"):
        raise InvalidQuery(f"{label} got merge_within_m together with coincident={coincident!r}; leave one of them out")
    if len(chosen.get("because", "")) > LONGEST_REASON:
        raise InvalidQuery(
            f"{label} needs 'because' of at most {LONGEST_REASON:,} characters; got {len(chosen['because']):,}"
        )
    return chosen


def far_limit_m(distance_m: Floats, *, diagonal_m: float, range_m: float) -> float:
    """Compute the default limit of a station's distance from the grid [m].

    Parameters
    ----------
    distance_m
        Distances of all stations from the whole grid before any clip, 0 inside; shape (stations,).
    diagonal_m
        The grid's diagonal.
    range_m
        Effective range of the variogram, 0 without one; infinite if it is unbounded: every station counts.
    """
    median = float(np.median(distance_m)) if len(distance_m) else 0.0
    return max(FAR_DIAGONALS * diagonal_m, FAR_RANGES * range_m, FAR_MEDIANS * median)


def treat_coincident(
    owner: str, stations: Stations, values: Floats, given: Mapping[str, Any]
) -> tuple[Stations, Floats, tuple[str, ...]]:
    """Merge, keep or reject coincident stations; return stations, values (slices, stations) and notes.

    Merged stations become one station at the mean of their positions, whose value in a slice is the mean of those that
    report; it counts as one station. By default coincident stations are kept, each with its own error, and methods that
    cannot separate them reject them.

    Parameters
    ----------
    given
        `coincident` and `merge_within_m` of `parse_selection`.

    Raises
    ------
    SingularSystem
        Coincident stations, if `coincident` is "refuse".
    """
    within_m = given.get("merge_within_m")
    asked = given.get("coincident") or ("merge" if within_m is not None else None)
    labels = number_places(stations.positions_m, straight_radius(within_m or 0.0, stations.positions_m))
    together = [np.flatnonzero(labels == label) for label in np.flatnonzero(np.bincount(labels) > 1)]
    if not together:
        return stations, values, ()
    named = join_names(" and ".join(stations.names[i] for i in members) for members in together)
    if asked == "refuse":
        raise SingularSystem(
            f"{owner} got stations in one place: {named}; use coincident='merge', or select one of them"
        )
    if asked == "merge":
        return *_merge_stations(stations, values, labels), (f"stations in one place are one, of their mean: {named}",)
    return stations, values, (f"stations in one place are used each with its own error: {named}",)


def join_names(names: Iterable[str]) -> str:
    """Join names for a message, limited to the first `MAX_SHOWN`."""
    listed = list(names)
    more = len(listed) - MAX_SHOWN
    return ", ".join(listed[:MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _merge_stations(stations: Stations, values: Floats, labels: NDArray[np.intp]) -> tuple[Stations, Floats]:
    shape = (len(labels), int(labels.max()) + 1)
    members = scipy.sparse.csr_array((np.ones(len(labels)), (np.arange(len(labels)), labels)), shape=shape)
    positions = _average_members(stations.positions_m.T, members).T
    if are_on_sphere(positions):
        # The mean of places on the sphere lies below its surface.
        positions *= RADIUS_M / np.linalg.norm(positions, axis=1, keepdims=True)
    names: list[list[str]] = [[] for _ in range(shape[1])]
    for name, label in zip(stations.names, labels, strict=True):
        names[label].append(name)
    covariates = {name: _average_members(known[None], members)[0] for name, known in stations.covariates.items()}
    return Stations(positions, tuple("+".join(each) for each in names), covariates), _average_members(values, members)


def _average_members(values: Floats, members: "scipy.sparse.csr_array") -> Floats:
    """Average the finite values over the stations of each place: (rows, stations) to (rows, places)."""
    known = np.isfinite(values)
    count = (members.T @ known.T.astype(np.float64)).T
    total = (members.T @ np.where(known, values, 0.0).T).T
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1.0), np.nan))
