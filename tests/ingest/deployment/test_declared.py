"""`[quality]` of a deployment file: over the defaults, in any unit, and wrong settings named by their key."""

import json
import tomllib
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hypergrid.core.clock_errors import ClockError
from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.times import parse_instant
from hypergrid.core.tokens import token
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from ingest.deployment.deployment_file import from_mapping
from ingest.deployment.quality_overrides import DEFAULTS, KINDS, QualityOverrides, default_tests, from_json
from ingest.deployment.quality_settings import Exempt, Normal, Spike

AIR = KNOWN_VARIABLES["air_temperature"]


def _quality(content: dict[str, Any], **more: Any) -> QualityOverrides:  # noqa: ANN401
    feed = {"name": "f", "files": "*.csv", "format": "csv"}
    return from_mapping({"network": {"name": "n"}, "feed": [feed], "quality": content, **more}).quality


def test_every_known_variable_has_default_tests() -> None:
    assert set(DEFAULTS) <= set(KNOWN_VARIABLES)
    assert all(map(default_tests, KNOWN_VARIABLES.values()))
    assert QualityOverrides().tests(AIR) == DEFAULTS["air_temperature"] == _quality({}).tests(AIR)
    # Of what nobody knows, and of what has no unit, there is nothing to expect.
    assert not default_tests(Variable("carbon_dioxide", "ppm"))
    assert not default_tests(Variable("air_temperature", "unknown"))
    assert not default_tests(Variable("air_temperature", "ppm"))
    assert not _quality({"run": False}).tests(AIR)


def test_what_is_given_goes_over_the_default() -> None:
    given = _quality(
        {
            "clock_shift_h": {"7": -2},
            "zone_guard": False,
            "air_temperature": {
                "spike": {"suspect": 1.5},
                "rate_of_change": False,
                "climatology": {"normal": [{"months": [12, 1], "suspect": [-30, 10]}]},
                "attenuated_signal": {"hours": 12, "suspect": 0.1},
                "buddy_check": True,
            },
        }
    )
    tests = given.tests(AIR)
    assert given.clock_shift_h == (("7", -2.0),)
    assert not given.zone_guard
    assert tests.spike == Spike(suspect=1.5, fail=6.0, per_hour=4.0)
    assert tests.rate_of_change is None
    assert tests.climatology is not None
    assert tests.climatology.normal == (Normal(months=(1, 12), suspect=(-30.0, 10.0)),)
    assert tests.attenuated_signal is not None
    assert tests.buddy_check == DEFAULTS["air_temperature"].buddy_check
    assert given.tests(KNOWN_VARIABLES["wind_speed"]) == DEFAULTS["wind_speed"]


def test_defaults_are_converted_to_the_unit_of_an_archive() -> None:
    tests = default_tests(Variable("air_temperature", "degF"))
    assert tests.gross_range is not None
    assert tests.gross_range.fail == pytest.approx((-130.0, 140.0))
    assert tests.climatology is not None
    alpine = next(one for one in tests.climatology.normal if one.lat == (45.0, 55.0))
    assert alpine.suspect == pytest.approx((-76.0, 123.8))
    assert alpine.low_per_m == pytest.approx(-0.0054)
    assert tests.spike is not None
    assert (tests.spike.suspect, tests.spike.within_hours) == (pytest.approx(5.4), 3.0)
    assert tests.buddy_check is not None
    assert tests.buddy_check.per_m == pytest.approx(-0.0117)
    humid = default_tests(Variable("relative_humidity", "1e-3"))
    assert humid.flat_line is None or humid.flat_line.exempt[0].least == pytest.approx(980.0)
    # What other things are is not in this unit.
    assert Exempt("wind_speed", most=0.5).convert_units("degree", "rad") == Exempt("wind_speed", most=0.5)


def test_kinds_are_known_by_their_standard_name_in_any_unit() -> None:
    flux = default_tests(Variable("rr", "kg m-2 s-1", "precipitation_flux"))
    rate = default_tests(Variable("precipitation_rate", "mm/h"))
    assert flux.gross_range is not None
    assert rate.gross_range is not None
    assert flux.gross_range.fail == pytest.approx([bound / 3600 for bound in rate.gross_range.fail or ()])
    energy = default_tests(Variable("slr", "MJ m-2", "integral_wrt_time_of_surface_downwelling_shortwave_flux_in_air"))
    assert energy.gross_range is not None
    assert energy.gross_range.sun[0].factor == pytest.approx(1.2e-6)
    assert not default_tests(Variable("precipitation_rate", "degC"))
    # The name of a known variable says more than another standard name.
    named = default_tests(Variable("wind_speed", "m s-1", "wind_speed_of_gust"))
    assert named == DEFAULTS["wind_speed"]
    for name, kind in KINDS.items():
        for unit in kind.units:
            variable = Variable(name, unit)
            tests = default_tests(variable)
            assert tests, name
            assert from_json({name: QualityOverrides().to_json({name: variable})[name]}).tests(variable) == tests


