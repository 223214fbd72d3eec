"""Totals, means and extremes whose intervals are longer than the step at which they are reported."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.execution import make_plan, run
from hypergrid.execution.planning.strategy import path
from hypergrid.query import OpenArchive, Query
from tests.support.feeds import Feed, Row, Sensor
from tests.support.networks import table, write_archive
from tests.support.oracle import answer

DAY = parse_instant("2007-10-02")
MINUTE = 60 * SECOND_NS
HOUR = 60 * MINUTE
PLACES = [(7.17 + 0.002 * i, 45.86 + 0.001 * i * i) for i in range(6)]

Rain = np.ndarray[Any, np.dtype[np.float64]]


def rain(days: int = 3, seed: int = 1) -> Rain:
    """Return what falls in each ten minutes from a day before `DAY` on [mm]."""
    rng = np.random.default_rng(seed)
    return np.round(np.where(rng.random(144 * days) < 0.2, rng.exponential(0.4, 144 * days), 0.0), 2)


def running(fallen: Rain, hours: int, step_min: int = 10) -> list[tuple[int, float]]:
    """Return end stamps and totals of the last hours, reported at each step."""
    tens, every = hours * 6, step_min // 10
    totals = np.convolve(fallen, np.ones(tens))[: len(fallen)]
    first = DAY - 144 * 10 * MINUTE
    ends = [(first + (i + 1) * 10 * MINUTE, float(totals[i])) for i in range(tens - 1, len(fallen))]
    return [(at, value) for at, value in ends if (at // MINUTE) % (10 * every) == 0]


def total(station: str = "s0", hours: float = 1, **given: object) -> Series:
    known = {"variable": "precipitation", "statistic": "total", "interval_s": hours * 3600.0, "stamp": "end"}
    return Series(**{**known, "station": station, "source": "f/p", **given})  # type: ignore[arg-type]


def archive_of(
    folder: Path, *given: tuple[Series, list[tuple[int, float]]], slice_s: float = 600.0
) -> tuple[OpenArchive, Feed]:
    """Write an archive of one variable; return it with the same as an oracle's feed."""
    series = [item for item, _ in given]
    rows = []
    for number, (item, readings) in enumerate(given):
        before = round(item.interval_s * SECOND_NS) if item.stamp == "end" else 0
        rows += [Row(number, at - before, at, value, 2) for at, value in readings]
    stations = [Station(f"s{i}", f"s{i}", (Position(None, *PLACES[i], 2000.0),)) for i in range(len(given))]
    opened = write_archive(folder, stations=stations, readings=[table(series, rows)], slice_s=slice_s)
    sensors = tuple(Sensor(item, *PLACES[i], 2000.0) for i, item in enumerate(series))
    return opened, Feed(sensors, tuple(rows), round(slice_s * SECOND_NS))


def totals(opened: OpenArchive) -> Query:
    return opened["precipitation"].select(statistic=("total", "mean", "max", "min"))


def of_day(query: Query, day: str = "2007-10-02") -> tuple[float, int, int, str]:
    """Return value, count, what is possible on a day, and the notes."""
    found = query.compute()
    own = found.sel(time=day).isel(station=0)
    return float(own["value"]), int(own["count"]), int(own["count_possible"]), found.attrs.get("comment", "")


# |------ hour ------|
#    |------ hour ------|          every ten minutes: six of them hold the same rain
#                   |------ hour ------|  the next that is taken
@pytest.mark.parametrize(("hours", "step_min"), [(1, 10), (1, 30), (6, 10), (12, 10), (24, 10), (24, 60)])
def test_a_daily_sum_of_running_totals_is_what_fell(tmp_path: Path, hours: int, step_min: int) -> None:
    fallen = rain()
    opened, _ = archive_of(tmp_path / "a", (total(hours=hours), running(fallen, hours, step_min)))
    value, count, possible, notes = of_day(totals(opened).aggregate("sum", time="1day"))
    assert value == pytest.approx(fallen[144:288].sum())
    assert count == possible == 24 // hours
    assert "intervals overlap in 1 of 1 series" in notes
    assert "are left out" in notes


