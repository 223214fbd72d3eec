"""Turn cell specifications of aggregates ("10min", {"length": …, "step": …}, "all") into axes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, NotFound
from hypergrid.core.times import (
    DAY_NS,
    Window,
    calendar_unit_of,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)
from hypergrid.topology import (
    CYCLES,
    HOUR_OF_DAY,
    Bins,
    Calendar,
    Cycle,
    Instants,
    Levels,
    LocalClock,
    Periodic,
    Regular,
    SeriesAxis,
    TimeAxis,
    TimeCells,
    Unit,
    check_zone,
    is_location_consistent,
    levels,
    make_bins,
    periodic,
    quanta,
)  # fmt: skip

HYDROLOGICAL_YEAR: Final = "hydrological_year"
FIRST_MONTH: Final = 10
"""Default first month of a hydrological year: October, as in most of Europe and America."""

UNITS: Final = {
    "month": Unit(months=1),
    "season": Unit(months=3, first_month=12),
    "year": Unit(months=12),
    HYDROLOGICAL_YEAR: Unit(months=12, first_month=FIRST_MONTH),
}
"""Calendar units by name; December belongs to the winter of the next year."""

LONGEST_IN_ZONE_NS: Final = 366 * DAY_NS

EXAMPLES: Final = (
    "a duration such as '10min', {'length': …, 'step': …}, {'step': '1day', 'zone': 'Europe/Zurich'}, "
    "{'edges': […]}, {'periodic': '6h', 'within': '1day'} or a name"
)


@dataclass(frozen=True)
class Sliding:
    """Cells of one length at multiples of a step plus an offset, each in [ns]."""

    step: int
    length: int
    offset: int = 0


@dataclass(frozen=True)
class CellEdges:
    """Cells from each edge to the next [ns since 1970 UTC]."""

    edges: tuple[int, ...]


Rule = Sliding | Calendar | CellEdges | Cycle


def is_periodic(spec: object) -> bool:
    return spec in CYCLES if isinstance(spec, str) else isinstance(spec, Mapping) and "periodic" in spec


def has_same_cells(spec: object, other: object) -> bool:
    """Return whether two periodic specifications denote the same cells, however they are written.

    All solar time counts as one clock here; the longitudes of the stations decide later whether it is.
    """
    if not is_periodic(spec) or not is_periodic(other):
        return False
    try:
        first_cells, two = (
            parse_cells({**cells, "solar": False} if isinstance(cells, Mapping) else cells) for cells in (spec, other)
        )
    except HyperGridError:
        # An unreadable specification is refused later, when its step is built.
        return spec == other
    return first_cells == two and _is_solar(spec) == _is_solar(other)


def _is_solar(spec: object) -> object:
    return isinstance(spec, Mapping) and spec.get("solar", False)


def parse_cells(spec: object, stations: SeriesAxis | None = None) -> Rule:
    """Parse a specification of time cells.

    Parameters
    ----------
    spec
        User input, except "all".
    stations
        Stations whose mean longitude defines solar time.

    Raises
    ------
    InvalidQuery, InvalidTime, NotFound
        An unknown key, name or zone, an unreadable duration or instant, or edges that do not increase.
    """
    if isinstance(spec, Mapping):
        return _parse_mapping(spec, stations)
    if not isinstance(spec, str):
        raise InvalidQuery(f"time cells need {EXAMPLES}; got {spec!r}")
    if spec in UNITS:
        return Calendar(spec, UNITS[spec])
    if spec in CYCLES:
        return CYCLES[spec]
    # Without a digit it is a misspelt name, not a duration.
    if not any(letter.isdigit() for letter in spec):
        raise NotFound.among(kind="time cells", given=spec, existing=["all", "10min", *UNITS, *CYCLES])
    length = _parse_length(spec)
    return Sliding(length, length)


def _parse_length(value: object) -> int:
    """Parse the fixed length of a cell [ns]; errors name the cells of the calendar."""
    if (unit := calendar_unit_of(value)) is None:
        return parse_duration(value)
    raise InvalidTime(
        f"time cells of {value!r} have no fixed length; write {unit!r} for each {unit} of the calendar (there are "
        f"{', '.join(map(repr, UNITS))}), or {{'step': {unit!r}, 'zone': 'Europe/Zurich'}} by a zone; cells that come "
        f"again every year are {', '.join(repr(name) for name in CYCLES if name.endswith('of_year'))}; others are "
        "listed as {'edges': ['2007-01-01', …]}, and a fixed length is written in days, such as '30day'"
    )


def _parse_mapping(spec: Mapping[str, Any], stations: SeriesAxis | None) -> Rule:
    if "periodic" in spec:
        return _parse_cycle(spec, stations)
    if "edges" in spec:
        _check_keys(spec, {"edges"})
        return _parse_edges(spec["edges"])
    if HYDROLOGICAL_YEAR in spec:
        _check_keys(spec, {HYDROLOGICAL_YEAR, "zone", "offset"})
        first = spec[HYDROLOGICAL_YEAR]
        if not isinstance(first, int) or isinstance(first, bool) or not 1 <= first <= 12:
            raise InvalidQuery(f"a hydrological year needs the month that it begins with, 1 to 12; got {first!r}")
        name = HYDROLOGICAL_YEAR if first == FIRST_MONTH else f"{HYDROLOGICAL_YEAR} from month {first} on"
        return Calendar(name, Unit(months=12, first_month=first), _parse_clock(spec))
    _check_keys(spec, {"step", "length", "zone", "offset"})
    if "step" not in spec:
        raise InvalidQuery(
            f"time cells need a 'step', such as {{'length': '15min', 'step': '5min'}}; got {sorted(spec)}"
        )
    return _parse_stepped(spec)


def _parse_stepped(spec: Mapping[str, Any]) -> Rule:
    step, clock = spec["step"], _parse_clock(spec)
    if isinstance(step, str) and step in UNITS:
        _check_keys(spec, {"step", "zone", "offset"})
        return Calendar(step, UNITS[step], clock)
    step_ns = _parse_length(step)
    # Without a zone every day has 24 hours, so cells are regular.
    if clock.zone is None:
        return Sliding(step_ns, _parse_length(spec.get("length", step)), clock.offset_ns)
    if step_ns % DAY_NS or step_ns > LONGEST_IN_ZONE_NS or "length" in spec:
        raise InvalidQuery(
            f"time cells by a zone need whole days, up to 366, or 'month', 'season', 'year', and no 'length'; got "
            f"{dict(spec)!r}; leave out the zone for others"
        )
    return Calendar(format_duration(step_ns), Unit(step_ns), clock)


def _parse_cycle(spec: Mapping[str, Any], stations: SeriesAxis | None) -> Cycle:
    name = spec["periodic"]
    if spec.get("zone") == "UTC":
        # UTC is the default, and equal cells must compare equal.
        spec = {**spec, "zone": None}
    if isinstance(name, str) and name in CYCLES:
        _check_keys(spec, {"periodic", "zone", "solar"})
        return CYCLES[name].with_clock(_parse_clock(spec, stations))
    if calendar_unit_of(name):
        _parse_length(name)
    if "within" not in spec:
        if isinstance(name, str) and any(letter.isdigit() for letter in name):
            raise InvalidQuery(
                f"periodic cells of {name!r} need the period that they come again in, such as 'within': '1day'"
            )
        raise NotFound.among(kind="periodic cells", given=name, existing=CYCLES)
    _check_keys(spec, {"periodic", "within", "phase", "zone", "solar"})
    length, period = parse_duration(name), _parse_length(spec["within"])
    phase = parse_duration(spec["phase"]) % period if spec.get("phase") is not None else 0
    if period % length or period == length:
        raise InvalidQuery(
            f"periodic cells need a length that fits into their period twice or more, without a rest; got {name!r} "
            f"within {spec['within']!r}"
        )
    clock = _parse_clock({**spec, "offset": None}, stations)
    # Equal cells must compare equal however they are written.
    if (length, period, phase) == (DAY_NS // 24, DAY_NS, 0):
        return HOUR_OF_DAY.with_clock(clock)
    calendar = Calendar(format_duration(length), Unit(length), LocalClock(clock.zone, clock.solar_lon, phase))
    cycle = Cycle(f"part_of_{format_duration(period)}", calendar, period // length)
    return replace(cycle, within="days") if period == DAY_NS else cycle


def _parse_clock(spec: Mapping[str, Any], stations: SeriesAxis | None = None) -> LocalClock:
    offset = parse_duration(spec["offset"]) if spec.get("offset") is not None else 0
    zone, solar = spec.get("zone"), spec.get("solar", False)
    if not isinstance(solar, bool):
        raise InvalidQuery(f"'solar' needs true or false; got {solar!r}")
    if zone is not None and solar:
        raise InvalidQuery(f"time cells are by a zone or by solar time; got both, zone {zone!r}; leave out one")
    if solar:
        return LocalClock(solar_lon=_find_mean_longitude(stations), offset_ns=offset)
    return LocalClock(None if zone is None else check_zone(zone), offset_ns=offset)


def _find_mean_longitude(stations: SeriesAxis | None) -> float:
    """Return the circular mean of station longitudes [degree east]."""
    if stations is None or stations.system != "lonlat":
        raise InvalidQuery("solar time needs stations with lon and lat [degree]; give a zone instead")
    known = stations.x[np.isfinite(stations.x)]
    if not len(known):
        raise InvalidQuery(
            "solar time needs the longitude of at least one station; none has a position; give a zone instead"
        )
    # Mean of unit vectors, so that stations on both sides of 180 degrees are neighbours.
    mean = np.exp(1j * np.radians(known)).mean()
    if abs(mean) < 1e-9:
        raise InvalidQuery(
            "solar time needs stations with a mean longitude; these lie all around the earth; give a zone instead"
        )
    return float(np.degrees(np.angle(mean)))


def _parse_edges(given: object) -> CellEdges:
    if not isinstance(given, list | tuple) or len(given) < 2:
        raise InvalidQuery(f"'edges' of time cells needs two instants or more, in order; got {given!r}")
    edges = tuple(parse_instant(edge) for edge in given)
    for number, (edge, after) in enumerate(zip(edges, edges[1:], strict=False), start=2):
        if after <= edge:
            raise InvalidTime(
                f"'edges' of time cells need instants that increase; number {number}, {given[number - 1]}, is not "
                f"after {given[number - 2]}; order them, and drop repeated ones"
            )
    return CellEdges(edges)


def _check_keys(spec: Mapping[str, Any], known: set[str]) -> None:
    NotFound.refuse_unknown("key of time cells", spec, known)


def make_time_cells(  # noqa: PLR0913 - what the cells are of, and what they are over
    spec: object, source: TimeAxis, whole: Window, *, exact: bool, stations: SeriesAxis | None = None
) -> TimeCells:
    """Return the time cells of an aggregate.

    Cells cover the source; those at its edges are partial. A cell longer than the source is one partial cell, which its
    count of possible readings shows. Given edges are all kept, even without data. A periodic axis has all its cells,
    cut at the edges of `whole`.

    Parameters
    ----------
    spec
        "all", or a specification of time cells: a duration, `{"length": …, "step": …}` (sliding windows), "month", ….
    source
        Time axis of the source.
    whole
        Window of "all" and of periodic cells.
    exact
        Whether the source is readings with exact times, which no cell can cut.
    stations
        Stations whose mean longitude defines solar time.

    Raises
    ------
    InvalidQuery, InvalidTime, NotFound
        A specification that yields no cells, or cells that cut those of the source.
    """
    if isinstance(source, Periodic):
        raise InvalidQuery(
            f"its source has cells of {source.describe()}, each of many times at once, so that nothing in time is left "
            "to aggregate; put it before the aggregate that makes these, or leave it out"
        )
    # No cell can cut exact times or instants.
    free = exact or isinstance(source, Instants)
    if spec == "all":
        target = _make_single_cell(whole.start_ns, whole.stop_ns)
        # Source cells at the edges of the window are included whole instead of being cut.
        whole_cells = free or is_location_consistent(source, target)
        return target if whole_cells else _make_single_cell(*_widen_window(source, whole))
    made = _make_cells(
        parse_cells(spec, stations), source, (whole.start_ns, whole.stop_ns) if free else _widen_window(source, whole)
    )
    # Readings with exact times are assigned to cells, never cut.
    if not exact:
        _refuse_cut(spec, source, made)
    return made


def _make_cells(rule: Rule, source: TimeAxis, window: tuple[int, int]) -> TimeCells:
    if isinstance(rule, Cycle):
        return periodic(rule, *window)
    if isinstance(rule, Calendar):
        return make_bins(rule, source.origin, source.stop)
    if isinstance(rule, CellEdges):
        edges = np.array(rule.edges, dtype=np.int64)
        if rule.edges[-1] <= source.origin or rule.edges[0] >= source.stop:
            # The slice selects the first and the last edge.
            first, last, start, stop = map(format_instant, (*rule.edges[:: len(edges) - 1], source.origin, source.stop))
            raise InvalidQuery(
                f"no time cell lies where its source does: edges run from {first} to {last}, the source from "
                f"{start} to {stop}"
            )
        return Bins("time", edges[:-1], edges[1:])
    return Regular("time", rule.offset, rule.step, 1, rule.length).repeat_over(source.origin, source.stop)


def _make_single_cell(start: int, stop: int) -> Regular:
    return Regular("time", start, stop - start, 1, stop - start)


def _widen_window(source: TimeAxis, whole: Window) -> tuple[int, int]:
    """Return the smallest range around a window that cuts no source cell."""
    start, stop = whole.start_ns, whole.stop_ns
    if isinstance(source, Bins):
        first = int(np.searchsorted(source.starts, start, side="right")) - 1
        last = int(np.searchsorted(source.ends, stop, side="left"))
        if first >= 0 and start < source.ends[first]:
            start = int(source.starts[first])
        if last < source.count and stop > source.starts[last]:
            stop = int(source.ends[last])
        return start, stop
    if not isinstance(source, Regular):
        return start, stop
    begin, end = ((edge - source.origin) % source.step for edge in (start, stop))
    if source.length <= source.step:
        # Gaps between cells or instants belong to none of them.
        start -= begin if begin < source.length else 0
        return start, stop - end + source.length if 0 < end < source.length else stop
    start -= begin
    steps = max(-(-(stop - start - source.length) // source.step), 0)
    return start, start + steps * source.step + source.length


def _refuse_cut(spec: object, source: TimeAxis, target: TimeCells) -> None:
    if is_location_consistent(source, target):
        return
    if isinstance(source, Regular):
        have = f"step {source.step / 1e9:g} s, length {source.length / 1e9:g} s"
    else:
        have = source.describe() if isinstance(source, Bins | Periodic) else "instants"
    message = f"time cells of {spec!r} would cut the source's cells ({have}); "
    if isinstance(target, Regular) and isinstance(source, Regular):
        message += "choose multiples of the source's step"
    else:
        message += "aggregate the readings themselves, or cells into which both fit"
    raise InvalidQuery(message)


def make_space_cells(name: str, spec: object, source: Levels) -> Levels:
    """Return the cells of an aggregate along lon, lat, x, y or z.

    A specification is a length or "all"; along z, whatever `levels` parses.

    Raises
    ------
    InvalidQuery, NotFound
        A specification that yields no cells, or cells that cut those of the source.
    """
    target: Levels
    if name == "z":
        target = levels(spec, (source.origin, source.stop))
    elif spec == "all":
        length = source.stop - source.origin
        target = Regular(name, source.origin, length, 1, length, source.quantum)
    else:
        step = quanta(spec, source.quantum, f"cells of {name}")
        if step <= 0:
            raise InvalidQuery(f"cells of {name!r} need a length above zero; got {spec!r}")
        target = Regular(name, 0, step, 1, step, source.quantum).repeat_over(source.origin, source.stop)
    if not is_location_consistent(source, target):
        raise InvalidQuery(
            f"cells of {spec!r} along {name!r} would cut the grid's cells; choose a multiple that starts where they do"
        )
    return target
