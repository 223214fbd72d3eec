"""Hypothesis strategies: questions that can be answered, mostly, as JSON documents."""

from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from hypergrid.core.times import SECOND_NS, format_instant, parse_duration
from hypergrid.core.units import KNOWN_VARIABLES
from hypergrid.topology import CYCLES
from tests.support.networks import PACES
from tests.support.time_strategies import DURATIONS, Spec, again, durations, in_time, named

Document = dict[str, Any]

VARIOGRAMS = st.sampled_from(
    [
        {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05},
        {"model": "spherical", "psill": 2.0, "range_m": 400.0},
        {"model": "gaussian", "psill": 0.7, "range_m": 150.0, "nugget": 0.1},
    ]
)
"""Variograms under which the networks of `networks` are told apart."""

CHOICES: Final = ("first", "last", "sample")
OF_ANY: Final = ("min", "max", "count", "exceedance")
"""Aggregates also of directions."""
OF_NUMBERS: Final = ("mean", "mean", "sum", "median", "quantile", "variance", "standard_deviation")
OWN: Final = ("own_travel", "own_power")
KEEPING_UNIT: Final = frozenset({"mean", "min", "max", "median", "quantile", *CHOICES, *OWN})
GRID_METHODS: Final = ("ordinary_kriging", "simple_kriging", "inverse_distance", "nearest", "external_drift_kriging")
METHODS: Final = (*GRID_METHODS, "own_uphill", "linear", "spline")
LEVELS: Final[tuple[Any, ...]] = (
    {"start": 2300, "step": 50, "count": 3}, {"start": 2330, "step": 70, "count": 1},
    {"edges": [2200, 2350, 2360, 2500]}, [2325, 2375, 2425], [2340, 2350, 2500],
)  # fmt: skip
"""Of grids above the networks of `networks`; those between edges differ in height, by which the oracle knows them."""
COARSER: Final = (100, "all", {"edges": [2200, 2350, 2500]}, {"start": 2300, "step": 150, "count": 2})
"""What may be made of them, or of stations."""
BANDS: Final = (*COARSER, {"edges": [2310, 2374, 2375, 2500]})
TRENDS: Final[tuple[Any, ...]] = ({"lapse_rate": -6.5}, "lapse_rate")
OF_INSTANTS: Final = frozenset(
    {"mean", "median", "circular_mean", *CHOICES, *OWN, *METHODS, "valid_range", "limit"}
    | {"scale", "own_soft", "wet", "own_shared", "clear_sky_index"}
    | {
        "difference",
        "ratio",
        "anomaly",
        "standardised_anomaly",
        "dew_point",
        "vapour_pressure_deficit",
        "absolute_humidity",
    }
    | {"specific_humidity", "potential_temperature", "eastward_wind", "northward_wind"}
)
"""Steps after which a value may stand for an instant."""
VANISHING: Final = frozenset(
    {"variance", "standard_deviation", "trend", "difference", "anomaly", "own_travel", "standardised_anomaly"}
    | {"vapour_pressure_deficit"}
)
"""Steps that make 0 of equal values, or in saturated air, but for rounding: nothing is to be divided by them."""
ELEMENTWISE: Final = ("valid_range", "scale", "limit", "own_soft")
FORMULAS: Final = {
    "vapour_pressure_deficit": ("air_temperature", "relative_humidity"),
    "absolute_humidity": ("air_temperature", "relative_humidity"),
    "specific_humidity": ("air_temperature", "relative_humidity", "air_pressure"),
    "potential_temperature": ("air_temperature", "air_pressure"),
    "dew_point": ("relative_humidity", "air_temperature"),
    "relative_humidity": ("dew_point", "air_temperature"),
    "eastward_wind": ("wind_speed", "wind_direction"),
    "northward_wind": ("wind_speed", "wind_direction"),
}
"""Merges of different variables, in their order."""


