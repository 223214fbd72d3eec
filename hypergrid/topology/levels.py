"""Cells along height [m above sea level], exact in millimetres: all alike, or between given edges."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from hypergrid.errors import InvalidQuery, NotFound
from hypergrid.topology.axes import Regular, aligned
from hypergrid.topology.bins import Bins
from hypergrid.topology.coordinates import axis_of, is_count, quanta

Levels = Regular | Bins
"""An axis of heights; cells touch, and hold their lower edge, not their upper one."""

NAME: Final = "z"
"""Dimension of heights."""

_KEYS: Final = ("start", "stop", "step", "count", "edges")


def levels(spec: object, over: tuple[int, int] | None = None) -> Levels:
    """Return the cells along height that a specification says.

    Parameters
    ----------
    spec
        `{"start": 400, "stop": 2400, "step": 500}`, `{"start": 400, "step": 500, "count": 4}` or
        `{"edges": [0, 800, 1500, 3000]}`, heights in metres above sea level or as text ("2.4km"). Where there is
        something to lie over also `{"step": 500}`, 500 or "500m", cells from whole multiples of it, and "all".
    over
        Lowest height that the cells are to lie over, and the end of the highest [mm]; None where there is nothing yet.

    Raises
    ------
    InvalidQuery, NotFound
        A specification that cannot be read, a step or count that is not above zero, edges that do not ascend.

    Examples
    --------
    >>> levels({"start": 400, "stop": 2400, "step": 500}).bounds[:2].tolist()
    [[400.0, 900.0], [900.0, 1400.0]]
    """
    if over is not None and spec == "all":
        length = over[1] - over[0]
        return Regular(NAME, over[0], length, 1, length, "mm")
    if over is not None and not isinstance(spec, Mapping):
        spec = {"step": spec}
    if not isinstance(spec, Mapping):
        message = (
            f"{NAME} needs levels [m above sea level] such as {{'start': 400, 'stop': 2400, 'step': 500}} or "
            f"{{'edges': [0, 800, 1500]}}; got {spec!r}"
        )
        raise InvalidQuery(message)
    for key in spec:
        if key not in _KEYS:
            raise NotFound.among(kind=f"key of {NAME}", given=key, existing=_KEYS)
    if "edges" in spec:
        if len(spec) > 1:
            message = f"{NAME} takes edges, or a step, not both; got {dict(spec)}"
            raise InvalidQuery(message)
        return _between(spec["edges"])
    if "step" not in spec:
        message = f"{NAME} needs a step such as 500 (metres), or edges; got {dict(spec)}"
        raise InvalidQuery(message)
    step = quanta(spec["step"], "mm", f"step of {NAME}")
    if step <= 0:
        message = f"{NAME} needs a step above zero; got {spec['step']!r}"
        raise InvalidQuery(message)
    if over is not None and len(spec) == 1:
        return aligned(NAME, *over, step=step, length=step, quantum="mm")
    return _regular(spec, step)


def _regular(spec: Mapping[str, Any], step: int) -> Regular:
    if "start" not in spec or ("stop" in spec) == ("count" in spec):
        message = f"{NAME} needs a start, and a stop or a count, beside its step; got {dict(spec)}"
        raise InvalidQuery(message)
    if "stop" in spec:
        return axis_of(NAME, (spec["start"], spec["stop"]), None, step, "mm")
    if not is_count(spec["count"]):
        message = f"count of {NAME} needs a whole number above zero; got {spec['count']!r}"
        raise InvalidQuery(message)
    return axis_of(NAME, spec["start"], spec["count"], step, "mm")


def _between(edges: object) -> Bins:
    if not isinstance(edges, Sequence) or isinstance(edges, str) or len(edges) < 2:
        message = f"edges of {NAME} need two or more heights, ascending; got {edges!r}"
        raise InvalidQuery(message)
    exact = np.array([quanta(edge, "mm", f"an edge of {NAME}") for edge in edges], dtype=np.int64)
    if (np.diff(exact) <= 0).any():
        at = int(np.flatnonzero(np.diff(exact) <= 0)[0])
        message = f"edges of {NAME} need to ascend; got {edges[at + 1]!r} after {edges[at]!r}; order them, each once"
        raise InvalidQuery(message)
    return Bins(NAME, exact[:-1], exact[1:], quantum="mm")


def levels_json(axis: Levels) -> dict[str, object]:
    """Return the specification that gives these cells."""
    if isinstance(axis, Bins):
        return {"edges": [*axis.bounds[:, 0].tolist(), float(axis.bounds[-1, 1])]}
    return {"start": axis.origin / 1000, "step": axis.step / 1000, "count": axis.count}


def levels_words(axis: Levels) -> str:
    """Return what the cells are, for people."""
    low, high = axis.bounds[0, 0], axis.bounds[-1, 1]
    return f"{axis.count} level{'s' if axis.count > 1 else ''} from {low:.7g} to {high:.7g} m"
