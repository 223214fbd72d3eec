"""First queries: what to ask of an archive at first, and a query carried over to another variable.

`suggest` answers with one map (or, without positions, a line for each station) of the newest whole day, or of a longer
time where readings are rarer. `adapt` keeps what makes sense of a query when its variable changes: bounds, thresholds
and variograms belong to one variable, while the grid, the time and the order of the steps do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import CHUNK_SERIES
from hypergrid.core.errors import HyperGridError, InvalidQuery
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import DAY_NS, SECOND_NS, Window, format_duration, format_instant
from hypergrid.core.units import Variable, is_known_counter
from hypergrid.interpolation import AUTO
from hypergrid.perspective.sources.archive_source import refuse_withdrawn
from hypergrid.perspective.sources.series_selection import SELECTED_BY_DEFAULT
from hypergrid.perspective.spec.document_time import clip_in_time
from hypergrid.perspective.spec.query_spec import RECIPE, question_from_json
from hypergrid.query import OpenArchive, Query

Document = dict[str, Any]
"""JSON form of a query."""

LEAST_STATIONS: Final = 3
"""Fewest places of stations of a map."""
CELLS: Final = 100
"""Cells along the longer side of a grid."""
MANY_STATIONS: Final = 1000
"""Above this number of stations a grid has half as many cells along a side."""
LENGTHS_DAYS: Final = (1, 7, 28, 365)
"""Lengths of time to choose from [d]."""
COMPLETE: Final = 0.8
"""Share of the expected readings from which a series has a mean, and of the series from which a day is full."""
LEAST_READINGS: Final = 4
"""Fewest readings of the median station in the chosen time."""
SAMPLED_SERIES: Final = 200
"""Series that are read to learn when a variable was measured, and whether it varies."""
SAMPLED_READINGS: Final = 500_000
"""Approximate number of readings to read for that."""
MOST_READINGS: Final = 4 * SAMPLED_READINGS
"""Approximate number of readings after which the search for that time ends."""
BACK_DAYS: Final = (1, 8, 64, 512, 4096, 65_536)
"""How far to look back from the last reading of all for the time until which a quarter of the series report [d]."""
RIM: Final = 0.1
"""Margin of a grid around the stations [share of their extent]."""
LEAST_RIM_DEG: Final = 5e-4
FAR: Final = 5.0
"""Distance from the middle of the stations beyond which one is left outside the grid [that of three quarters]."""
CIRCLE: Final = "degree"
"""Unit of directions."""
PREFERRED: Final = ("air_temperature",)
"""CF standard names of the variables to begin with."""

_BY_STATISTIC: Final = {"total": "sum", "max": "max", "min": "min"}
_OF_ONE_VARIABLE: Final = frozenset({"scale", "wet", "clear_sky_index", "from_clear_sky_index"})
"""Converts that make sense for the variable they were written for."""
_BOUNDS: Final = frozenset({"valid_range", "limit"})
_NATURAL: Final = frozenset({"mean", "sum", "min", "max", "rain_accumulation", "circular_mean"})
"""Aggregates that are exchanged for the natural one of another variable."""
_THRESHOLDS: Final = frozenset({"exceedance", "degree_days"})


@dataclass(frozen=True)
class Suggestion:
    """A query, and what was decided on the way to it."""

    query: Document
    """Its JSON form."""
    notes: tuple[str, ...]


def suggest(archive: OpenArchive, variable: str | None = None) -> Query:
    """Build a first query: the newest whole day of a variable as a map around its stations.

    Parameters
    ----------
    archive
        What `hg.open` returns.
    variable
        Name of the variable; absent: air temperature if there is some, else one that many stations measure and that
        varies.

    Returns
    -------
    A query like any other. Rare readings get a longer time; fewer than three known positions a line for each station;
    a counter what it grew by, totals their sum, directions the components of the wind.

    Raises
    ------
    NotFound
        The variable does not exist.
    InvalidQuery
        The archive, or the variable, has no readings.
    """
    return archive.query(suggest_document(archive, variable).query)


def suggest_document(archive: OpenArchive, variable: str | None = None) -> Suggestion:
    """Return the JSON form of `suggest`, with notes. Parameters and errors as there."""
    return _suggest_of(archive, _require_recent(archive, variable))


def adapt(archive: OpenArchive, document: Mapping[str, Any], variable: str) -> Suggestion:
    """Carry a query over to another variable.

    A query that `suggest` made becomes the one of the other variable. Of others, bounds become the range that the
    archive's quality tests allow, the aggregate in time becomes the natural one (growth of counters, sums of totals,
    mean directions), variograms and known means are replaced, and series are selected by station only.

    Parameters
    ----------
    archive
        What `hg.open` returns.
    document
        JSON form of the query.
    variable
        Name of the other variable.

    Raises
    ------
    NotFound
        A variable does not exist.
    InvalidQuery
        The document is no query, or the other variable has no readings.
    """
    plain = question_from_json(document).to_json()
    if plain["variable"] == variable:
        return Suggestion(dict(document), ())
    archive.store.variable(plain["variable"])
    recent = _require_recent(archive, variable)
    fresh = _suggest_of(archive, recent)
    keeps = _pick(document, "snapshot", "as_of", "accept_flags", "variance")
    if _is_suggested(archive, plain, keeps):
        return Suggestion(fresh.query | keeps, fresh.notes)
    adapted = _Adaption(archive, recent, fresh, plain["variable"]).adapt(plain, keeps)
    for query, notes in ((adapted.query, ()), ({**adapted.query, "variance": False}, ("variance is left out",))):
        try:
            archive.query(query).surface()
        except HyperGridError as error:
            refusal = str(error)
            continue
        return Suggestion(query, (*adapted.notes, *notes))
    return Suggestion(
        fresh.query, (f"a first query of {variable}, as the steps do not suit it: {refusal}", *fresh.notes)
    )


def _is_suggested(archive: OpenArchive, plain: Document, keeps: Document) -> bool:
    """Return whether a query is what `suggest` makes of its variable."""
    if len(plain["steps"]) > 2:
        return False
    suggested = suggest_document(archive, plain["variable"]).query | keeps
    return question_from_json(suggested).to_json() == plain


# What was measured lately


@dataclass(frozen=True)
class _Recent:
    """What a sample of a variable's series did lately."""

    variable: Variable
    series: tuple[Series, ...]
    """Series that the query reads, at most one per station unless nothing tells them apart."""
    select: Document
    window: Window
    spacing_ns: int
    """Usual distance of readings."""
    reporting: int
    """Number of sampled series with an accepted reading in the window."""
    varies: bool
    """Whether means over the window differ between series."""

    @property
    def is_direction(self) -> bool:
        return self.variable.unit == CIRCLE

    @property
    def is_wind_direction(self) -> bool:
        return self.is_direction and bool({"wind_from_direction", "wind_direction"} & set(_names_of(self.variable)))

    @property
    def aggregate(self) -> str:
        """The natural aggregate over time."""
        by_statistic = _BY_STATISTIC.get(self.series[0].statistic)
        if by_statistic is None and is_known_counter(self.variable):
            return "rain_accumulation"
        if self.is_direction:
            return "circular_mean"
        return by_statistic or "mean"


