"""A deployment of two stations in a valley, which a logger writes."""

from typing import Final

HEAD: Final = """
[network]
name = "valley"
slice_s = 600
[quality]
run = {run}
{shift}
[[station]]
id = "A"
lon = 7.1
lat = 46.1
elevation_m = 1200.0
[[station]]
id = "B"
lon = 7.2
lat = 46.2
elevation_m = 1500.0
[[feed]]
name = "logger"
files = "*.csv"
format = "csv"
"""
COLUMNS: Final = """
[feed.columns]
T = {variable = "air_temperature", unit = "degC"}
RH = "relative_humidity"
"""


def deployment_text(*, columns: str = COLUMNS, run: str = "false", shift: str = "", feed: str = "") -> str:
    """Return the text of a deployment file: `feed`, further lines of the feed; `shift`, of the quality tests."""
    return HEAD.format(run=run, shift=shift) + feed + columns
