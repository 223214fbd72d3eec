"""Cells that come again, against Python's own calendar, instant by instant."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import DAY_NS, SECOND_NS, parse_instant
from hypergrid.topology import (
    CYCLES,
    Calendar,
    Cycle,
    Instants,
    LocalClock,
    Periodic,
    Regular,
    Topology,
    Unit,
    cover,
    grid,
    periodic,
)  # fmt: skip

HOUR = 3600 * SECOND_NS
ZONES = ["UTC", "Europe/Zurich", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata"]
GRID = grid(lon=7.0, lat=46.0, step=1.0, shape=(1, 1))


def label(cycle: str, local: datetime) -> int:
    """Return the cell of an instant on the wall."""
    if cycle == "hour_of_day":
        return local.hour
    if cycle == "day_of_week":
        return local.isoweekday()
    if cycle == "day_of_year":
        return local.replace(year=2000, tzinfo=None).timetuple().tm_yday
    return local.month if cycle == "month_of_year" else local.month % 12 // 3 + 1


def owner_of(axis: Periodic, instant: int) -> int | None:
    """Return the coordinate of the cell that holds an instant, block by block."""
    for start, end, owner in zip(axis.starts.tolist(), axis.ends.tolist(), axis.owners.tolist(), strict=True):
        if start <= instant < end:
            return int(axis.labels[owner])
    return None


@given(
    name=st.sampled_from(sorted(CYCLES)),
    clock=st.one_of(
        st.sampled_from(ZONES).map(lambda zone: LocalClock(zone)),
        st.integers(-180, 180).map(lambda lon: LocalClock(solar_lon=float(lon))),
    ),
    start=st.integers(0, 20 * 365 * 24 * 60),
    hours=st.integers(1, 24 * 800),
    picks=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=8),
)
def test_every_instant_of_the_window_lies_in_the_cell_of_the_wall_clock(
    name: str, clock: LocalClock, start: int, hours: int, picks: list[float]
) -> None:
    begin = parse_instant("2000-01-01") + start * 60 * SECOND_NS
    stop = begin + hours * HOUR
    axis = periodic(CYCLES[name].with_clock(clock), begin, stop)
    assert axis.count == CYCLES[name].count
    assert (axis.ends > axis.starts).all()
    assert (axis.starts[1:] == axis.ends[:-1]).all()
    assert (axis.origin, axis.stop) == (begin, stop)
    zone = ZoneInfo(clock.zone) if clock.zone else timezone(timedelta(seconds=240 * (clock.solar_lon or 0)))
    for pick in picks:
        instant = begin + int(pick * (stop - begin)) // SECOND_NS * SECOND_NS
        moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant // SECOND_NS)).astimezone(zone)
        assert owner_of(axis, instant) == label(name, moment)
    assert owner_of(axis, begin - 1) is None
    assert owner_of(axis, stop) is None


# clock  00 01 02 02 03        the hour that comes twice is one block, the one that is left out is none
def test_hours_at_both_changes_of_the_clock() -> None:
    hours = CYCLES["hour_of_day"].with_clock(LocalClock("Europe/Zurich"))
    autumn = periodic(hours, parse_instant("2024-10-26T22:00Z"), parse_instant("2024-10-27T23:00Z"))
    assert ((autumn.ends - autumn.starts) // HOUR).tolist() == [1, 1, 2, *[1] * 21]
    assert autumn.owners.tolist() == list(range(24))
    spring = periodic(hours, parse_instant("2024-03-30T23:00Z"), parse_instant("2024-03-31T22:00Z"))
    assert autumn.labels[spring.owners].tolist() == [0, 1, *range(3, 24)]
    # A cell without a block is there, with bounds of no length.
    assert spring.corners[2] == spring.last_ends[2] == spring.start_ns


def test_a_leap_day_is_its_own() -> None:
    days = CYCLES["day_of_year"]
    four = periodic(days, parse_instant("2004-01-01"), parse_instant("2008-01-01"))
    sizes = np.bincount(four.owners, minlength=366)
    assert sizes[59] == 1
    assert (np.delete(sizes, 59) == 4).all()
    assert owner_of(four, parse_instant("2004-02-29T12:00Z")) == 60
    assert [owner_of(four, parse_instant(f"{year}-03-01")) for year in (2004, 2005)] == [61, 61]
    assert [owner_of(four, parse_instant(f"{year}-12-31")) for year in (2004, 2005)] == [366, 366]


@given(
    name=st.sampled_from(["hour_of_day", "day_of_week", "month_of_year"]), start=st.integers(0, 400),
    hours=st.integers(1, 2000), part=st.tuples(st.integers(0, 11), st.integers(1, 12)), kind=st.booleans(),
)  # fmt: skip
def test_cover_gathers_the_blocks_in_order_of_time(
    name: str,
    start: int,
    hours: int,
    part: tuple[int, int],
    kind: bool,  # noqa: FBT001 - Hypothesis draws it
) -> None:
    begin = parse_instant("2007-10-01") + start * HOUR
    axis = periodic(CYCLES[name], begin, begin + hours * HOUR)
    first = min(part[0], axis.count - 1)
    axis = axis.part(first, min(first + part[1], axis.count))
    source: Regular | Instants = Regular("time", begin - 5 * HOUR, HOUR, hours + 10, HOUR)
    if kind:
        source = Instants("time", source.corners)
    found = cover(source, axis)
    assert found.members is not None
    for cell in range(axis.count):
        members = found.members[found.first[cell] : found.stop[cell]].tolist()
        expected = [i for i, time in enumerate(source.corners.tolist()) if owner_of(axis, time) == axis.labels[cell]]
        assert members == expected


def test_a_source_that_would_be_cut_is_refused() -> None:
    day = periodic(CYCLES["hour_of_day"].with_clock(LocalClock(solar_lon=7.5)), 0, DAY_NS)
    with pytest.raises(InvalidQuery, match=r"hour_of_day \(mean solar time of 7.5 degrees east\)\) cut the source's"):
        cover(Regular("time", 0, HOUR, 24, HOUR), day)
    # Half an hour fits: 7.5 degrees are half an hour.
    assert cover(Regular("time", 0, HOUR // 2, 48, HOUR // 2), day).sizes.tolist() == [2] * 24
    with pytest.raises(InvalidQuery, match="cut the source's cells"):
        cover(day, Regular("time", 0, DAY_NS, 1, DAY_NS))


def test_tokens_tell_clocks_windows_and_parts_apart() -> None:
    hours = CYCLES["hour_of_day"]
    axes = [
        periodic(hours, 0, DAY_NS), periodic(hours, 0, DAY_NS + 1),
        periodic(hours.with_clock(LocalClock("Europe/Zurich")), 0, DAY_NS),
        periodic(hours.with_clock(LocalClock("Africa/Lagos")), 0, DAY_NS),
        periodic(hours.with_clock(LocalClock(solar_lon=15.0)), 0, DAY_NS), periodic(hours, 0, DAY_NS).part(0, 12),
        periodic(hours, 0, DAY_NS).part(12, 24),
    ]  # fmt: skip
    assert len({Topology(axis, GRID).token() for axis in axes}) == len(axes)
    assert Topology(axes[0], GRID).token() == Topology(periodic(hours, 0, DAY_NS), GRID).token()


def test_too_many_blocks_are_refused() -> None:
    with pytest.raises(InvalidQuery, match="more than 16,777,216 blocks; take a shorter time"):
        periodic(Cycle("part_of_1h", Calendar("1min", Unit(60 * SECOND_NS)), 60), 0, 36 * 366 * DAY_NS)
