"""Merges of several variables: formulas against textbook values, names and units, and cells that do not fit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, InvalidUnit
from hypergrid.query import Query

TEMPERATURES = st.floats(-40, 50)
HUMIDITIES = st.floats(1, 100)


def array(
    name: str,
    unit: str,
    values: Sequence[object] | NDArray[np.float64],
    *,
    frequency: str = "1h",
    start: str = "2007-10-01",
    stations: str = "ab",
) -> Query:
    held = np.asarray(values, dtype=float)
    held = held.reshape(-1, 1) if held.ndim < 2 else held
    coords: dict[str, Any] = {
        "time": pd.date_range(start, periods=held.shape[0], freq=frequency),
        "station": list(stations[: held.shape[1]]),
        "x": ("station", 100.0 * np.arange(held.shape[1])),
        "y": ("station", np.zeros(held.shape[1])),
    }
    return hg.base(xr.DataArray(held, dims=("time", "station"), coords=coords, name=name, attrs={"units": unit}))


def temperature(*values: float, unit: str = "degC") -> Query:
    return array("air_temperature", unit, values)


def humidity(*values: float, unit: str = "%") -> Query:
    return array("relative_humidity", unit, values)


def pressure(*values: float, unit: str = "kPa") -> Query:
    return array("air_pressure", unit, values)


def found(query: Query) -> Any:  # noqa: ANN401 - an array
    return query.compute()["value"].to_numpy().ravel()


class TestFormulas:
    def test_deficit_is_that_of_the_tables(self) -> None:
        # Saturated vapour over water (WMO-No. 8, annex 4.B): 1.2279 kPa at 10, 2.3393 at 20, 4.2452 at 30 degC.
        dry = found(temperature(10, 20, 30).merge("vapour_pressure_deficit", humidity(0, 0, 0)))
        np.testing.assert_allclose(dry, [1.2279, 2.3393, 4.2452], rtol=4e-3)
        half = found(temperature(10, 20, 30).merge("vapour_pressure_deficit", humidity(50, 50, 50)))
        np.testing.assert_allclose(half, dry / 2)
        # A sensor's 101 % are saturation, and -1 % is no humidity.
        odd = found(temperature(10, 20, 30).merge("vapour_pressure_deficit", humidity(101, -1, np.nan)))
        np.testing.assert_array_equal(odd, [0.0, np.nan, np.nan])

    def test_humidities_are_those_of_the_tables(self) -> None:
        # Saturated air holds 17.3 g m-3 at 20 degC and 4.85 at 0 degC.
        np.testing.assert_allclose(
            found(temperature(20, 0).merge("absolute_humidity", humidity(100, 100))), [17.3, 4.85], rtol=6e-3
        )
        # 14.7 g of vapour in a kilogram of dry air saturated at 20 degC and 1013.25 hPa are 14.5 in one of moist air.
        specific = temperature(20).merge("specific_humidity", humidity(100), pressure(101.325))
        np.testing.assert_allclose(found(specific), [14.5], rtol=6e-3)
        np.testing.assert_array_equal(
            found(temperature(20).merge("specific_humidity", humidity(100), pressure(0))), [np.nan]
        )

    def test_potential_temperature_is_poisson_s(self) -> None:
        query = temperature(0, 15, 0).merge("potential_temperature", pressure(70, 100, -1))
        np.testing.assert_allclose(found(query), [302.45, 288.15, np.nan], atol=0.01)

    @settings(max_examples=30, deadline=None)
    @given(TEMPERATURES, HUMIDITIES)
    def test_dew_point_and_deficit_agree(self, t: float, rh: float) -> None:
        """The deficit is what saturation at the dew point lacks to that at the temperature."""
        point = found(humidity(rh).merge("dew_point", temperature(t)))
        lacks = found(temperature(t).merge("vapour_pressure_deficit", humidity(rh)))
        dry = found(temperature(t, point[0]).merge("vapour_pressure_deficit", humidity(0, 0)))
        np.testing.assert_allclose(lacks, dry[0] - dry[1], rtol=1e-9, atol=1e-12)

    @settings(max_examples=30, deadline=None)
    @given(st.floats(0.01, 60), st.floats(0, 359.99))
    def test_wind_goes_to_components_and_back(self, speed: float, direction: float) -> None:
        blown, whence = array("wind_speed", "m s-1", [speed]), array("wind_direction", "degree", [direction])
        east, north = blown.merge("eastward_wind", whence), blown.merge("northward_wind", whence)
        np.testing.assert_allclose(found(east.merge("wind_speed", north)), [speed], rtol=1e-9)
        back = found(east.merge("wind_direction", north))[0]
        assert min(abs(back - direction), 360 - abs(back - direction)) < 1e-6

    @settings(max_examples=20, deadline=None)
    @given(TEMPERATURES, HUMIDITIES, st.floats(50, 105))
    def test_takes_any_units_that_convert(self, t: float, rh: float, p: float) -> None:
        plain = found(temperature(t).merge("specific_humidity", humidity(rh), pressure(p)))
        other = temperature(t + 273.15, unit="K").merge("specific_humidity", humidity(rh), pressure(10 * p, unit="hPa"))
        np.testing.assert_allclose(found(other), plain, rtol=1e-9)


class TestAnomaly:
    def test_is_a_difference_of_temperatures_in_kelvin(self) -> None:
        query = temperature(20, 25).merge("anomaly", temperature(59, 59, unit="degF"))
        result = query.compute()
        np.testing.assert_allclose(result["value"].to_numpy().ravel(), [5, 10])
        assert result["value"].attrs == {
            "units": "K",
            "long_name": "anomaly of Air temperature",
            "standard_name": "air_temperature_anomaly",
            "coverage_content_type": "physicalMeasurement",
            "ancillary_variables": "anomaly_of_air_temperature_count anomaly_of_air_temperature_count_possible",
        }

    def test_stays_a_difference_when_averaged_and_is_none_when_counted(self) -> None:
        query = temperature(20, 24).merge("anomaly", temperature(15, 15))
        mean = query.aggregate("mean", time="all").compute()["value"]
        assert mean.to_numpy().tolist() == [[7.0]]
        assert (mean.attrs["units"], mean.attrs["standard_name"]) == ("K", "air_temperature_anomaly")
        counted = query.aggregate("count", time="all").compute()["value"]
        assert "standard_name" not in counted.attrs

    def test_counts_what_is_known_of_now(self) -> None:
        hourly = array("air_temperature", "degC", np.arange(6.0), frequency="10min").aggregate("mean", time="1h")
        normal = array("air_temperature", "degC", np.arange(2.0), frequency="30min").aggregate("mean", time="1h")
        assert hourly.merge("anomaly", normal).compute()["count"].to_numpy().tolist() == [[6]]
        assert hourly.merge("difference", normal).compute()["count"].to_numpy().tolist() == [[2]]

    def test_of_a_variable_without_such_a_name_has_none(self) -> None:
        attributes = humidity(50).merge("anomaly", humidity(40)).compute()["value"].attrs
        assert attributes == {
            "units": "%", "long_name": "anomaly of Relative humidity", "coverage_content_type": "physicalMeasurement",
            "ancillary_variables": "anomaly_of_relative_humidity_count anomaly_of_relative_humidity_count_possible",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "unit", "standard_name", "long_name"),
    [
        (
            temperature(20).merge("vapour_pressure_deficit", humidity(50)),
            "kPa",
            "water_vapor_saturation_deficit_in_air",
            "Vapour pressure deficit",
        ),
        (humidity(50).merge("dew_point", temperature(20)), "degC", "dew_point_temperature", "Dew point"),
        (
            temperature(20).merge("potential_temperature", pressure(90)),
            "K",
            "air_potential_temperature",
            "Potential temperature",
        ),
        (
            array("u", "m s-1", [1]).merge("wind_direction", array("v", "m s-1", [1])),
            "degree",
            "wind_from_direction",
            "Wind direction",
        ),
        (
            temperature(20).merge("difference", humidity(1, unit="degC")),
            "K",
            None,
            "Air temperature less Relative humidity",
        ),
        (
            temperature(293, unit="K").merge("ratio", temperature(283, unit="K")),
            "1",
            None,
            "Air temperature over Air temperature",
        ),
    ],
)
def test_result_is_named_for_what_it_is(query: Query, unit: str, standard_name: str | None, long_name: str) -> None:
    value = query.compute()["value"]
    assert (value.attrs["units"], value.attrs.get("standard_name"), value.attrs["long_name"]) == (
        unit,
        standard_name,
        long_name,
    )
    # Directions have no largest value.
    function = "circular_mean" if "direction" in (standard_name or "") else "max"
    assert query.aggregate(function, time="all").compute()["value"].attrs["long_name"] == long_name


class TestRefusals:
    def test_of_units_say_the_order(self) -> None:
        with pytest.raises(
            InvalidUnit,
            match=r"step 1 \(merge 'vapour.*takes air temperature \[degC\], then relative humidity \[%\]",
        ):
            humidity(50).merge("vapour_pressure_deficit", temperature(20)).plan()
        with pytest.raises(InvalidUnit, match="needs values in '%'; got '1'"):
            temperature(20).merge("vapour_pressure_deficit", humidity(0.5, unit="1")).plan()

    @pytest.mark.parametrize("others", [0, 1, 3])
    def test_of_another_number_of_sources_name_them(self, others: int) -> None:
        with pytest.raises(
            InvalidQuery,
            match=f"takes 2 other queries in 'with' .it is of air temperature, then relative .*; got {others}",
        ):
            temperature(20).merge("specific_humidity", *[humidity(50)] * others).plan()

    def test_of_time_cells_name_both(self) -> None:
        fine = array("air_temperature", "degC", np.arange(12.0), frequency="10min")
        ten, hourly = fine.aggregate("mean", time="10min"), humidity(50, 60).aggregate("mean", time="1h")
        with pytest.raises(
            InvalidQuery,
            match=r"step 2 .*different time cells: the first \(air_temperature\) has 12 x 10min from 2007-10-01T00:00Z"
            r", the other \(relative_humidity\) has 2 x 1h from 2007-10-01T00:00Z; aggregate both",
        ):
            ten.merge("vapour_pressure_deficit", hourly).plan()
        with pytest.raises(
            InvalidQuery, match=r"12 x 10min from .*, the other \(relative_humidity\) has 2 instants from"
        ):
            ten.merge("vapour_pressure_deficit", humidity(50, 60)).plan()

    def test_of_times_apart_name_both(self) -> None:
        one = temperature(1, 2).aggregate("mean", time="1h")
        later = array("air_temperature", "degC", [1, 2], start="2007-11-01").aggregate("mean", time="1h")
        with pytest.raises(
            InvalidQuery, match=r"no time cell in common: .* 2 x 1h from 2007-10-01T00:00Z, .* 2 x 1h from 2007-11-01"
        ):
            one.merge("difference", later).plan()

    def test_of_places_name_both(self) -> None:
        plane = array("air_temperature", "degC", [[1.0, 2.0]])
        maps = [
            plane.interpolate("inverse_distance", grid=hg.grid(x=(0, 200), y=(0, 200), step=step)) for step in (100, 50)
        ]
        with pytest.raises(
            InvalidQuery,
            match=r"different cells in space: .* 2 x 2 cells of 100 x 100 from y 0, x 0, .* 4 x 4 cells of 50 x 50",
        ):
            maps[0].merge("difference", maps[1]).plan()
        with pytest.raises(
            InvalidQuery, match=r"2 x 2 cells of .*, the other .* has 2 series \(a, b\); interpolate both"
        ):
            maps[0].merge("difference", plane).plan()
        one = array("air_temperature", "degC", [[1.0, 2.0]], stations="ac")
        with pytest.raises(InvalidQuery, match=r"2 series \(a, b\), .* 2 series \(a, c\)"):
            plane.merge("difference", one).plan()


def test_three_sources_are_merged_where_all_have_cells_and_stations() -> None:
    rng = np.random.default_rng(3)
    t = array("air_temperature", "degC", rng.normal(10, 3, (6, 3)), stations="abc").aggregate("mean", time="1h")
    rh = array(
        "relative_humidity", "%", rng.uniform(20, 90, (6, 2)), start="2007-10-01T02:00", stations="ca"
    ).aggregate("mean", time="1h")
    p = array("air_pressure", "kPa", rng.uniform(80, 90, (3, 3)), stations="bca").aggregate("mean", time="1h")
    result = t.merge("specific_humidity", rh, p).compute()
    assert result["station"].to_numpy().tolist() == ["a", "c"]
    assert result["time"].to_numpy().astype("datetime64[h]").tolist() == [pd.Timestamp("2007-10-01T02:00")]
    sources = {name: query.compute() for name, query in (("t", t), ("rh", rh), ("p", p))}
    for station in "ac":
        picked = {
            name: float(held["value"].sel(time="2007-10-01T02:00")[held["station"].to_numpy().tolist().index(station)])
            for name, held in sources.items()
        }
        single = temperature(picked["t"]).merge("specific_humidity", humidity(picked["rh"]), pressure(picked["p"]))
        ours = result["value"].to_numpy()[0, "ac".index(station)]
        np.testing.assert_allclose(ours, found(single)[0])