@dataclass
class _State:
    """What the steps so far have made of the readings."""

    variable: str
    pace: str
    is_lonlat: bool
    own: bool
    merges: bool
    """Whether there are other variables."""
    unit: str
    has_ground: bool = False
    """Whether there is a layer of elevation."""
    is_array: bool = False
    spec: Spec | None = None
    """The time cells; None for readings and the instants of an array."""
    space: str = "stations"
    shape: tuple[int, int] = (1, 1)
    levels: int = 0
    """Of a grid above the ground; 0 on it."""
    is_window_needed: bool = False
    """Whether different variables need a clip to be over the same time."""
    merged: int = 0
    """Merges so far: each takes the steps before once more."""
    names: list[str] = field(default_factory=list)
    """Functions and methods so far."""

    @property
    def is_over(self) -> bool:
        """Whether nothing in time is left to aggregate."""
        return self.spec is not None and self.spec.kind == "again"

    @property
    def is_counter(self) -> bool:
        """Whether the values are readings of a counter."""
        kept = {*CHOICES, *ELEMENTWISE, *METHODS, "wet"}
        return self.variable == "rain_meter" and set(self.names) <= kept

    @property
    def is_placed(self) -> bool:
        """Whether it is known where the sun is."""
        return self.is_lonlat and self.spec is not None and not self.is_over and self.space not in ("zones", "bands")


@st.composite
def documents(  # noqa: PLR0913 - what the questions may be about
    draw: st.DrawFn, *, is_lonlat: bool, pace: str = "minutes", variables: tuple[str, ...] = ("air_temperature",),
    own: bool = False, merges: bool = False, has_ground: bool = False,
) -> Document:  # fmt: skip
    """Return a question of up to four steps, with a clip in time and space perhaps.

    Parameters
    ----------
    draw
        Given by Hypothesis.
    is_lonlat
        Whether stations have longitude and latitude, as those of an archive; else they are an array's, in metres.
    pace
        Key of `networks.PACES`.
    variables
        What the question may be about; each as often as it is named.
    own
        Whether the functions of `own_functions` are known.
    merges
        Whether all variables of `networks.VALUES` are there to be merged.
    has_ground
        Whether there is a layer of elevation.
    """
    variable = draw(st.sampled_from(variables))
    unit = KNOWN_VARIABLES[variable].unit
    state = _State(variable, pace, is_lonlat, own, merges, unit, has_ground, is_array=not is_lonlat)
    steps: list[Document] = []
    if merges and variable == "wind_speed" and draw(st.booleans()):
        steps = draw(_winds(state))
    for _ in range(draw(st.sampled_from([0, 1, 2, 2, 3, 3, 4, 4, 4])) - len(steps)):
        steps.append(draw(_steps(state, steps)))
    document: Document = {"variable": variable, "steps": steps}
    clip: Document = {}
    # Of months and years a window seldom holds a corner.
    seldom = state.spec is not None and state.spec.kind == "bins"
    if state.is_window_needed or draw(st.integers(0, 5 if seldom else 1)) == 0:
        clip["time"] = draw(_windows(state))
    if state.space == "grid" and draw(st.integers(0, 2)) == 0:
        places = [("lat", 45.868), ("lon", 7.178)] if is_lonlat else [("y", 120), ("x", -120)]
        for (name, low), cells in zip(places, state.shape, strict=True):
            if cells > 1:
                clip[name] = [low, low + (0.002 if is_lonlat else 500)]
    if (state.levels > 1 or state.space == "bands") and draw(st.integers(0, 2)) == 0:
        clip["z"] = draw(st.sampled_from([[2200, 2360], [2340, 2500], [2300, 2301]]))
    if clip:
        document["clip"] = clip
    if (merges or not is_lonlat) and draw(st.integers(0, 7)) == 0:
        # An array may have one station alone, of the number 0.
        chosen = ["s1", ["s0", "s1"], ["s1", "s2"]] if is_lonlat else ["0", ["0", "2"]]
        _select(document, draw(st.sampled_from(chosen)))
    if is_lonlat and draw(st.integers(0, 2)) == 0:
        document["accept_flags"] = draw(st.sampled_from([[1], [1, 2, 3], [2, 9]]))
    return document


def _select(document: Document, stations: object) -> None:
    """Ask for the readings of some stations alone, also in the queries that are merged."""
    document["select"] = {"station": stations}
    for step in document["steps"]:
        for other in step.get("with", []):
            _select(other, stations)


