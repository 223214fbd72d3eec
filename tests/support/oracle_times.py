"""Time cells as an oracle makes them: by Python's own calendar, block by block, one cell after the other."""

import cmath
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from datetime import timezone as fixed
from typing import Any
from zoneinfo import ZoneInfo

from hypergrid.core.times import parse_duration, parse_instant

Block = tuple[int, int]
"""Start and end [ns since 1970 UTC], or along another dimension [quantum]; equal for an instant."""
Units = Callable[[int, int], list[Block]]
"""From two instants to the units of a calendar that lie over the time between them."""

SECOND = 1_000_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PERIODIC = ("hour_of_day", "day_of_week", "day_of_year", "month_of_year", "season_of_year")
MONTHS = {"month": (1, 1), "season": (3, 12), "year": (12, 1), "hydrological_year": (12, 10)}
"""Units of the calendar: how many months, and the month with which one begins."""


@dataclass(frozen=True)
class TimeCell:
    """One cell: a block of time, or several where it comes again."""

    corner: int
    blocks: tuple[Block, ...]

    def holds(self, instant: int) -> bool:
        """Return whether an instant lies in it."""
        return any(start <= instant < end for start, end in self.blocks)

    def holds_all(self, part: "TimeCell") -> bool:
        """Return whether a cell of one block lies in it."""
        ((start, end),) = part.blocks
        if start == end:
            return self.holds(start)
        return any(first <= start and end <= last for first, last in self.blocks)