def test_totals_stamped_at_the_start_are_summed_likewise(tmp_path: Path) -> None:
    fallen = rain()
    rows = [(at - HOUR, value) for at, value in running(fallen, 1)]
    opened, _ = archive_of(tmp_path / "a", (total(stamp="start"), rows))
    assert of_day(totals(opened).aggregate("sum", time="1day"))[:3] == (
        pytest.approx(fallen[144:288].sum()), 24, 24,
    )  # fmt: skip


def test_a_missing_tile_is_missed_and_not_shifted(tmp_path: Path) -> None:
    """The hour from 05:00 is nowhere else: intervals that begin later would reach into the next day."""
    fallen = rain()
    rows = [(at, value) for at, value in running(fallen, 1) if at != DAY + 6 * HOUR]
    opened, _ = archive_of(tmp_path / "a", (total(), rows))
    value, count, possible, _ = of_day(totals(opened).aggregate("sum", time="1day"))
    assert np.isnan(value)
    assert (count, possible) == (23, 24)
    most = of_day(totals(opened).aggregate("sum", time="1day", min_coverage=0.9))[0]
    # From the missing hour on, an hour later by ten minutes each.
    kept = [fallen[144 + 6 * hour : 150 + 6 * hour].sum() for hour in range(5)]
    later = [fallen[175 + 6 * hour : 181 + 6 * hour].sum() for hour in range(18)]
    assert most == pytest.approx(sum(kept) + sum(later))


def test_extremes_of_a_day_do_not_reach_into_the_next(tmp_path: Path) -> None:
    """The maximum of the last twelve hours at 11:50 begins the day before."""
    warm = [(DAY + i * 10 * MINUTE, 30.0 if i > 144 else 10.0) for i in range(-144, 288)]
    highest = total(hours=12, statistic="max", variable="precipitation")
    opened, _ = archive_of(tmp_path / "a", (highest, warm))
    value, count, possible, notes = of_day(totals(opened).aggregate("max", time="1day"))
    assert (value, count, possible) == (10.0, 2, 2)
    assert "those that lie within it" in notes


def test_running_means_are_weighted_once(tmp_path: Path) -> None:
    """A gap of half a day leaves half of the day, whatever the readings of the rest repeat."""
    rows = [(DAY + (i + 1) * 10 * MINUTE, float(i < 72)) for i in range(-6, 150) if not 40 <= i < 110]
    opened, _ = archive_of(tmp_path / "a", (total(statistic="mean"), rows))
    value, count, possible, _ = of_day(totals(opened).aggregate("mean", time="1day", min_coverage=0.5))
    assert (count, possible) == (12, 24)
    assert value == pytest.approx(6 / 12 + 0 / 12, abs=0.03)
    assert np.isnan(of_day(totals(opened).aggregate("mean", time="1day"))[0])


def test_a_step_that_no_interval_divides_is_named(tmp_path: Path) -> None:
    rows = [(DAY + i * 10 * MINUTE, 1.0) for i in range(-10, 200)]
    opened, _ = archive_of(tmp_path / "a", (total(hours=0.25), rows))
    value, count, possible, notes = of_day(totals(opened).aggregate("sum", time="1day"))
    assert np.isnan(value)
    assert (count, possible) == (72, 96)
    assert "10min do not divide 15min" in notes


def test_cells_that_no_interval_divides_are_refused(tmp_path: Path) -> None:
    rows = [(DAY + i * 10 * MINUTE, 1.0) for i in range(200)]
    opened, _ = archive_of(tmp_path / "a", (total(hours=1 / 6), rows))
    with pytest.raises(
        InvalidQuery, match=r"cells of 25min hold no whole number of totals of 10min: .* choose a multiple"
    ):
        totals(opened).aggregate("sum", time="25min").compute()