def test_an_interval_of_zero_is_refused() -> None:
    feed = {"name": "f", "files": "*.csv", "format": "csv", "interval_s": 0}
    with pytest.raises(InvalidDeployment, match=r"feed\[0\].interval_s needs more than 0 s; got 0"):
        from_mapping({"network": {"name": "n"}, "feed": [feed]})
    columns = {"T": {"variable": "air_temperature", "interval_s": 0.0}}
    with pytest.raises(InvalidDeployment, match=r"columns.T.interval_s needs more than 0 s; got 0"):
        from_mapping({"network": {"name": "n"}, "feed": [{**feed, "interval_s": 60, "columns": columns}]})


def test_parameters_survive_json() -> None:
    given = _quality({"air_temperature": {"climatology": {"normal": [{"fail": [-50, 40], "height_m": [0, 3]}]}}})
    told = given.to_json(KNOWN_VARIABLES)
    again = from_json(json.loads(json.dumps(told)))
    assert {name: again.tests(one) for name, one in KNOWN_VARIABLES.items()} == {
        name: given.tests(one) for name, one in KNOWN_VARIABLES.items()
    }


def test_clock_errors_are_of_all_time_or_from_instants_on() -> None:
    changing = [{"from": "2007-10-01", "s": 600}, {"from": datetime(2007, 11, 1, tzinfo=UTC), "s": 0}]
    given = _quality({"clock_error_s": {"7": 90, "9": changing}})
    starts = map(parse_instant, ("2007-10-01", "2007-11-01"))
    assert given.clock_errors == {
        "7": (ClockError(None, 90.0),),
        "9": tuple(ClockError(start, bound_s) for start, bound_s in zip(starts, (600.0, 0.0), strict=True)),
    }
    # Tokens of deployments without any stay.
    assert token(_quality({})) == token(QualityOverrides()) != token(given)
    assert "clock_error_s" not in str(_quality({}).to_json(KNOWN_VARIABLES))


def test_a_clock_error_of_too_many_slices_is_refused() -> None:
    feed = {"name": "f", "files": "*.csv", "format": "csv"}
    content = {"network": {"name": "n", "slice_s": 1}, "feed": [feed], "quality": {"clock_error_s": {"7": 2046}}}
    assert from_mapping(content).quality.clock_errors
    with pytest.raises(InvalidDeployment, match=r"quality.clock_error_s.7 needs less than 2047 s with these slices"):
        from_mapping({**content, "quality": {"clock_error_s": {"7": [{"from": "2007-10-01", "s": 2047}]}}})


