"""Deployment files: what they give, and how each mistake is told."""

import math
import re
import tomllib
from pathlib import Path

import pytest

import ingest
from hypergrid.core.errors import InvalidDeployment, NotFound
from hypergrid.core.readings import Position
from hypergrid.core.times import parse_instant
from hypergrid.core.units import Variable
from ingest.deployment.deployment_file import Column, default_deployment, from_mapping, load, variable_name


def read(text: str) -> object:
    return from_mapping(tomllib.loads(text))


def test_a_column_overrides_its_feed() -> None:
    deployment = from_mapping(
        tomllib.loads("""
[network]
name = "pass"
slice_s = 60
[[variable]]
name = "snow_depth"
unit = "cm"
[[feed]]
name = "logger"
files = "*.csv"
format = "csv"
interval_s = 600
statistic = "mean"
stamp = "end"
timezone = "Europe/Zurich"
[feed.columns]
T = {variable = "air_temperature", unit = "degF", height_m = 2.0, replicate = 2}
snow = {variable = "snow_depth", unit = "m", statistic = "sample", interval_s = 60, stamp = "instant"}
RH = "relative_humidity"
[[station]]
id = 7
lon = 7.1
lat = 45.9
[[station.moved]]
from = 2007-10-05T00:00:00Z
lon = 7.2
lat = 45.8
elevation_m = 2500.0
""")
    )
    (feed,) = deployment.feeds
    assert feed.columns == (
        Column("T", "air_temperature", "degF", 2.0, 2, "mean", 600.0, "end"),
        Column("snow", "snow_depth", "m", None, 1, "sample", 60.0, "instant"),
        Column("RH", "relative_humidity", "unknown", None, 1, "mean", 600.0, "end"),
    )
    assert deployment.variable("snow_depth").unit == "cm"
    assert deployment.variable("air_temperature").unit == "degC"
    (station,) = deployment.stations
    assert (station.id, station.name) == ("7", "7")
    assert math.isnan(station.positions[0].elevation_m)
    assert station.positions[1] == Position(parse_instant("2007-10-05"), 7.2, 45.8, 2500.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "pass"', 'nam = "pass"', "network.name is missing"),
        ("slice_s = 120", "slice = 120", "network.slice is an unknown key; did you mean 'slice_s'"),
        ("slice_s = 120", "slice_s = 0", "network.slice_s needs a number between"),
        ("slice_s = 120", 'slice_s = "2min"', "network.slice_s needs a number"),
        (
            'format = "sensorscope"',
            'format = "sensorscop"',
            r"feed\[0\].format is 'sensorscop'; did you mean 'sensorscope'",
        ),
        ("interval_s = 120.0", "interval = 120.0", r"feed\[0\].interval is an unknown key; did you mean 'interval_s'"),
        ("interval_s = 120.0", "interval_s = 0", r"interval_s needs more than 0 s; got 0: omit the key"),
        ("interval_s = 120.0", 'statistic = "avg"', "it is one of: sample, mean, total, max, min"),
        ("interval_s = 120.0", 'timezone = "Europe/Bern"', r"feed\[0\].timezone cannot be used: unknown time zone"),
        (
            'wind_speed = {variable = "wind_speed"',
            'wind_sped = {variable = "wind_speed"',
            "unknown column 'wind_sped'; did you mean 'wind_speed'\\? There are: air_temperature",
        ),
        (
            '{variable = "wind_speed"',
            '{variable = "wind_sped"',
            r"feed\[0\].columns.wind_speed.variable .* unknown variable 'wind_sped'; did you mean 'wind_speed'",
        ),
        ('unit = "m s-1"', 'unit = "sparrows"', r"columns.wind_speed.unit cannot be used: unknown unit"),
        ('unit = "m s-1"', 'unit = "kPa"', r"columns.wind_speed.unit cannot be used: .* does not convert"),
        (
            'unit = "m s-1"',
            'unit = "m s-1", height = 2',
            "wind_speed.height is an unknown key; did you mean 'height_m'",
        ),
        (
            "[[feed]]",
            '[[variable]]\nname = "wind_speed"\n[[feed]]',
            r"columns.wind_speed.unit is 'm s-1', but \[\[variable\]\] 'wind_speed' is kept without one",
        ),
        ('id = "2"', 'id = "1"', r"station\[1\] repeats '1'"),
        ("lat = 45.2", "lat = 95.2", r"station\[1\].lat needs a number between -90 and 90"),
        ("[network]", "[networks]", "networks is an unknown key; did you mean 'network'"),
    ],
)
def test_a_mistake_is_told_with_its_key(deployment_text: str, old: str, new: str, message: str) -> None:
    assert old in deployment_text
    with pytest.raises(InvalidDeployment, match=message):
        read(deployment_text.replace(old, new, 1))


def test_files_that_are_none(tmp_path: Path, deployment_text: str) -> None:
    path = tmp_path / "deployment.toml"
    with pytest.raises(NotFound, match="no deployment file"):
        load(path)
    path.write_text("[network")
    with pytest.raises(InvalidDeployment, match="no TOML"):
        load(path)
    path.write_text(deployment_text.replace("interval_s = 120.0", 'arrivals = "arrivals.csv"'))
    with pytest.raises(InvalidDeployment, match="arrivals.csv"):
        load(path)


def test_the_token_depends_on_the_content_alone(deployment_text: str) -> None:
    one, same = (from_mapping(tomllib.loads(deployment_text)) for _ in range(2))
    other = from_mapping(tomllib.loads(deployment_text.replace("interval_s = 120.0", "interval_s = 121.0")))
    assert one.token() == same.token() != other.token()


def test_the_readme_s_example_is_one() -> None:
    text = (Path(ingest.__file__).parent / "README.md").read_text()
    shown = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert shown
    deployment = from_mapping(tomllib.loads(f'[network]\nname = "n"\n{shown[1]}'))
    dioxide, temperature = deployment.feeds[0].columns
    assert (dioxide.unit, deployment.variable(dioxide.variable).unit) == ("%", "ppm")
    assert (temperature.unit, deployment.variable(temperature.variable).unit) == ("unknown", "degC")


@pytest.mark.parametrize(("column", "name"), [("wind_speed", "wind_speed"), ("Temp (air)", "temp_air"), ("2m", "v_2m")])
def test_names_of_columns_become_names_of_variables(column: str, name: str) -> None:
    assert variable_name(column) == name


def test_a_column_with_the_name_of_a_known_variable_may_hold_any_unit(deployment_text: str) -> None:
    deployment = default_deployment()
    assert deployment.feeds[0].column("air_temperature").unit == "unknown"
    assert deployment.variable("air_temperature") == Variable("air_temperature", "unknown", None, "Air temperature")
    # One that a deployment maps to it is in its unit, and so is what an archive has of it already.
    assert from_mapping(tomllib.loads(deployment_text)).variable("wind_speed").unit == "m s-1"
    kept = default_deployment(variables=(Variable("air_temperature", "degC"),))
    assert kept.variable("air_temperature").unit == "degC"
    assert deployment.variable("chlorophyll").unit == "unknown"