def test_irregular_means_do_not_overlap(tmp_path: Path) -> None:
    """Clocks that jitter by a quarter of the interval lose nothing."""
    rng = np.random.default_rng(2)
    rows = [(DAY + i * 10 * MINUTE + int(rng.integers(-150, 150)) * SECOND_NS, 1.0) for i in range(1, 145)]
    opened, _ = archive_of(tmp_path / "a", (total(hours=1 / 6, statistic="mean"), rows))
    value, count, _, notes = of_day(totals(opened).aggregate("mean", time="1day"))
    assert (value, count) == (1.0, 144)
    assert "overlap" not in notes


CELLS: dict[str, Any] = {
    "days": "1day",
    "half days": "12h",
    "all": "all",
    "hours of the day": {"periodic": "6h", "within": "1day"},
    "civil days": {"step": "1day", "zone": "Europe/Zurich"},
    "edges": {"edges": ["2007-10-01T06:30", "2007-10-02T01:00", "2007-10-03T07:10"]},
    "sliding": {"length": "12h", "step": "2h"},
}


def mixed(folder: Path) -> tuple[OpenArchive, Feed]:
    """Return hours every ten minutes with gaps and jitter, six hours, plain hours, by their ends or starts."""
    rng = np.random.default_rng(5)
    fallen = rain()
    holes = [(at, value) for at, value in running(fallen, 1) if rng.random() > 0.1]
    jitter = [(at + int(rng.integers(0, 20)) * SECOND_NS, value) for at, value in running(fallen, 1)]
    plain = [(at, value) for at, value in running(fallen, 1) if at % HOUR == 0]
    late = [(at + 3 * MINUTE, value) for at, value in running(fallen, 6)]
    return archive_of(
        folder,
        (total("s0"), holes),
        (total("s1"), jitter),
        (total("s2", hours=6), running(fallen, 6)),
        (total("s3"), plain),
        (total("s4", hours=6, stamp="start"), late),
        (total("s5", hours=0.25), running(fallen, 1)),
    )


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[OpenArchive, Feed]:
    return mixed(tmp_path_factory.mktemp("mixed") / "a")


@pytest.mark.parametrize("cells", CELLS.values(), ids=CELLS)
def test_every_way_answers_as_the_oracle(network: tuple[OpenArchive, Feed], cells: object) -> None:
    opened, feed = network
    for function in ("sum", "max", "median", "sample", "trend"):
        query = totals(opened).aggregate(function, time=cells, min_coverage=0.3)
        expected = answer(query.question, {"precipitation": feed})
        found = query.compute()
        np.testing.assert_allclose(found["value"], expected.value, rtol=1e-9, atol=1e-9, err_msg=function)
        np.testing.assert_array_equal(found["count"], expected.count, err_msg=function)
        possible = np.broadcast_to(found["count_possible"], found["count"].shape)
        np.testing.assert_array_equal(possible, expected.possible, err_msg=function)
        # Intervals that do not overlap count where they begin, one more in a cell that begins between two of them.
        assert (found["count"] - found["count_possible"] <= [0, 0, 0, 1, 0, 0]).all()
    surface = query.surface()
    for k in range(len(path(make_plan(surface).surface)) + 1):
        plan = make_plan(surface, strategy=k)
        *_, last = run(replace(plan, block_cells=4, block_times=2))
        np.testing.assert_allclose(last.outcome.value, expected.value, rtol=1e-9, atol=1e-9)


def test_a_surface_that_grows_equals_one_that_is_computed_anew(tmp_path: Path) -> None:
    fallen = rain(4)
    rows = running(fallen, 6)
    first, later = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    opened, _ = archive_of(tmp_path / "a", (total(hours=6), first))
    growing = hg.Growing(totals(opened).aggregate("sum", time="12h"))
    with Archive.open(tmp_path / "a").commit(batch="2", message="more", now_ns=DAY) as writer:
        writer.readings(table([total(hours=6)], [Row(0, at, at, value, 2) for at, value in later]))
    update = growing.update()
    assert update.why == ""
    anew = totals(hg.open(tmp_path / "a")).aggregate("sum", time="12h").compute()
    np.testing.assert_array_equal(growing.dataset()["value"], anew["value"])
    np.testing.assert_array_equal(growing.dataset()["count"], anew["count"])
    assert growing.dataset().attrs["comment"] == anew.attrs["comment"]