@st.composite
def _windows(draw: st.DrawFn, state: _State) -> list[str]:
    """Return a time within that of the network, on the sixtieth parts of it."""
    own = PACES[state.pace]
    part_s = round(own.days * 86_400 / 60)
    first = draw(st.integers(2, 35))
    last = first + draw(st.integers(6, 30))
    return [format_instant(own.start_ns + at * part_s * SECOND_NS) for at in (first, last)]


@st.composite
def _winds(draw: st.DrawFn, state: _State) -> list[Document]:
    """Return the mean of a wind by its components: as speed or direction, or one component of it."""
    fine = Spec.of(f"{draw(st.sampled_from(DURATIONS[state.pace]))}s")
    aligned = {"op": "aggregate", "function": draw(st.sampled_from(CHOICES)), "time": fine.json}
    coarse = draw(durations(state.pace, fine))
    mean = {"op": "aggregate", "function": "mean", "time": coarse.json, "params": {"min_coverage": 0.3}}
    direction = {"variable": "wind_direction", "steps": [aligned]}
    parts = [
        [aligned, {"op": "merge", "function": name, "with": [direction]}, mean]
        for name in ("eastward_wind", "northward_wind")
    ]
    state.spec, state.unit = coarse, "m s-1"
    state.names += ["eastward_wind", "mean"]
    state.merged = 1
    made = draw(st.sampled_from([None, "wind_speed", "wind_direction"]))
    if made is None:
        return parts[0]
    state.unit = "degree" if made == "wind_direction" else state.unit
    state.names.append(made)
    return [*parts[0], {"op": "merge", "function": made, "with": [{"variable": "wind_speed", "steps": parts[1]}]}]


@st.composite
def _steps(draw: st.DrawFn, state: _State, before: list[Document]) -> Document:
    kinds = ["convert"] * (8 if state.is_placed and state.variable == "solar_radiation" else 1)
    if not state.is_over:
        kinds += ["aggregate"] * 4
    is_direction = state.unit == "degree"
    if state.space == "stations" and not is_direction:
        kinds += ["interpolate"] * 3
        # A sum or an extreme of a cell has no value at an instant.
        if not state.is_over and (state.spec is None or state.spec.json != "all") and set(state.names) <= OF_INSTANTS:
            kinds += ["in time"] * 3
    if state.space == "grid":
        kinds += ["coarser"] * 6
    if (state.space == "stations" or (state.space == "grid" and state.has_ground and not state.levels)) and (
        state.spec is not None or state.is_array
    ):
        kinds += ["bands"]
    if (state.spec is not None or state.is_array) and state.merged < 2:
        kinds += ["merge"] * (1 if state.merged else 5)
    # What comes back from a dew point, or from a share of the clear sky, follows it.
    if state.names[-1:] == ["dew_point"]:
        kinds = ["merge"]
    if state.names[-1:] == ["clear_sky_index"] and state.is_placed:
        kinds += ["convert"] * (3 * len(kinds))
    kind = draw(st.sampled_from(kinds))
    if kind == "convert":
        made = draw(_converts(state))
    elif kind == "merge":
        made = draw(_merges(state, before))
        state.merged += 1
    elif kind == "in time":
        made, state.spec = draw(in_time(state.pace))
    elif kind == "interpolate":
        made = draw(_grids(state))
    else:
        made = draw(_aggregates(state, over_space="" if kind == "aggregate" else kind))
    state.names.append(made["method" if made["op"] == "interpolate" else "function"])
    return made


