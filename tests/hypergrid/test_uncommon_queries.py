"""Queries that few users ask: each has the answer that a plainer way gives, or one clear refusal."""

import json
from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.core.errors import DamagedArchive, InvalidQuery, NotFound
from tests.support.chains import GRID, MODEL, hourly, network
from tests.support.networks import random_archive
from tests.support.own_functions import forgotten_functions

TURNED = hg.variogram("exponential", psill=1.2, range_m=900.0, nugget=0.05, anisotropy={"angle_degree": 30, "ratio": 2})


def test_each_slice_has_a_variogram_and_a_radius_of_its_own() -> None:
    asked = {"grid": GRID, "variogram": "fit_by_slice", "neighbours": 4}
    near = network().interpolate("ordinary_kriging", radius_m=400.0, **asked).compute()
    whole = network().interpolate("ordinary_kriging", **asked).compute()
    reached = np.isfinite(near["air_temperature"].to_numpy())
    assert 0 < reached.sum() < reached.size
    assert np.isfinite(whole["air_temperature"].to_numpy()[reached]).all()
    assert "within radius_m = 400 m" in near.attrs["comment"]


def test_a_radius_is_a_circle_also_where_distances_depend_on_direction() -> None:
    def map_within(radius_m: float) -> np.ndarray:
        maps = network().interpolate("ordinary_kriging", grid=GRID, variogram=TURNED, neighbours=5, radius_m=radius_m)
        return maps.compute()["air_temperature"].to_numpy()

    near, whole = map_within(300.0), map_within(10_000.0)
    stations = network().compute()
    x, y = stations["x"].to_numpy(), stations["y"].to_numpy()
    centres = np.arange(125.0, 2000.0, 250.0)
    closest = np.hypot(centres[None, :, None] - x, centres[:, None, None] - y).min(axis=-1)
    assert not np.isfinite(near[:, closest > 300.0]).any()
    assert np.isfinite(whole).all()
    assert np.isfinite(near[:, closest < 250.0]).any()


def test_a_second_opinion_of_a_trend_is_one_of_the_maps_below_it() -> None:
    trends = hourly().interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).aggregate("trend", time="1d")
    opinion = json.loads(trends.compute(second_opinion=30).attrs["hypergrid_second_opinion"])
    assert opinion["agrees"]
    assert [each["cells"] for each in opinion["comparisons"]] == [30]
    assert "interpolate ordinary_kriging" in opinion["comparisons"][0]["subject"]


def test_the_error_of_the_mean_of_a_large_region_is_that_of_a_coarser_grid() -> None:
    errors = []
    for step in (250, 12.5):
        maps = network(2).interpolate(
            "ordinary_kriging", grid=hg.grid(x=(0, 2000), y=(0, 2000), step=step), variogram=MODEL
        )
        mean = maps.aggregate("mean", x=2000, y=2000).with_variance().compute()
        errors.append(float(mean["variance"].max()))
    assert errors[1] == pytest.approx(errors[0], rel=0.1)


def test_a_second_opinion_of_a_model_that_pykrige_lacks_is_one_of_a_custom_model() -> None:
    smooth = hg.variogram("matern", psill=1.0, range_m=900.0, nugget=0.1, smoothness=1.5)
    maps = network(6).interpolate("ordinary_kriging", grid=GRID, variogram=smooth)
    opinion = json.loads(maps.compute(second_opinion=20).attrs["hypergrid_second_opinion"])
    assert opinion["agrees"]
    assert opinion["comparisons"][0]["cells"] == 20


def test_what_json_cannot_hold_is_no_parameter() -> None:
    with pytest.raises(InvalidQuery, match="needs what JSON can hold"):
        network().interpolate("ordinary_kriging", grid=GRID, variogram=object()).compute()


def test_masked_values_of_a_function_are_missing() -> None:
    with forgotten_functions():

        @hg.convert_function("cold")
        def cold(value: np.ndarray) -> np.ma.MaskedArray:
            return np.ma.masked_greater(value, 5.0)

        kept = network().convert("cold").compute()["air_temperature"].to_numpy()
    plain = network().compute()["air_temperature"].to_numpy()
    np.testing.assert_array_equal(kept, np.where(plain > 5.0, np.nan, plain))


def test_cells_that_cut_those_below_are_refused() -> None:
    maps = hourly().interpolate("nearest", grid=GRID)
    with pytest.raises(InvalidQuery, match="cut the source's cells"):
        maps.aggregate("mean", time="90min").compute()


def test_the_first_query_of_an_earlier_time_is_made_of_what_had_come_by_then(tmp_path: Path) -> None:
    archive, feeds = random_archive(tmp_path / "archive", 2)
    stamps = np.sort([row.stamp_ns for row in feeds["air_temperature"].rows])
    early = hg.open(archive.path, as_of=str(np.datetime64(int(stamps[len(stamps) // 2]), "ns")))
    count = early.store.readings("air_temperature")
    assert 0 < count < archive.store.readings("air_temperature")
    assert "air_temperature > mean" in str(hg.suggest(early))


def test_a_chunk_that_lost_a_bit_names_what_cannot_be_read(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path / "archive", 1)
    for path in (archive.path / "store" / "chunks").iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with pytest.raises(DamagedArchive, match="air_temperature"):
        hg.open(archive.path)["air_temperature"].aggregate("mean", time="1h", min_coverage=0).compute()


def test_a_variogram_without_a_sill_is_one_and_an_unknown_model_is_not() -> None:
    power = hg.variogram("power", psill=2.0, range_m=100.0, exponent=1.5)
    assert float(power.semivariance(np.array([400.0]))[0]) == pytest.approx(2.0 * 4.0**1.5)
    with pytest.raises(NotFound, match="did you mean 'gaussian'"):
        hg.variogram("gausian", psill=1.0, range_m=100.0)