def _require_recent(archive: OpenArchive, variable: str | None) -> _Recent:
    """Look at a variable, or at the one to begin with; raises `InvalidQuery` without readings."""
    recent = _choose_variable(archive) if variable is None else _look_at(archive, variable)
    if recent is None:
        if variable is not None:
            refuse_withdrawn(archive.store, variable)
        name = "the archive" if variable is None else f"variable {variable!r}"
        raise InvalidQuery(f"{name} has no readings yet; ingest some, and ask again")
    return recent


def _choose_variable(archive: OpenArchive) -> _Recent | None:
    """Choose the variable to begin with: one that varies, and that many stations measure."""
    looked = (recent for name in _order_variables(archive) if (recent := _look_at(archive, name)) is not None)
    return max(looked, key=lambda recent: _worth(archive, recent), default=None)


def _worth(archive: OpenArchive, recent: _Recent) -> tuple[bool, bool, bool, bool, int]:
    return (
        recent.varies and not recent.is_direction,
        recent.variable.standard_name in PREFERRED,
        recent.variable.standard_name is not None,
        not is_known_counter(recent.variable),
        min(recent.reporting, len(_find_places(archive, recent.series)) or 1),
    )


def _order_variables(archive: OpenArchive) -> Sequence[str]:
    """Return at most eight variables: preferred ones, then those of many series."""
    counts = {name: len(archive.store.list_series(name)) for name in archive.variables}
    is_preferred = {name: variable.standard_name in PREFERRED for name, variable in archive.variables.items()}
    return sorted(counts, key=lambda name: (not is_preferred[name], -counts[name]))[:8]