@st.composite
def _grids(draw: st.DrawFn, state: _State) -> Document:
    state.space, state.shape = "grid", (draw(st.integers(1, 4)), draw(st.integers(1, 5)))
    if state.spec is None and not state.is_array:
        # Readings become the first of each slice.
        state.spec = Spec.of(f"{round(PACES[state.pace].slice_s)}s")
    corner: Document = {"lon": "7:10:39", "lat": "45:52:03", "step": "3arcsec"}
    if not state.is_lonlat:
        corner = {"x": -240, "y": 0, "step": 120}
    if draw(st.integers(0, 2)) == 0:
        said = corner["z"] = draw(st.sampled_from(LEVELS))
        state.levels = len(said) if isinstance(said, list) else said.get("count") or len(said["edges"]) - 1
    knows_heights = state.levels > 0 or state.has_ground
    own = ("own_uphill",) if state.own else ()
    methods = ("ordinary_kriging", *own, *(GRID_METHODS if knows_heights else GRID_METHODS[:-1]))
    method = draw(st.sampled_from(methods))
    params: Document = {"variogram": draw(VARIOGRAMS)} if "kriging" in method else {}
    is_drifting = method == "external_drift_kriging"
    # A drift in height takes a trend in it along.
    if not is_drifting and (state.levels or (knows_heights and draw(st.booleans()))):
        params["trend"] = draw(st.sampled_from(TRENDS))
    if method == "simple_kriging":
        params["mean"] = draw(st.sampled_from([0.0, 4.5]))
    if method in own:
        params |= {"tilt": 0.02} if draw(st.booleans()) else {}
        step: Document = {"op": "interpolate", "method": method, "grid": {**corner, "shape": list(state.shape)}}
        return {**step, "params": params} if params else step
    if method != "nearest" and draw(st.booleans()):
        params["neighbours"] = draw(st.integers(2 if is_drifting else 1, 6))
    if method == "inverse_distance" and draw(st.booleans()):
        params["power"] = draw(st.sampled_from([1.0, 3.5]))
    if draw(st.integers(0, 3)) < (1 if "kriging" in method else 2):
        params["radius_m"] = draw(st.sampled_from([90.0, 220.0, 500.0]))
    step = {"op": "interpolate", "method": method, "grid": {**corner, "shape": list(state.shape)}}
    return {**step, "params": params} if params else step


@st.composite
def _aggregates(draw: st.DrawFn, state: _State, *, over_space: str) -> Document:
    step: Document = {"op": "aggregate"}
    if over_space == "bands":
        step["z"] = draw(st.sampled_from(BANDS))
        state.space = "bands"
    elif over_space:
        if state.levels < 2 and draw(st.integers(0, 2)):
            step["zones"] = draw(_zones(state))
            state.space = "zones"
        else:
            step.update(draw(_coarser(state)))
            state.space = "coarser"
    over_time = not state.is_over and (not over_space or draw(st.booleans()))
    name = draw(st.sampled_from(_functions(state, over_time=over_time, over_space=bool(over_space))))
    if over_time:
        calendar = named(state.pace, state.spec, is_lonlat=state.is_lonlat)
        spec = draw(st.one_of(calendar, calendar, durations(state.pace, state.spec)))
        step["time"], state.spec = spec.json, spec
    params = draw(_parameters(state, name))
    if draw(st.booleans()):
        params["min_coverage"] = draw(st.sampled_from([0.0, 0.0, 0.3, 0.55, 0.8, 1.0]))
    if name == "count":
        state.unit = "1"
    elif name not in KEEPING_UNIT and name not in ("circular_mean", "rain_accumulation"):
        state.unit = "other"
    return {**step, "function": name, **({"params": params} if params else {})}


@st.composite
def _coarser(draw: st.DrawFn, state: _State) -> Document:
    """Return coarser levels, rows or columns, or several of these."""
    sizes = ["6arcsec", "9arcsec", "all"] if state.is_lonlat else [240, 360, "all"]
    names = ["lat", "lon"] if state.is_lonlat else ["y", "x"]
    if state.levels:
        names.append("z")
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return {name: draw(st.sampled_from(COARSER if name == "z" else sizes)) for name in chosen}


def _functions(state: _State, *, over_time: bool, over_space: bool) -> list[str]:
    """Return the aggregates that fit what is there; time alone has more."""
    names = [*OF_ANY, *(OWN if state.own else ())]
    if state.unit == "degree":
        names += ["circular_mean"] * 6
    elif state.is_counter:
        names += ["trend"] if over_time else []
    else:
        names += [*OF_NUMBERS, *(["trend"] * 2 if over_time else [])]
    if over_time and not over_space:
        names += CHOICES
        lasting = state.spec.is_lasting if state.spec else not state.is_array and state.pace != "minutes"
        if state.unit == "degC" and lasting:
            names += ["degree_days"] * 3
        if state.unit == "mm" and "rain_accumulation" not in state.names:
            names += ["rain_accumulation"] * 12
    return names


