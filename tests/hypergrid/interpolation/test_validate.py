"""Cross-validation: what is left out, what comes back, what is refused; and a day of real stations."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import xarray as xr
from numpy.typing import NDArray
from pykrige.ok import OrdinaryKriging

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.geodesy import places_m
from hypergrid.interpolation import METHODS, variogram
from hypergrid.interpolation.points import Samples
from hypergrid.interpolation.validation.compare import PEER, QUICK, compare_methods, list_candidates
from hypergrid.interpolation.validation.cross_validate import cross_validate
from hypergrid.interpolation.validation.transfer import read_validation, write_validation

Floats = NDArray[np.float64]
MODEL = variogram("exponential", psill=4.0, range_m=600.0, nugget=0.5)


def simulated(seed: int = 1, *, stations: int = 25, slices: int = 400) -> Samples:
    """Return fields that have the variogram MODEL, with holes; elevations rise to the north."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 1000, (stations, 2))
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    covariance = MODEL.psill * np.exp(-3 * distance / MODEL.range_m) + MODEL.nugget * np.eye(stations)
    values = 10.0 + rng.normal(size=(slices, stations)) @ np.linalg.cholesky(covariance).T
    values[rng.random(values.shape) < 0.1] = np.nan
    return Samples.of(values, places, 3.0 * places[:, 1], names=tuple(f"s{i}" for i in range(stations)), unit="degC")


@pytest.mark.parametrize("by", ["station", "region"])
def test_kriging_with_the_true_variogram_is_honest(by: Any) -> None:  # noqa: ANN401
    found = cross_validate(simulated(), "ordinary_kriging", parameters={"variogram": MODEL}, by=by)
    assert found.in_closed_form
    assert found.score.missed == 0
    assert found.score.count == np.isfinite(simulated().values).sum()
    assert found.score.bias == pytest.approx(0.0, abs=0.1)
    assert found.score.standardised_mean == pytest.approx(0.0, abs=0.05)
    assert found.score.standardised_variance == pytest.approx(1.0, abs=0.1)
    assert found.score.coverage_95 == pytest.approx(0.95, abs=0.01)


def test_regions_are_harder_than_stations() -> None:
    by_station, by_region = (cross_validate(simulated(), "inverse_distance", by=by) for by in ("station", "region"))
    assert by_region.score.rmse > by_station.score.rmse
    assert not by_station.in_closed_form
    assert by_station.variance is None


def test_local_kriging_is_left_out_plainly_and_close_to_all_stations() -> None:
    samples = simulated(slices=40)
    near = cross_validate(samples, "ordinary_kriging", parameters={"variogram": MODEL, "neighbours": 12})
    full = cross_validate(samples, "ordinary_kriging", parameters={"variogram": MODEL})
    assert not near.in_closed_form
    assert near.score.rmse == pytest.approx(full.score.rmse, rel=0.05)


def test_the_tables_and_the_dataset_say_the_same() -> None:
    found = cross_validate(simulated(), "ordinary_kriging", parameters={"variogram": MODEL})
    assert found.stations["count"].sum() == found.bands["count"].sum() == found.score.count
    dataset = found.to_dataset()
    assert float(np.sqrt((dataset["error"] ** 2).mean())) == pytest.approx(found.score.rmse)
    assert float(dataset["error"].mean()) == pytest.approx(found.score.bias)
    assert dataset["variance"].dims == ("slice", "station")
    assert dataset["value"].attrs["units"] == "degC"
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert document["parameters"][0]["variogram"]["model"] == "exponential"
    assert [row["station"] for row in document["stations"]] == list(found.samples.names)
    assert len(document["bands"]) == 4


def test_stations_that_cannot_be_used_are_named() -> None:
    samples = simulated(slices=20)
    samples.positions_m[3] = np.nan
    samples.values[:, 7] = np.nan
    found = cross_validate(samples, "nearest")
    assert found.not_used == ("s3", "s7")
    assert found.estimate.shape == (20, 23)


