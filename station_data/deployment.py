"""The deployment file for generated station files."""

from collections.abc import Iterable

from station_data.files import Format
from station_data.network import Station
from station_data.truth import VARIABLES

_HEADER = """\
# Written by station_data.generate. Feeds match files by name; where there are two, they hold the same readings in two
# formats: ingest one of the folders with --deployment, not both, or every reading comes twice, under two sources.
[network]
name = "pass"
title = "An invented alpine pass"
slice_s = 120            # length of a slice of the base [s]
"""
_FEED = """
[[feed]]
name = "{format}"
files = "{files}"
format = "{format}"
interval_s = 120.0       # nominal sampling interval [s]
statistic = "sample"
stamp = "instant"
timezone = "UTC"
nodata = ["{nodata}"]
arrivals = "arrivals.csv"

[feed.columns]
"""
_FILES: dict[Format, str] = {"sensorscope": "*.txt", "csv": "pass-*.csv"}
_NODATA: dict[Format, str] = {"sensorscope": "NaN", "csv": ""}
HEIGHT_M = {
    "air_temperature": 2.0,
    "surface_temperature": 0.0,
    "solar_radiation": 2.0,
    "relative_humidity": 2.0,
    "soil_moisture": -0.2,
    "watermark": -0.2,
    "rain_meter": 1.5,
    "wind_speed": 3.0,
    "wind_direction": 3.0,
}
"""Height of each sensor above the ground [m]."""


def deployment_text(network: Iterable[Station], formats: Iterable[Format]) -> str:
    """Write the text of ``deployment.toml``: the network, one feed per format, and the stations."""
    parts = [_HEADER]
    for form in formats:
        parts.append(_FEED.format(format=form, files=_FILES[form], nodata=_NODATA[form]))
        parts += [
            f'{variable} = {{variable = "{variable}", unit = "{unit}", height_m = {HEIGHT_M[variable]}}}\n'
            for variable, unit in VARIABLES.items()
        ]
    parts += [
        f'\n[[station]]\nid = "{station.id}"\nname = "{station.name}"\n'
        f"lon = {station.lon:.6f}\nlat = {station.lat:.6f}\nelevation_m = {station.elevation_m:.1f}\n"
        for station in network
    ]
    return "".join(parts)
