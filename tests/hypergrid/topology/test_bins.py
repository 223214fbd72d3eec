"""Uneven time cells against Python's own calendar, day by day."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import DAY_NS, SECOND_NS, parse_instant
from hypergrid.topology import (
    Bins,
    Calendar,
    Instants,
    LocalClock,
    Regular,
    Topology,
    Unit,
    cover,
    grid,
    is_location_consistent,
    make_bins,
)  # fmt: skip

HOUR = 3600 * SECOND_NS
EARLIEST, LATEST = datetime(1905, 1, 1), datetime(2090, 1, 1)  # noqa: DTZ001 - Hypothesis wants them without a zone
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = ["UTC", "Europe/Zurich", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata", "America/Sao_Paulo"]
GRID = grid(lon=7.0, lat=46.0, step=1.0, shape=(1, 1))


def ns(moment: datetime) -> int:
    return round((moment - EPOCH) / timedelta(microseconds=1)) * 1000


def midnight(day: date, zone: ZoneInfo) -> int:
    """Return the first instant of a civil day, found by going through its minutes."""
    start = ns(datetime(day.year, day.month, day.day, tzinfo=UTC)) - 15 * HOUR
    for minute in range(0, 30 * 60, 15):
        local = (EPOCH + timedelta(microseconds=start // 1000, minutes=minute)).astimezone(zone)
        if local.date() >= day:
            return start + minute * 60 * SECOND_NS
    raise AssertionError


def bins(*edges: str) -> Bins:
    found = np.array([parse_instant(edge) for edge in edges])
    return Bins("time", found[:-1], found[1:])


@given(
    zone=st.sampled_from(ZONES),
    # Quarters of an hour since 2000, so that the oracle's steps meet every midnight and every change of these zones.
    start=st.integers(0, 20 * 365 * 96),
    length=st.integers(1, 40 * 96),
)
def test_civil_days_are_those_of_the_zone(zone: str, start: int, length: int) -> None:
    begin = parse_instant("2000-01-01") + start * 15 * 60 * SECOND_NS
    stop = begin + length * 15 * 60 * SECOND_NS
    found = make_bins(Calendar("1day", Unit(DAY_NS), LocalClock(zone)), begin, stop)
    info = ZoneInfo(zone)
    first = (EPOCH + timedelta(microseconds=begin // 1000)).astimezone(info).date()
    edges = [midnight(first, info)]
    while edges[-1] < stop:
        edges.append(midnight(first + timedelta(days=len(edges)), info))
    assert found.starts.tolist() == edges[:-1]
    assert found.ends.tolist() == edges[1:]


def test_days_of_23_and_25_hours_at_both_changes() -> None:
    for day, hours in (("2024-03-31", 23), ("2024-10-27", 25), ("2024-10-28", 24)):
        noon = parse_instant(f"{day}T12:00")
        found = make_bins(Calendar("1day", Unit(DAY_NS), LocalClock("Europe/Zurich")), noon, noon + 1)
        assert (found.lengths // HOUR).tolist() == [hours], day


def test_a_day_that_the_clock_leaps_over_has_no_cell() -> None:
    # Samoa went from 29 to 31 December 2011.
    start = parse_instant("2011-12-29T12:00Z")
    found = make_bins(Calendar("1day", Unit(DAY_NS), LocalClock("Pacific/Apia")), start, start + DAY_NS)
    local = [
        datetime.fromtimestamp(corner // SECOND_NS, ZoneInfo("Pacific/Apia")).date().isoformat()
        for corner in found.starts.tolist()
    ]
    assert local == ["2011-12-29", "2011-12-31"]


@given(
    first=st.integers(1, 12), months=st.sampled_from([1, 3, 12]),
    start=st.datetimes(EARLIEST, LATEST), days=st.integers(1, 1500),
)  # fmt: skip
def test_months_seasons_and_years_from_any_month(first: int, months: int, start: datetime, days: int) -> None:
    begin = ns(start.replace(microsecond=0, tzinfo=UTC))
    stop = begin + days * DAY_NS
    found = make_bins(Calendar("months", Unit(months=months, first_month=first)), begin, stop)
    # Every beginning of a month whose distance from the first month is a multiple.
    every = [
        ns(datetime(year, month, 1, tzinfo=UTC))
        for year in range(start.year - 2, start.year + 8)
        for month in range(1, 13)
        if (month - first) % months == 0
    ]
    low = max(edge for edge in every if edge <= begin)
    edges = [edge for edge in every if low <= edge < stop] + [min(edge for edge in every if edge >= stop)]
    assert found.starts.tolist() == edges[:-1]
    assert found.ends.tolist() == edges[1:]


def test_december_belongs_to_the_winter_of_the_next_year() -> None:
    december = parse_instant("2007-12-15")
    found = make_bins(Calendar("season", Unit(months=3, first_month=12)), december, december + 1)
    assert (found.origin, found.stop) == (parse_instant("2007-12-01"), parse_instant("2008-03-01"))


def test_offset_and_zone_together() -> None:
    # Precipitation days begin at 06:00 by the clock on the wall.
    clock = LocalClock("Europe/Zurich", offset_ns=6 * HOUR)
    start = parse_instant("2024-03-30T12:00Z")
    found = make_bins(Calendar("1day", Unit(DAY_NS), clock), start, start + DAY_NS)
    assert found.starts.tolist() == [parse_instant("2024-03-30T05:00Z"), parse_instant("2024-03-31T04:00Z")]


AXES = st.one_of(
    st.builds(
        lambda origin, step, count, length: Regular("time", origin, step, count, length),
        st.integers(-5, 5), st.integers(1, 4), st.integers(1, 12), st.integers(1, 9),
    ),
    st.lists(st.integers(-10, 40), min_size=2, max_size=12, unique=True).map(
        lambda edges: Bins("time", np.sort(edges)[:-1], np.sort(edges)[1:])
    ),
    # Every other cell left out: gaps.
    st.lists(st.integers(-10, 40), min_size=4, max_size=13, unique=True).map(
        lambda edges: Bins("time", np.sort(edges)[: len(edges) // 2 * 2 : 2], np.sort(edges)[1::2])
    ),
    st.lists(st.integers(-10, 40), min_size=1, max_size=12, unique=True).map(
        lambda times: Instants("time", np.sort(np.array(times)))
    ),
)  # fmt: skip


def cells_of(axis: Regular | Bins | Instants) -> list[tuple[int, int]]:
    if isinstance(axis, Regular):
        return [(int(corner), int(corner) + axis.length) for corner in axis.corners]
    ends = axis.times_ns if isinstance(axis, Instants) else axis.ends
    return list(zip(axis.corners.tolist(), ends.tolist(), strict=True))


@given(source=AXES, target=AXES.filter(lambda axis: isinstance(axis, Bins)))
def test_cover_is_the_cells_inside(source: Regular | Bins | Instants, target: Bins) -> None:
    cells = cells_of(source)
    touching = isinstance(source, Bins | Instants) or source.length <= source.step
    cut = any(
        start < edge < end for start, end in cells for cell in cells_of(target) for edge in cell
    )  # fmt: skip
    if touching:
        assert is_location_consistent(source, target) == (not cut)
    if not is_location_consistent(source, target):
        with pytest.raises(InvalidQuery, match="cut the source's cells"):
            cover(source, target)
        return
    found = cover(source, target)
    for number, (start, end) in enumerate(cells_of(target)):
        inside = [i for i, (a, b) in enumerate(cells) if start <= a and b <= end and a < end]
        assert list(range(int(found.first[number]), int(found.stop[number]))) == inside


@given(
    origin=st.integers(-5, 5), step=st.integers(1, 4), times=st.integers(1, 3), start=st.integers(-6, 12),
    length=st.integers(1, 20),
)  # fmt: skip
def test_sliding_cells_have_unions_that_begin_and_end_with_them(
    origin: int, step: int, times: int, start: int, length: int
) -> None:
    source = Regular("time", origin, step, 6, step * times + 1)
    target = Bins("time", np.array([start]), np.array([start + length]))
    # Unions of an endless lattice of such cells, found one by one.
    unions = {
        (origin + i * step, origin + j * step + source.length) for i in range(-20, 50) for j in range(i, 50)
    }  # fmt: skip
    assert is_location_consistent(source, target) == ((start, start + length) in unions)


def test_part_keeps_cells_and_tokens_tell_axes_apart() -> None:
    months = bins("2007-10-01", "2007-11-01", "2007-12-01", "2008-01-01")
    assert months.part(1, 3).starts.tolist() == months.starts[1:].tolist()
    other = bins("2007-10-01", "2007-11-01", "2007-12-02", "2008-01-01")
    by_zone = [
        make_bins(Calendar("day", Unit(DAY_NS), LocalClock(zone)), 0, DAY_NS) for zone in ("UTC", "Europe/Zurich")
    ]
    axes = [months, months.part(0, 2), other, *by_zone, Regular("time", months.origin, DAY_NS, 92, DAY_NS)]
    assert len({Topology(axis, GRID).token() for axis in axes}) == len(axes)
    assert Topology(months, GRID).token() == Topology(months.part(0, 3), GRID).token()


@pytest.mark.parametrize(
    ("starts", "ends", "message"),
    [
        ([], [], "a start and an end each"),
        ([0, 5], [5], "a start and an end each"),
        ([0, 5], [5, 5], "edges that increase; cell 2"),
        ([0, 4], [5, 8], "edges that increase; cell 1"),
        ([5, 0], [6, 1], "edges that increase; cell 1"),
        ([2**62], [2**62 + 1], "beyond what can be counted"),
    ],
)
def test_cells_that_are_none_are_refused(starts: list[int], ends: list[int], message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        Bins("time", np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))