def test_blocks_of_time_are_estimated_with_what_the_others_gave() -> None:
    samples = simulated(slices=40)
    seen = []

    def fit(values: Floats) -> dict[str, object]:
        seen.append(values)
        return {"power": float(len(seen))}

    found = cross_validate(samples, "inverse_distance", by="time_block", fit=fit, parameters={"neighbours": 5})
    assert [len(values) for values in seen] == [30] * 4
    np.testing.assert_array_equal(seen[1], np.delete(samples.values, range(10, 20), axis=0))
    assert [given["power"] for given in found.given] == [1.0, 2.0, 3.0, 4.0]
    alone = cross_validate(samples, "inverse_distance", parameters={"power": 2.0, "neighbours": 5})
    np.testing.assert_allclose(found.estimate[10:20], alone.estimate[10:20])


def test_blocks_of_time_of_kriging_have_variances() -> None:
    found = cross_validate(simulated(), "ordinary_kriging", by="time_block", fit=lambda _: {"variogram": MODEL})
    alone = cross_validate(simulated(), "ordinary_kriging", parameters={"variogram": MODEL})
    assert found.variance is not None
    np.testing.assert_allclose(found.variance, alone.variance)
    assert found.score.coverage_95 == alone.score.coverage_95


def test_a_validation_is_the_same_on_another_machine() -> None:
    given = cross_validate(
        simulated(stations=6, slices=8), "ordinary_kriging", by="time_block", fit=lambda _: {"variogram": MODEL}
    )
    there = read_validation(json.loads(json.dumps(write_validation(given), allow_nan=False)))
    xr.testing.assert_identical(there.to_dataset(), given.to_dataset())
    assert [each["variogram"] for each in there.given] == [MODEL] * 4
    assert repr(there) == repr(given)


def test_what_makes_no_sense_is_refused() -> None:
    samples = simulated(slices=8)
    with pytest.raises(NotFound, match="did you mean 'nearest'"):
        cross_validate(samples, "nearst")
    with pytest.raises(NotFound, match="way to leave out"):
        cross_validate(samples, "nearest", by="year")  # type: ignore[arg-type]
    with pytest.raises(InvalidQuery, match="time_block needs fit="):
        cross_validate(samples, "nearest", by="time_block")
    with pytest.raises(InvalidQuery, match="belongs to by='time_block'"):
        cross_validate(samples, "nearest", fit=lambda _: {})
    with pytest.raises(InvalidQuery, match="'mean'"):
        cross_validate(samples, "simple_kriging")
    with pytest.raises(InvalidQuery, match="at least two stations .* got 1;"):
        cross_validate(samples.take_stations(np.arange(25) == 3), "nearest")
    with pytest.raises(InvalidQuery, match="linear needs at least 3 stations .* got 2"):
        cross_validate(samples.take_stations(np.arange(25) < 3), "linear")


def test_methods_are_compared_on_the_values_that_all_of_them_estimate() -> None:
    samples = simulated(slices=100)
    found = compare_methods(samples, variogram=MODEL)
    assert {item.method for item in found} >= {"nearest", "inverse_distance", "linear", "radial_basis"}
    assert found[0].method == "ordinary_kriging", "nothing beats the truth"
    errors = [item.common.rmse for item in found if item.common is not None]
    assert errors == sorted(errors)
    assert len({item.common.count for item in found if item.common is not None}) == 1
    linear = next(item for item in found if item.label == "linear")
    assert linear.validation is not None
    assert linear.common is not None
    assert linear.validation.score.missed > 0
    assert linear.common.count == linear.validation.score.count
    json.dumps([item.to_json() for item in found], allow_nan=False)


def test_a_method_that_cannot_be_used_says_why_and_comes_last() -> None:
    line = np.stack([np.arange(6.0) * 1000, np.zeros(6)], axis=1)
    found = compare_methods(Samples.of(np.random.default_rng(1).normal(size=(5, 6)), line))
    problems = {item.label: item.problem for item in found if item.problem}
    assert set(problems) == {"linear", "thin plate spline", "thin plate spline, smoothed"}
    assert "on one line" in str(problems["linear"])
    assert [item.label for item in found][-3:] == list(problems)
    candidates = {"all": ("nearest", {}), "none": ("nearest", {"radius_m": 1.0})}
    near = compare_methods(Samples.of(np.ones((2, 6)), line), methods=candidates)
    assert [item.label for item in near] == ["all", "none"]
    assert near[1].problem == "nearest estimates none of the values left out"