def _look_at(archive: OpenArchive, name: str) -> _Recent | None:
    """Look at the newest readings of a variable; None if there are none."""
    variable, store = archive.store.variable(name), archive.store
    extent = store.extent(name)
    listed = store.list_series(name)
    if extent is None or not listed:
        return None
    chosen, select = _choose_series(listed)
    days = max((extent.stop_ns - extent.start_ns) / DAY_NS, 1.0)
    rate = max(store.readings(name) / len(listed) / days, 1e-3)
    series = tuple(listed[index] for index in chosen.tolist())
    sampled = _sample(chosen, rate * 8)
    end_ns, spacing_ns = _find_common_end(archive, name, chosen, extent, rate)
    stop_ns = _find_full_day(archive, name, sampled, end_ns, spacing_ns)
    window, accepted = extent, Readings.empty()
    for length in LENGTHS_DAYS:
        window = _whole_days(stop_ns, length, extent)
        accepted = _read_accepted(archive, name, _sample(chosen, rate * length), window)
        counts = np.unique(accepted.index, return_counts=True)[1]
        is_enough = len(counts) > 0 and np.median(counts) >= LEAST_READINGS
        if is_enough or window.start_ns <= extent.start_ns:
            break
    means = _mean_by_series(accepted)
    varies = len(means) > 1 and bool(np.ptp(means) > 1e-9 * np.abs(means).max())
    return _Recent(variable, series, select, window, spacing_ns, len(means), varies)


def _choose_series(series: Mapping[int, Series]) -> tuple[NDArray[np.intp], Document]:
    """Choose series by statistic, then height, interval and the like until each station has one.

    Of several values that which leaves the most stations is chosen. Returns the indices of the series, and the
    selection of a query that reads the same.
    """
    indices = list(series)
    select: Document = {}
    by_default = [index for index in indices if series[index].statistic in SELECTED_BY_DEFAULT["statistic"]]
    if 2 * _count_stations(series, by_default) >= _count_stations(series, indices):
        indices = by_default
    for name in ("statistic", "height_m", "interval_s", "replicate", "source"):
        is_single = _count_stations(series, indices) == len(indices)
        is_readable = bool(select) or set(indices) <= set(by_default)
        if is_single and is_readable:
            continue
        groups: dict[object, list[int]] = {}
        for index in indices:
            groups.setdefault(getattr(series[index], name), []).append(index)
        if len(groups) > 1 or not is_readable:
            select[name], indices = max(groups.items(), key=lambda group: _count_stations(series, group[1]))
    return np.array(indices, np.intp), select


def _count_stations(series: Mapping[int, Series] | tuple[Series, ...], indices: Sequence[int]) -> int:
    return len({series[index].station for index in indices})


