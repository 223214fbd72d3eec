"""Running totals and extremes of ../shared/data/knmi_10min, ingested and aggregated, against the file itself."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.query import OpenArchive, Query
from ingest.job import ingest

Totals = dict[str, float]


@pytest.fixture(scope="module")
def knmi(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[OpenArchive, xr.Dataset]:
    """Return the archive of one day, and the file that it is of."""
    path = Path(request.config.rootpath).parent / "shared" / "data" / "knmi_10min" / "20221231.nc"
    if not path.is_file():
        pytest.skip("the real station files ../shared/data/knmi_10min are not here")
    folder = tmp_path_factory.mktemp("knmi") / "archive"
    ingest([path], folder, now_ns=1_700_000_000_000_000_000)
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        return hg.open(folder), dataset.load()


def every_flag(query: Query) -> Query:
    """Return a query of readings whatever the tests of quality say: what is compared is the arithmetic."""
    return query.accept_flags(1, 2, 3, 4)


def by_station(found: xr.Dataset, time: str, name: str = "value") -> Totals:
    own = found.sel(time=time)[name]
    return {str(one["station"].item()): float(one) for one in own if np.isfinite(one)}


def of_file(dataset: xr.Dataset, values: xr.DataArray) -> Totals:
    """Return values of all stations that have one."""
    names = [str(name) for name in dataset["station"].values]
    return {name: float(one) for name, one in zip(names, values.values, strict=True) if np.isfinite(one)}


def stamps(dataset: xr.Dataset, name: str, every_h: int, start: str, stop: str) -> xr.DataArray:
    """Return the values of a variable at the stamps that tile a time: one each so many hours."""
    wanted = np.arange(np.datetime64(start), np.datetime64(stop), np.timedelta64(every_h, "h"))
    return dataset[name].sel(time=wanted)


# A stamp at 01:00 ends the hour from 00:00: the file has the ends 00:00 to 23:50 of 31 December.
@pytest.mark.parametrize(
    ("variable", "hours", "offset", "corner", "first"),
    [
        ("R1H", 1, "23h", "2022-12-30T23:00", "2022-12-31T00:00"),
        ("R6H", 6, "18h", "2022-12-30T18:00", "2022-12-31T00:00"),
        ("R12H", 12, "12h", "2022-12-30T12:00", "2022-12-31T00:00"),
        ("R24H", 24, None, "2022-12-30T00:00", "2022-12-31T00:00"),
    ],
)
def test_daily_sums_are_those_of_totals_that_do_not_overlap(
    knmi: tuple[OpenArchive, xr.Dataset], variable: str, hours: int, offset: str | None, corner: str, first: str
) -> None:
    archive, dataset = knmi
    days = {"step": "1day", **({"offset": offset} if offset else {})}
    found = every_flag(archive[variable]).select(statistic="total").aggregate("sum", time=days).compute()
    last = np.datetime64(first) + np.timedelta64(24, "h")
    expected = of_file(dataset, stamps(dataset, variable, hours, first, str(last)).sum("time", skipna=False))
    assert len(expected) >= 30
    assert by_station(found, corner) == pytest.approx(expected, abs=1e-4)
    own = found.sel(time=corner)
    assert set(own["count_possible"].values.ravel().tolist()) == {24 // hours}
    assert int(own["count"].max()) == 24 // hours
    assert "intervals overlap" in found.attrs["comment"]


def test_hours_add_up_to_the_longer_totals_of_the_same_time(knmi: tuple[OpenArchive, xr.Dataset]) -> None:
    """Six hours by their hours are the six hours that the network reports, of another variable."""
    archive, dataset = knmi
    found = every_flag(archive["R1H"]).select(statistic="total").aggregate("sum", time="6h").compute()
    sixes = of_file(dataset, dataset["R6H"].sel(time="2022-12-31T12:00"))
    summed = by_station(found, "2022-12-31T06:00")
    common = sorted(set(sixes) & set(summed))
    assert len(common) >= 30
    # The network rounds, and corrects, each by itself.
    assert [summed[name] for name in common] == pytest.approx([sixes[name] for name in common], abs=0.05)


@pytest.mark.parametrize(
    ("column", "statistic", "function", "hours"),
    [("Tx12", "max", "max", 12), ("Tn12", "min", "min", 12), ("Tx6", "max", "max", 6), ("Tgn6", "min", "min", 6)],
)
def test_running_extremes_are_of_the_intervals_within_the_cell(
    knmi: tuple[OpenArchive, xr.Dataset], column: str, statistic: str, function: str, hours: int
) -> None:
    archive, dataset = knmi
    series = Archive.open(archive.path).series("air_temperature")
    source = next(one.source for one in series if one.source.endswith(column))
    query = every_flag(archive["air_temperature"]).select(statistic=statistic, source=source)
    found = query.aggregate(function, time="12h").compute()
    # Within 00:00 to 12:00 lie the intervals that end from 00:00 + hours to 12:00.
    ends = dataset[column].sel(time=slice(f"2022-12-31T{hours:02d}:00", "2022-12-31T12:00"))
    expected = of_file(dataset, getattr(ends, function)("time"))
    assert by_station(found, "2022-12-31T00:00") == pytest.approx(expected, abs=1e-4)
    own = found.sel(time="2022-12-31T00:00")
    assert set(own["count_possible"].values.ravel().tolist()) == {12 // hours}
    assert int(own["count"].max()) == 12 // hours