def test_pykrige_as_it_is_called_without_parameters_is_a_row() -> None:
    samples = simulated(slices=6)
    samples.values[2, 5:] = np.nan
    samples.values[4] = 7.0
    samples.values[5, 2:] = np.nan
    (row,) = (item for item in compare_methods(samples, variogram=MODEL) if item.label == PEER)
    assert row.validation is not None
    assert row.common is not None
    assert "the linear variogram that PyKrige 1." in row.notes[0]
    for number, left_out in ((0, 3), (2, 1), (4, 8)):
        line = samples.values[number]
        present = np.isfinite(line)
        if number == 4:
            # PyKrige fits no variogram to equal values.
            assert row.validation.estimate[number, left_out] == pytest.approx(7.0)
            continue
        slope, nugget = OrdinaryKriging(*samples.positions_m[present].T, line[present]).variogram_model_parameters
        present[left_out] = False
        others = OrdinaryKriging(*samples.positions_m[present].T, line[present], variogram_parameters=[slope, nugget])
        expected, _ = others.execute("points", *samples.positions_m[[left_out]].T)
        assert row.validation.estimate[number, left_out] == pytest.approx(float(expected[0]), abs=1e-9)
    assert np.isnan(row.validation.estimate[5]).all()
    assert row.validation.variance is None
    json.dumps(row.to_json(), allow_nan=False)


def test_pykrige_measures_great_circles_on_the_sphere() -> None:
    flat = simulated(slices=2)
    lon, lat = flat.positions_m.T / flat.positions_m.max() * 60
    flat.values[:] = np.random.default_rng(2).normal(size=flat.values.shape)
    wide = Samples.of(flat.values, places_m(lon, lat))
    (row,) = (item for item in compare_methods(wide) if item.label == PEER)
    assert row.validation is not None
    line = wide.values[0]
    slope, nugget = OrdinaryKriging(lon, lat, line, coordinates_type="geographic").variogram_model_parameters
    others = OrdinaryKriging(
        lon[1:], lat[1:], line[1:], variogram_parameters=[slope, nugget], coordinates_type="geographic"
    )
    expected, _ = others.execute("points", lon[:1], lat[:1])
    assert row.validation.estimate[0, 0] == pytest.approx(float(expected[0]), abs=1e-9)


def test_every_method_without_further_needs_is_a_candidate() -> None:
    assert list_candidates(None) == QUICK
    methods = {method for method, _ in list_candidates(MODEL).values()}
    for row in METHODS.values():
        if row.over == "space" and {item.name for item in row.parameters if item.required} <= {"variogram"}:
            assert row.name in methods


def test_a_day_of_real_stations(request: pytest.FixtureRequest) -> None:
    path = Path(request.config.rootpath).parent / "shared/data/knmi_10min/20221231.nc"
    if not path.is_file():
        pytest.skip("the real data set ../shared/data/knmi_10min is not here")
    with xr.open_dataset(path) as day:
        values = day["ta"].transpose("time", "station").to_numpy()
        lon, lat, height = (day[name].max("time").to_numpy() for name in ("lon", "lat", "height"))
        names = day["station"].to_numpy()
    mainland = (lat > 50.5) & (lat < 54.0) & (lon > 3.2)
    project = pyproj.Transformer.from_crs("EPSG:4326", "+proj=aeqd +lat_0=52 +lon_0=5 +datum=WGS84", always_xy=True)
    places = np.stack(project.transform(lon[mainland], lat[mainland]), axis=1)
    called = tuple(map(str, names[mainland]))
    samples = Samples.of(values[:, mainland], places, height[mainland], names=called, unit="degC")
    found = compare_methods(samples, variogram=variogram("exponential", psill=2.0, range_m="150 km", nugget=0.05))
    assert not [item.problem for item in found if item.problem]
    by_label = {item.label: item.common for item in found}
    best, kriging, nearest = found[0].common, by_label["ordinary kriging"], by_label["nearest"]
    assert best is not None
    assert kriging is not None
    assert nearest is not None
    assert best.rmse < 0.8
    assert kriging.rmse < 0.7 * nearest.rmse
    assert kriging.coverage_95 > 0.95
