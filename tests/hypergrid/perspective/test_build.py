"""What a chain may say: merges of several sources, units of differences, extremes, heights, moves, lengths."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, InvalidUnit, SingularSystem
from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive
from tests.support.feeds import Row
from tests.support.networks import START_NS, table, write_archive

HOUR_NS = 3600 * SECOND_NS
VARIOGRAM = hg.variogram("exponential", psill=1.0, range_m=300.0, nugget=0.05)
GRID = hg.grid(lon=7.17, lat=45.86, step="10arcsec", shape=(2, 3))


def array(values: list[list[float]], *, name: str = "t", unit: str = "degC") -> xr.DataArray:
    """Return readings of two stations at the top of each hour."""
    coords = {
        "time": pd.date_range("2007-10-01", periods=len(values), freq="1h"),
        "x": ("station", [0.0, 100.0]),
        "y": ("station", [0.0, 0.0]),
    }
    return xr.DataArray(values, dims=("time", "station"), coords=coords, name=name, attrs={"units": unit})


def archive_of(folder: Path, *given: tuple[Series, list[tuple[int, float]]], stations: list[Station]) -> OpenArchive:
    """Write an archive; readings as (seconds since its start, value)."""
    parts = []
    for series, rows in given:
        listed = [Row(0, START_NS + s * SECOND_NS, START_NS + s * SECOND_NS, value, 2) for s, value in rows]
        parts.append(table([series], listed))
    return write_archive(folder, stations=stations, readings=parts)


def station(name: str, *positions: tuple[int | None, float]) -> Station:
    """Return a station with positions (seconds from which, longitude)."""
    listed = [Position(None if s is None else START_NS + s * SECOND_NS, lon, 45.86, 2000.0) for s, lon in positions]
    return Station(name, name, tuple(listed))


def series(name: str, **given: Any) -> Series:  # noqa: ANN401 - the fields of a series
    return Series(**{"variable": "air_temperature", "station": name, "interval_s": 120.0, **given})


class TestMerge:
    def test_of_two_arrays_reads_both(self) -> None:
        first, second = array([[1, 2], [3, 4]]), array([[10, 20], [30, 40]])
        found = hg.base(first).merge("difference", hg.base(second)).compute()["value"].to_numpy()
        np.testing.assert_array_equal(found, first.to_numpy() - second.to_numpy())

    def test_of_arrays_with_different_names_reads_both(self) -> None:
        first, second = array([[1, 2]], name="t"), array([[10, 20]], name="u")
        assert hg.base(first).merge("difference", hg.base(second)).compute()["value"].to_numpy().tolist() == [[-9, -18]]

    def test_reads_one_snapshot_throughout(self, tmp_path: Path) -> None:
        rows = [(s, 5.0) for s in range(0, 3600, 120)]
        given = [(series("a"), rows), (series("a", variable="surface_temperature"), [(s, 1.0) for s, _ in rows])]
        opened = archive_of(tmp_path / "ar", *given, stations=[station("a", (None, 7.17))])
        with opened.store.commit(batch="2", message="amended", now_ns=START_NS) as writer:
            amended = [Row(0, START_NS + s * SECOND_NS, START_NS + s * SECOND_NS, 100.0, 2) for s, _ in rows]
            writer.readings(table([series("a", variable="surface_temperature")], amended))
        inner = {"variable": "surface_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}]}
        document = {
            "variable": "air_temperature",
            "snapshot": opened.snapshot,
            "steps": [
                {"op": "aggregate", "function": "mean", "time": "1h"},
                {"op": "merge", "function": "difference", "with": [inner]},
            ],
        }
        newest = opened.latest()
        assert newest.snapshot != opened.snapshot
        query = newest.query(document)
        assert query.compute()["value"].to_numpy().tolist() == [[4.0]]
        assert query.to_json()["steps"][1]["with"][0]["snapshot"] == opened.snapshot
        assert newest.query({**document, "snapshot": None}).compute()["value"].to_numpy().tolist() == [[-95.0]]

    def test_then_all_is_what_both_have_in_either_order(self, tmp_path: Path) -> None:
        long = [(s, 4.0) for s in range(0, 24 * 3600, 600)]
        given = [
            (series("a", interval_s=600.0), long),
            (series("a", variable="surface_temperature", interval_s=600.0), long[: 12 * 6]),
        ]
        opened = archive_of(tmp_path / "ar", *given, stations=[station("a", (None, 7.17))])
        air, surface = (
            opened[name].aggregate("mean", time="1h") for name in ("air_temperature", "surface_temperature")
        )
        for one, other in ((air, surface), (surface, air)):
            found = one.merge("difference", other).aggregate("mean", time="all").compute()
            assert found["value"].to_numpy().tolist() == [[0.0]]
            assert found["count_possible"].to_numpy().tolist() == [[12]]

    def test_of_two_archives_is_refused_with_what_to_do(self, tmp_path: Path) -> None:
        both = [
            archive_of(tmp_path / name, (series("a"), [(0, 1.0)]), stations=[station("a", (None, 7.17))])
            for name in ("one", "two")
        ]
        with pytest.raises(InvalidQuery, match="one archive.*hg.base"):
            both[0]["air_temperature"].merge("ratio", both[1]["air_temperature"])


class TestDifferencesOfTemperatures:
    def test_are_not_temperatures(self) -> None:
        warm = hg.base(array([[100.0, 100.0]]))
        difference = warm.merge("difference", warm)
        assert difference.compute()["value"].attrs["units"] == "K"
        assert difference.convert("valid_range", low="-5 K", high=5).compute()["value"].to_numpy().tolist() == [[0, 0]]
        with pytest.raises(InvalidUnit, match="difference of temperatures is not a temperature"):
            difference.convert("valid_range", low="-5 degC", high=5).plan()
        with pytest.raises(InvalidUnit, match="difference of temperatures is not a temperature"):
            difference.merge("difference", warm).plan()
        assert difference.merge("difference", difference).compute()["value"].attrs["units"] == "K"


class TestInterpolation:
    def test_refuses_several_series_of_one_station_and_names_the_choice(self, tmp_path: Path) -> None:
        given = [(series("a", height_m=h), [(0, 1.0)]) for h in (2.0, 10.0)]
        opened = archive_of(tmp_path / "ar", *given, stations=[station("a", (None, 7.17))])
        asked = opened["air_temperature"].aggregate("mean", time="10min", min_coverage=0)
        with pytest.raises(InvalidQuery, match=r"'a' has 2 series.*height_m=2.0.*select\(height_m=2.0\)"):
            asked.interpolate("ordinary_kriging", grid=GRID, variogram=VARIOGRAM).plan()
        chosen = opened["air_temperature"].select(height_m=10).aggregate("mean", time="10min", min_coverage=0)
        assert chosen.interpolate("ordinary_kriging", grid=GRID, variogram=VARIOGRAM).compute()["count"].max() == 1

    def test_takes_a_station_where_it_stood_and_refuses_to_span_a_move(self, tmp_path: Path) -> None:
        day = 24 * 3600
        rows = [(s, 10.0) for s in range(0, 2 * day, 3600)]
        flat = [(s, 0.0) for s, _ in rows]
        opened = archive_of(
            tmp_path / "ar",
            (series("a", interval_s=3600.0), flat),
            (series("b", interval_s=3600.0), rows),
            stations=[station("a", (None, 7.150)), station("b", (None, 7.1701), (day, 7.1730))],
        )
        grid = hg.grid(lon=(7.17, 7.1733), lat=(45.8599, 45.8601), step=0.0002)
        query = (
            opened["air_temperature"]
            .aggregate("mean", time="1day")
            .interpolate("ordinary_kriging", grid=grid, variogram=VARIOGRAM)
        )
        with pytest.raises(InvalidQuery, match="stations moved while these readings were taken: b"):
            query.plan()
        start = np.datetime64(START_NS, "ns")
        for number, lon in enumerate((7.1701, 7.1730)):
            window = (start + np.timedelta64(number, "D"), start + np.timedelta64(number + 1, "D"))
            found = query.clip(time=window).compute()["value"].isel(time=0, lat=0)
            assert abs(float(found["lon"][int(found.argmax("lon"))]) - lon) < 0.0002

    def test_refuses_directions(self) -> None:
        directions = hg.base(array([[350.0, 10.0]], name="wind_direction", unit="degree"))
        with pytest.raises(InvalidQuery, match="mean of directions has no meaning"):
            directions.aggregate("mean", time="all").plan()
        with pytest.raises(InvalidQuery, match="interpolating directions by linear has no meaning"):
            directions.interpolate("linear", time="5min", max_gap="10min").plan()

    def test_refuses_a_system_that_has_lost_its_digits(self) -> None:
        random = np.random.default_rng(0)
        x, y = random.uniform(0, 700, (2, 24))
        coords = {"time": pd.date_range("2007-10-01", periods=1), "x": ("station", x), "y": ("station", y)}
        flat = xr.DataArray(np.full((1, 24), 10.0), dims=("time", "station"), coords=coords)
        smooth = hg.variogram("gaussian", psill=1.0, range_m=3000.0)
        query = hg.base(flat).interpolate(
            "ordinary_kriging", grid=hg.grid(x=0, y=0, step=50, shape=(9, 9)), variogram=smooth
        )
        with pytest.raises(SingularSystem, match="raise the nugget"):
            query.compute()


class TestExtremesAndIntervals:
    def test_a_mean_of_maxima_is_refused_however_they_were_chosen(self, tmp_path: Path) -> None:
        rows = [(s, 1.0) for s in range(0, 3600, 120)]
        opened = archive_of(
            tmp_path / "ar", (series("a", statistic="max"), rows), stations=[station("a", (None, 7.17))]
        )
        maxima = opened["air_temperature"].select(statistic="max").aggregate("first", time="10min")
        with pytest.raises(InvalidQuery, match="a mean of max values"):
            maxima.aggregate("mean", time="all").plan()

    def test_a_mean_of_maxima_that_are_taken_here_is_what_it_says(self) -> None:
        found = (
            hg.base(array([[1.0, 7.0], [5.0, 7.0], [2.0, 8.0], [4.0, 6.0]]))
            .aggregate("max", time="2h")
            .aggregate("mean", time="all")
        )
        assert found.compute()["value"].values.tolist() == [[4.5, 7.5]]
        methods = found.compute()["value"].attrs["cell_methods"]
        assert 0 == methods.index("time: maximum") < methods.index("time: mean")

    def test_cells_shorter_than_what_a_mean_stands_for_are_refused(self, tmp_path: Path) -> None:
        daily = series("a", statistic="mean", interval_s=86400.0)
        opened = archive_of(tmp_path / "ar", (daily, [(0, 1.0), (86400, 2.0)]), stations=[station("a", (None, 7.17))])
        with pytest.raises(InvalidQuery, match="shorter than the 1day"):
            opened["air_temperature"].aggregate("mean", time="1h").plan()
        assert opened["air_temperature"].aggregate("mean", time="1day").compute()["value"].size == 2


class TestWrongUse:
    @pytest.mark.parametrize("given", [np.zeros((2, 2)), array([[1.0, 2.0]]).to_dataset(name="t"), None])
    def test_a_base_that_is_no_array_is_explained(self, given: object) -> None:
        with pytest.raises(InvalidQuery, match="needs an xarray.DataArray"):
            hg.base(given)

    def test_a_clip_and_a_grid_of_other_kinds_are_explained(self) -> None:
        query = hg.base(array([[1.0, 2.0]]))
        with pytest.raises(InvalidQuery, match="needs a start and a stop"):
            query.clip(time="2007-10-01")
        with pytest.raises(InvalidQuery, match="hg.grid"):
            query.interpolate("ordinary_kriging", grid="x", variogram=VARIOGRAM)


class TestLengths:
    def test_a_hundred_steps_go_and_more_are_refused(self) -> None:
        query = hg.base(array([[1.0, 2.0]]))
        for _ in range(100):
            query = query.convert("scale", factor=1.0)
        assert query.compute()["value"].to_numpy().tolist() == [[1.0, 2.0]]
        with pytest.raises(InvalidQuery, match="up to 100 steps"):
            query.convert("scale", factor=1.0)

    def test_deep_merges_are_refused(self, tmp_path: Path) -> None:
        opened = archive_of(tmp_path / "ar", (series("a"), [(0, 1.0)]), stations=[station("a", (None, 7.17))])
        document: dict[str, Any] = {"variable": "air_temperature"}
        for _ in range(400):
            document = {
                "variable": "air_temperature",
                "steps": [{"op": "merge", "function": "difference", "with": [document]}],
            }
        with pytest.raises(InvalidQuery, match="8 deep"):
            opened.query(document)

    def test_a_second_clip_of_a_dimension_is_refused(self) -> None:
        clipped = hg.base(array([[1.0, 2.0]])).clip(time=("2007-10-01", "2007-10-02"))
        with pytest.raises(InvalidQuery, match="clipped already"):
            clipped.clip(time=("2007-10-01", "2007-10-03"))


def test_equal_questions_have_equal_tokens_however_they_are_written(tmp_path: Path) -> None:
    given = [(series(name, height_m=10.0), [(0, 1.0)]) for name in ("a", "b")]
    places = [station("a", (None, 7.17)), station("b", (None, 7.18))]
    query = archive_of(tmp_path / "ar", *given, stations=places)["air_temperature"]
    assert query.accept_flags(1, 2).token == query.accept_flags(2, 1, 1).token
    assert query.select(height_m=10).token == query.select(height_m=10.0).token
    assert query.select(station=("a", "b")).token == query.select(station=["b", "a"]).token
    assert query.select(station="a").token != query.select(station="b").token