@dataclass(frozen=True)
class Times:
    """Time cells, and how they would go on outside the source."""

    cells: list[TimeCell]
    step_ns: int | None = None
    """From cell to cell [ns], where they are evenly spaced."""
    units: Units | None = None
    """Where a calendar makes them."""
    zone: tzinfo = UTC
    """By whose clock the calendar, or what comes again, goes."""
    number_of: Callable[[int], int] | None = None
    """Where they come again, the number of the cell that an instant lies in, also outside the time that they are of."""

    @property
    def comes_again(self) -> bool:
        """Whether a cell is of many times."""
        return self.number_of is not None

    @property
    def start(self) -> int:
        """Where the first begins."""
        return min((start for cell in self.cells for start, _ in cell.blocks), default=self.cells[0].corner)

    @property
    def stop(self) -> int:
        """After the last ends."""
        return max((max(end, start + 1) for cell in self.cells for start, end in cell.blocks), default=self.start + 1)

    @property
    def are_free(self) -> bool:
        """Whether they are the instants of an array, which no cell can cut."""
        return self.step_ns is None and all(start == end for cell in self.cells for start, end in cell.blocks)

    def only(self, keep: Sequence[TimeCell]) -> "Times":
        """Return some of the cells."""
        return replace(self, cells=list(keep))

    def fitting_in(self, cell: TimeCell, interval_ns: int) -> int:
        """Return how many intervals fit into a cell; whole days are those by the clock on the wall."""
        lengths = [stop - start for start, stop in cell.blocks]
        if interval_ns % DAY == 0:
            lengths = [_wall(stop, self.zone) - _wall(start, self.zone) for start, stop in cell.blocks]
        return sum(length // interval_ns for length in lengths) or len(lengths)

    def possible_in(self, cell: TimeCell) -> int:
        """Return how many of these would lie in another cell if they went on for ever."""
        if self.step_ns is not None:
            ((first, end),) = self.cells[0].blocks
            length = end - first
            return sum(
                len(range(start + (first - start) % self.step_ns, stop - length + 1, self.step_ns))
                for start, stop in cell.blocks
            )
        if self.units is not None:
            return sum(
                start <= begin and end <= stop for start, stop in cell.blocks for begin, end in self.units(start, stop)
            )
        return sum(map(cell.holds_all, self.cells))


def instants(times_ns: Sequence[int]) -> Times:
    """Return the instants of an array."""
    return Times([TimeCell(t, ((t, t),)) for t in times_ns])


def even(starts: range, length: int) -> Times:
    """Return cells of one length."""
    return Times([TimeCell(start, ((start, start + length),)) for start in starts], starts.step)


def time_cells(spec: Any, source: Times, whole: Block, *, exact: bool, longitudes: Sequence[float]) -> Times:  # noqa: ANN401 - a step's cells are JSON
    """Return the cells that a step asks for over a source.

    Parameters
    ----------
    spec
        As the question says it.
    source
        What is aggregated.
    whole
        What "all" is, and what cells that come again are cut at [ns].
    exact
        Whether the source is readings, which no cell can cut.
    longitudes
        Of the stations [degree], NaN where not known; for mean solar time.
    """
    exact = exact or source.are_free
    if spec == "all":
        start, stop = whole if exact or not _cuts(source, whole) else _widened(source, whole)
        return Times([TimeCell(start, ((start, stop),))], stop - start)
    given = dict(spec) if isinstance(spec, Mapping) else {}
    if spec in PERIODIC or "periodic" in given:
        return _coming_again(given or {"periodic": spec}, whole if exact else _widened(source, whole), longitudes)
    if "edges" in given:
        edges = [parse_instant(edge) for edge in given["edges"]]
        return Times([TimeCell(a, ((a, b),)) for a, b in zip(edges, edges[1:], strict=False)])
    units = _units(spec, given)
    if units is not None:
        return Times([TimeCell(block[0], (block,)) for block in units(source.start, source.stop)], units=units,
                     zone=_zone(given))  # fmt: skip
    step = parse_duration(given["step"] if given else spec)
    offset = parse_duration(given["offset"]) if "offset" in given else 0
    first = (source.start - offset) // step * step + offset
    return even(range(first, source.stop, step), parse_duration(given["length"]) if "length" in given else step)


def _cuts(source: Times, whole: Block) -> bool:
    """Return whether the edges of a time lie inside source cells; what lies between cells belongs to none."""
    if source.step_ns is None:
        return any(start < edge < end for cell in source.cells for start, end in cell.blocks for edge in whole)
    ((first, end),) = source.cells[0].blocks
    length, step = end - first, source.step_ns
    edges = [(edge - first) % step for edge in whole]
    if length > step:
        return edges[0] != 0 or whole[1] - whole[0] < length or (whole[1] - whole[0] - length) % step != 0
    return any(0 < edge < length for edge in edges)


def _widened(source: Times, whole: Block) -> Block:
    """Return the least time around another that cuts no source cell."""
    start, stop = whole
    if source.step_ns is None:
        for cell in source.cells:
            ((first, end),) = cell.blocks
            start = first if first <= whole[0] < end else start
            stop = end if first < whole[1] <= end else stop
        return start, stop
    ((first, end),) = source.cells[0].blocks
    length, step = end - first, source.step_ns
    if length <= step:
        start -= (start - first) % step if (start - first) % step < length else 0
        return start, stop + length - (stop - first) % step if 0 < (stop - first) % step < length else stop
    start -= (start - first) % step
    last = start + length
    while last < stop:
        last += step
    return start, last


def _units(spec: Any, given: Mapping[str, Any]) -> Units | None:  # noqa: ANN401 - a step's cells are JSON
    """Return the calendar that a specification means; None where its cells are evenly spaced."""
    name = given.get("step", spec if isinstance(spec, str) else None)
    offset = timedelta(microseconds=(parse_duration(given["offset"]) if "offset" in given else 0) // 1000)
    zone = _zone(given)
    if "hydrological_year" in given:
        return lambda start, stop: _over(_months(12, given["hydrological_year"], zone, offset, start), start, stop)
    if name in MONTHS:
        return lambda start, stop: _over(_months(*MONTHS[name], zone, offset, start), start, stop)
    if "zone" not in given:
        return None
    days = parse_duration(name) // DAY
    return lambda start, stop: _over(_days(days, zone, offset, start), start, stop)


def _zone(given: Mapping[str, Any]) -> tzinfo:
    return ZoneInfo(given["zone"]) if "zone" in given else UTC


def _wall(instant: int, zone: tzinfo) -> int:
    """Return the time on the wall at an instant [ns since 1970]."""
    shift = (EPOCH + timedelta(seconds=instant // SECOND)).astimezone(zone).utcoffset()
    return instant + round((shift or timedelta()).total_seconds()) * SECOND


def _over(edges: Iterator[int], start: int, stop: int) -> list[Block]:
    """Return the units, whole, from the one in which a time begins to the one in which it ends."""
    found = []
    begin = next(edges)
    while begin < stop:
        end = next(edges)
        if end > start:
            found.append((begin, end))
        begin = end
    return found


def _months(months: int, first: int, zone: tzinfo, offset: timedelta, start: int) -> Iterator[int]:
    """Yield where months begin that may begin a unit, from long before an instant on."""
    number = (EPOCH + timedelta(microseconds=start // 1000)).year * 12 - 24
    while True:
        if (number - (first - 1)) % months == 0:
            yield _midnight(date(number // 12, number % 12 + 1, 1), zone, offset)
        number += 1


def _days(days: int, zone: tzinfo, offset: timedelta, start: int) -> Iterator[int]:
    """Yield where every so many days begin, counted from 1970-01-01, from before an instant on."""
    number = (start // DAY - 2) // days * days - days
    while True:
        yield _midnight(date(1970, 1, 1) + timedelta(days=number), zone, offset)
        number += days


def _midnight(day: date, zone: tzinfo, offset: timedelta) -> int:
    """Return when a day begins by the clock on the wall [ns since 1970 UTC]."""
    local = datetime.combine(day, time(), tzinfo=zone) + offset
    return round((local.astimezone(UTC) - EPOCH) / timedelta(seconds=1)) * SECOND


def _coming_again(given: Mapping[str, Any], whole: Block, longitudes: Sequence[float]) -> Times:
    """Return cells that come again: the time is walked through from one change on the wall clock to the next."""
    zone = _zone(given)
    if given.get("solar"):
        mean = sum(cmath.rect(1, math.radians(lon)) for lon in longitudes if math.isfinite(lon))
        zone = fixed(timedelta(seconds=round(240 * math.degrees(cmath.phase(mean)))))
    count, label, grain = _labels(given)
    blocks: list[list[Block]] = [[] for _ in range(count)]

    def local(at: int) -> int:
        moment = (EPOCH + timedelta(seconds=at // SECOND)).astimezone(zone).replace(tzinfo=UTC)
        return round((moment - EPOCH) / timedelta(seconds=1)) * SECOND

    at = whole[0]
    while at < whole[1]:
        after = min(at + grain - (local(at) + at % SECOND) % grain, whole[1])
        own = blocks[label(local(at))]
        if own and own[-1][1] == at:
            own[-1] = (own[-1][0], after)
        else:
            own.append((at, after))
        at = after
    return Times([TimeCell(b[0][0] if b else whole[0], tuple(b)) for b in blocks],
                 zone=_zone(given), number_of=lambda at: label(local(at)))  # fmt: skip


def _labels(given: Mapping[str, Any]) -> tuple[int, Callable[[int], int], int]:
    """Return how many cells there are, in which of them a local time lies, and how often that may change [ns]."""
    name = given["periodic"]
    if "within" in given:
        length, period = parse_duration(name), parse_duration(given["within"])
        phase = parse_duration(given["phase"]) if "phase" in given else 0
        return period // length, lambda t: (t - phase) % period // length, math.gcd(length, phase, HOUR)

    def at(local: int) -> datetime:
        return EPOCH + timedelta(seconds=local // SECOND)

    return {
        "hour_of_day": (24, lambda t: at(t).hour, HOUR),
        "day_of_week": (7, lambda t: at(t).weekday(), HOUR),
        "day_of_year": (366, lambda t: at(t).replace(year=2000).timetuple().tm_yday - 1, HOUR),
        "month_of_year": (12, lambda t: at(t).month - 1, HOUR),
        "season_of_year": (4, lambda t: at(t).month % 12 // 3, HOUR),
    }[name]
