"""Hypothesis strategies: questions that can be answered, mostly, as JSON documents."""

from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]

VARIOGRAMS = st.sampled_from(
    [
        {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05},
        {"model": "spherical", "psill": 2.0, "range_m": 400.0},
        {"model": "gaussian", "psill": 0.7, "range_m": 150.0, "nugget": 0.1},
    ]
)
"""Variograms under which the networks of `networks` are told apart."""

LEVELS = ({"start": 2300, "step": 50, "count": 3}, {"edges": [2200, 2350, 2360, 2500]})
"""Of grids above the networks of `networks`."""
COARSER = (100, "all", {"edges": [2200, 2350, 2500]}, {"start": 2300, "step": 150, "count": 2})

REDUCTIONS = ("mean", "sum", "min", "max", "count", "median", "quantile", "variance", "exceedance")
_PARAMETERS = {"quantile": {"q": 0.3}, "exceedance": {"threshold": 4.56789}}
CHOICES = ("first", "last", "sample")
_OF_INSTANTS = {None, "mean", *CHOICES, "valid_range", "scale", "difference", "ratio"}


@st.composite
def documents(draw: st.DrawFn, *, is_lonlat: bool, start: str = "2007-10-01T") -> Document:
    """Return a question of up to four steps about air_temperature, with a clip in time and space perhaps."""
    steps: list[Document] = []
    state = _State()
    for _ in range(draw(st.integers(0, 4))):
        steps.append(draw(_steps(state, steps, is_lonlat=is_lonlat)))
    document: Document = {"variable": "air_temperature", "steps": steps}
    clip: Document = {}
    if draw(st.booleans()):
        first = draw(st.integers(0, 150))
        last = first + draw(st.integers(10, 150))
        clip["time"] = [f"{start}{minute // 60:02d}:{minute % 60:02d}Z" for minute in (first, last)]
    if state.has_z and draw(st.booleans()):
        clip["z"] = draw(st.sampled_from([[2200, 2360], [2340, 2500], [2300, 2301]]))
    if state.is_grid and draw(st.booleans()):
        name, low = draw(st.sampled_from([("lat", 45.868), ("lon", 7.178)] if is_lonlat else [("y", 240), ("x", 0)]))
        clip[name] = [low, low + (0.001 if is_lonlat else 500)]
    if clip:
        document["clip"] = clip
    if draw(st.booleans()):
        document["accept_flags"] = draw(st.sampled_from([[1], [1, 2, 3], [2, 9]]))
    return document


class _State:
    """What the cells are so far: step and length in time [s], and whether there is a grid, levels or bands."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.length = 0
        self.is_grid = False
        self.has_z = False
        self.is_all = False


@st.composite
def _steps(draw: st.DrawFn, state: _State, before: list[Document], *, is_lonlat: bool) -> Document:
    kinds = ["convert", "aggregate", "aggregate", "aggregate"]
    if state.has_z and not state.is_grid:
        # Bands of stations: nothing but time is left to put together.
        pass
    elif not state.is_grid:
        kinds += ["interpolate", "interpolate"]
        if state.step is not None:
            kinds.append("bands")
        # A sum or an extreme of a cell has no value at an instant.
        if not state.is_all and {step.get("function") for step in before} <= _OF_INSTANTS:
            kinds += ["in time", "in time"]
    elif not state.is_all:
        kinds += ["coarser", "coarser"]
    if state.step is not None:
        kinds.append("merge")
    kind = draw(st.sampled_from(kinds))
    if kind == "convert":
        return draw(_converts())
    if kind == "merge":
        other = {"variable": "air_temperature", "steps": [draw(_converts()), *before]}
        return {"op": "merge", "function": draw(st.sampled_from(["difference", "ratio"])), "with": [other]}
    if kind == "in time":
        method, gap = draw(st.sampled_from(["nearest", "linear", "spline"])), draw(st.sampled_from([3, 7, 12, 60]))
        unit = draw(st.sampled_from([60, 90, 300, 600]))
        # Instants every so often, shorter than any cell can be said.
        state.step, state.length = unit, 0
        return {"op": "interpolate", "method": method, "time": f"{unit}s", "params": {"max_gap": f"{gap}min"}}
    if kind == "interpolate":
        state.is_grid = True
        params: Document = {"variogram": draw(VARIOGRAMS)}
        if draw(st.booleans()):
            params["neighbours"] = draw(st.integers(1, 6))
        corner: Document = {"lon": "7:10:39", "lat": "45:52:03", "step": "3arcsec"}
        if not is_lonlat:
            corner = {"x": -240, "y": 0, "step": 120}
        corner["shape"] = [draw(st.integers(1, 4)), draw(st.integers(1, 5))]
        if draw(st.integers(0, 2)) == 0:
            state.has_z = True
            corner["z"] = draw(st.sampled_from(LEVELS))
            params["trend"] = {"lapse_rate": -6.5}
        return {"op": "interpolate", "method": "ordinary_kriging", "grid": corner, "params": params}
    step: Document = {"op": "aggregate", "function": draw(st.sampled_from(REDUCTIONS))}
    if draw(st.booleans()):
        step["params"] = {"min_coverage": draw(st.sampled_from([0.0, 0.3, 0.55, 0.8, 1.0]))}
    if kind == "coarser":
        sizes = ["6arcsec", "9arcsec", "all"] if is_lonlat else [240, 360, "all"]
        if state.has_z and draw(st.booleans()):
            step["z"] = draw(st.sampled_from(COARSER))
        if "z" not in step or draw(st.booleans()):
            step[draw(st.sampled_from(["lat", "lon"] if is_lonlat else ["y", "x"]))] = draw(st.sampled_from(sizes))
        if draw(st.booleans()):
            step["time"] = draw(_times(state))
        state.is_all = True
        return _with_parameters(step)
    if kind == "bands":
        state.has_z = True
        step["z"] = draw(st.sampled_from([*COARSER, {"edges": [2310, 2374, 2375, 2500]}]))
        return _with_parameters(step)
    step["function"] = draw(st.sampled_from(REDUCTIONS + CHOICES))
    step["time"] = draw(_times(state))
    return _with_parameters(step)


def _with_parameters(step: Document) -> Document:
    own = _PARAMETERS.get(step["function"])
    return {**step, "params": {**step.get("params", {}), **own}} if own else step


@st.composite
def _converts(draw: st.DrawFn) -> Document:
    if draw(st.booleans()):
        return {"op": "convert", "function": "valid_range", "params": {"low": -3.0, "high": draw(st.integers(0, 15))}}
    return {"op": "convert", "function": "scale", "params": {"factor": 1.8, "offset": draw(st.sampled_from([0, 32.0]))}}


@st.composite
def _times(draw: st.DrawFn, state: _State) -> object:
    if draw(st.integers(0, 4)) == 0:
        state.step, state.length = 10**9, 10**9
        return "all"
    if state.step == 10**9:
        return "all"
    if state.step is None:
        unit = draw(st.sampled_from([240, 300, 600, 1200]))
    elif state.length > state.step:
        unit = state.step * draw(st.integers(1, 2))
        length = state.length + state.step * draw(st.integers(0, 2))
        state.step, state.length = unit, length
        return {"length": f"{length}s", "step": f"{unit}s"}
    else:
        unit = state.step * draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["touching", "touching", "sliding", "gaps"]))
    if kind == "touching":
        state.step = state.length = unit
        return f"{unit}s"
    times = draw(st.integers(2, 3))
    if kind == "sliding":
        state.step, state.length = unit, unit * times
    else:
        state.step, state.length = unit * times, unit
    return {"length": f"{state.length}s", "step": f"{state.step}s"}
