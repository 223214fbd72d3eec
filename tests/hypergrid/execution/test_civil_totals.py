"""Totals of civil days, and of intervals that overlap by little: each is decided where it lies."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.core.times import SECOND_NS
from tests.hypergrid.execution.test_overlapping import DAY, MINUTE, archive_of, of_day, total, totals

ZURICH = ZoneInfo("Europe/Zurich")


def midnights(first: datetime, days: int) -> list[int]:
    """Return when civil days end [ns since 1970 UTC]."""
    ends = [(first + timedelta(days=day)).replace(tzinfo=ZURICH).astimezone(UTC) for day in range(1, days + 1)]
    return [round(end.timestamp()) * SECOND_NS for end in ends]


def daily(*leaving_out: int, extra: tuple[int, ...] = ()) -> list[tuple[int, float]]:
    """Return totals of civil days from March to May 2007, day by day 0, 1, 2 and so on [mm]."""
    ends = midnights(datetime(2007, 3, 1), 92)  # noqa: DTZ001 - a civil date
    rows = [(end, float(day)) for day, end in enumerate(ends) if day not in leaving_out]
    return sorted([*rows, *[(end, 0.0) for end in extra]])


@pytest.mark.parametrize(("step", "days"), [("month", 31), ("7days", 7)])
@pytest.mark.parametrize("stamp", ["end", "start"])
def test_a_day_that_is_missing_is_missed_where_the_clock_is_put_forward(
    tmp_path: Path, step: str, days: int, stamp: str
) -> None:
    """March 2007 has 743 hours in Europe/Zurich, and 31 days; its last full week is an hour short."""
    ends = midnights(datetime(2007, 2, 28), 93)  # noqa: DTZ001 - a civil date
    stamps = ends[1:] if stamp == "end" else ends[:-1]
    for missing, name in ((None, "whole"), (24, "one missing")):
        rows = [(at, float(day)) for day, at in enumerate(stamps) if day != missing]
        opened, _ = archive_of(tmp_path / name, (total(hours=24, stamp=stamp), rows), slice_s=3600.0)
        cells = {"step": step, "zone": "Europe/Zurich"}
        found = totals(opened).aggregate("sum", time=cells, min_coverage=1.0).compute().isel(station=0)
        # The cell of 25 March, in which the clock is put forward.
        own = found.isel(time=np.flatnonzero(found["time"].to_numpy() <= np.datetime64("2007-03-24T23"))[-1])
        assert int(own["count_possible"]) == days
        assert int(own["count"]) == days - (missing is not None)
        assert np.isnan(float(own["value"])) == (missing is not None)
        assert (found["count"] <= found["count_possible"]).all()


def test_one_more_reading_changes_the_days_around_it_alone(tmp_path: Path) -> None:
    cells = {"step": "1day", "zone": "Europe/Zurich"}
    extra = midnights(datetime(2007, 5, 5), 1)[0] + 3600 * SECOND_NS  # noqa: DTZ001 - a civil date
    found = {}
    for name, rows in (("plain", daily()), ("one more", daily(extra=(extra,)))):
        opened, _ = archive_of(tmp_path / name, (total(hours=24), rows), slice_s=3600.0)
        found[name] = totals(opened).aggregate("sum", time=cells, min_coverage=0).compute()["value"].isel(station=0)
        clipped = totals(opened).aggregate("sum", time=cells, min_coverage=0).clip(time=("2007-03-20", "2007-04-01"))
        own = clipped.compute()["value"].isel(station=0)
        np.testing.assert_array_equal(own, found[name].sel(time=own["time"]))
    march = slice("2007-03-01", "2007-05-01")
    np.testing.assert_array_equal(found["one more"].sel(time=march), found["plain"].sel(time=march))
    # Local days begin on the evening before by UTC; the day of 23 hours has a total of its own.
    assert found["plain"].sel(time=slice("2007-03-23T22", "2007-03-26T12")).to_numpy().tolist() == [23.0, 24.0, 25.0]


@pytest.mark.parametrize("step_min", [50, 55])
def test_totals_that_overlap_by_little_are_not_summed(tmp_path: Path, step_min: int) -> None:
    rows = [(DAY + i * step_min * MINUTE, 1.0) for i in range(-30, 60)]
    opened, _ = archive_of(tmp_path / "a", (total(), rows))
    value, count, possible, notes = of_day(totals(opened).aggregate("sum", time="1day"))
    assert np.isnan(value)
    assert count < possible == 24
    assert f"{step_min}min do not divide 1h" in notes


def test_clocks_that_run_fast_by_little_overlap_nothing(tmp_path: Path) -> None:
    """Stamps that come 3 % early each time are those of a fast clock."""
    rows = [(DAY + round(i * 58.2 * MINUTE), 1.0) for i in range(60)]
    opened, _ = archive_of(tmp_path / "a", (total(), rows))
    assert "overlap" not in of_day(totals(opened).aggregate("mean", time="1day", min_coverage=0), "2007-10-02")[3]


def test_days_of_an_array_are_those_of_the_clock() -> None:
    import xarray as xr  # noqa: PLC0415 - for this test alone

    ends = np.array(midnights(datetime(2007, 2, 28), 31), dtype="datetime64[ns]")  # noqa: DTZ001 - a civil date
    array = xr.DataArray(
        np.ones((31, 1)), dims=("time", "station"), name="air_temperature", attrs={"units": "degC"},
        coords={"time": ends, "station": ["a"], "lon": ("station", [7.0]), "lat": ("station", [46.0])},
    )  # fmt: skip
    cells = {"step": "month", "zone": "Europe/Zurich"}
    whole = hg.base(array).aggregate("mean", time=cells).compute()
    assert (int(whole["count"][0, 0]), int(whole["count_possible"][0, 0])) == (31, 31)
    part = hg.base(array[np.arange(31) != 10]).aggregate("mean", time=cells).compute()
    assert (int(part["count"][0, 0]), int(part["count_possible"][0, 0])) == (30, 31)