@st.composite
def _parameters(draw: st.DrawFn, state: _State, name: str) -> Document:
    if name == "quantile":
        return {"q": draw(st.sampled_from([0.0, 0.3, 0.9]))}
    if name == "exceedance":
        return {"threshold": 4.56789, "side": draw(st.sampled_from(["above", "below"]))}
    if name == "trend":
        return {"per": draw(st.sampled_from(["day", "year", "decade"]))}
    if name == "degree_days":
        return {"base": 3.1, **draw(st.sampled_from([{}, {"upper": 9.7}]))}
    if name == "rain_accumulation":
        longest = draw(st.sampled_from([None, 2, 5, 40]))
        return {} if longest is None else {"max_gap": f"{round(PACES[state.pace].slice_s * longest)}s"}
    return {"exponent": 1.5} if name == "own_power" and draw(st.booleans()) else {}


@st.composite
def _zones(draw: st.DrawFn, state: _State) -> Document:
    """Return polygons over a grid and beyond: rectangles, triangles, one with a hole; perhaps one elsewhere."""
    size = 3 / 3600 if state.is_lonlat else 120.0
    west, south = (7.1775, 45.8675) if state.is_lonlat else (-240.0, 0.0)

    def at(column: float, row: float) -> list[float]:
        return [west + column * size, south + row * size]

    def ring(*corners: tuple[float, float]) -> list[list[float]]:
        return [at(*corner) for corner in (*corners, corners[0])]

    made: Document = {}
    for number in range(draw(st.integers(1, 3))):
        # Odd parts of cells, so that no share is a half.
        x, y = (draw(st.integers(-2, most)) + 0.137 for most in (state.shape[1], state.shape[0]))
        width, height = draw(st.integers(0, 3)) + 0.719, draw(st.integers(0, 3)) + 0.291
        rectangle = ring((x, y), (x + width, y), (x + width, y + height), (x, y + height))
        third = 0.21
        rings = draw(
            st.sampled_from(
                [
                    [rectangle],
                    [ring((x, y), (x + width, y + third), (x + third, y + height))],
                    [rectangle, ring((x + third * width, y + third * height), (x + width / 2, y + third * height),
                                     (x + third * width, y + height / 2))],
                ]
            )
        )  # fmt: skip
        made[f"zone {number}"] = {"type": "Polygon", "coordinates": rings}
    if draw(st.integers(0, 4)) == 0:
        made["elsewhere"] = {"type": "Polygon", "coordinates": [ring((30.0, 30.0), (31.0, 30.0), (31.0, 31.0))]}
    return made


@st.composite
def _converts(draw: st.DrawFn, state: _State) -> Document:
    names = [*ELEMENTWISE[:3], *(ELEMENTWISE[3:] if state.own else ())]
    if state.variable == "rain_meter":
        names += ["wet"]
    if state.is_placed and state.variable == "solar_radiation" and state.unit == "W m-2":
        names = ["clear_sky_index", *names[:1]]
    elif "clear_sky_index" in state.names and state.is_placed and "from_clear_sky_index" not in state.names:
        names += ["from_clear_sky_index"] * 5
    name = draw(st.sampled_from(names))
    if name == "clear_sky_index":
        state.unit = "1"
    params = {
        "valid_range": {"low": -3.0, "high": draw(st.integers(0, 15)) + (60.5 if state.unit in ("%", "kPa") else 0.5)},
        "scale": {"factor": 1.8, "offset": draw(st.sampled_from([0, 32.0]))},
        "limit": {"low": -1.25, "high": 60.5 if state.unit == "degree" else 7.75},
    }.get(name, {})
    if name == "wet":
        state.unit = "1"
    return {"op": "convert", "function": name, **({"params": params} if params else {})}