@pytest.mark.parametrize(
    ("content", "path"),
    [
        (
            {"air_temprature": {}},
            "quality.air_temprature is neither a key nor a variable.*did you mean 'air_temperature'",
        ),
        ({"run": "yes"}, "quality.run needs true or false"),
        ({"clock_shift_h": {"7": 99}}, "quality.clock_shift_h.7 needs a number between -26 and 26"),
        ({"bound_clocks": True, "zone_guard": False}, "quality.bound_clocks needs the zone guard"),
        ({"clock_error_s": {"7": -1}}, "quality.clock_error_s.7 needs a number between 0 and 93600; got -1"),
        ({"clock_error_s": {"7": float("nan")}}, "quality.clock_error_s.7 needs a finite number; got nan"),
        ({"clock_error_s": {"7": []}}, "quality.clock_error_s.7 needs tables with instants one after the other"),
        (
            {"clock_error_s": {"7": [{"from": "2007-10-02", "s": 1}, {"from": "2007-10-01", "s": 2}]}},
            "quality.clock_error_s.7 needs tables with instants one after the other; order them by `from`",
        ),
        ({"clock_error_s": {"7": [{"s": 1}]}}, r"clock_error_s.7\[0\].from cannot be used"),
        ({"clock_error_s": {"7": [{"from": "2007-10-02", "bound": 1}]}}, r"clock_error_s.7\[0\].s is missing"),
        ({"air_temperature": {"spikes": {}}}, "quality.air_temperature.spikes is an unknown key; did you mean 'spike'"),
        ({"air_temperature": {"spike": {"suspct": 1}}}, "quality.air_temperature.spike.suspct is an unknown key"),
        ({"air_temperature": {"spike": {"suspect": -1}}}, "quality.air_temperature.spike.suspect needs a number"),
        ({"air_temperature": {"spike": {"suspect": float("nan")}}}, "spike.suspect needs a finite number"),
        ({"air_temperature": {"spike": {"fail": 1}}}, "spike.fail needs at least what is suspect, 3; got 1"),
        ({"air_temperature": {"spike": {"method": "median"}}}, "spike.method is 'median'"),
        (
            {"air_temperature": {"flat_line": {"hours": 0}}},
            "air_temperature.flat_line.hours needs more than 0 hours; got 0",
        ),
        ({"air_temperature": {"spike": {"within_hours": 0}}}, "spike.within_hours needs more than 0 hours; got 0"),
        ({"air_temperature": {"gap": {"hours": 0}}}, "gap.hours needs more than 0 hours; got 0"),
        (
            {"rain_meter": {"gross_range": {"interval_exponent": 2}}},
            "interval_exponent needs a number between -1 and 1",
        ),
        ({"solar_radiation": {"gross_range": {"sun": [{"power": -1}]}}}, r"gross_range.sun\[0\].power needs a number"),
        (
            {"air_pressure": {"climatology": {"normal": [{"suspect": [90, 107], "scale_heights_m": [-1, 2]}]}}},
            "scale_heights_m needs heights above 0 m",
        ),
        ({"air_temperature": {"spike": 3}}, "quality.air_temperature.spike needs a table; got 3"),
        ({"watermark": {"flat_line": {}}}, "quality.watermark.flat_line.hours is missing"),
        ({"watermark": {"flat_line": True}}, "quality.watermark.flat_line.hours is missing"),
        ({"air_temperature": {"gross_range": {"fail": [1]}}}, "gross_range.fail needs two numbers"),
        ({"air_temperature": {"gross_range": {"fail": [5, 1]}}}, "gross_range.fail needs two numbers"),
        ({"air_temperature": {"gross_range": {"suspect": [-99, 1]}}}, "gross_range.suspect .* must lie inside fail"),
        (
            {"air_temperature": {"climatology": {"normal": [{"months": [13], "fail": [0, 1]}]}}},
            r"climatology.normal\[0\].months needs a list of months",
        ),
        ({"air_temperature": {"climatology": {"normal": [{}]}}}, r"climatology.normal\[0\] needs fail or suspect"),
        (
            {"watermark": {"attenuated_signal": {"hours": 1, "suspect": 1, "fail": 2}}},
            "attenuated_signal.fail needs at most what is suspect",
        ),
        (
            {"air_temperature": {"flat_line": {"exempt": [{"of": "moon", "most": 0}]}}},
            r"quality.air_temperature.flat_line.exempt\[0\].of is neither value, sun nor a known variable",
        ),
        ({"air_temperature": {"flat_line": {"exempt": [{"of": "sun"}]}}}, r"flat_line.exempt\[0\] needs least or most"),
    ],
)
def test_wrong_settings_are_refused_with_their_path(content: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidDeployment, match=path):
        _quality(content)


def test_a_variable_of_the_deployment_takes_tests_in_its_own_unit() -> None:
    own = [{"name": "carbon_dioxide", "unit": "ppm"}]
    given = _quality({"carbon_dioxide": {"gross_range": {"fail": [100, 5000]}}}, variable=own)
    tests = given.tests(Variable("carbon_dioxide", "ppm"))
    assert tests.gross_range is not None
    assert tests.gross_range.fail == (100.0, 5000.0)
    assert tests.spike is None


def test_the_example_of_the_readme_is_one() -> None:
    text = (Path(__file__).parents[3] / "ingest" / "quality" / "README.md").read_text()
    content = tomllib.loads(text.split("```toml\n")[1].split("```")[0])["quality"]
    given = _quality(content)
    tests = given.tests(AIR)
    # It has every test and every key but the one that is not run.
    assert {name for name in tests.KINDS if getattr(tests, name) is not None} == set(tests.KINDS) - {
        "rate_of_change",
        "faulty_zeros",
    }
    assert {each.name for each in fields(tests.KINDS["faulty_zeros"])} == set(content["rain_meter"]["faulty_zeros"])
    for name, keys in content["air_temperature"].items():
        if isinstance(keys, dict):
            assert {each.name for each in fields(tests.KINDS[name])} == set(keys), name
    soil = given.tests(KNOWN_VARIABLES["soil_moisture"])
    assert soil.flat_line is not None
    assert [one.of for one in soil.flat_line.exempt] == ["surface_temperature", "value", "sun"]
