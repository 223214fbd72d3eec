"""A difference of temperatures is no temperature, however the unit of these is written."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidUnit
from hypergrid.core.units import check_unit, convert, difference_of, parse_number, to_cf
from hypergrid.perspective.functions.aggregate_formulas import rate_unit, squared_unit
from hypergrid.query import Query
from queries.standing.conditions import Rate


@pytest.mark.parametrize("unit", ["degC", "degree_Celsius", "celsius", "°C"])
def test_differences_of_celsius_are_kelvins(unit: str) -> None:
    assert difference_of(unit) == "delta_degC"
    assert (squared_unit(unit), rate_unit(unit, "day")) == ("K2", "K day-1")
    assert float(convert(3.0, difference_of(unit), "K")) == pytest.approx(3.0)


@pytest.mark.parametrize("unit", ["degF", "degree_Fahrenheit", "fahrenheit", "°F"])
def test_differences_of_fahrenheit_are_steps_of_five_ninths(unit: str) -> None:
    assert difference_of(unit) == "delta_degF"
    assert float(convert(9.0, difference_of(unit), "K")) == pytest.approx(5.0)
    with pytest.raises(InvalidUnit, match="'degR' does not convert to 'degF': a difference of temperatures is not"):
        convert(9.0, "delta_degF", "degF")


@pytest.mark.parametrize("unit", ["K", "W m-2", "%", "degree", "unknown", ""])
def test_what_has_no_offset_keeps_its_unit(unit: str) -> None:
    assert difference_of(unit) == unit


def _hourly(unit: str, values: float) -> Query:
    times = pd.date_range("2007-10-01", periods=48, freq="h")
    coords = {"time": times, "station": ["a"], "lon": ("station", [7.17]), "lat": ("station", [45.87])}
    array = xr.DataArray(np.full((48, 1), values), coords, ("time", "station"), "air_temperature", {"units": unit})
    return hg.base(array).aggregate("mean", time="1h")


def test_results_carry_units_that_udunits_knows() -> None:
    warm, cold = _hourly("degF", 68.0), _hourly("degF", 50.0)
    found = warm.merge("difference", cold).compute()["value"]
    assert (float(found[0, 0]), found.attrs["units"]) == (18.0, "degR")
    # As it is read back, it is a difference still.
    assert float(convert(18.0, check_unit(found.attrs["units"]), "K")) == pytest.approx(10.0)
    days = warm.aggregate("degree_days", time="1day", base="50 degF").compute()["value"]
    assert (float(days[0, 0]), days.attrs["units"]) == (pytest.approx(18.0), "degR day")
    assert (
        _hourly("degree_Celsius", 20.0)
        .merge("difference", _hourly("degree_Celsius", 19.0))
        .compute()["value"]
        .attrs["units"]
        == "K"
    )
    assert to_cf("delta_degF day") == "degR day"


def test_rates_of_change_are_differences_in_every_unit_of_temperature() -> None:
    for unit, expected in (("degC", 2.0), ("°C", 2.0), ("degF", 3.6), ("K", 2.0)):
        settled = Rate(above="2 K", below=None, clear=None, per_ns=3600 * 10**9, over_ns=None).convert_levels(unit)
        assert settled.above == pytest.approx(expected), unit


def test_a_parameter_that_is_a_temperature_takes_no_difference() -> None:
    with pytest.raises(InvalidUnit, match="a difference of temperatures is not a temperature; give it in K"):
        parse_number("5 delta_degF", "degC", label="low")
    assert parse_number("9 delta_degF", "delta_degC", label="step") == pytest.approx(5.0)
