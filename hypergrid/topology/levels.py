"""Height axes [m above sea level], exact in millimetres: regular or with given edges."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.topology.axes import Regular, axis_of, is_count, quanta
from hypergrid.topology.bins import Bins

Levels = Regular | Bins
"""A height axis; cells are half-open and touch, except around unevenly spaced heights."""

NAME: Final = "z"
"""Dimension name of heights."""
ALONE_MM: Final = 1_000
"""Thickness of a level given as a single height."""

_KEYS: Final = ("start", "stop", "step", "count", "edges")


def levels(spec: object, over: tuple[int, int] | None = None) -> Levels:
    """Return the height cells of a specification.

    Parameters
    ----------
    spec
        `[1000, 1500, 2000]`: level middles; each level reaches halfway to its nearest neighbour, up and down; a
        single height gets half a metre on each side. Or edges:
        `{"edges": [0, 800, 1500, 3000]}`, `{"start": 400, "stop": 2400,
        "step": 500}` or `{"start": 400, "step": 500, "count": 4}`, where the lowest level spans 400 to 900 with its
        middle at 650. Metres above sea level, or text ("2.4km"). With `over` also `{"step": 500}`, 500 or "500m" (cells
        at whole multiples) and "all", but no middles.
    over
        Lowest height to cover and end of the highest one [mm]; None if there is nothing to cover.

    Raises
    ------
    InvalidQuery, NotFound
        An unreadable specification, a step or count that is not above zero, heights that do not ascend.

    Examples
    --------
    >>> levels({"start": 400, "stop": 2400, "step": 500}).bounds[:2].tolist()
    [[400.0, 900.0], [900.0, 1400.0]]
    >>> levels([1000, 1500, 2500]).centres.tolist()
    [1000.0, 1500.0, 2500.0]
    """
    if isinstance(spec, list | tuple):
        if over is None:
            return _make_around(spec)
        raise InvalidQuery(
            f"cells along {NAME} need edges, {{'edges': {list(spec)!r}}}; heights in a list are where estimates are "
            "wanted, for the grid of an interpolation"
        )
    if over is not None and spec == "all":
        length = over[1] - over[0]
        return Regular(NAME, over[0], length, 1, length, "mm")
    if over is not None and not isinstance(spec, Mapping):
        spec = {"step": spec}
    if not isinstance(spec, Mapping):
        raise InvalidQuery(
            f"{NAME} needs the heights of levels [m above sea level] such as [1000, 1500, 2000], or edges such as "
            f"{{'edges': [0, 800, 1500]}} or {{'start': 400, 'stop': 2400, 'step': 500}}; got {spec!r}"
        )
    NotFound.refuse_unknown(f"key of {NAME}", spec, _KEYS)
    if "edges" in spec:
        if len(spec) > 1:
            raise InvalidQuery(f"{NAME} takes edges, or a step, not both; got {dict(spec)}")
        return _make_between(spec["edges"])
    if "step" not in spec:
        raise InvalidQuery(f"{NAME} needs a step such as 500 (metres), or edges; got {dict(spec)}")
    step = quanta(spec["step"], "mm", f"step of {NAME}")
    if step <= 0:
        raise InvalidQuery(f"{NAME} needs a step of at least 1 mm (0.001); got {spec['step']!r}")
    if over is not None and len(spec) == 1:
        return Regular(NAME, 0, step, 1, step, "mm").repeat_over(*over)
    return _make_regular(spec, step)


def _make_regular(spec: Mapping[str, Any], step: int) -> Regular:
    if "start" not in spec or ("stop" in spec) == ("count" in spec):
        raise InvalidQuery(f"{NAME} needs a start, and a stop or a count, beside its step; got {dict(spec)}")
    if "stop" in spec:
        return axis_of(NAME, (spec["start"], spec["stop"]), None, step, "mm")
    if not is_count(spec["count"]):
        raise InvalidQuery(f"count of {NAME} needs a whole number above zero; got {spec['count']!r}")
    return axis_of(NAME, spec["start"], spec["count"], step, "mm")


def _make_between(edges: object) -> Bins:
    if not isinstance(edges, Sequence) or isinstance(edges, str) or len(edges) < 2:
        raise InvalidQuery(f"edges of {NAME} need two or more heights, ascending; got {edges!r}")
    exact = _check_ascending(edges, "edges", minimum=1)
    return Bins(NAME, exact[:-1], exact[1:], quantum="mm")


def _make_around(heights: Sequence[object]) -> Levels:
    if not heights:
        raise InvalidQuery(f"heights of {NAME} need at least one, such as [1000, 1500]; got none")
    # Half the distance to a neighbour is at least 1 mm.
    exact = _check_ascending(heights, "heights", minimum=2)
    steps = np.diff(exact) if len(exact) > 1 else np.array([ALONE_MM])
    # An odd step in millimetres has no exact half.
    if (steps == steps[0]).all() and steps[0] % 2 == 0:
        step = int(steps[0])
        return Regular(NAME, int(exact[0]) - step // 2, step, len(exact), step, "mm")
    half = np.minimum(np.append(steps, steps[-1]), np.append(steps[:1], steps)) // 2
    return Bins(NAME, exact - half, exact + half, quantum="mm")


def _check_ascending(heights: Sequence[object], what: str, *, minimum: int) -> NDArray[np.int64]:
    """Return heights [mm]; raises InvalidQuery if they are less than `minimum` apart."""
    exact = np.array([quanta(height, "mm", f"one of the {what} of {NAME}") for height in heights], dtype=np.int64)
    wrong = np.flatnonzero(np.diff(exact) < minimum)
    if len(wrong):
        low, high = heights[wrong[0]], heights[wrong[0] + 1]
        spacing = f", {minimum} mm apart" if minimum > 1 else ""
        raise InvalidQuery(
            f"{what} of {NAME} need to ascend{spacing}; got {high!r} after {low!r}; order them, each once"
        )
    return exact


def levels_json(axis: Levels) -> dict[str, object] | list[float]:
    """Return the specification from which `levels` rebuilds these cells."""
    if isinstance(axis, Bins):
        if (axis.starts[1:] != axis.ends[:-1]).any():
            around: list[float] = axis.centres.tolist()
            # Middles are shorter, but are used only if they restore the same edges.
            if levels(around) == axis:
                return around
        return {"edges": [*axis.bounds[:, 0].tolist(), float(axis.bounds[-1, 1])]}
    return {"start": axis.origin / 1000, "step": axis.step / 1000, "count": axis.count}


def describe_levels(axis: Levels) -> str:
    low, high = axis.bounds[0, 0], axis.bounds[-1, 1]
    if isinstance(axis, Bins) and (axis.starts[1:] != axis.ends[:-1]).any():
        return f"{axis.count} levels around {', '.join(f'{height:.7g}' for height in axis.centres)} m"
    return f"{axis.count} level{'s' if axis.count > 1 else ''} from {low:.7g} to {high:.7g} m"