def local_days(folder: Path, zone: str, first: str, days: int) -> OpenArchive:
    """Return totals of local days, 1 mm on the first, 2 mm on the second …, stamped at the end of each."""
    from datetime import datetime, timedelta  # noqa: PLC0415 - here alone
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - here alone

    start = datetime.fromisoformat(first).replace(tzinfo=ZoneInfo(zone))
    ends = [round((start + timedelta(days=i + 1)).timestamp()) * SECOND_NS for i in range(days)]
    return archive_of(folder, (total(hours=24), [(at, 1.0 + i) for i, at in enumerate(ends)]), slice_s=3600.0)[0]


# Clocks go forward on 25 March 2007 in Zurich, and back on 28 October.
@pytest.mark.parametrize("first", ["2007-03-22", "2007-10-25"])
def test_totals_of_civil_days_stay_in_their_days(tmp_path: Path, first: str) -> None:
    opened = local_days(tmp_path / "a", "Europe/Zurich", first, 6)
    zone = {"step": "1day", "zone": "Europe/Zurich"}
    found = totals(opened).aggregate("sum", time=zone).compute()
    kept = found["value"].to_numpy().ravel()
    assert kept[np.isfinite(kept)].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert found["count"].to_numpy().max() == found["count_possible"].to_numpy().max() == 1
    assert "reach beyond" not in found.attrs.get("comment", "")


def test_readings_of_the_day_of_23_hours_are_judged_by_its_own_length(tmp_path: Path) -> None:
    start = parse_instant("2007-03-24T23:00Z")
    rows = [(start + i * HOUR, 1.0) for i in range(-23, 48)]
    opened, _ = archive_of(tmp_path / "a", (total(stamp="start"), rows), slice_s=3600.0)
    found = totals(opened).aggregate("sum", time={"step": "1day", "zone": "Europe/Zurich"}).compute()
    own = found.sel(time="2007-03-24T23:00").isel(station=0)
    assert (float(own["value"]), int(own["count"]), int(own["count_possible"])) == (23.0, 23, 23)


def test_running_days_do_not_fit_into_the_day_of_23_hours(tmp_path: Path) -> None:
    start = parse_instant("2007-03-23T23:00Z")
    rows = [(start + i * HOUR, 1.0) for i in range(25, 100)]
    opened, _ = archive_of(tmp_path / "a", (total(hours=24), rows), slice_s=3600.0)
    found = totals(opened).aggregate("sum", time={"step": "1day", "zone": "Europe/Zurich"}).compute()
    short = found.sel(time="2007-03-24T23:00").isel(station=0)
    assert (np.isnan(float(short["value"])), int(short["count"])) == (True, 0)


def test_totals_of_local_days_on_utc_days_are_noted(tmp_path: Path) -> None:
    opened = local_days(tmp_path / "a", "Europe/Zurich", "2007-10-25", 6)
    found = totals(opened).aggregate("sum", time="1day", min_coverage=0).compute()
    assert "6 of 6 readings over 1day reach beyond their cells, by up to 23h" in found.attrs["comment"]


def test_a_total_longer_than_what_there_is_is_named(tmp_path: Path) -> None:
    rows = [(DAY + i * 10 * MINUTE, 1.0) for i in range(30)]
    opened, _ = archive_of(tmp_path / "a", (total(hours=24), rows))
    with pytest.raises(InvalidQuery, match=r"cells of 6h are shorter than the 1day"):
        totals(opened).aggregate("sum", time="6h").compute()
    with pytest.raises(InvalidQuery, match=r"'precipitation' stand for 1day each, longer than the 5h that there are"):
        totals(opened).aggregate("sum", time="all").compute()