def _sample(chosen: NDArray[np.intp], each: float) -> NDArray[np.intp]:
    """Return some of the series, few enough that not too much is read; `each` is the readings of one.

    They are taken in runs, as neighbours are stored together.
    """
    count = max(min(len(chosen), SAMPLED_SERIES, int(SAMPLED_READINGS / max(each, 1.0))), min(len(chosen), 8))
    runs = max(1, count // CHUNK_SERIES)
    starts = np.linspace(0, len(chosen) - count // runs, runs).round().astype(np.intp)
    return chosen[np.unique(starts[:, None] + np.arange(count // runs))]


def _find_common_end(
    archive: OpenArchive, name: str, chosen: NDArray[np.intp], extent: Window, rate: float
) -> tuple[int, int]:
    """Return until when a quarter of the series report [ns since 1970], and the usual spacing of readings [ns].

    A single clock that runs ahead does not decide it, nor do stations that died long ago. `rate` is the readings of a
    series in a day.
    """
    ends = np.empty(0, np.int64)
    spacing_ns = 0
    for days in BACK_DAYS:
        start_ns = max(extent.stop_ns - days * DAY_NS, extent.start_ns)
        sampled = _sample(chosen, rate * days)
        accepted = _read_accepted(archive, name, sampled, Window(start_ns, extent.stop_ns))
        if len(accepted):
            is_last = np.append(accepted.index[1:] != accepted.index[:-1], True)  # noqa: FBT003
            steps = np.diff(accepted.time_ns)[~is_last[:-1]]
            spacing_ns = int(np.median(steps)) if len(steps) else 0
            # A stamp at the end of an interval is the end already.
            is_end = np.array([each.stamp == "end" for each in accepted.series])
            ends = accepted.time_ns[is_last] + np.where(is_end[accepted.index[is_last]], 0, max(spacing_ns, 1))
        if start_ns <= extent.start_ns or len(ends) * 2 >= len(sampled):
            break
        if rate * days * len(sampled) > MOST_READINGS:
            break
    return int(np.quantile(ends, 0.75, method="lower")) if len(ends) else extent.stop_ns, spacing_ns


def _read_accepted(archive: OpenArchive, name: str, indices: NDArray[np.intp], window: Window) -> Readings:
    """Read what queries accept by default, ordered by series and time."""
    readings = archive.store.read(name, window=window, series=np.sort(indices))
    return readings.take_rows(np.isin(readings.flag, ACCEPTED_BY_DEFAULT) & np.isfinite(readings.value))


def _find_full_day(archive: OpenArchive, name: str, sampled: NDArray[np.intp], end_ns: int, spacing_ns: int) -> int:
    """Return the end of the newest whole day (UTC) in which nearly as many series are complete as in any of a week."""
    stop_ns = end_ns // DAY_NS * DAY_NS
    start_ns = stop_ns - 7 * DAY_NS
    accepted = _read_accepted(archive, name, sampled, Window(start_ns, stop_ns + DAY_NS))
    days = (accepted.starts_ns() - start_ns) // DAY_NS
    is_inside = (days >= 0) & (days < 7)
    if not is_inside.any():
        return stop_ns
    counts = np.bincount(accepted.index[is_inside] * 7 + days[is_inside], minlength=7 * len(accepted.series))
    is_total = accepted.series[int(sampled[0])].statistic == "total"
    expected = DAY_NS / spacing_ns if spacing_ns else 1.0
    needed = max(expected * (1.0 if is_total else COMPLETE), 1.0)
    complete = (counts.reshape(-1, 7) >= math.floor(needed)).sum(axis=0)
    good = np.flatnonzero(complete >= COMPLETE * max(complete.max(), 1))
    return start_ns + (int(good[-1]) + 1) * DAY_NS if len(good) else stop_ns


def _whole_days(end_ns: int, days: int, extent: Window) -> Window:
    """Return the last whole days before an instant, in UTC; all of an extent that has none."""
    stop_ns = end_ns // DAY_NS * DAY_NS
    start_ns = stop_ns - days * DAY_NS
    if stop_ns - DAY_NS < extent.start_ns:
        return extent
    # A first day that is cut short counts as a day of its own.
    return Window(max(start_ns, extent.start_ns // DAY_NS * DAY_NS), stop_ns)


def _mean_by_series(readings: Readings) -> NDArray[np.float64]:
    if not len(readings):
        return np.empty(0)
    _, group = np.unique(readings.index, return_inverse=True)
    return np.asarray(np.bincount(group, readings.value) / np.bincount(group))


# The query of it


def _suggest_of(archive: OpenArchive, recent: _Recent) -> Suggestion:
    places = _find_places(archive, recent.series)
    notes = [_describe_time(recent)]
    for steps, note in _propose_steps(archive, recent, places):
        document = _make_document(recent, steps)
        try:
            archive.query(document).surface()
        except HyperGridError as error:
            notes.append(f"{note}: not possible, {error}")
            continue
        return Suggestion(document, (*notes, note))
    return Suggestion(_make_document(recent, []), (*notes, "the readings as they are"))


def _make_document(recent: _Recent, steps: list[Document]) -> Document:
    document: Document = {"variable": recent.variable.name}
    if recent.select:
        document["select"] = recent.select
    document["steps"] = steps
    return clip_in_time(document, recent.window)


def _propose_steps(
    archive: OpenArchive, recent: _Recent, places: NDArray[np.float64]
) -> Iterator[tuple[list[Document], str]]:
    """Yield chains of steps, the best first, each with a note."""
    function = recent.aggregate
    whole: Document = {"op": "aggregate", "function": function, "time": "all"}
    lines: Document = {"op": "aggregate", "function": function, "time": _choose_cell(recent)}
    if len(places) < LEAST_STATIONS:
        stations = _count_stations(recent.series, range(len(recent.series)))
        yield (
            [lines],
            f"a line for each station, no map: a map needs {LEAST_STATIONS} stations at different known positions, and "
            f"of the {stations} here {len(places)} have one; positions are lon and lat of each station in "
            "deployment.toml; ingest with --remap brings them in",
        )
        return
    near = _select_near(places)
    terrain = archive.layers.entries.get("elevation")
    grid = make_grid(
        places[near], None if terrain is None else (terrain.west, terrain.south, terrain.east, terrain.north)
    )
    rows, columns = grid["shape"]
    map_note = f"{function} at each of {len(places)} places, interpolated on {rows} x {columns} cells"
    if not near.all():
        map_note += f" around {near.sum()} of them: the others lie far away"
    if not recent.is_direction:
        yield [whole, {"op": "interpolate", "method": AUTO, "grid": grid}], map_note
    elif recent.is_wind_direction and (speed := _find_speed(archive)) is not None:
        step = _map_direction(grid, speed, [whole])
        yield [whole, step], f"{map_note}, by the components of the wind with {speed.name!r}"
    yield [lines], f"{function} over {lines['time']} at each station, no map"


def _map_direction(grid: Document, speed: Variable, before: Sequence[Document]) -> Document:
    """Return the interpolation of directions after some steps, by the components of the wind."""
    aligned = [{"op": "aggregate", "function": "mean", "time": step["time"]} for step in before if "time" in step]
    params = {"by": AUTO, "of": "wind_direction"}
    others = [{"variable": speed.name, "steps": aligned}]
    return {"op": "interpolate", "method": RECIPE, "grid": grid, "params": params, "with": others}


def _find_speed(archive: OpenArchive) -> Variable | None:
    return next((each for each in archive.variables.values() if "wind_speed" in _names_of(each)), None)


def _names_of(variable: Variable) -> tuple[str, ...]:
    return variable.name, variable.standard_name or ""


def _choose_cell(recent: _Recent) -> str:
    """Choose the time cells of lines: some 24 to 60, whole multiples of the readings' interval."""
    days = (recent.window.stop_ns - recent.window.start_ns) / DAY_NS
    wanted_s = 3600 if days <= 2 else 21_600 if days <= 14 else 86_400 if days <= 60 else 604_800
    longest_s = math.ceil(max(recent.spacing_ns / 1e9, *(each.interval_s for each in recent.series)))
    cell_s = (
        wanted_s
        if longest_s <= wanted_s and wanted_s % max(longest_s, 1) == 0
        else longest_s * math.ceil(wanted_s / max(longest_s, 1))
    )
    return format_duration(cell_s * SECOND_NS)


def _find_places(archive: OpenArchive, series: Sequence[Series]) -> NDArray[np.float64]:
    """Return the distinct known positions (lon, lat) of the stations [degree], shape (places, 2)."""
    positions = (archive.stations[each.station].position for each in series if each.station in archive.stations)
    known = {(each.lon, each.lat) for each in positions if math.isfinite(each.lon) and math.isfinite(each.lat)}
    return np.array(sorted(known)).reshape(-1, 2)


def _select_near(places: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the mask of places (lon, lat) [degree] that a map is to show: not those on other continents."""
    centre = np.median(places, axis=0)
    offset = places - centre
    offset[:, 0] = (offset[:, 0] + 180.0) % 360.0 - 180.0
    away = np.hypot(offset[:, 0] * math.cos(math.radians(centre[1])), offset[:, 1])
    near = away <= FAR * max(float(np.quantile(away, 0.75)), LEAST_RIM_DEG)
    return near if near.sum() >= LEAST_STATIONS else np.ones(len(places), np.bool_)


def make_grid(places: NDArray[np.float64], terrain: tuple[float, float, float, float] | None = None) -> Document:
    """Return a grid around places (lon, lat) [degree], with a margin, in whole tenths of a second of arc.

    The margin ends where the terrain does (west, south, east, north), as no trend in elevation is known beyond it.
    """
    places = _turn_longitudes(places)
    low, high = places.min(axis=0), places.max(axis=0)
    # The same on all sides, so that stations in a line are not a strip.
    rim = max(RIM * float((high - low).max()), LEAST_RIM_DEG)
    west, south = max(float(low[0]) - rim, -180.0), max(float(low[1]) - rim, -90.0)
    east, north = min(float(high[0]) + rim, west + 360.0, 360.0), min(float(high[1]) + rim, 90.0)
    if terrain is not None and (low >= terrain[:2]).all() and (high <= terrain[2:]).all():
        west, south = max(west, terrain[0]), max(south, terrain[1])
        east, north = min(east, terrain[2]), min(north, terrain[3])
    cells = CELLS if len(places) <= MANY_STATIONS else CELLS // 2
    tenths = max(1, math.ceil(max(east - west, north - south) * 36_000 / cells))
    # Rounded down: the last cell stays on the globe.
    rows, columns = (max(1, math.floor(side * 36_000 / tenths)) for side in (north - south, east - west))
    return {"lon": round(west, 6), "lat": round(south, 6), "step": f"{tenths / 10:g}arcsec", "shape": [rows, columns]}


def _turn_longitudes(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return places whose longitudes run through the widest gap between them: a network may lie across 180 degree."""
    lon = np.unique((places[:, 0] + 180.0) % 360.0 - 180.0)
    gaps = np.diff(np.append(lon, lon[0] + 360.0))
    widest = int(gaps.argmax())
    turned = places.copy()
    turned[:, 0] = (places[:, 0] + 180.0) % 360.0 - 180.0
    if widest < len(lon) - 1:
        turned[turned[:, 0] <= lon[widest], 0] += 360.0
    return turned


def _describe_time(recent: _Recent) -> str:
    days = (recent.window.stop_ns - recent.window.start_ns) / DAY_NS
    length = "the newest whole day" if days == 1 else f"the newest {days:g} days" if days >= 1 else "all readings"
    start, stop = format_instant(recent.window.start_ns), format_instant(recent.window.stop_ns)
    return f"{recent.variable.long_name or recent.variable.name}, {length} ({start} to {stop})"


# Another variable


@dataclass(frozen=True)
class _Adaption:
    """Carries a query over to the variable of a fresh suggestion."""

    archive: OpenArchive
    recent: _Recent
    fresh: Suggestion
    before: str
    """The variable that the query was of."""

    @property
    def variable(self) -> str:
        return self.recent.variable.name

    def adapt(self, document: Document, keeps: Document) -> Suggestion:
        notes: list[str] = []
        steps = self._adapt_steps(document, notes)
        select = {**self.fresh.query.get("select", {}), **_pick(document.get("select", {}), "station")}
        adapted = {"variable": self.variable, **({"select": select} if select else {}), "steps": steps, **keeps}
        clip = dict(document.get("clip", {}))
        if "time" in clip and not self._has_readings(clip["time"]):
            clip["time"] = start, stop = self.fresh.query["clip"]["time"]
            notes.append(f"the time is {start} to {stop}: {self.variable} has no readings in the one before")
        if clip:
            adapted["clip"] = clip
        return Suggestion(adapted, tuple(notes))

    def _adapt_steps(self, document: Document, notes: list[str]) -> list[Document]:
        steps: list[Document] = []
        for step in document.get("steps", ()):
            steps += self._adapt_step(step, steps, notes)
        return steps

    def _has_readings(self, bounds: Sequence[object]) -> bool:
        extent = self.archive.store.extent(self.variable)
        return extent is not None and extent.intersect(Window.parse(*bounds)) is not None

    def _adapt_step(self, step: Document, before: Sequence[Document], notes: list[str]) -> list[Document]:
        if step["op"] == "convert":
            return self._adapt_convert(step, notes)
        if step["op"] == "aggregate" and "time" in step:
            return [self._adapt_aggregate(step, before, notes)]
        if step["op"] == "interpolate" and "grid" in step:
            return [self._adapt_interpolation(step, before, notes)]
        if step["op"] == "merge":
            return [{**step, "with": [self._adapt_merged(other, notes) for other in step["with"]]}]
        return [step]

    def _adapt_merged(self, document: Document, notes: list[str]) -> Document:
        """Carry a merged query over if it is of the same variable as the query around it."""
        if document["variable"] != self.before:
            notes.append(f"what is merged is still {document['variable']}")
            return document
        return {**document, "variable": self.variable, "steps": self._adapt_steps(document, notes)}

    def _adapt_convert(self, step: Document, notes: list[str]) -> list[Document]:
        name = step["function"]
        if name not in _BOUNDS and name not in _OF_ONE_VARIABLE:
            return [step]
        bounds = self._find_range() if name in _BOUNDS else None
        if bounds is None:
            notes.append(f"{name} is left out: its numbers were those of another variable")
            return []
        low, high = bounds
        notes.append(f"{name} is {low:g} to {high:g}, what the quality tests of {self.variable} allow")
        return [{**step, "params": {"low": low, "high": high}}]

    def _find_range(self) -> tuple[float, float] | None:
        """Return the range that the archive's quality tests allow [the variable's unit], if it is a plain one."""
        tests = self.archive.store.quality.get(self.variable)
        allowed = tests.get("gross_range") if isinstance(tests, Mapping) else None
        if not isinstance(allowed, Mapping) or allowed.get("interval_exponent") or allowed.get("sun"):
            return None
        bounds = allowed.get("suspect") or allowed.get("fail")
        return (float(bounds[0]), float(bounds[1])) if bounds else None

    def _adapt_aggregate(self, step: Document, before: Sequence[Document], notes: list[str]) -> Document:
        """Exchange an aggregate that the variable does not have; its extremes stay where it has some."""
        name, natural = step["function"], self.recent.aggregate
        if natural == "rain_accumulation" and any(each["op"] == "aggregate" for each in before):
            # What it grew by is an amount.
            natural = "sum"
        is_kept = name not in _NATURAL | _THRESHOLDS or (name in ("min", "max") and natural in ("mean", "sum"))
        if name == natural or is_kept:
            return step
        notes.append(f"{name} is now {natural}")
        return {**{key: value for key, value in step.items() if key != "params"}, "function": natural}

    def _adapt_interpolation(self, step: Document, before: Sequence[Document], notes: list[str]) -> Document:
        """Exchange an interpolation whose numbers, or components, were those of another variable."""
        params = step.get("params", {})
        is_fixed = "mean" in params or isinstance(params.get("variogram"), Mapping)
        speed = _find_speed(self.archive)
        if self.recent.is_wind_direction and speed is not None:
            adapted = _map_direction(step["grid"], speed, before)
        elif is_fixed or step["method"] == RECIPE:
            kept = _pick(params, *(() if step["method"] == RECIPE else ("neighbours", "radius_m", "octants")))
            adapted = {"op": "interpolate", "method": AUTO, "grid": step["grid"], **({"params": kept} if kept else {})}
        else:
            return step
        notes.append(f"{adapted['method']} takes the place of {step['method']}, which was set up for another variable")
        return adapted


def _pick(mapping: Mapping[str, Any], *names: str) -> Document:
    return {name: mapping[name] for name in names if name in mapping}
