"""Recipes by variable: fields with a closed form come back, and what they need is asked for."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, InvalidUnit, NotFound
from hypergrid.perspective import question_from_json
from hypergrid.perspective.build.recipes import RECIPES, expand_recipes
from hypergrid.physics import moisture, sun
from hypergrid.query import Query

Floats = NDArray[np.float64]

TIMES = pd.date_range("2007-10-01T00:00", periods=12, freq="2h")
GRID = hg.grid(lon=7.0, lat=46.0, step="30arcsec", shape=(6, 5))
RANDOM = np.random.default_rng(11)
LON, LAT = RANDOM.uniform(7.0, 7.05, 24), RANDOM.uniform(46.0, 46.05, 24)
NAMES = tuple(f"s{number}" for number in range(24))


def height(lon: Floats, lat: Floats) -> Floats:
    """Return a slope with a ridge on it [m]; layers are bilinear, so it is as well."""
    return np.asarray(600.0 + 30_000.0 * (lon - 7.0) + 10_000.0 * (lat - 46.0))


LAYER = xr.DataArray(
    height(*np.meshgrid(np.linspace(6.99, 7.07, 9), np.linspace(45.99, 46.07, 9))),
    dims=("lat", "lon"),
    coords={"lon": np.linspace(6.99, 7.07, 9), "lat": np.linspace(45.99, 46.07, 9)},
    attrs={"units": "m"},
)


def query(name: str, values: Floats, unit: str, *, names: tuple[str, ...] = NAMES, layer: bool = True) -> Query:
    """Return a query about readings of the first stations; values broadcast to (times, stations)."""
    count = len(names)
    order = [NAMES.index(each) for each in names]
    coords: dict[str, Any] = {
        "time": TIMES,
        "station": list(names),
        "lon": ("station", LON[order]),
        "lat": ("station", LAT[order]),
        "elevation": ("station", height(LON, LAT)[order]),
    }
    full = np.broadcast_to(values, (len(TIMES), count)).copy()
    array = xr.DataArray(full, dims=("time", "station"), coords=coords, name=name, attrs={"units": unit})
    return hg.base(array, layers={"elevation": LAYER} if layer else None)


def heights(found: xr.Dataset) -> Floats:
    return height(*np.meshgrid(found["lon"].to_numpy(), found["lat"].to_numpy()))


STATION_M = height(LON, LAT)
WARM = 20.0 - 0.0065 * STATION_M + np.arange(12.0)[:, None]
DEW = 8.0 - 0.004 * STATION_M + np.arange(12.0)[:, None] / 2


def test_temperature_follows_the_terrain() -> None:
    readings = query("air_temperature", WARM, "degC")
    found = readings.interpolate("recipe", grid=GRID).compute()
    expected = 20.0 - 0.0065 * heights(found) + np.arange(12.0)[:, None, None]
    np.testing.assert_allclose(found["value"], expected, atol=1e-8)
    written_out = readings.interpolate("ordinary_kriging", grid=GRID, trend="auto", variogram="fit")
    assert readings.interpolate("recipe", grid=GRID).token == written_out.token


def test_humidity_comes_from_dew_point_and_temperature() -> None:
    humid = moisture.relative_humidity(DEW, WARM)
    readings = query("relative_humidity", humid / 100.0, "1").convert("scale", factor=100, unit="%")
    found = readings.interpolate("recipe", query("air_temperature", WARM + 273.15, "K"), grid=GRID).compute()
    lapse = heights(found)
    clock = np.arange(12.0)[:, None, None]
    expected = moisture.relative_humidity(8.0 - 0.004 * lapse + clock / 2, 20.0 - 0.0065 * lapse + clock)
    np.testing.assert_allclose(found["value"], expected, rtol=1e-6)
    assert found["value"].attrs["units"] == "%"
    assert float(found["value"].max()) <= 100.0


def test_stations_of_one_variable_alone_are_left_out_of_a_formula_of_two() -> None:
    humid = moisture.relative_humidity(DEW, WARM)
    few = tuple(reversed(NAMES[:15]))
    order = [NAMES.index(each) for each in few]
    temperature = query("air_temperature", WARM[:, order], "degC", names=few)
    stations = query("relative_humidity", humid, "%").merge("dew_point", temperature).compute()
    assert stations["station"].to_numpy().tolist() == list(NAMES[:15])
    np.testing.assert_allclose(stations["value"], DEW[:, :15], rtol=1e-9)
    with pytest.raises(InvalidQuery, match="no station in common"):
        query("relative_humidity", humid[:, :2], "%", names=NAMES[:2]).merge(
            "dew_point", query("air_temperature", WARM[:, 2:4], "degC", names=NAMES[2:4])
        ).plan()
    with pytest.raises(InvalidQuery, match="different cells in space"):
        query("relative_humidity", humid, "%").merge("ratio", temperature).plan()


def test_wind_is_interpolated_as_components() -> None:
    # Winds of 4 m s-1 around north: their plain mean would be a wind from the south.
    towards = np.where(np.arange(24) % 2, 350.0, 10.0)
    speed, direction = query("wind_speed", np.full(24, 4.0), "m s-1"), query("wind_direction", towards, "degree")
    found = direction.interpolate("recipe", speed, grid=GRID).compute()
    off = (found["value"].to_numpy() + 180.0) % 360.0 - 180.0
    assert np.abs(off).max() < 10.5
    assert found["value"].attrs["units"] == "degree"
    same = query("wind_direction", np.full(24, 240.0), "degree")
    # Winds from all sides are as fast as winds from one: the length of their mean would be less.
    found = speed.interpolate("recipe", grid=GRID).compute()
    np.testing.assert_allclose(found["value"], 4.0, rtol=1e-9)
    found = same.interpolate("recipe", speed, grid=GRID).compute()
    np.testing.assert_allclose(found["value"], 240.0, rtol=1e-9)


def test_radiation_is_a_share_of_the_clear_sky_and_none_at_night() -> None:
    starts = TIMES.to_numpy().astype("datetime64[ns]").astype(np.int64)

    def clear(lon: Floats, lat: Floats) -> Floats:
        return sun.clear_sky_of_cells(starts, 0, lon, lat, height(lon, lat), turbidity=3.0)

    share = 0.6 * (clear(LON, LAT) + sun.DAMPING_W_M2) - sun.DAMPING_W_M2
    read = np.where(clear(LON, LAT) > 0, np.maximum(share, 0.0), 0.0)
    found = query("solar_radiation", read, "W m-2").interpolate("recipe", grid=GRID).compute()
    lon, lat = np.meshgrid(found["lon"].to_numpy(), found["lat"].to_numpy())
    there = clear(lon.ravel(), lat.ravel()).reshape(found["value"].shape)
    day = there > 60.0
    expected = 0.6 * (there + sun.DAMPING_W_M2) - sun.DAMPING_W_M2
    np.testing.assert_allclose(found["value"].to_numpy()[day], expected[day], rtol=1e-6)
    assert (found["value"].to_numpy()[there == 0.0] == 0.0).all()
    assert (there == 0.0).any()
    assert day.any()


def test_radiation_takes_the_turbidity_that_is_given() -> None:
    readings = query("solar_radiation", np.full(24, 300.0), "W m-2")
    steps = expand_recipes(readings.interpolate("recipe", grid=GRID, turbidity=2.0).question).steps
    assert [dict(step.params).get("turbidity") for step in steps if step.name.endswith("index")] == [2.0, 2.0]
    assert "clear_sky_index(turbidity=2)" in readings.interpolate("recipe", grid=GRID, turbidity=2.0).explain()


def test_rain_is_kriged_as_it_is_and_never_negative() -> None:
    depth = RANDOM.gamma(0.5, 4.0, (12, 24))
    depth[3] = 0.0
    depth[5, 0] = np.nan
    depth[6] = np.nan
    model = {"model": "gaussian", "psill": 4.0, "range_m": 4000.0, "nugget": 0.05}
    readings = query("rain_meter", depth, "mm")
    found = readings.interpolate("recipe", grid=GRID, variogram=model, trend="none").compute()
    plain = readings.interpolate("ordinary_kriging", grid=GRID, variogram=model).compute()
    assert (plain["value"] < -0.1).any()  # a smooth model goes below nothing between showers
    np.testing.assert_array_equal(found["value"], np.maximum(plain["value"], 0.0))
    assert (found["value"][3] == 0.0).all()
    assert found["value"].attrs["units"] == "mm"


@pytest.mark.parametrize(("name", "unit"), [("rain", "mm"), ("wind_speed", "m s-1")])
def test_amounts_and_speeds_take_no_other_variable(name: str, unit: str) -> None:
    readings = query(name, np.full(24, 3.0), unit)
    with pytest.raises(InvalidQuery, match="takes 0 other queries; got 1"):
        readings.interpolate("recipe", query("wind_direction", np.full(24, 10.0), "degree"), grid=GRID).plan()


def test_the_trend_is_chosen_by_cross_validation_and_the_note_says_so() -> None:
    random = np.random.default_rng(5)
    noisy = WARM + random.normal(scale=0.1, size=WARM.shape)
    chosen = query("air_temperature", noisy, "degC").interpolate("recipe", grid=GRID).compute()
    assert "trend: lapse_rate, by cross-validation" in chosen.attrs["comment"]
    flat = random.normal(size=(12, 24))
    plain = query("air_temperature", flat, "degC")
    found = plain.interpolate("recipe", grid=GRID).compute()
    assert "trend: none, by cross-validation" in found.attrs["comment"]
    expected = plain.interpolate("ordinary_kriging", grid=GRID, variogram="fit").compute()
    inside = np.isfinite(found["value"].to_numpy())
    np.testing.assert_array_equal(found["value"].to_numpy()[inside], expected["value"].to_numpy()[inside])


def test_everything_can_be_chosen_otherwise() -> None:
    readings = query("relative_humidity", moisture.relative_humidity(DEW, WARM), "%")
    recipe = readings.interpolate(
        "recipe",
        query("air_temperature", WARM, "degC"),
        grid=GRID,
        by="inverse_distance",
        power=3,
        trend="none",
        parts={"temperature": {"by": "ordinary_kriging", "power": None, "variogram": {"fit": "spherical"}}},
    )
    assert recipe.explain().count("inverse_distance(power=3)") == 2
    assert "ordinary_kriging(variogram=spherical fitted once)" in recipe.explain()
    given = {"model": "exponential", "psill": 1.0, "range_m": 500.0}
    surface = query("air_temperature", WARM, "degC").interpolate("recipe", grid=GRID, variogram=given, trend="none")
    plain = query("air_temperature", WARM, "degC").interpolate("ordinary_kriging", grid=GRID, variogram=given)
    assert surface.token == plain.token


def test_steps_before_and_after_stay() -> None:
    readings = query("air_temperature", WARM, "degC").convert("valid_range", low=-30, high=60)
    recipe = readings.interpolate("recipe", grid=GRID).aggregate("mean", time="all").clip(lon=(7.0, 7.02))
    found = recipe.compute()
    expected = 20.0 - 0.0065 * heights(found) + np.arange(12.0).mean()
    np.testing.assert_allclose(found["value"][0], expected, atol=1e-8)
    assert found["value"].shape[2] < 5


def test_the_written_form_is_the_same_question() -> None:
    recipe = query("relative_humidity", np.full(24, 50.0), "%").interpolate(
        "recipe", query("air_temperature", WARM, "degC"), grid=GRID, parts={"dew_point": {"variogram": "fit_by_slice"}}
    )
    document = recipe.to_json()
    assert document["steps"][0]["method"] == "recipe"
    assert document["steps"][0]["with"][0]["variable"] == "air_temperature"
    assert question_from_json(document).to_json() == document


def test_the_other_variable_is_aligned_as_the_first() -> None:
    document = {
        "variable": "relative_humidity",
        "select": {"station": ["a"], "height_m": 2.0},
        "steps": [
            {"op": "convert", "function": "valid_range", "params": {"low": 0, "high": 105}},
            {"op": "aggregate", "function": "mean", "time": "10min", "params": {"min_coverage": 0.5}},
            {"op": "interpolate", "method": "recipe", "grid": {"lon": 7, "lat": 46, "step": 1, "shape": [1, 1]}},
        ],
    }
    merge = next(step for step in expand_recipes(question_from_json(document)).steps if step.op == "merge")
    other = merge.others[0]
    assert (other.variable, dict(other.select)) == ("air_temperature", {"station": ("a",)})
    assert [step.name for step in other.steps] == ["valid_range", "mean"]
    assert dict(other.steps[1].cells) == {"time": "10min"}


def test_cells_above_and_below_the_stations_are_marked() -> None:
    readings = query("air_temperature", WARM, "degC")
    found = readings.interpolate("recipe", grid=GRID).compute()
    outside = (heights(found) < STATION_M.min()) | (heights(found) > STATION_M.max())
    assert 0 < outside.sum() < outside.size
    np.testing.assert_array_equal(found["extrapolated"], outside)
    assert found["extrapolated"].attrs["flag_meanings"] == "inside outside"
    assert f"{outside.mean():.1%} of the cells lie outside the stations' range of elevation" in found.attrs["comment"]
    means = readings.interpolate("recipe", grid=GRID).aggregate("mean", time="all").compute()
    np.testing.assert_array_equal(means["extrapolated"], outside)
    assert "extrapolated" not in readings.interpolate("nearest", grid=GRID).compute()


def test_cells_without_an_elevation_are_missing() -> None:
    readings = query("air_temperature", WARM, "degC")
    wide = hg.grid(lon=7.0, lat=46.0, step="60arcsec", shape=(6, 5))
    found = readings.interpolate("recipe", grid=wide).compute()
    lon, lat = np.meshgrid(found["lon"].to_numpy(), found["lat"].to_numpy())
    unknown = (lon > 7.075) | (lat > 46.075)
    assert unknown.any()
    np.testing.assert_array_equal(np.isnan(found["value"].to_numpy()[0]), unknown)
    assert (found["count"].to_numpy()[:, unknown] == 0).all()
    assert f"{unknown.sum()} cells without elevation are missing" in found.attrs["comment"]


def test_a_note_names_the_variogram_of_each_part() -> None:
    steep = WARM + RANDOM.normal(size=WARM.shape)
    humid = moisture.relative_humidity(np.minimum(DEW + RANDOM.normal(size=DEW.shape), steep), steep)
    found = query("relative_humidity", humid, "%").interpolate(
        "recipe", query("air_temperature", steep, "degC"), grid=GRID
    )
    comment = found.compute().attrs["comment"]
    assert "dew_point: variogram fitted to 12 slices of 24 stations" in comment
    assert "; variogram fitted to 12 slices of 24 stations" in comment


def test_a_trend_can_be_cross_validated() -> None:
    steep = WARM + RANDOM.normal(scale=0.1, size=WARM.shape)
    readings = query("air_temperature", steep, "degC")
    given = {"variogram": {"model": "exponential", "psill": 1.0, "range_m": 2000.0, "nugget": 0.1}}
    scores = [
        hg.cross_validate(readings, "ordinary_kriging", parameters={**given, **more}).score.rmse
        for more in ({}, {"trend": "lapse_rate"}, {"trend": "profile"})
    ]
    assert scores[1] < scores[0] / 3
    assert scores[2] < scores[0] / 3


def test_kriging_without_a_variogram_fits_one() -> None:
    readings = query("air_temperature", WARM, "degC")
    fitted = readings.interpolate("ordinary_kriging", grid=GRID, variogram="fit").compute()
    assert readings.interpolate("ordinary_kriging", grid=GRID).compute()["value"].equals(fitted["value"])


class TestRefuses:
    def test_a_trend_without_the_layer(self) -> None:
        readings = query("air_temperature", WARM, "degC", layer=False)
        # A trend that is asked for needs the layer; one that the values may select is dropped, which a note says.
        with pytest.raises(NotFound, match=r"unknown layer 'elevation'.*layers=.*use trend='none'"):
            readings.interpolate("recipe", grid=GRID, trend="profile").plan()
        dropped = readings.interpolate("recipe", grid=GRID).compute()
        assert dropped["value"].equals(readings.interpolate("recipe", grid=GRID, trend="none").compute()["value"])
        assert "no trend in elevation is tried, as the elevation of the cells is unknown" in dropped.attrs["comment"]

    def test_a_variable_without_a_recipe(self) -> None:
        with pytest.raises(NotFound, match=r"unknown recipe of 'soil_moisture'.*use a method by name"):
            query("soil_moisture", np.full(24, 20.0), "%").interpolate("recipe", grid=GRID).plan()

    def test_one_variable_where_two_are_needed(self) -> None:
        with pytest.raises(InvalidQuery, match="also needs 'air_temperature': give its query as well"):
            query("relative_humidity", np.full(24, 50.0), "%").interpolate("recipe", grid=GRID).plan()

    def test_another_query_where_none_is_needed(self) -> None:
        readings = query("air_temperature", WARM, "degC")
        with pytest.raises(InvalidQuery, match="takes 0 other queries; got 1"):
            readings.interpolate("recipe", readings, grid=GRID).plan()

    def test_other_queries_of_a_plain_method(self) -> None:
        readings = query("air_temperature", WARM, "degC")
        with pytest.raises(InvalidQuery, match="nearest interpolates one query"):
            readings.interpolate("nearest", readings, grid=GRID).plan()

    @pytest.mark.parametrize(
        ("given", "error", "says"),
        [
            ({"parts": {"dew": {}}}, NotFound, "unknown part of the recipe of air_temperature 'dew'"),
            ({"parts": {"temperature": 5}}, InvalidQuery, "'parts' of a recipe needs parameters by part"),
            ({"parts": [1]}, InvalidQuery, "'parts' of a recipe needs parameters by part"),
            ({"by": "krigging"}, NotFound, "did you mean"),
            ({"by": 3}, NotFound, "unknown"),
            ({"turbidity": 3}, NotFound, "unknown parameter of ordinary_kriging 'turbidity'"),
            ({"trend": "steep"}, NotFound, "unknown trend 'steep'"),
            ({"by": "recipe"}, NotFound, "unknown"),
        ],
    )
    def test_parameters_that_do_not_fit(self, given: dict[str, Any], error: type[Exception], says: str) -> None:
        with pytest.raises(error, match=says):
            query("air_temperature", WARM, "degC").interpolate("recipe", grid=GRID, **given).plan()

    def test_a_plain_kriging_of_directions_and_says_what_to_do(self) -> None:
        with pytest.raises(
            InvalidQuery, match=r": interpolating directions by nearest has no meaning.*interpolate\('recipe', …\)"
        ):
            query("wind_direction", np.full(24, 10.0), "degree").interpolate("nearest", grid=GRID).plan()

    def test_a_variance_around_a_fitted_trend(self) -> None:
        readings = query("air_temperature", WARM, "degC")
        with pytest.raises(InvalidQuery, match="would leave out what is not known of the trend"):
            readings.interpolate("recipe", grid=GRID).with_variance().plan()
        varied = query("air_temperature", WARM + RANDOM.normal(size=WARM.shape), "degC")
        fixed = varied.interpolate("recipe", grid=GRID, trend={"lapse_rate": -6.5}).with_variance().compute()
        assert (fixed["variance"] >= 0).all()

    def test_formulas_of_other_units(self) -> None:
        with pytest.raises(InvalidUnit, match="'mm' does not convert to '%'"):
            query("rain", WARM, "mm").merge("dew_point", query("air_temperature", WARM, "degC")).plan()
        with pytest.raises(InvalidUnit, match="dew_point needs values in '%'; got '1'"):
            query("share", WARM, "1").merge("dew_point", query("air_temperature", WARM, "degC")).plan()
        with pytest.raises(InvalidUnit, match="clear_sky_index needs values in 'W m-2'; got 'mm'"):
            query("rain", WARM, "mm").convert("clear_sky_index").plan()

    def test_numbers_that_cannot_be(self) -> None:
        with pytest.raises(InvalidQuery, match="Linke turbidity from 1 to 20; got 0.5"):
            query("solar_radiation", WARM, "W m-2").interpolate("recipe", grid=GRID, turbidity=0.5).plan()
        with pytest.raises(InvalidQuery, match="limit needs low not above high"):
            query("air_temperature", WARM, "degC").convert("limit", low=5, high=1).plan()

    def test_the_clear_sky_of_places_in_metres(self) -> None:
        coords = {"time": TIMES, "x": ("station", [0.0, 9.0]), "y": ("station", [0.0, 9.0])}
        flat = xr.DataArray(
            np.full((12, 2), 300.0), dims=("time", "station"), coords=coords, name="r", attrs={"units": "W m-2"}
        )
        with pytest.raises(InvalidQuery, match="needs positions as lon and lat"):
            hg.base(flat).convert("clear_sky_index").plan()


def test_there_is_a_recipe_for_each_variable_of_the_mountains() -> None:
    assert set(RECIPES) >= {
        "air_temperature", "surface_temperature", "dew_point", "relative_humidity", "wind_speed", "wind_direction",
        "solar_radiation", "rain_meter",
    }  # fmt: skip
    for recipe in RECIPES.values():
        assert recipe.summary.endswith(".")
        assert recipe.parts