@st.composite
def _normals(draw: st.DrawFn, state: _State, before: list[Document]) -> Document:
    """Return a merge with a climatology, of all readings or of those in its own clip."""
    spec = draw(again(state.pace, state.spec, is_lonlat=state.is_lonlat))
    clip = {"clip": {"time": draw(_windows(state))}} if draw(st.booleans()) else {}

    def normal(function: str) -> Document:
        mean = {"op": "aggregate", "function": function, "time": spec.json, "params": {"min_coverage": 0.1}}
        return {"variable": state.variable, "steps": [*before, mean], **clip}

    # A spread of values that are equal but for rounding is nothing to divide by.
    is_plain = state.spec is None or state.spec.step == state.spec.length
    varies = is_plain and set(state.names) <= {"mean", "valid_range", "scale", "ordinary_kriging", "inverse_distance"}
    name = draw(st.sampled_from(["standardised_anomaly"] * 3 * varies + ["anomaly", "difference"]))
    state.unit = "other"
    spread = [normal("standard_deviation")] if name == "standardised_anomaly" else []
    return {"op": "merge", "function": name, "with": [normal("mean"), *spread]}


@st.composite
def _merges(draw: st.DrawFn, state: _State, before: list[Document]) -> Document:
    has_times = not state.is_over and (state.spec is None or state.spec.json != "all")
    if has_times and state.unit != "degree" and not state.merged and draw(st.integers(0, 4)) == 0:
        return draw(_normals(state, before))
    simple = ["difference", "ratio", "anomaly", *(["own_shared"] if state.own else [])]
    formulas = [
        name
        for name, of in FORMULAS.items()
        if state.merges and of[0] == state.variable and state.unit == KNOWN_VARIABLES[state.variable].unit
    ]
    plain = KEEPING_UNIT | {*ELEMENTWISE[:2], *METHODS}
    if "wind" in state.variable:
        plain = frozenset({*CHOICES, "min", "max", *ELEMENTWISE[:2]})
    if not set(state.names) <= plain or state.space == "zones":
        formulas = []
    if VANISHING & set(state.names) or state.unit == "degC":
        simple.remove("ratio")
    if formulas and state.variable == "relative_humidity":
        formulas = ["dew_point"] * 3
    name = draw(st.sampled_from([*formulas * 6, *simple]))
    if state.names[-1:] == ["dew_point"]:
        name = "relative_humidity"
    if name in FORMULAS:
        state.unit = {"dew_point": "degC", "relative_humidity": "%"}.get(name, "m s-1" if "wind" in name else "other")
        steps = [step for step in before if step["op"] != "merge"]
        others = [{"variable": variable, "steps": steps} for variable in FORMULAS[name][1:]]
        state.is_window_needed |= state.spec is not None and state.spec.is_of_all
        return {"op": "merge", "function": name, "with": others}
    variable, changed = state.variable, None
    if state.merges and variable == "air_temperature" and draw(st.booleans()):
        variable = "surface_temperature"
        state.is_window_needed |= state.spec is not None and state.spec.is_of_all
    if name in ("difference", "anomaly") and state.unit == "degC" and not state.merged and set(state.names) <= plain:
        params = {"factor": 1.8, "offset": 32.0, "unit": "degF"}
        changed = draw(st.sampled_from([None, {"op": "convert", "function": "scale", "params": params}]))
    if name in ("ratio",) or state.unit != "degree":
        state.unit = "other" if name != "own_shared" else state.unit
    changed = changed or draw(
        _converts(_State(variable, state.pace, state.is_lonlat, own=False, merges=False, unit=state.unit))
    )
    # Either before or after the same steps, so that sources with counts of their own are met.
    again = [_respelled(step) for step in before] if draw(st.booleans()) else before
    steps = [changed, *again] if draw(st.booleans()) else [*again, changed]
    return {"op": "merge", "function": name, "with": [{"variable": variable, "steps": steps}]}


def _respelled(step: Document) -> Document:
    """Return an aggregate over the same cells that come again, written in another way; other steps as they are."""
    cells = step.get("time")
    if isinstance(cells, str) and cells in CYCLES:
        return {**step, "time": {"periodic": cells, "zone": "UTC"}}
    if isinstance(cells, dict) and "within" in cells:
        longer = {name: f"{parse_duration(cells[name]) // SECOND_NS}s" for name in ("periodic", "within")}
        return {**step, "time": {**cells, **longer}}
    return step
