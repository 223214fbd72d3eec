"""What is asked of small archives of years, and the program that reprocesses them in small parts."""

NOW_NS = 1_800_000_000 * 10**9
DAILY = {
    "variable": "air_temperature",
    "steps": [
        {"op": "aggregate", "function": "mean", "time": "1day"},
        {
            "op": "interpolate",
            "method": "ordinary_kriging",
            "grid": {"lon": 7.2, "lat": 46.2, "step": "360arcsec", "shape": [4, 5]},
            "params": {"variogram": {"model": "exponential", "psill": 20.0, "range_m": 30000.0, "nugget": 0.5}},
        },
    ],
}
DEPLOYMENT = """
[network]
name = "years"
slice_s = 600
[[feed]]
name = "csv"
files = "*.csv"
format = "csv"
"""
PROGRAM = """
import sys
from ingest.reprocess import job as reprocessing
reprocessing.READINGS_OF_A_PART = 20_000
from hypergrid.formats import partitioned as in_parts
in_parts.READINGS_OF_A_PIECE = 20_000
from hypergrid.cli.main import main
main()
"""
