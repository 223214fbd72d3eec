"""Turn cell specifications of aggregates ("10min", {"length": …, "step": …}, "all") into axes."""

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import Window, format_instant
from hypergrid.perspective.spec.time_specs import CellEdges, Rule, parse_cells
from hypergrid.topology import (
    Bins,
    Calendar,
    Cycle,
    Instants,
    Levels,
    Periodic,
    Regular,
    SeriesAxis,
    TimeAxis,
    TimeCells,
    is_location_consistent,
    levels,
    make_bins,
    periodic,
    quanta,
)  # fmt: skip


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
        "all", or what `time_specs.py` parses: a duration, `{"length": …, "step": …}` (sliding windows), "month", ….
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