@pytest.mark.parametrize(
    "call", [lambda q: q.aggregate("mean", time="1day"), lambda q: q.aggregate("sum", time="1day")]
)
def test_what_is_refused_of_extremes_names_the_selection(tmp_path: Path, call: Callable[[Query], Query]) -> None:
    lowest = total("s0", statistic="min", hours=6)
    opened, _ = archive_of(tmp_path / "a", (lowest, running(rain(), 6)), (total("s1"), running(rain(), 1)))
    with pytest.raises(InvalidQuery, match=r"\.select\(statistic='total'\)"):
        call(totals(opened)).compute()


def test_totals_below_zero_are_noted_where_they_are_summed(tmp_path: Path) -> None:
    rows = [(DAY + (i + 1) * HOUR, -99.0 if i == 3 else 1.0) for i in range(24)]
    opened, _ = archive_of(tmp_path / "a", (total(), rows))
    value, *_, notes = of_day(totals(opened).aggregate("sum", time="1day"))
    assert value == -76.0
    assert "1 totals below zero are in the sums, the least -99 (s0)" in notes


GRID = hg.grid(lon=(7.17, 7.18), lat=(45.86, 45.87), step=0.005)


# |------ hour ------|             interpolated slice by slice, an hour's rain is in six of them
#    |------ hour ------|
@pytest.mark.parametrize("method", ["nearest", "inverse_distance"])
def test_running_totals_that_were_interpolated_are_not_summed(tmp_path: Path, method: str) -> None:
    opened, _ = archive_of(tmp_path / "a", (total("s0"), running(rain(), 1)), (total("s1"), running(rain(), 1)))
    interpolated = totals(opened).interpolate(method, grid=GRID)
    with pytest.raises(
        InvalidQuery,
        match=r"a sum over total values over 1h each, in steps of 10min, .* up to 6 times; aggregate before interpol",
    ):
        interpolated.aggregate("sum", time="1day").compute()
    mean = interpolated.aggregate("mean", time="1day").clip(time=("2007-10-02", "2007-10-03")).compute()
    assert "the mean is over total values over 1h each, in steps of 10min" in mean.attrs["comment"]
    hourly = totals(opened).aggregate("sum", time="1h").interpolate(method, grid=GRID).aggregate("sum", time="1day")
    day = hourly.clip(time=("2007-10-02", "2007-10-03")).compute()
    assert np.allclose(day["value"].values, rain()[144:288].sum(), rtol=1e-9)
    assert "longer than the step" not in day.attrs.get("comment", "")


def test_sums_of_windows_that_overlap_are_refused(tmp_path: Path) -> None:
    opened, _ = archive_of(tmp_path / "a", (total("s0"), running(rain(), 1)))
    sliding = totals(opened).aggregate("sum", time={"length": "2h", "step": "1h"})
    with pytest.raises(InvalidQuery, match=r"a sum over windows of 2h, one every 1h, would hold .* up to 2 times"):
        sliding.aggregate("sum", time="1day").compute()
    assert (
        "the mean is over windows of 2h, one every 1h"
        in (sliding.aggregate("mean", time="1day").compute().attrs["comment"])
    )
    assert "windows of" not in sliding.aggregate("max", time="1day").compute().attrs.get("comment", "")


def test_series_that_are_not_selected_are_named_with_the_selection(tmp_path: Path) -> None:
    opened, _ = archive_of(tmp_path / "a", (total("s0"), running(rain(), 1)))
    with pytest.raises(InvalidQuery, match=r"there are: statistic total; choose with \.select\(statistic='total'\)$"):
        opened["precipitation"].aggregate("sum", time="1day").compute()
    with pytest.raises(InvalidQuery, match=r"choose with \.select\(statistic='total', station='s0'\)$"):
        opened["precipitation"].select(station="s9").aggregate("sum", time="1day").compute()
